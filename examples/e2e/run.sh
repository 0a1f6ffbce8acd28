#!/usr/bin/env bash
# Installs the clients (Debian, as root), runs them against the PKI and prints
# what each did. For a machine that may be changed: nginx and certbot bring a
# service and a timer. More arguments go to go test, such as -run Certbot -v.
set -euo pipefail
cd "$(dirname "$0")"
go=${GO:-go}
kept=${XDG_CACHE_HOME:-$HOME/.cache}/weir-e2e
acme_client=5.4.0
acme_sh=3.1.0
mkdir -p "$kept"

need=()
for p in certbot lego uacme dehydrated acme-tiny openssl curl scep nginx-core apache2-bin \
	strongswan-pki libstrongswan-extra-plugins libstrongswan-standard-plugins; do
	dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q ' installed$' || need+=("$p")
done
command -v node >/dev/null || need+=(nodejs)
command -v npm >/dev/null || need+=(npm)
if [ ${#need[@]} -gt 0 ]; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "the clients need: apt-get install --no-install-recommends ${need[*]}" >&2
		exit 1
	fi
	echo "installing ${need[*]}"
	install=(apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${need[@]}")
	export DEBIAN_FRONTEND=noninteractive
	"${install[@]}" >/dev/null || { apt-get update -qq && "${install[@]}" >/dev/null; }
fi

node=$kept/acme-client-$acme_client
[ -d "$node/node_modules/acme-client" ] ||
	npm install --silent --no-package-lock --no-audit --no-fund --prefix "$node" "acme-client@$acme_client"

# acme.sh is in no registry. E2E_ACME_SH may name the script.
: "${E2E_ACME_SH:=$kept/acme.sh-$acme_sh/acme.sh}"
if [ ! -x "$E2E_ACME_SH" ]; then
	rm -rf "$kept/acme.sh.new"
	if timeout 60 git clone --quiet --depth 1 --branch "$acme_sh" \
		https://github.com/acmesh-official/acme.sh "$kept/acme.sh.new" 2>/dev/null; then
		mv "$kept/acme.sh.new" "$kept/acme.sh-$acme_sh"
	else
		echo "acme.sh: not run, for it cannot be fetched from its repository"
		E2E_ACME_SH=
	fi
fi

table=$(mktemp)
trap 'rm -f "$table"' EXIT
status=0
E2E_NODE_MODULES=$node/node_modules E2E_ACME_SH=$E2E_ACME_SH E2E_TABLE=$table \
	"$go" test -tags e2e -count 1 -timeout 9m "$@" . || status=$?
cat "$table"
exit $status
