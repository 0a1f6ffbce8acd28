package weir

import (
	"net/http"
	"testing"
	"time"
)

// A request that finds a slot free, beside one without a guard.
func BenchmarkGuarded(b *testing.B) {
	cfg := guarded(8, 64, time.Minute).with(Endpoint{Class: "open"})
	h := newLimiter(b, cfg).Handler(bareHandler)
	for _, class := range []string{"open", "sign"} {
		b.Run("class="+class, func(b *testing.B) {
			r, w := to(class, alice), &nullWriter{h: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
