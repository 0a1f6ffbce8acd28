package takeover_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redis"
)

// checkOf asks for one token of a key that holds n, for the hour.
func checkOf(key string, n float64) store.Check {
	c := store.Check{Scope: "per_ip", Limit: store.Limit{Rate: 1.0 / 3600, Burst: n}, Cost: 1}
	copy(c.Key[:], key)
	return c
}

// One node of a Cluster is killed in a flood and comes back: its keys are counted
// in the process meanwhile; those of the other nodes stay shared by two replicas, and
// exact; no request fails.
func TestALostNodeOfAClusterTouchesNobodyElsesKeys(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	dsn := fmt.Sprintf("redis://%s?cluster=true&addr=%s&addr=%s", cluster.Nodes[0].Addr, cluster.Nodes[1].Addr, cluster.Nodes[2].Addr)
	var replicas [2]*takeover.Store
	var remote *redis.Store
	var turns atomic.Int32
	for i := range replicas {
		var err error
		remote, err = redis.Open(t.Context(), redis.Options{DSN: dsn, SlotPerKey: true, ConnectTimeout: patience, CommandTimeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		replicas[i] = takeover.New(remote, store.NewMemory(), takeover.Options{
			Timeout: patience, Stall: patience, Replicas: len(replicas), // a busy machine is no hung server
			Hooks: takeover.Hooks{Degraded: func(bool, error) { turns.Add(1) }},
		})
		t.Cleanup(func() { _ = replicas[i].Close() })
	}
	const keys, holds = 4, 60.0
	lost := cluster.Nodes[1]
	var gone, there []store.Check
	for i := 0; len(gone) < keys || len(there) < keys; i++ {
		c := checkOf(fmt.Sprint("k", i), holds)
		if remote.Node(&c) == lost.Addr {
			gone = append(gone, c)
		} else {
			there = append(there, c)
		}
	}
	gone, there = gone[:keys], there[:keys]

	var mu sync.Mutex
	admitted := map[store.Key]int{}
	send := func(s *takeover.Store, checks ...store.Check) {
		v, states, err := s.Admit(context.Background(), checks, nil)
		if err != nil || len(states) != len(checks) {
			t.Errorf("a request failed: %v", err)
		}
		if v.Admitted() {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range checks {
				admitted[c.Key]++
			}
		}
	}
	flood := func(rounds int) {
		var wg sync.WaitGroup
		for i, s := range replicas {
			for j := range keys {
				wg.Go(func() {
					for n := range rounds {
						send(s, there[j])
						send(s, gone[(i+j)%keys])
						if n%4 == 0 {
							send(s, there[j], gone[j])
						}
					}
				})
			}
		}
		wg.Wait()
	}
	until := func(what string, try func() bool) {
		for begun := time.Now(); !try(); time.Sleep(10 * time.Millisecond) {
			if time.Since(begun) > patience {
				t.Fatalf("%s: not within %v", what, patience)
			}
			for _, s := range replicas {
				send(s, checkOf("nobody's", 1e6))
				send(s, gone[0])
			}
		}
	}
	flood(5)
	if turns.Load() != 0 {
		t.Fatal("degraded before anything has failed")
	}
	lost.Kill()
	until("the loss is noticed", func() bool { return replicas[0].Degraded() && replicas[1].Degraded() })
	before := map[store.Key]int{}
	for _, c := range there {
		before[c.Key] = admitted[c.Key]
	}
	flood(10)
	for _, c := range there {
		if admitted[c.Key] == before[c.Key] {
			t.Errorf("nothing of a key of another node was admitted in the outage")
		}
		// What is left in the Cluster tells whether it was counted there.
		c.Cost = 0
		if _, states, err := remote.Peek(t.Context(), []store.Check{c}, nil); err != nil || states[0].Tokens > holds-float64(admitted[c.Key])+0.5 || states[0].Tokens < holds-float64(admitted[c.Key])-0.5 {
			t.Errorf("a key of another node holds %+v (%v) after %d of %v", states, err, admitted[c.Key], holds)
		}
	}
	c := gone[0]
	if _, _, err := remote.Peek(t.Context(), []store.Check{c}, nil); err == nil {
		t.Error("the lost node answers")
	} else if _, ok := errors.AsType[store.Reasoner](err); !ok && !errors.Is(err, takeover.ErrOpen) {
		t.Errorf("%v", err)
	}
	lost.Restart()
	until("the node is back", func() bool { return !replicas[0].Degraded() && !replicas[1].Degraded() })
	flood(60)
	for _, c := range there {
		if got := float64(admitted[c.Key]); got != holds {
			t.Errorf("%v admitted of a key of another node, want %v", got, holds)
		}
	}
	for _, c := range gone {
		// Each replica knew the level as of when it last asked.
		if got := float64(admitted[c.Key]); got > 2*holds {
			t.Errorf("%v admitted of a key of the lost node, want %v", got, holds)
		}
		t.Logf("%d of %v admitted of a key of the lost node", admitted[c.Key], holds)
	}
}
