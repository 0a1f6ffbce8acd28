package store

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// flood is a crowd of callers over a few buckets that never refill, so that
// what was admitted can be counted to the token at the end.
type flood struct {
	m      *Memory
	places []Check // one for each bucket, at cost 0
	spent  []atomic.Int64
	limit  Limit
}

func newFlood(burst float64) *flood {
	f := &flood{m: NewMemory(), limit: Limit{Rate: 0, Burst: burst}}
	for _, scope := range []string{"a", "b", "c"} {
		f.places = append(f.places, Check{Scope: scope, Limit: f.limit})
		for i := range 8 { // fit the smallest bound, so none is ever evicted
			f.places = append(f.places, Check{Scope: scope, Key: numbered(i), Limit: f.limit})
		}
	}
	f.spent = make([]atomic.Int64, len(f.places))
	return f
}

// call asks for up to n tokens of random buckets, repeating some, in random
// order; some calls are given back, some only peek.
func (f *flood) call(ctx context.Context, r *rand.Rand, n int) error {
	var checks []Check
	var at []int
	for range 1 + r.IntN(n) {
		i := r.IntN(len(f.places))
		c := f.places[i]
		c.Cost = float64(r.IntN(3))
		checks, at = append(checks, c), append(at, i)
	}
	switch r.IntN(16) {
	case 0:
		_, _, err := f.m.Peek(ctx, checks, nil)
		return err
	case 1: // a scope that is dropped again and again: what it says is not counted
		_, _, err := f.m.Admit(ctx, []Check{{Scope: "gone", Key: numbered(r.IntN(50)), Limit: f.limit, Cost: 1}}, nil)
		return err
	}
	v, _, err := f.m.Admit(ctx, checks, nil)
	if err != nil || !v.Admitted() {
		return err
	}
	if r.IntN(4) == 0 {
		return f.m.Refund(ctx, checks)
	}
	for i, c := range checks {
		f.spent[at[i]].Add(int64(c.Cost))
	}
	return nil
}

// settle drains what is left and claims that each bucket paid its burst, no
// token more and none less.
func (f *flood) settle(t *testing.T) {
	t.Helper()
	for i, c := range f.places {
		c.Cost = 1
		for {
			v, _, err := f.m.Admit(t.Context(), []Check{c}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !v.Admitted() {
				break
			}
			f.spent[i].Add(1)
		}
		if got := float64(f.spent[i].Load()); got != f.limit.Burst {
			t.Errorf("scope %s, key %x paid %v of %v", c.Scope, c.Key[:9], got, f.limit.Burst)
		}
	}
}

// Bounds and shard counts change all the time under load, scopes come and go,
// and no token is lost or minted, and nobody waits for ever.
func TestConfigureUnderLoadLosesNothing(t *testing.T) {
	f := newFlood(10_000)
	f.run(t, 6, 10_000, 3, func(r *rand.Rand) {
		switch scope := []string{"a", "b", "c"}[r.IntN(3)]; r.IntN(4) {
		case 0, 1:
			bounds := []int{1000, 100_000, 10, 5000}
			f.m.Configure(Scope{Name: scope, MaxKeys: bounds[r.IntN(len(bounds))], Limit: f.limit})
		case 2:
			f.m.Size(scope)
		case 3:
			f.m.Drop("gone")
		}
	})
	f.settle(t)
	for _, scope := range []string{"a", "b", "c"} {
		walk(t, f.m.tableOf(scope))
		if got := f.m.Size(scope); got.Evicted != 0 || got.Keys != 8 {
			t.Errorf("scope %s: %+v", scope, got)
		}
	}
}

// Many checks over several tables, in any order and some twice, over shards
// enough that each takes a lock of its own.
func TestManyLocksInAnyOrderDoNotDeadlock(t *testing.T) {
	f := newFlood(10_000)
	for _, scope := range []string{"a", "b", "c"} {
		f.m.Configure(Scope{Name: scope, MaxKeys: 200_000, Limit: f.limit})
	}
	f.run(t, 8, 1500, 14, func(*rand.Rand) {})
	f.settle(t)
}

// run has callers make calls while one goroutine disturbs them.
func (f *flood) run(t *testing.T, callers, calls, checks int, disturb func(r *rand.Rand)) {
	t.Helper()
	var wg, disturber sync.WaitGroup
	var stop atomic.Bool
	disturber.Go(func() {
		r := rand.New(rand.NewPCG(1, 1))
		n := 0
		for ; !stop.Load(); n++ {
			disturb(r)
			runtime.Gosched()
		}
		t.Logf("%d disturbances", n)
	})
	errs := make([]error, callers)
	for g := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range calls {
				if err := f.call(t.Context(), r, checks); err != nil {
					errs[g] = err
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	disturber.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		t.Fatal(errs[i])
	}
}
