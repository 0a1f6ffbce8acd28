package takeover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redis"
)

const tau = 100 * time.Millisecond

// fleet is replicas that share a server, each with a client of its own.
func fleet(t *testing.T, server *redistest.Server, n int, leases map[string]time.Duration) (stores []*takeover.Store) {
	t.Helper()
	namespace := fmt.Sprint("f", namespaces.Add(1))
	for range n {
		// A busy machine makes it slow; that is no failure.
		remote, err := redis.Open(t.Context(), redis.Options{DSN: "redis://" + server.Addr, Namespace: namespace, CommandTimeout: patience, ConnectTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		s := takeover.New(remote, store.NewMemory(), takeover.Options{Timeout: patience, Stall: patience, Replicas: n})
		s.SetLeases(leases)
		t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
	}
	return stores
}

// one is an admission: it was decided between these two instants.
type one struct{ asked, told time.Time }

// crowd has 64 callers at each store ask as often as each, and returns what was
// admitted and how many calls the server ran for it.
func crowd(t *testing.T, server *redistest.Server, stores []*takeover.Store, each int, c store.Check) (all []one, calls int) {
	t.Helper()
	before := evaluated(server)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, s := range stores {
		for range 64 {
			wg.Go(func() {
				var mine []one
				for range each {
					asked := time.Now()
					v, _, err := s.Admit(context.Background(), []store.Check{c}, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if v.Admitted() {
						mine = append(mine, one{asked, time.Now()})
					}
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, mine...)
			})
		}
	}
	wg.Wait()
	return all, evaluated(server) - before
}

// evaluated is how many scripts a server has run.
func evaluated(server *redistest.Server) (n int) {
	for line := range strings.Lines(fmt.Sprint(server.Do("INFO", "commandstats"))) {
		_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d", &n)
	}
	return n
}

// Of what was certainly decided within a window there is no more than burst +
// rate·(window + lease time), whatever the window.
func keepTo(t *testing.T, all []one, limit store.Limit, tau time.Duration) {
	t.Helper()
	slices.SortFunc(all, func(a, b one) int { return a.told.Compare(b.told) })
	step := max(1, len(all)/500)
	asked := make([]time.Time, 0, len(all))
	for _, a := range all {
		asked = append(asked, a.asked)
	}
	slices.SortFunc(asked, time.Time.Compare)
	for i := 0; i < len(asked); i += step {
		n := 0
		for _, a := range all { // by when they were told
			if a.asked.Before(asked[i]) {
				continue
			}
			n++
			w := a.told.Sub(asked[i])
			if most := limit.Burst + limit.Rate*(w+tau).Seconds(); float64(n) > most+1 {
				t.Fatalf("%d admitted within %v, want %.1f at most", n, w, most)
			}
		}
	}
}

func TestEightReplicasWithLeasesKeepTheirBound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	limit := store.Limit{Rate: 3000, Burst: 300}
	stores := fleet(t, server, 8, map[string]time.Duration{"global": tau})
	begun := time.Now()
	all, _ := crowd(t, server, stores, 100, store.Check{Scope: "global", Limit: limit, Cost: 1})
	keepTo(t, all, limit, tau)
	if most := limit.Burst + limit.Rate*time.Since(begun).Seconds(); float64(len(all)) > most+1 {
		t.Errorf("%d admitted in all, want %.1f at most: leases add nothing over all of the time", len(all), most)
	}
	if len(all) < int(limit.Burst) {
		t.Errorf("%d admitted, want the burst at least", len(all))
	}
}

func TestLeasesSaveRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := store.Check{Scope: "global", Limit: store.Limit{Rate: 1e6, Burst: 1e6}, Cost: 1}
	plain, plainCalls := crowd(t, server, fleet(t, server, 8, nil), 20, c)
	if len(plain) != 8*64*20 || plainCalls < len(plain) {
		t.Fatalf("%d admitted with %d calls without leases, want one each", len(plain), plainCalls)
	}
	// On a busy machine answers may take longer than a tenth of a second, and a
	// lease that comes when it has ended saves nothing.
	const tau = 10 * time.Second
	all, calls := crowd(t, server, fleet(t, server, 8, map[string]time.Duration{"global": tau}), 80, c)
	if len(all) != 8*64*80 {
		t.Errorf("%d of %d admitted", len(all), 8*64*80)
	}
	if calls > len(all)/4 {
		t.Errorf("%d calls for %d admissions, want a quarter at most", calls, len(all))
	}
	keepTo(t, all, c.Limit, tau)
	t.Logf("round trips an admission: %.3f, without leases %.3f", float64(calls)/float64(len(all)), float64(plainCalls)/float64(len(plain)))
}
