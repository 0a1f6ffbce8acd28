//go:build !race

package weir

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Without the race detector the flood is a flood.
func init() { floodClients = 2_000_000 }

// What a request may allocate on its way through the chain. The admit path
// copies the request to carry the context, and makes the context: two
// allocations, the least there is.
func TestAllocsOfARequest(t *testing.T) {
	const roomy, spent = 1e9, 1e-9
	tiers := func(global, perIP, perAccount float64) Config {
		cfg := noTiers()
		cfg.Endpoints = []Endpoint{
			{Pattern: "POST /acme/new-order", Class: "order"},
			{Pattern: "/acme/order/{id...}", Class: "poll"},
		}
		cfg.DefaultClass = ""
		for t, rate := range map[*TierConfig]float64{&cfg.Tiers.Global: global, &cfg.Tiers.PerIP: perIP, &cfg.Tiers.PerAccount: perAccount} {
			if rate > 0 {
				*t = TierConfig{Rate: rate, Burst: max(rate, 1)}
			}
		}
		return cfg
	}
	exempt := tiers(roomy, roomy, roomy)
	exempt.Exempt.Networks = []string{"192.0.2.0/24"}
	proxied := tiers(roomy, roomy, roomy)
	proxied.ClientIP.TrustedProxies = []string{"192.0.2.0/24"}
	overrides := tiers(roomy, roomy, roomy)
	overrides.Tiers.PerIP.Overrides = map[string]Limit{"192.0.0.0/8": {roomy, roomy}, "192.0.2.0/24": {roomy, roomy}, "2001:db8::/32": {roomy, roomy}}
	overrides.Tiers.PerAccount.Overrides = map[string]Limit{"somebody": {roomy, roomy}}
	shadow := tiers(spent, spent, spent)
	shadow.Shadow = []string{TierGlobal, TierPerIP, TierPerAccount}
	guarded := tiers(roomy, roomy, roomy)
	guarded.Endpoints[0].Guard, guarded.Endpoints[0].Backend = "hsm", "left"
	guarded.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 8, BackendShare: 50, Lanes: map[string]LaneConfig{"orders": {Classes: []Class{"order"}, Reserve: 2}}}}
	disabled := Config{}

	for _, tc := range []struct {
		name   string
		cfg    Config
		target string
		status int
		most   float64
	}{
		{"admitted by the global tier", tiers(roomy, 0, 0), "/acme/new-order", 200, 2},
		{"admitted by the address tier", tiers(0, roomy, 0), "/acme/new-order", 200, 2},
		{"admitted by the account tier", tiers(0, 0, roomy), "/acme/new-order", 200, 2},
		{"admitted by three tiers", tiers(roomy, roomy, roomy), "/acme/new-order", 200, 2},
		{"admitted behind a trusted proxy", proxied, "/acme/new-order", 200, 2},
		{"admitted with overrides", overrides, "/acme/new-order", 200, 2},
		{"admitted by tiers in shadow", shadow, "/acme/new-order", 200, 2},
		{"admitted with a slot of a lane, for a backend", guarded, "/acme/new-order", 200, 2},
		{"exempt", exempt, "/acme/new-order", 200, 2},
		// The rest is ServeMux: it looks for methods that would do, …
		{"of no class", tiers(roomy, roomy, roomy), "/elsewhere", 200, 13},
		// … and collects what a wildcard matched.
		{"admitted by a pattern with a wildcard", tiers(roomy, roomy, roomy), "/acme/order/1", 200, 11},
		// The values of the header fields and their digits; the document is pooled.
		{"refused by the global tier", tiers(spent, roomy, roomy), "/acme/new-order", 429, 2},
		{"refused by the address tier", tiers(roomy, spent, roomy), "/acme/new-order", 429, 2},
		{"refused by the account tier", tiers(roomy, roomy, spent), "/acme/new-order", 429, 2},
		{"disabled", disabled, "/acme/new-order", 200, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimiter(t, tc.cfg, WithRegisterer(prometheus.NewRegistry()), WithAccount(byHeader("Account")))
			h := l.Handler(bareHandler)
			r := withHeader(request("POST", tc.target, addr1, ""), "Account", "a1")
			r.Header.Set("X-Forwarded-For", "203.0.113.7, 192.0.2.9")
			w := &nullWriter{h: http.Header{}}
			h.ServeHTTP(w, r) // spends a bucket of one, and fills the pools
			got := testing.AllocsPerRun(500, func() {
				w.status = 200
				h.ServeHTTP(w, r)
			})
			if w.status != tc.status || got > tc.most {
				t.Errorf("answered %d with %v allocations, want %d with at most %v", w.status, got, tc.status, tc.most)
			}
		})
	}
}

func TestAllocsOfReadingWhatIsKnown(t *testing.T) {
	cfg := noTiersBut(TierPerIP)
	h := newLimiter(t, cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if got := testing.AllocsPerRun(100, func() { FromContext(ctx) }); got > 0 {
			t.Errorf("FromContext allocates %v times", got)
		}
		if got := testing.AllocsPerRun(100, func() { Disown(ctx) }); got > 0 {
			t.Errorf("Disown of nothing allocates %v times", got)
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), from(addr1))
}

func TestAllocsOfNarrowingByAQuery(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints()
	e := &newLimiter(t, cfg).policy.Load().endpoints
	r := httptest.NewRequest("GET", "/scep/pkiclient.exe?operation=GetCACaps&message=ca", nil)
	if c := e.of(r); c == nil || c.name != ClassSCEPCA {
		t.Fatal("the request is not of the class it should be")
	}
	if got := testing.AllocsPerRun(200, func() { e.of(r) }); got > 0 {
		t.Errorf("finding the class allocates %v times", got)
	}
}

// A body of 10 MB, or of 64 KiB and a byte, costs a buffer and no copy of it.
func TestMemoryOfLongBodies(t *testing.T) {
	h := newLimiter(t, acmeConfig(1e6)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	for _, announced := range []int64{-1, 10 << 20} {
		r := acmePost("/acme/new-order", addr1, "x")
		w := &nullWriter{h: http.Header{}}
		var before, after runtime.MemStats
		const runs = 10
		runtime.ReadMemStats(&before)
		for range runs {
			r.ContentLength = announced
			r.Body = io.NopCloser(io.LimitReader(zeros{}, 10<<20))
			h.ServeHTTP(w, r)
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / runs; per > 4*maxBody {
			t.Errorf("a body of 10 MB, announced as %d, costs %d bytes", announced, per)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
