# weir: two commands do all set-up on a machine that has Go.
#   make demo   a wrapped server, hit by real clients
#   make test   every test of every module, under the race detector

GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES      = . examples
FUZZTIME    ?= 20s
BENCHTIME   ?= 1s

.PHONY: demo pki login replicas hsm redis test test-quick test-e2e lint bench bench-correct fuzz soak

demo:
	cd examples && $(GO) run ./quickstart

# A whole PKI behind the limiter, its key in an HSM.
pki: hsm
	cd examples && $(GO) run ./pki

# The auth lock: a login page and an EST endpoint, and a crowd that guesses.
login:
	cd examples && $(GO) run ./login

# Three servers that share one budget in Redis, which hangs and dies meanwhile.
replicas:
	cd examples && $(GO) run ./replicas

# cgo is what the race detector needs. Asked when it is used, after hsm has
# seen to a C compiler.
RACE = $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && echo -race)
test: redis hsm
	@for m in $(MODULES); do (cd $$m && echo "== $$m" && $(GO) test $(RACE) -shuffle=on -timeout 9m ./...) || exit 1; done
	@echo "== allocation budgets and floods of millions (not under the race detector)" && $(GO) test -run 'Alloc|Flood|Spray|Million' ./...

# The Redis store is tested against real servers.
redis:
	@command -v "$${REDIS_SERVER:-redis-server}" >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq redis-server || { apt-get update -qq && apt-get install -y -qq redis-server; }; } >/dev/null; } || \
		{ echo "the tests need redis-server: apt-get install redis-server"; exit 1; }

# The PKI example signs in SoftHSM2, which it reaches through cgo.
hsm:
	@{ command -v softhsm2-util && command -v "$$($(GO) env CC)"; } >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		{ apt-get install -y -qq softhsm2 gcc libc6-dev || { apt-get update -qq && apt-get install -y -qq softhsm2 gcc libc6-dev; }; } >/dev/null; } || \
		{ echo "the PKI example needs SoftHSM2 and a C compiler: apt-get install softhsm2 gcc libc6-dev"; exit 1; }

# Real clients against a PKI that refuses them; see docs/pki.md.
test-e2e:
	@GO="$(GO)" examples/e2e/run.sh

test-quick:
	$(GO) test ./...

lint: hsm
	@for m in $(MODULES); do (cd $$m && echo "== lint $$m" && \
		{ fmt=$$(gofmt -l .); test -z "$$fmt" || { echo "gofmt would change:"; echo "$$fmt"; exit 1; }; } && \
		$(GO) mod tidy -diff && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && "$(CURDIR)/.ci/vuln") || exit 1; done

bench:
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -cpu 1,2 ./...

# The same questions to weir and its peers; the answers go into bench/CORRECTNESS.md.
bench-correct: redis
	cd bench && $(GO) run ./correct

# Each fuzz target for FUZZTIME; findings land in testdata and become tests.
fuzz:
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		echo "== $$p $$f" && $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p || exit 1; done; done

# Everything many times over, looking for what happens rarely.
soak:
	$(GO) test $(RACE) -shuffle=on -count 20 -timeout 60m ./...
