package redis

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// spread opens a store with a slot for each key.
func spread(t testing.TB, cluster *redistest.Cluster) *Store {
	t.Helper()
	o := unhurried("redis://" + cluster.Nodes[0].Addr + "?cluster=true")
	o.Namespace, o.SlotPerKey = fresh(), true
	return open(t, o)
}

func TestASlotForEachKeyUsesEveryNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := spread(t, cluster)
	global := ask("global", "", hourly, 1000, 1)
	for i := range 60 {
		address, account := ask("per_ip", fmt.Sprint("a", i), hourly, 10, 1), ask("per_account", fmt.Sprint("b", i), hourly, 10, 1)
		window := within(time.Hour, ask("per_address", fmt.Sprint("a", i), 0, 10, 1))
		states := admitted(t, s, global, address, account, window)
		for j, want := range []float64{999 - float64(i), 9, 9, 9} {
			if got := states[j].Tokens; got < want || got > want+0.1 {
				t.Errorf("state %d tells %v, want %v", j, got, want)
			}
		}
		if err := s.Refund(t.Context(), []store.Check{address, account, window}); err != nil {
			t.Fatal(err)
		}
		if left := admitted(t, s, costing(0, address))[0].Tokens; left != 10 {
			t.Errorf("%v left of 10 after a refund", left)
		}
	}
	for i, n := range cluster.Nodes {
		if got := len(contents(t, n.Client())); got < 30 {
			t.Errorf("node %d has %d keys of 181", i, got)
		}
		everyKeyEnds(t, n.Client(), "weir:{")
	}
}

// What the caller's own checks refuse never reaches a shared bucket, but for the
// count of arrivals; what a shared one refuses is given back to the caller's own.
func TestSharedBucketsAreAskedLast(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := spread(t, cluster)
	global, process := ask("global", "", 0, 10, 1), arriving(within(24*time.Hour, ask("process", "", 0, 1000, 1)))
	address, account := ask("per_ip", "a", 0, 5, 1), ask("per_account", "b", 0, 100, 3)
	window := within(24*time.Hour, ask("per_subject", "b", 0, 100, 2))
	all := []store.Check{global, process, address, account, window}
	for range 5 {
		admitted(t, s, all...)
	}
	globalKey := string(s.keys.append(nil, &global))
	value := func() string { return cluster.Of(globalKey).Client().Get(t.Context(), globalKey).Val() }
	before := value()
	for range 20 {
		if v, _ := refused(t, s, all...); v.Refused != 2 || v.RetryAfter != store.Never {
			t.Fatalf("verdict %+v, want check 2 blamed", v)
		}
	}
	if after := value(); after != before {
		t.Errorf("twenty requests that the address refuses changed the global bucket from %s to %s", before, after)
	}
	holds := func(want float64, c store.Check) {
		t.Helper()
		c.Always = false
		if got := admitted(t, s, costing(0, c))[0].Tokens; got != want {
			t.Errorf("%s holds %v, want %v", c.Scope, got, want)
		}
	}
	holds(1000-25, process)
	holds(100-3*5, account)
	holds(100-2*5, window)

	for i := range 5 {
		admitted(t, s, global, ask("per_ip", fmt.Sprint("other", i), 0, 5, 1))
	}
	rich := ask("per_ip", "rich", 0, 50, 4)
	for range 3 {
		v, states := refused(t, s, rich, global, account, window, process)
		if v.Refused != 1 || states[0].Tokens != 50 || states[2].Tokens != 85 || states[3].Tokens != 90 {
			t.Errorf("refused by the global bucket: %+v %+v", v, states)
		}
	}
	holds(50, rich)
	holds(85, account)
	holds(90, window)
	holds(1000-28, process)
}

// A flood at its own limit leaves the shared bucket to those who have a right to
// it, at every moment: not one of them is refused.
func TestAFloodDoesNotHoldSharedTokens(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := spread(t, cluster)
	attacker := ask("per_ip", "attacker", 0, 1, 1)
	admitted(t, s, attacker)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			global := ask("global", "", 0, 300, 1)
			for !stop.Load() {
				if v, _, err := s.Admit(context.Background(), []store.Check{global, attacker}, nil); err != nil || v.Admitted() {
					t.Errorf("the attacker: %+v, %v", v, err)
					return
				}
			}
		})
	}
	for i := range 300 { // the very last of the global tokens are theirs
		admitted(t, s, ask("per_ip", fmt.Sprint("honest", i), 0, 1, 1), ask("global", "", 0, 300, 1))
	}
	stop.Store(true)
	wg.Wait()
}

