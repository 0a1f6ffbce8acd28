package weir

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/store"
)

// sharedLocks counts failures for several Limiters, and can go away: all of it, or
// some of its verbs.
type sharedLocks struct {
	*store.Memory
	away  atomic.Bool
	verb  atomic.Value // that fails by itself, a string
	calls atomic.Int64
}

func newSharedLocks() *sharedLocks { return &sharedLocks{Memory: store.NewMemory()} }

func (s *sharedLocks) meet(verb string) error {
	s.calls.Add(1)
	if s.away.Load() || s.verb.Load() == verb {
		return errStoreDown
	}
	return nil
}

func (s *sharedLocks) Ping(context.Context) error { return s.meet("ping") }

func (s *sharedLocks) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	if err := s.meet("admit"); err != nil {
		return store.Verdict{}, dst, err
	}
	return s.Memory.Admit(ctx, checks, dst)
}

func (s *sharedLocks) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	if err := s.meet("begin"); err != nil {
		return store.LockVerdict{}, err
	}
	return s.Memory.Begin(ctx, a)
}

func (s *sharedLocks) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (store.LockVerdict, error) {
	if err := s.meet("settle"); err != nil {
		return store.LockVerdict{}, err
	}
	return s.Memory.Settle(ctx, a, o)
}

func (s *sharedLocks) Unlock(ctx context.Context, scope string, key, caller store.Key) (bool, error) {
	if err := s.meet("unlock"); err != nil {
		return false, err
	}
	return s.Memory.Unlock(ctx, scope, key, caller)
}

// LockSize is not known, as that of a store that lives elsewhere.
func (s *sharedLocks) LockSize(string) store.LockSize { return store.LockSize{} }

// lockReplica is one of several Limiters on one store.
type lockReplica struct {
	*Limiter
	h http.Handler
}

// lockReplicas are n Limiters on one store; accounts lock with the tenth failure,
// addresses with the hundredth.
func lockReplicas(t *testing.T, n int, s store.Store, change func(*Config)) (list []lockReplica) {
	t.Helper()
	cfg := lockLimits(func(a *AuthLockConfig) { a.Delay.After = 1000 })
	cfg.Store.KeySecret = secret
	if change != nil {
		change(&cfg)
	}
	for range n {
		l := newLimiter(t, cfg, WithStore(s))
		t.Cleanup(func() { _ = l.Close() })
		list = append(list, lockReplica{l, l.Handler(passwordIs("right"))})
	}
	return list
}

// guess makes an attempt and returns the status of the answer.
func (r lockReplica) guess(addr, user, password string) int {
	status, _ := guesser{r.h, addr, user}.guess(password)
	return status
}

// told makes n attempts with a wrong password, each from an address of its own, and
// returns how many were told that it is wrong.
func (r lockReplica) told(n int, user string) (told int) {
	for i := range n {
		if r.guess(fmt.Sprintf("198.51.100.%d:1", i), user, "wrong") == http.StatusUnauthorized {
			told++
		}
	}
	return told
}

// answers claims what an attempt is answered.
func (r lockReplica) answers(t *testing.T, want int, addr, user, password, when string) {
	t.Helper()
	if got := r.guess(addr, user, password); got != want {
		t.Errorf("%s: %s with the %s password from %s: %d, want %d", when, user, password, addr, got, want)
	}
}

// back has the store return, and waits until it decides.
func back(t *testing.T, s *sharedLocks, list ...lockReplica) {
	t.Helper()
	s.away.Store(false)
	time.Sleep(time.Second)
	synctest.Wait()
	for _, r := range list {
		if r.shared.Degraded() {
			t.Fatal("the store answers, and does not decide a second later")
		}
	}
}

const home, elsewhere = "192.0.2.50:1", "192.0.2.60:1"

// Requirements S4 and L3: what the store told before an outage holds during it: who
// is locked stays locked, who is known stays known.
func TestAnOutageNeitherFreesTheLockedNorLocksOutTheKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, nil)
		r, other := list[0], list[1]
		r.answers(t, 200, home, "bob", "right", "before")
		if n := other.told(20, "bob"); n != 10 {
			t.Fatalf("%d told, want 10", n)
		}
		r.answers(t, 429, elsewhere, "bob", "right", "locked by another replica")
		s.away.Store(true)
		r.answers(t, 429, elsewhere, "bob", "right", "in the outage")
		r.answers(t, 200, home, "bob", "right", "in the outage, where it is known")
		other.answers(t, 429, elsewhere, "bob", "right", "in the outage, by the other")
		if n := r.told(20, "bob"); n != 0 {
			t.Errorf("%d were told behind the lock", n)
		}
		time.Sleep(time.Hour) // the lock is over
		r.answers(t, 200, elsewhere, "bob", "right", "in the outage, when the lock has ended")
		back(t, s, list...)
		r.answers(t, 200, elsewhere, "bob", "right", "after the outage")
	})
}

