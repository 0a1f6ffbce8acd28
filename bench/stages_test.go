package bench

import (
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
)

// What each part of the chain adds, on one processor and in processor time, so
// that a busy machine disturbs it little. What the collector does on other
// threads is not in it. The request is that of an EST client, with HTTP Basic.
func BenchmarkStages(b *testing.B) {
	req := requests(1, false)[0]
	s := Setup{Quota: Roomy, Bound: 1000}
	full := func(change func(*weir.Config)) weir.Config {
		cfg := Full(s)
		change(&cfg)
		return cfg
	}
	off := weir.TierConfig{}
	unguarded := func(c *weir.Config) { c.Endpoints[0].Guard, c.Guards = "", nil }
	unlocked := func(c *weir.Config) { c.AuthLock.Enabled = false }
	alone := func(c *weir.Config) { unguarded(c); unlocked(c); c.Windows.Enabled = false }
	disabled := Bare(s)
	disabled.Enabled = false
	spent := Bare(Setup{Quota: Spent, Bound: 1000})
	spent.Tiers.PerIP = TierOf(Spent)
	quiet := spent
	quiet.Headers.RateLimit = "off"
	b.Run("request", func(b *testing.B) {
		for _, c := range []struct {
			name string
			cfg  weir.Config
			opts []weir.Option
		}{
			{"floor_empty", disabled, nil},
			{"weir_address_tier", full(func(c *weir.Config) { alone(c); c.Tiers.Global, c.Tiers.PerAccount = off, off }), nil},
			{"weir_two_tiers", full(func(c *weir.Config) { alone(c); c.Tiers.PerAccount = off }), nil},
			{"weir_three_tiers", full(alone), nil},
			{"weir_tiers_metrics", full(alone), []weir.Option{weir.WithRegisterer(prometheus.NewRegistry())}},
			{"weir_tiers_guard", full(func(c *weir.Config) { unlocked(c); c.Windows.Enabled = false }), nil},
			{"weir_tiers_windows", full(func(c *weir.Config) { unguarded(c); unlocked(c) }), nil},
			{"weir_tiers_windows_exclude_none", full(func(c *weir.Config) { unguarded(c); unlocked(c); c.Windows.Exclude = []string{} }), nil},
			{"weir_tiers_auth_lock", full(func(c *weir.Config) { unguarded(c); c.Windows.Enabled = false }), nil},
			{"weir_everything", Full(s), []weir.Option{weir.WithRegisterer(prometheus.NewRegistry())}},
			{"weir_refused", spent, nil},
			{"weir_refused_no_fields", quiet, nil},
		} {
			b.Run(c.name, func(b *testing.B) {
				h := NewWeir(c.cfg, c.opts...).Handler(Empty)
				cpuTime(b, h, req, pick(strings.HasPrefix(c.name, "weir_refused"), 429, 200))
			})
		}
		for _, m := range Middlewares()[2:] {
			b.Run(m.Name, func(b *testing.B) { cpuTime(b, m.Wrap(s, Empty), req, 200) })
			b.Run(m.Name+"_refused", func(b *testing.B) { cpuTime(b, m.Wrap(Setup{Quota: Spent, Bound: 1000}, Empty), req, 429) })
		}
	})
}

func cpuTime(b *testing.B, h http.Handler, req *http.Request, status int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w := &NullWriter{H: http.Header{}}
	b.ReportAllocs()
	begun := ThreadTime()
	for b.Loop() {
		w.Reset(status)
		h.ServeHTTP(w, req)
	}
	b.ReportMetric(float64(ThreadTime()-begun)/float64(b.N), "cpu-ns/op")
}
