//go:build !race

package takeover

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

func TestAllocations(t *testing.T) {
	usual := []store.Check{{Scope: "global", Limit: store.Limit{Rate: 1e9, Burst: 1e9}, Cost: 1}, ask("a", 1e9, 1e9, 1)}
	used := []store.Check{usual[0], ask("used up", hourly, 1, 1)}
	for name, tt := range map[string]struct {
		checks []store.Check
		open   bool
		want   float64
	}{
		"a request that is refused here":   {used, false, 0},
		"a request that the store decides": {usual, false, 8},
		"a request during an outage":       {usual, true, 0},
		"a request that an outage refuses": {used, true, 0},
		"a request that leases cover":      {usual[:1], false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			remote := newFar()
			s := New(remote, store.NewMemory(), Options{Recheck: time.Hour})
			defer func() { _ = s.Close() }()
			if strings.Contains(name, "leases") {
				s.SetLeases(map[string]time.Duration{"global": time.Hour})
				for s.held(tt.checks[0]) < 1000 { // more than all runs take
					verdict(t, s, tt.checks...)
				}
			}
			verdict(t, s, tt.checks...)
			if tt.open {
				degrade(t, s, remote)
			}
			states := make([]store.State, 0, 4)
			if got := testing.AllocsPerRun(200, func() { _, _, _ = s.Admit(context.Background(), tt.checks, states[:0]) }); got > tt.want {
				t.Errorf("%v allocations, want %v at most", got, tt.want)
			}
		})
	}
}
