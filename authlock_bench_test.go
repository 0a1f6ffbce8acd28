package weir

import (
	"net/http"
	"testing"
)

// The auth lock on its way through the chain: an honest client, one of whose
// neighbours has failed, and a flood at a locked account.
func BenchmarkAuthLock(b *testing.B) {
	for _, bc := range []struct {
		name             string
		on               bool
		failures, status int
	}{
		{"lock=off", false, 0, 200},
		{"lock=on/state=clean", true, 0, 200},
		{"lock=on/state=one_failure", true, 1, 200},
		{"lock=on/state=locked", true, 10, 429},
	} {
		b.Run(bc.name, func(b *testing.B) {
			cfg := lockLimits(func(a *AuthLockConfig) { a.Enabled = bc.on })
			cfg.Tiers.PerIP = TierConfig{Rate: 1e9, Burst: 1e9}
			l := newLimiter(b, cfg)
			for range bc.failures {
				a, err := l.Attempt(b.Context(), Credential{Account: "bob"})
				if err != nil || a.Fail() != nil {
					b.Fatal(err)
				}
			}
			h := l.Handler(bareHandler)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := request("POST", "/est", addr1, "")
				r.SetBasicAuth("bob", "x")
				w := &nullWriter{h: http.Header{}}
				for pb.Next() {
					w.status = 200
					h.ServeHTTP(w, r)
					if w.status != bc.status {
						b.Errorf("status %d", w.status)
						return
					}
				}
			})
		})
	}
}
