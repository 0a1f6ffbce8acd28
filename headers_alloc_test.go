//go:build !race

package weir

import (
	"fmt"
	"log/slog"
	"net/http"
	"testing"
)

// roomy is a Config with an address tier and room for everything.
func roomy(windows, exclude bool, headers HeadersConfig) Config {
	cfg := noTiers()
	cfg.Tiers.PerIP = TierConfig{Rate: 1e9, Burst: 1e9}
	cfg.Windows.Enabled = windows
	cfg.Windows.PerAddress, cfg.Windows.PerSubject, cfg.Windows.Process = 1e9, 1e9, 1e9
	if !exclude {
		cfg.Windows.Exclude = nil
	}
	cfg.Headers = headers
	return cfg
}

// What windows and header fields add to the two allocations of an admitted
// request, and to those of a refused one.
func TestAllocsOfWindowsAndHeaders(t *testing.T) {
	off, rejected, always := HeadersConfig{RateLimit: "off"}, HeadersConfig{RateLimit: "rejected"}, HeadersConfig{RateLimit: "always"}
	rejectedIETF, alwaysIETF := HeadersConfig{RateLimit: "rejected", IETF: true}, HeadersConfig{RateLimit: "always", IETF: true}
	spent := func(headers HeadersConfig) Config {
		cfg := roomy(true, false, headers)
		cfg.Windows = WindowsConfig{Enabled: true, PerAddress: 1}
		return cfg
	}
	for _, tc := range []struct {
		name   string
		cfg    Config
		status int
		most   float64
	}{
		{"admitted, neither", roomy(false, false, off), 200, 2},
		{"admitted, fields on refusals only", roomy(false, false, rejected), 200, 2},
		{"admitted, windows", roomy(true, false, off), 200, 2},
		{"admitted, windows and exclusions", roomy(true, true, off), 200, 2},
		{"admitted, three fields: their text and its parts", roomy(false, false, always), 200, 4},
		{"admitted, five fields: the quotas too", roomy(false, false, alwaysIETF), 200, 5},
		{"admitted, windows and five fields", roomy(true, false, alwaysIETF), 200, 5},
		{"refused, no fields but those of its document", spent(off), 429, 2},
		{"refused, three fields", spent(rejected), 429, 4},
		{"refused, five fields: and Retry-After before them", spent(rejectedIETF), 429, 6},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newLimiter(t, tc.cfg).Handler(bareHandler)
			r := request("POST", "/acme/new-order", addr1, "")
			w := &nullWriter{h: http.Header{}}
			h.ServeHTTP(w, r) // spends a window of one, and fills the pools
			got := testing.AllocsPerRun(500, func() {
				clear(w.h)
				w.status = 200
				h.ServeHTTP(w, r)
			})
			if w.status != tc.status || got > tc.most {
				t.Errorf("answered %d with %v allocations, want %d with at most %v", w.status, got, tc.status, tc.most)
			}
		})
	}
}

// BenchmarkHeaders is an admitted request with an address tier, a ceiling and a
// window, by what its response tells.
func BenchmarkHeaders(b *testing.B) {
	for _, bm := range []struct {
		windows, exclude bool
		headers          HeadersConfig
	}{
		{false, false, HeadersConfig{RateLimit: "off"}},
		{false, false, HeadersConfig{RateLimit: "always"}},
		{false, false, HeadersConfig{RateLimit: "always", IETF: true}},
		{true, false, HeadersConfig{RateLimit: "off"}},
		{true, true, HeadersConfig{RateLimit: "off"}},
		{true, false, HeadersConfig{RateLimit: "always", IETF: true}},
	} {
		b.Run(fmt.Sprintf("windows=%v/exclude=%v/fields=%s/ietf=%v", bm.windows, bm.exclude, bm.headers.RateLimit, bm.headers.IETF), func(b *testing.B) {
			l, err := New(roomy(bm.windows, bm.exclude, bm.headers), WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				b.Fatal(err)
			}
			h := l.Handler(bareHandler)
			r := benchRequests(1)[0]
			w := &nullWriter{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.h)
				h.ServeHTTP(w, r)
			}
		})
	}
}
