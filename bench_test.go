package weir

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// nullWriter is a ResponseWriter that costs nothing.
type nullWriter struct {
	h      http.Header
	status int
}

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) WriteHeader(code int)        { w.status = code }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }

// benchRequests returns requests from n addresses.
func benchRequests(n int) []*http.Request {
	list := make([]*http.Request, n)
	for i := range list {
		r := httptest.NewRequest("POST", "/acme/new-order", nil)
		r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:40000", i>>16&255, i>>8&255, i&255)
		r.Header.Set("X-Account", fmt.Sprintf("account-%d", i))
		list[i] = r
	}
	return list
}

func runChain(b *testing.B, h http.Handler, addresses, status int) {
	reqs := benchRequests(addresses)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		w := &nullWriter{h: http.Header{}}
		i := 0
		for pb.Next() {
			if i++; i == len(reqs) {
				i = 0
			}
			w.status = 200
			clear(w.h) // a server gives each response a fresh one
			h.ServeHTTP(w, reqs[i])
			if w.status != status {
				b.Fatalf("status %d, want %d", w.status, status)
			}
		}
	})
}

var bareHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })

// chainConfig has three tiers with room for everything.
func chainConfig(burst float64) Config {
	cfg := DefaultConfig()
	cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order"}}
	cfg.Tiers.Global = TierConfig{Rate: burst, Burst: burst}
	cfg.Tiers.PerIP = TierConfig{Rate: burst, Burst: burst}
	cfg.Tiers.PerAccount = TierConfig{Rate: burst, Burst: burst}
	return cfg
}

// BenchmarkChain is the whole chain beside a bare handler and beside what a
// program would write by hand: x/time/rate in a mutex-guarded LRU by address.
func BenchmarkChain(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("what=bare/addresses=%d", n), func(b *testing.B) { runChain(b, bareHandler, n, 200) })
		b.Run(fmt.Sprintf("what=lru/addresses=%d", n), func(b *testing.B) {
			cache, _ := lru.New[string, *rate.Limiter](100_000)
			var mu sync.Mutex
			runChain(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				lim, ok := cache.Get(r.RemoteAddr)
				if !ok {
					lim = rate.NewLimiter(1e9, 1e9)
					cache.Add(r.RemoteAddr, lim)
				}
				mu.Unlock()
				if !lim.Allow() {
					w.WriteHeader(429)
					return
				}
				bareHandler(w, r)
			}), n, 200)
		})
		b.Run(fmt.Sprintf("what=weir/tiers=3/addresses=%d", n), func(b *testing.B) {
			l, err := New(chainConfig(1e9), WithLogger(slog.New(slog.DiscardHandler)), WithRegisterer(prometheus.NewRegistry()), WithAccount(func(r *http.Request) (string, bool) {
				return r.Header.Get("X-Account"), true
			}))
			if err != nil {
				b.Fatal(err)
			}
			runChain(b, l.Handler(bareHandler), n, 200)
		})
		b.Run(fmt.Sprintf("what=weir/tiers=1/addresses=%d", n), func(b *testing.B) {
			cfg := chainConfig(1e9)
			cfg.Tiers.Global, cfg.Tiers.PerAccount = TierConfig{}, TierConfig{}
			l, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)), WithRegisterer(prometheus.NewRegistry()))
			if err != nil {
				b.Fatal(err)
			}
			runChain(b, l.Handler(bareHandler), n, 200)
		})
		b.Run(fmt.Sprintf("what=weir/refused/addresses=%d", n), func(b *testing.B) {
			cfg := chainConfig(1e9)
			cfg.Tiers.Global = TierConfig{Rate: 1e-9, Burst: 1}
			l, err := New(cfg, WithLogger(slog.New(slog.DiscardHandler)), WithRegisterer(prometheus.NewRegistry()), WithAccount(func(r *http.Request) (string, bool) {
				return r.Header.Get("X-Account"), true
			}))
			if err != nil {
				b.Fatal(err)
			}
			h := l.Handler(bareHandler)
			h.ServeHTTP(httptest.NewRecorder(), benchRequests(1)[0])
			runChain(b, h, n, 429)
		})
	}
}