// What is locked here in an outage stays so when the store is back, but not for a
// caller that only the store knows.
func TestALockOfAnOutageHoldsUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, nil)
		r, other := list[0], list[1]
		const here = "192.0.2.51:1"
		other.answers(t, 200, home, "bob", "right", "before")
		r.answers(t, 200, here, "bob", "right", "before")
		s.away.Store(true)
		if n := r.told(30, "bob"); n != 10 {
			t.Errorf("%d were told in the outage, want 10", n)
		}
		r.answers(t, 200, here, "bob", "right", "in the outage, where this replica knows it")
		back(t, s, list...)
		r.answers(t, 429, elsewhere, "bob", "right", "when the store is back")
		r.answers(t, 200, home, "bob", "right", "when the store is back, where it is known to the store")
		r.answers(t, 401, home, "bob", "wrong", "when the store is back, where it is known to the store")
		other.answers(t, 200, elsewhere, "bob", "right", "by another replica, which has no such lock")
		time.Sleep(time.Hour)
		r.answers(t, 200, "192.0.2.61:1", "bob", "right", "when the lock has ended")
	})
}

// The bound of an outage: each replica tells the limit once, beside what the store
// has told before.
func TestAnOutageTellsTheLimitOnceForEachReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 3, s, nil)
		if n := list[0].told(9, "bob"); n != 9 {
			t.Fatalf("%d told, want 9", n)
		}
		s.away.Store(true)
		for i, r := range list {
			if n := r.told(40, "bob"); n != 10 {
				t.Errorf("replica %d: %d were told in the outage, want 10", i, n)
			}
		}
		back(t, s, list...)
		for i, r := range list {
			if n := r.told(40, "bob"); n != 0 {
				t.Errorf("replica %d: %d were told after the outage, want none", i, n)
			}
		}
	})
}

// A failure that the store does not take is counted here, if the store has let the
// attempt begin and also if it goes on letting others.
func TestNoFailureIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, nil)[0]
		s.verb.Store("settle")
		if n := r.told(40, "bob"); n != 10 {
			t.Errorf("%d were told by a store that takes no verdict, want 10", n)
		}
		s.verb.Store("begin")
		if n := r.told(40, "carol"); n != 10 {
			t.Errorf("%d were told by a store that begins nothing, want 10", n)
		}
	})
}

// While the breaker is open nobody asks the store, and nobody waits.
func TestAttemptsDoNotAskAStoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, nil)[0]
		s.away.Store(true)
		r.told(10, "bob")
		before := s.calls.Load()
		began := time.Now()
		for i := range 1000 {
			r.guess(home, fmt.Sprint("user", i), "wrong")
		}
		if n := s.calls.Load() - before; n != 0 || time.Since(began) != 0 {
			t.Errorf("%d calls of a thousand attempts, which took %v", n, time.Since(began))
		}
	})
}

// With on_error allow nothing is counted that the store does not take, for all
// stores alike.
func TestAllowTellsWhatTheStoreDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, func(c *Config) { c.Store.OnError = "allow" })[0]
		s.verb.Store("settle")
		if n := r.told(30, "bob"); n != 30 {
			t.Errorf("%d of 30 were told", n)
		}
		s.verb.Store("")
		s.away.Store(true)
		if n := r.told(30, "bob"); n != 30 {
			t.Errorf("%d of 30 were told in the outage", n)
		}
		back(t, s, r)
		if n := r.told(30, "bob"); n != 10 {
			t.Errorf("%d were told after it, want 10", n)
		}
	})
}

// While the store answers, it alone decides: what another process has unlocked is
// not remembered here as locked, but for a second.
func TestALockThatAnotherHasLiftedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, nil)
		r, other := list[0], list[1]
		r.told(20, "bob")
		r.answers(t, 429, elsewhere, "bob", "right", "locked")
		if n, err := other.Unlock(t.Context(), Credential{Account: "bob"}, netip.Addr{}); n != 1 || err != nil {
			t.Fatalf("%d lifted, %v", n, err)
		}
		time.Sleep(time.Second)
		r.answers(t, 200, elsewhere, "bob", "right", "unlocked by another")
		s.away.Store(true)
		r.answers(t, 200, "192.0.2.61:1", "bob", "right", "unlocked before the outage")
	})
}