// Never more than each bucket has, however many ask; and when all is quiet,
// nothing is missing.
func TestSlotsTogetherAdmitWhatEachAllows(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := spread(t, cluster)
	narrow, wide := ask("per_ip", "a", 0, 40, 1), ask("per_account", "b", 0, 60, 1)
	global := ask("global", "", 0, 50, 1)
	var got atomic.Int64
	crowd(t, 32, func(i int) error {
		for range 10 {
			checks := []store.Check{global, narrow, wide}
			if i%2 == 0 {
				checks = []store.Check{global, wide}
			}
			v, _, err := s.Admit(t.Context(), checks, nil)
			if err != nil {
				return err
			}
			if v.Admitted() {
				got.Add(1)
			}
		}
		return nil
	})
	if got.Load() != 50 {
		t.Errorf("%d admitted, want the 50 of the global bucket", got.Load())
	}
	if left := admitted(t, s, costing(0, wide))[0].Tokens; left != 10 {
		t.Errorf("the account has %v left, want 10: what was compensated is missing", left)
	}
}

// A lost node fails the requests that need it, and no others; what the others
// spent of a failed request they get back.
func TestALostNodeFailsItsKeysOnly(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	o := unhurried("redis://" + cluster.Nodes[0].Addr + "?cluster=true&addr=" + cluster.Nodes[1].Addr + "&addr=" + cluster.Nodes[2].Addr)
	o.SlotPerKey = true
	s := open(t, o)
	lost := cluster.Nodes[2]
	var there, gone store.Check
	for i := 0; there.Scope == "" || gone.Scope == ""; i++ {
		c := ask("per_ip", fmt.Sprint("k", i), hourly, 10, 1)
		if cluster.Of(string(s.keys.append(nil, &c))) == lost {
			gone = c
		} else {
			there = c
		}
	}
	admitted(t, s, there, gone)
	lost.Kill()
	for range 5 {
		admitted(t, s, there)
		_, _, err := s.Admit(t.Context(), []store.Check{there, gone}, nil)
		if reasonOf(err) == "" {
			t.Errorf("a request that needs the lost node: %v", err)
		}
	}
	if left := admitted(t, s, there)[0].Tokens; left < 3 || left > 3.1 {
		t.Errorf("%v left of 10, want 3: seven were admitted", left)
	}
}

// While a slot moves to another node, calls follow it and nothing is counted
// twice or lost.
func TestCallsFollowASlotThatMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := open(t, unhurried("redis://"+cluster.Nodes[0].Addr+"?cluster=true"))
	c := ask("moves", "k", 0, 100, 1)
	key := string(s.keys.append(nil, &c))
	from := cluster.Of(key)
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	slot := from.Do("CLUSTER", "KEYSLOT", key)
	fromID, toID := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	used := 0
	use := func() {
		t.Helper()
		used++
		if left := admitted(t, s, c)[0].Tokens; left != 100-float64(used) {
			t.Fatalf("after %d of 100: %v left", used, left)
		}
	}
	use()
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	use() // still there
	host, port, _ := net.SplitHostPort(to.Addr)
	for _, k := range from.Do("CLUSTER", "GETKEYSINSLOT", slot, 100).([]any) {
		from.Do("MIGRATE", host, port, k, 0, 5000)
	}
	use() // ASK
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", toID)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", toID)
	use() // MOVED
	use()
	if err := s.Refund(t.Context(), []store.Check{costing(5, c)}); err != nil {
		t.Fatal(err)
	}
	if left := admitted(t, s, costing(0, c))[0].Tokens; left != 100 {
		t.Errorf("%v left of 100 after all was given back", left)
	}
}

// On a single server a slot for each key is as good: the states are kept apart
// from those of the other mode.
func TestModesShareNoKeys(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	together := open(t, o)
	o.SlotPerKey = true
	apart := open(t, o)
	c := ask("per_ip", "k", hourly, 1, 1)
	admitted(t, together, c)
	before := contents(t, server.Client())
	admitted(t, apart, c)
	for key, value := range contents(t, server.Client()) {
		if was, ok := before[key]; ok && was != value && key != together.keys.probe() {
			t.Errorf("%s is shared", key)
		}
	}
	if maps.Equal(before, contents(t, server.Client())) {
		t.Error("the second store wrote nothing")
	}
}
