package weir

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A tier that is leased is asked for now and then, wherever a class has its own
// buckets of it, and a Reload begins and ends that.
func TestLeasesOfATierSaveRoundTrips(t *testing.T) {
	for name, limits := range map[string]map[string]Limit{
		"the common bucket":           nil,
		"a bucket of the class's own": {TierGlobal: {Rate: 2000, Burst: 2000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := awayStore{newBrokenStore(nil)}
				var calls atomic.Int32
				s.breakAs(func(context.Context) error { calls.Add(1); return nil })
				cfg := noTiersBut(TierGlobal)
				cfg.Tiers.Global = TierConfig{Rate: 2000, Burst: 2000}
				for i := range cfg.Endpoints {
					cfg.Endpoints[i].Limits = limits
				}
				l := newLimiter(t, cfg, WithStore(s))
				defer func() { _ = l.Close() }()
				h := l.Handler(served)
				asked := func() int {
					before := calls.Load()
					for range 1000 {
						if got := admits(h, 1, fromAddr1); got != 1 {
							t.Fatal("refused")
						}
						time.Sleep(time.Millisecond)
					}
					synctest.Wait()
					return int(calls.Load() - before)
				}
				reload := func(leases map[string]Duration) {
					t.Helper()
					cfg.Store.Leases = leases
					if err := l.Reload(cfg); err != nil {
						t.Fatal(err)
					}
				}
				if got := asked(); got != 1000 {
					t.Errorf("%d calls for 1000 requests without leases", got)
				}
				reload(map[string]Duration{TierGlobal: Duration(100 * time.Millisecond)})
				if got := asked(); got > 100 {
					t.Errorf("%d calls for 1000 requests, want a tenth at most", got)
				}
				reload(map[string]Duration{TierPerIP: Duration(100 * time.Millisecond)})
				if got := asked(); got != 1000 {
					t.Errorf("%d calls for 1000 requests with leases of another tier", got)
				}
			})
		})
	}
}
