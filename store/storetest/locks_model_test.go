package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// The memory store's counters and the plain ones answer alike to whatever
// comes: attempts in any order and overlap, limits that change, time that
// passes, boundaries that are met exactly.
func TestMemoryCountsFailuresLikeThePlainOne(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareLocks(t, rand.New(rand.NewPCG(seed, 4))) })
		})
	}
}

// begun is an attempt under way in both stores.
type begun struct{ real, model store.Attempt }

func compareLocks(t *testing.T, r *rand.Rand) {
	real, model := store.NewMemory(), newPlainLocks("")
	var open []begun
	for step := range 600 {
		switch r.IntN(10) {
		case 0: // to a boundary as often as not
			steps := []time.Duration{time.Nanosecond, time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, time.Hour}
			time.Sleep(steps[r.IntN(len(steps))])
		case 1:
			scope, key := []string{"address", "spray", "account"}[r.IntN(3)], ask("", fmt.Sprint(r.IntN(3)), 0, 0, 0).Key
			var caller store.Key
			if scope == "account" && r.IntN(2) == 0 {
				caller = ask("", fmt.Sprint(r.IntN(3)), 0, 0, 0).Key
			}
			a, errA := real.Unlock(t.Context(), scope, key, caller)
			b, errB := model.Unlock(t.Context(), scope, key, caller)
			if a != b || errA != errB {
				t.Fatalf("step %d: Unlock %v %v, want %v %v", step, a, errA, b, errB)
			}
		case 2, 3, 4, 5:
			one := randomAttempt(r)
			b := begun{one, one}
			v, _ := real.Begin(t.Context(), &b.real)
			w, _ := model.Begin(t.Context(), &b.model)
			if v != w || (b.real.Ticket == 0) != (b.model.Ticket == 0) {
				t.Fatalf("step %d: Begin(%+v)\n%+v, ticket %d, want\n%+v, ticket %d", step, one, v, b.real.Ticket, w, b.model.Ticket)
			}
			if v.Admitted() {
				open = append(open, b)
			}
		default:
			if len(open) == 0 {
				continue
			}
			i, o := r.IntN(len(open)), []store.Outcome{store.Failed, store.Failed, store.Failed, store.Succeeded, store.Ignored}[r.IntN(5)]
			b := open[i]
			open = append(open[:i], open[i+1:]...)
			v, _ := real.Settle(t.Context(), &b.real, o)
			w, _ := model.Settle(t.Context(), &b.model, o)
			if v != w {
				t.Fatalf("step %d: Settle(%+v, %d)\n%+v, want\n%+v", step, b.real, o, v, w)
			}
		}
		for _, scope := range []string{"address", "spray", "account"} {
			v, w := real.LockSize(scope), model.LockSize(scope)
			if v.Keys != w.Keys || v.Locked != w.Locked || v.Callers != w.Callers || v.Known != w.Known {
				t.Fatalf("step %d: scope %s has %+v, want %+v", step, scope, v, w)
			}
		}
	}
}

func randomAttempt(r *rand.Rand) store.Attempt {
	limit := func() store.LockLimit {
		return store.LockLimit{Max: 1 + r.IntN(5), Window: time.Minute, Lockout: 2 * time.Minute}
	}
	address := fmt.Sprint(r.IntN(3))
	a := store.Attempt{
		Counters: []store.Counter{counterOf("address", address, limit())},
		Reserve:  store.Reserve(r.IntN(3)),
	}
	if r.IntN(2) == 0 {
		c := counterOf("spray", address, limit())
		c.First = r.IntN(2) == 0
		a.Counters = append(a.Counters, c)
	}
	if r.IntN(3) > 0 {
		a.Account = store.Account{
			Counter: counterOf("account", fmt.Sprint(r.IntN(3)), limit()), Caller: a.Counters[0].Key,
			Remember: time.Duration(r.IntN(2)) * 5 * time.Minute, Admitted: r.IntN(8) == 0, OwnOnly: r.IntN(2) == 0,
		}
	}
	return a
}
