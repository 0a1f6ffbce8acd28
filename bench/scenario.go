package bench

import (
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
)

// Scenario is one kind of request, for which what it costs is counted.
type Scenario struct {
	Name    string
	Config  weir.Config
	Request *http.Request
	Status  int
}

// Handler is the chain in front of an empty handler, with metrics.
func (s Scenario) Handler(opts ...weir.Option) http.Handler {
	return NewWeir(s.Config, append(opts, weir.WithRegisterer(prometheus.NewRegistry()))...).Handler(Empty)
}

// Before spends what has to be spent for the request to be answered with Status.
func (s Scenario) Before(h http.Handler) {
	if s.Status != http.StatusOK {
		h.ServeHTTP(&NullWriter{H: http.Header{}}, s.Request)
	}
}

// Scenarios are those that have a budget.
func Scenarios() []Scenario {
	plain := httptest.NewRequest("POST", Path, nil)
	plain.Body = http.NoBody
	plain.RemoteAddr = "203.0.113.7:40000"
	signed := plain.Clone(plain.Context())
	signed.SetBasicAuth("device-7", "x")
	proxied := plain.Clone(plain.Context())
	proxied.RemoteAddr = "10.0.0.1:40000"
	proxied.Header.Set("X-Forwarded-For", "203.0.113.7, 10.0.0.2")

	roomy, spent := Setup{Quota: Roomy, Bound: 1000}, Setup{Quota: Spent, Bound: 1000}
	one := func(s Setup) weir.Config {
		cfg := Bare(s)
		cfg.Tiers.PerIP = TierOf(s.Quota)
		return cfg
	}
	always := one(roomy)
	always.Headers.RateLimit = "always"
	tiers := Bare(roomy)
	tiers.Endpoints[0].Kind = weir.KindEST
	tiers.Tiers.Global, tiers.Tiers.PerIP, tiers.Tiers.PerAccount = TierOf(Roomy), TierOf(Roomy), TierOf(Roomy)
	unlocked := Full(roomy)
	unlocked.AuthLock.Enabled = false
	unguarded := Full(roomy)
	unguarded.Endpoints[0].Guard, unguarded.Guards = "", nil
	return []Scenario{
		{"one tier", one(roomy), plain, 200},
		{"one tier, behind a proxy", one(Setup{Quota: Roomy, Bound: 1000, Proxy: true}), proxied, 200},
		{"one tier, header fields always", always, plain, 200},
		{"one tier, refused", one(spent), plain, 429},
		{"three tiers", tiers, signed, 200},
		{"three tiers, windows, guard", unlocked, signed, 200},
		{"three tiers, windows, auth lock", unguarded, signed, 200},
		{"everything", Full(roomy), signed, 200},
		{"everything, refused", Full(spent), signed, 429},
	}
}