func TestUnlockInAnOutageLiftsWhatIsLockedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, nil)[0]
		r.told(20, "carol")
		s.away.Store(true)
		r.told(20, "bob")
		if locks := r.Snapshot().Auth.Locks; len(locks) != 1 || r.Snapshot().Auth.Locked["account"] != 1 {
			t.Errorf("shown in the outage: %+v, want bob's", locks)
		}
		for _, user := range []string{"bob", "carol"} {
			if _, err := r.Unlock(t.Context(), Credential{Account: user}, netip.Addr{}); err == nil {
				t.Errorf("%s: no error that the store was not told", user)
			}
			r.answers(t, 200, elsewhere, user, "right", "unlocked in the outage")
		}
		back(t, s, r)
		if n, err := r.Unlock(t.Context(), Credential{Account: "carol"}, netip.Addr{}); n != 1 || err != nil {
			t.Errorf("carol, when the store is back: %d lifted, %v", n, err)
		}
	})
}

// A size that is not known is not exported as zero; the snapshot counts what it
// lists.
func TestMetricsTellNoSizeThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := newSharedLocks(), prometheus.NewRegistry()
		cfg := lockLimits(nil)
		cfg.Store.KeySecret = secret
		l := newLimiter(t, cfg, WithStore(s), WithRegisterer(reg))
		defer func() { _ = l.Close() }()
		failures(t, l, addr1, "bob", 10)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, name := range []string{"weir_auth_locked", "weir_auth_key_count", "weir_auth_max_keys", "weir_auth_evicted_total"} {
				if f.GetName() == name && len(f.GetMetric()) > 0 {
					t.Errorf("%s is exported: %v", name, f.GetMetric())
				}
			}
		}
		if got := metric(t, reg, "weir_auth_lockouts_total", "scope", "account"); got != 1 {
			t.Errorf("%v lockouts, want 1", got)
		}
		auth := l.Snapshot().Auth
		if auth.Locked["account"] != 1 || auth.Locked["address"] != 0 || len(auth.Locks) != 1 {
			t.Errorf("%+v", auth)
		}
	})
}

// What is remembered is bounded, whatever the store tells.
func TestWhatIsRememberedOfLocksIsBounded(t *testing.T) {
	r := newRecall()
	a := store.Attempt{
		Counters: []store.Counter{{Scope: "address", Limit: store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}}},
		Account:  store.Account{Counter: store.Counter{Scope: "account"}, Remember: time.Hour},
	}
	for i := range 3 * recallBound {
		key := store.Key{byte(i), byte(i >> 8), byte(i >> 16)}
		a.Counters[0].Key, a.Account.Key, a.Account.Caller = key, key, key
		r.settled(&a, store.LockVerdict{Refused: -1}, store.Succeeded, r.now())
		r.begun(&a, store.LockVerdict{Refused: 0, RetryAfter: 1<<63 - 1, Known: true}, r.now())
	}
	if n, m := r.locks.Len(), r.callers.Len(); n != recallBound || m != recallBound {
		t.Errorf("%d locks and %d callers, want %d each", n, m, recallBound)
	}
	if n := r.refusals.Len(); n != refusalBound {
		t.Errorf("%d refusals, want %d", n, refusalBound)
	}
	if v := r.locked(&a); v.Refused != 0 || v.RetryAfter <= 0 {
		t.Errorf("the last one: %+v", v)
	}
}

// A verdict that is due in an outage is withheld if a lock was known before.
func TestAVerdictBehindARememberedLockIsWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, nil)
		r, other := list[0], list[1]
		late, err := r.Attempt(t.Context(), Credential{Account: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		other.told(20, "bob")
		r.answers(t, 429, elsewhere, "bob", "right", "locked by another replica")
		s.away.Store(true)
		if err := late.Succeed(); err == nil {
			t.Error("the outcome is told")
		}
	})
}

// Whom the store no longer knows is not admitted in an outage.
func TestWhoIsForgottenIsNotAdmittedInAnOutage(t *testing.T) {
	r := newRecall()
	a := store.Attempt{Account: store.Account{Counter: store.Counter{Scope: "account"}, Remember: time.Hour}}
	for _, known := range []bool{false, true, false} {
		r.begun(&a, store.LockVerdict{Refused: -1, Known: known}, r.now())
		b := a
		if r.admit(&b); b.Account.Admitted != known {
			t.Errorf("admitted: %v, and to the store known: %v", b.Account.Admitted, known)
		}
	}
}
