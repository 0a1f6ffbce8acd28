package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
)

// requests are one from each of n addresses, behind a proxy or not, with the
// HTTP Basic user of EST.
func requests(n int, proxy bool) []*http.Request {
	list := make([]*http.Request, n)
	for i := range list {
		r := httptest.NewRequest("POST", Path, nil)
		r.Body = http.NoBody
		r.RemoteAddr = Fresh.Text(i) + ":40000"
		if proxy {
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.%d.%d.%d, 10.0.0.2", i>>16&255, i>>8&255, i&255))
			r.RemoteAddr = "10.0.0.1:40000"
		}
		r.SetBasicAuth(fmt.Sprintf("device-%d", i), "x")
		list[i] = r
	}
	return list
}

// serve runs a handler on all processors.
func serve(b *testing.B, h http.Handler, reqs []*http.Request, order []uint32, status int) {
	b.Helper()
	var lanes atomic.Int64
	parallel(b, func(pb *testing.PB) {
		w := &NullWriter{H: http.Header{}}
		i := int(lanes.Add(1)) * 7919 % len(order)
		for pb.Next() {
			w.Reset(status)
			h.ServeHTTP(w, reqs[order[i]])
			if w.Status != status {
				b.Errorf("status %d, want %d", w.Status, status)
				return
			}
			if i++; i == len(order) {
				i = 0
			}
		}
	})
}

// wrapped makes a handler once, if its benchmark is run, and has it see every
// address.
func wrapped(b *testing.B, name string, reqs []*http.Request, order []uint32, status int, wrap func() http.Handler) {
	var h http.Handler
	b.Run(name, func(b *testing.B) {
		if h == nil {
			h = wrap()
			w := &NullWriter{H: http.Header{}}
			for _, r := range reqs {
				clear(w.H)
				h.ServeHTTP(w, r)
			}
			runtime.GC()
		}
		serve(b, h, reqs, order, status)
	})
	h = nil
	runtime.GC()
}

// The whole of a middleware, by the client's address.
func BenchmarkMiddleware(b *testing.B) {
	for _, c := range []struct {
		addresses int
		proxy     bool
		quota     Quota
	}{
		{1, false, Roomy}, {1, false, Spent},
		{10_000, false, Roomy}, {10_000, false, Spent},
		{100_000, false, Roomy}, {100_000, false, Spent},
		{1, true, Roomy}, {100_000, true, Roomy},
	} {
		name := fmt.Sprintf("addresses=%d,%s%s", c.addresses, pick(c.quota == Roomy, "admit", "refuse"), pick(c.proxy, ",proxied", ""))
		b.Run(name, func(b *testing.B) {
			reqs, order := requests(c.addresses, c.proxy), Order(c.addresses, "uniform")
			if c.quota == Roomy {
				wrapped(b, "floor_empty", reqs, order, 200, func() http.Handler { return Empty })
			}
			for _, m := range Middlewares() {
				if m.Single && (c.addresses > 1 || c.proxy) {
					continue
				}
				wrapped(b, m.Name, reqs, order, pick(c.quota == Roomy, 200, 429), func() http.Handler {
					return m.Wrap(Setup{Quota: c.quota, Bound: max(1000, 2*c.addresses), Proxy: c.proxy}, Empty)
				})
			}
		})
	}
}

// The whole chain of weir (three tiers, three windows, auth lock with a
// credential in each request, guard, metrics) beside what peers do for one
// tier.
func BenchmarkFull(b *testing.B) {
	for _, addresses := range []int{1, 10_000, 100_000} {
		b.Run(fmt.Sprintf("addresses=%d,admit", addresses), func(b *testing.B) {
			reqs, order := requests(addresses, false), Order(addresses, "uniform")
			s := Setup{Quota: Roomy, Bound: max(1000, 2*addresses)}
			wrapped(b, "floor_empty", reqs, order, 200, func() http.Handler { return Empty })
			for _, m := range append([]Middleware{{Name: "weir_full", Wrap: WrapFull}, {Name: "weir_three_tiers", Wrap: WrapTiers}}, Middlewares()...) {
				if m.Single || m.Name == "weir_headers" || m.Name == "tollbooth" {
					continue
				}
				wrapped(b, pick(m.Name == "weir", "weir_one_tier", m.Name), reqs, order, 200, func() http.Handler { return m.Wrap(s, Empty) })
			}
		})
	}
}
