package takeover

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// farAttempts is a far store that admits and begins at once, in the call that a test
// may put in the place of its own.
type farAttempts struct {
	*far
	answer func(v store.Verdict, states []store.State, l store.LockVerdict) (store.Verdict, []store.State, store.LockVerdict, error)
}

func (f *farAttempts) AdmitAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt) (store.Verdict, []store.State, store.LockVerdict, error) {
	a.Ticket = 0
	open := store.LockVerdict{Refused: -1}
	m, err := f.meet(ctx)
	if err != nil {
		return store.Verdict{}, dst, open, err
	}
	v, states, err := m.Admit(ctx, checks, dst)
	if err != nil || !v.Admitted() {
		return v, states, open, err
	}
	lock, err := m.Begin(ctx, a)
	if err == nil && f.answer != nil {
		return f.answer(v, states, lock)
	}
	return v, states, lock, err
}

// guess is an attempt that is under one counter, which locks with its first failure.
func guess() *store.Attempt {
	return &store.Attempt{
		Counters: []store.Counter{{Scope: "address", Limit: store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}}},
		Reserve:  store.ReserveAlways,
	}
}

// both is a Store and its Locker, as one store that passes the suite.
type both struct {
	store.Store
	store.AttemptAdmitter
}

func TestItAdmitsAndBeginsAsAStoreDoes(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := New(&farAttempts{far: newFar()}, store.NewMemory(), unhurried)
		return both{s, s.Locker().(store.AttemptAdmitter)}
	})
}

func TestAnAttemptBeginsWithTheCallThatAdmits(t *testing.T) {
	roomy, scant := ask("roomy", hourly, 100, 1), ask("scant", hourly, 1, 1)
	leased := store.Check{Scope: "leased", Limit: store.Limit{Rate: 1e6, Burst: 1e6}, Cost: 1}
	for name, tt := range map[string]struct {
		remote  store.Store
		before  func(t testing.TB, s *Store, f *far) // the call that counts
		checks  []store.Check
		calls   int64
		refused bool
		begun   bool // else it is left to Begin, or the checks refuse
	}{
		"in one call":                     {remote: &farAttempts{far: newFar()}, checks: []store.Check{roomy}, calls: 1, begun: true},
		"not where the checks refuse":     {remote: &farAttempts{far: newFar()}, before: drained, checks: []store.Check{roomy, scant}, refused: true},
		"not while the store is away":     {remote: &farAttempts{far: newFar()}, before: degrade, checks: []store.Check{roomy}},
		"not where leases cover all":      {remote: &farAttempts{far: newFar()}, before: leasing, checks: []store.Check{leased}},
		"beside what leases cover":        {remote: &farAttempts{far: newFar()}, before: leasing, checks: []store.Check{leased, roomy}, calls: 1, begun: true},
		"not where the call fails":        {remote: &farAttempts{far: newFar()}, before: func(_ testing.TB, _ *Store, f *far) { f.down() }, checks: []store.Check{roomy}, calls: 1},
		"not where the store leaves it":   {remote: answering(store.LockVerdict{Refused: -1}, store.ErrNotBegun), checks: []store.Check{roomy}, calls: 1},
		"not where it blames a stranger":  {remote: answering(store.LockVerdict{Refused: 1, RetryAfter: time.Second}, nil), checks: []store.Check{roomy}, calls: 1},
		"not where it says nothing of it": {remote: answering(store.LockVerdict{Refused: -1}, errDown), checks: []store.Check{roomy}, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(tt.remote, store.NewMemory(), unhurried)
			defer func() { _ = s.Close() }()
			f := tt.remote.(*farAttempts).far
			if tt.before != nil {
				tt.before(t, s, f)
			}
			a := guess()
			a.Ticket = 77
			var v store.Verdict
			var states []store.State
			var err error
			calls := f.asked(func() {
				v, states, _, err = s.Locker().(store.AttemptAdmitter).AdmitAttempt(context.Background(), tt.checks, nil, a)
			})
			if v.Admitted() == tt.refused || len(states) != len(tt.checks) {
				t.Fatalf("%+v, %+v, %v", v, states, err)
			}
			if calls != tt.calls {
				t.Errorf("%d calls, want %d", calls, tt.calls)
			}
			if left := errors.Is(err, store.ErrNotBegun); err != nil && !left || left == (tt.begun || !v.Admitted()) {
				t.Errorf("error %v, begun %v", err, tt.begun)
			}
			if (a.Ticket != 0) != tt.begun {
				t.Errorf("ticket %d, want one: %v", a.Ticket, tt.begun)
			}
		})
	}
}

// drained has the scant bucket refuse from now on, as is known here.
func drained(t testing.TB, s *Store, _ *far) {
	t.Helper()
	c := ask("scant", hourly, 1, 1)
	verdict(t, s, c)
	refused(t, s, c)
}

// leasing has tokens of the scope "leased" here.
func leasing(t testing.TB, s *Store, _ *far) {
	t.Helper()
	s.SetLeases(map[string]time.Duration{"leased": time.Hour})
	c := store.Check{Scope: "leased", Limit: store.Limit{Rate: 1e6, Burst: 1e6}, Cost: 1}
	for s.held(c) < 100 {
		verdict(t, s, c)
	}
}

// answering is a store that admits, and says that of the attempt.
func answering(l store.LockVerdict, err error) *farAttempts {
	return &farAttempts{newFar(), func(v store.Verdict, states []store.State, _ store.LockVerdict) (store.Verdict, []store.State, store.LockVerdict, error) {
		return v, states, l, err
	}}
}

// With on_error "allow" what fails is passed by the caller, uncounted.
func TestAFailedCallIsAnErrorWhereNobodyCounts(t *testing.T) {
	bubble(t, Options{Pass: true}, func(t *testing.T, s *Store, remote *far, _ *log) {
		l := attemptLocker{&locker{Locker: remote, s: s}, &farAttempts{far: remote}}
		remote.down()
		a := guess()
		_, states, lock, err := l.AdmitAttempt(context.Background(), []store.Check{ask("k", hourly, 1, 1)}, nil, a)
		if !errors.Is(err, errDown) || states != nil || !lock.Admitted() || a.Ticket != 0 {
			t.Errorf("%+v, %+v, ticket %d, %v", states, lock, a.Ticket, err)
		}
	})
}

func TestAStoreThatCannotDoBothAtOnceHasOnlyLocks(t *testing.T) {
	for name, remote := range map[string]store.Store{
		"it has no such power": newFar(),
		"it has several nodes": &farNodes{farAttempts{far: newFar()}},
	} {
		s := New(remote, store.NewMemory(), Options{})
		if _, ok := s.Locker().(store.AttemptAdmitter); ok || s.Locker() == nil {
			t.Errorf("%s: %T", name, s.Locker())
		}
		_ = s.Close()
	}
}

// farNodes says that it keeps its buckets on several nodes.
type farNodes struct{ farAttempts }

func (*farNodes) Watch(func(context.Context, string) (context.Context, func(error) error, error)) bool {
	return true
}
func (*farNodes) Node(*store.Check) string               { return "a" }
func (*farNodes) PingNode(context.Context, string) error { return nil }
