//go:build !race

package weir

import (
	"net/http"
	"testing"
)

// What the auth lock adds to a request: nothing where it does not apply, the
// answer's wrapper where it does, the attempt where there is a credential.
func TestAllocsOfTheAuthLock(t *testing.T) {
	cfg := lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 10 })
	cfg.Tiers.PerIP = TierConfig{Rate: 1e9, Burst: 1e9}
	withKey := func(target string) *http.Request {
		r := request("PUT", target, addr1, "")
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest)
		return r
	}
	locked := request("POST", "/est", addr1, "")
	locked.SetBasicAuth("mallory", "x")
	signedIn := request("POST", "/est", addr1, "")
	signedIn.SetBasicAuth("bob", "x")
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		most   float64
	}{
		{"a class that has no credential", request("GET", "/open", addr1, ""), 200, 2},
		{"a request without one", request("POST", "/est", addr1, ""), 200, 3},
		{"a right password", signedIn, 200, 6},
		{"a right signature", withKey("/s3/bucket/key"), 200, 10},
		{"a locked account", locked, 429, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, cfg)
			failures(t, l, "203.0.113.9", "mallory", 10)
			h := l.Handler(bareHandler)
			w := &nullWriter{h: http.Header{}}
			h.ServeHTTP(w, tt.r)
			got := testing.AllocsPerRun(500, func() {
				w.status = 200
				h.ServeHTTP(w, tt.r)
			})
			if w.status != tt.status || got > tt.most {
				t.Errorf("answered %d with %v allocations, want %d with at most %v", w.status, got, tt.status, tt.most)
			}
			t.Logf("%v allocations", got)
		})
	}
}
