//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// host is the name that certificates are for. No authority here looks at it.
const host = "host.example.test"

// certbot has a log besides, to which it points whoever runs it.
func certbot(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir(), env: []string{"REQUESTS_CA_BUNDLE=" + a.trust}}
	said, err := c.run(t.Context(), "certbot", "certonly", "--webroot", "-w", c.home, "-d", host,
		"--server", a.DirectoryURL, "--config-dir", c.home, "--work-dir", c.home, "--logs-dir", c.home,
		"--non-interactive", "--agree-tos", "--register-unsafely-without-email")
	return outcome{read(c.home, "live", host, "fullchain.pem"), said, read(c.home, "letsencrypt.log"), err}
}

func lego4(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir(), env: []string{"LEGO_CA_CERTIFICATES=" + a.trust}}
	said, err := c.run(t.Context(), "lego", "--server", a.DirectoryURL, "--accept-tos", "--email", "ca@example.test",
		"--path", c.home, "--http", "--http.webroot", c.home, "--domains", host, "run")
	return outcome{chain: read(c.home, "certificates", host+".crt"), said: said, err: err}
}

// uacme has no option for whom to trust, so the file that its library reads is
// another one for it: a bind mount that only its process sees.
func uacme(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir(), env: []string{"TRUST=" + a.trust}}
	hook := c.write(t, "hook", "#!/bin/sh\n[ \"$2\" = http-01 ]\n", 0o700)
	program := []string{"unshare", "--mount", "sh", "-c",
		`mount --bind "$TRUST" /etc/ssl/certs/ca-certificates.crt && exec uacme "$@"`,
		"uacme", "--verbose", "--confdir", c.home, "--acme-url", a.DirectoryURL, "--type", "EC", "--hook", hook, "--yes"}
	said, err := c.all(t.Context(), with(program, "new"), with(program, "issue", host))
	return outcome{chain: read(c.home, host, "cert.pem"), said: said, err: err}
}

func dehydrated(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir()}
	config := c.write(t, "config", strings.Join([]string{
		"CA=" + a.DirectoryURL, "BASEDIR=" + c.home, "WELLKNOWN=" + c.home,
		"CURL_OPTS='--cacert " + a.trust + "'", "KEY_ALGO=prime256v1", "KEYSIZE=2048", "IP_VERSION=4", "",
	}, "\n"), 0o600)
	said, err := c.all(t.Context(),
		[]string{"dehydrated", "--config", config, "--register", "--accept-terms"},
		[]string{"dehydrated", "--config", config, "--cron", "--domain", host})
	return outcome{chain: read(c.home, "certs", host, "fullchain.pem"), said: said, err: err}
}

// acmeTiny prints the certificate and leaves keys to openssl.
func acmeTiny(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir(), env: []string{"SSL_CERT_FILE=" + a.trust}}
	said, err := c.all(t.Context(),
		[]string{"openssl", "genrsa", "-out", "account.key", "2048"},
		[]string{"openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "host.key", "-out", "host.csr",
			"-subj", "/CN=" + host, "-addext", "subjectAltName=DNS:" + host})
	require.NoError(t, err, said)
	said, err = c.run(t.Context(), "acme-tiny", "--account-key", "account.key", "--csr", "host.csr",
		"--acme-dir", c.home, "--disable-check", "--directory-url", a.DirectoryURL)
	return outcome{chain: certificatesIn(said), said: said, err: err}
}

// node runs the npm package acme-client; make test-e2e says where it is.
func node(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir(), env: []string{"NODE_PATH=" + nodeModules(), "NODE_EXTRA_CA_CERTS=" + a.trust}}
	script, err := filepath.Abs(filepath.Join("testdata", "acme-client.js"))
	require.NoError(t, err)
	said, err := c.run(t.Context(), "node", script, a.DirectoryURL, host)
	return outcome{chain: certificatesIn(said), said: said, err: err}
}

func nodeModules() string { return os.Getenv("E2E_NODE_MODULES") }

// acmeSh runs acme.sh; make test-e2e says where it is, if it could be had.
func acmeSh(t *testing.T, a *acmeCA) outcome {
	c := command{home: t.TempDir()}
	program := []string{os.Getenv("E2E_ACME_SH"), "--home", c.home, "--server", a.DirectoryURL, "--ca-bundle", a.trust}
	said, err := c.all(t.Context(),
		with(program, "--register-account", "--email", "ca@example.test"),
		with(program, "--issue", "--domain", host, "--webroot", c.home, "--keylength", "ec-256"))
	return outcome{chain: read(c.home, host+"_ecc", "fullchain.cer"), said: said, err: err}
}

func acmeShVersion(t *testing.T) string {
	t.Helper()
	said, err := command{home: t.TempDir()}.run(t.Context(), os.Getenv("E2E_ACME_SH"), "--version")
	require.NoError(t, err, said)
	return lineWith(said, "v")
}

// with appends to a copy.
func with(words []string, more ...string) []string {
	return append(append([]string(nil), words...), more...)
}

// read returns the content of a file, or "" where a client has left none.
func read(path ...string) string {
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		return ""
	}
	return string(content)
}

// certificatesIn cuts PEM certificates out of what a program has printed.
func certificatesIn(said string) string {
	begin := strings.Index(said, "-----BEGIN CERTIFICATE-----")
	if begin < 0 {
		return ""
	}
	return said[begin:]
}

func installedNode(t *testing.T) string {
	t.Helper()
	var manifest struct{ Version string }
	content := read(nodeModules(), "acme-client", "package.json")
	require.NoError(t, json.Unmarshal([]byte(content), &manifest), "acme-client is not installed; make test-e2e does it")
	return manifest.Version
}
