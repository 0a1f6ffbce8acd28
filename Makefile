# weir: two commands do all set-up on a machine that has Go.
#   make demo   a wrapped server, hit by real clients
#   make test   every test of every module, under the race detector

GO          ?= go
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES      = . examples bench
FUZZTIME    ?= 20s

# Of make bench: the groups to run (bench/cmd/compare names them; all if empty),
# runs of each benchmark, the time of a run, and numbers of processors. Six runs
# are the least from which benchstat tells a 95 % interval.
GROUP       ?=
COUNT       ?= 6
CPU         ?= 1,2
BENCHTIME   ?= 50ms
# On a machine that is busy with other things UNIT=cpu-ns/op compares processor
# time, and BENCHTIME=20000x makes the length of a run independent of the rest.
UNIT        ?= ns/op

.PHONY: demo pki login replicas hsm redis test test-quick test-e2e lint bench bench-core bench-correct results plots fuzz soak

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
# seen to a C compiler. In bench, whose tests count what a request allocates, the
# race detector would change the counts.
RACE = $(shell command -v $$($(GO) env CC) >/dev/null 2>&1 && echo -race)
test: redis hsm
	@for m in $(MODULES); do (cd $$m && echo "== $$m" && race="$(RACE)" && { test $$m != bench || race=; } && \
		$(GO) test $$race -shuffle=on -timeout 9m ./...) || exit 1; done
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

# The benchmarks link every peer, whose own dependencies are not ours to mend and
# reach no user: they are not looked through for vulnerabilities.
lint: hsm
	@for m in $(MODULES); do (cd $$m && echo "== lint $$m" && \
		{ fmt=$$(gofmt -l .); test -z "$$fmt" || { echo "gofmt would change:"; echo "$$fmt"; exit 1; }; } && \
		$(GO) mod tidy -diff && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./... && \
		{ test $$m = bench || "$(CURDIR)/.ci/vuln"; }) || exit 1; done

# Beside the peers: tables with ratios, some ten minutes for all groups. With
# results they also go into bench/RESULTS.md; plots draws the cost as work grows.
compare = cd bench && $(GO) run ./cmd/compare -group "$(GROUP)" -count $(COUNT) -benchtime $(BENCHTIME) -cpu $(CPU) -unit $(UNIT)
bench: redis
	$(compare)

results: redis
	$(compare) -write RESULTS.md

plots:
	cd bench && $(GO) run ./cmd/plots -out plots

# Our own benchmarks, without peers.
bench-core:
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -cpu $(CPU) ./...

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
