package takeover

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// Begin fails as the far store does.
func (f *far) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	m, err := f.meet(ctx)
	if err != nil {
		return store.LockVerdict{}, err
	}
	return m.Begin(ctx, a)
}

func TestAttemptsGoThroughTheBreaker(t *testing.T) {
	bubble(t, Options{Pass: true}, func(t *testing.T, s *Store, remote *far, l *log) {
		locks := s.Locker()
		attempt := func() (store.LockVerdict, error) {
			a := &store.Attempt{Counters: []store.Counter{{Scope: "address", Limit: store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}}}}
			v, err := locks.Begin(context.Background(), a)
			if err == nil && v.Admitted() {
				_, err = locks.Settle(context.Background(), a, store.Failed)
			}
			return v, err
		}
		if v, err := attempt(); err != nil || !v.Admitted() {
			t.Fatalf("%+v, %v", v, err)
		}
		if v, err := attempt(); err != nil || v.Admitted() {
			t.Fatalf("%+v, %v, want a lock", v, err)
		}
		if list, err := locks.Locks(context.Background(), "address", 9, nil); err != nil || len(list) != 1 {
			t.Errorf("%v, %v, want one lock", list, err)
		}
		remote.hangs()
		calls := remote.asked(func() {
			for range 100 {
				if _, err := attempt(); err == nil {
					t.Fatal("decided by nobody")
				}
			}
		})
		if calls != 1 {
			t.Errorf("%d calls of a hundred attempts, want 1", calls)
		}
		if _, err := attempt(); !errors.Is(err, ErrOpen) || l.failed("begin open") != 100 {
			t.Errorf("%v, told of %v", err, l.failedAs())
		}
		s.SetPass(false)
		if _, err := attempt(); !errors.Is(err, ErrOpen) || l.failed("begin open") != 100 {
			t.Errorf("%v, told of %v where the process counts", err, l.failedAs())
		}
		returns(t, s, remote)
		synctest.Wait()
		if was, err := locks.Unlock(context.Background(), "address", store.Key{}, store.Key{}); err != nil || !was {
			t.Errorf("%v, %v, want the lock lifted", was, err)
		}
	})
}

func TestAStoreWithoutLocksHasNone(t *testing.T) {
	s := New(blind{store.NewMemory()}, store.NewMemory(), Options{})
	defer func() { _ = s.Close() }()
	if l := s.Locker(); l != nil {
		t.Errorf("%v", l)
	}
}

// attempts makes n attempts at once and returns how many the remote store began, and
// the longest that one took.
func attempts(locks store.Locker, n int) (begun int, longest time.Duration) {
	took := make([]time.Duration, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			began := time.Now()
			a := &store.Attempt{Counters: []store.Counter{{Scope: "address", Limit: store.LockLimit{Max: 1 << 30, Window: time.Hour, Lockout: time.Hour}}}}
			_, errs[i] = locks.Begin(context.Background(), a)
			took[i] = time.Since(began)
		})
	}
	wg.Wait()
	for i := range n {
		if errs[i] == nil {
			begun++
		}
		longest = max(longest, took[i])
	}
	return begun, longest
}

// A server that is late is not one that is away: requests are decided here, and
// attempts go on being counted where all are.
func TestAttemptsWaitForAServerThatIsBusy(t *testing.T) {
	for _, pass := range []bool{false, true} {
		bubble(t, Options{Pass: pass}, func(t *testing.T, s *Store, remote *far, l *log) {
			locks := s.Locker()
			attempts(locks, 10) // it is quick
			remote.slow(60 * time.Millisecond)
			go attempts(locks, 10)
			time.Sleep(30 * time.Millisecond) // the oldest is too old by now
			if n, took := attempts(locks, 20); n != 20 || took > 100*time.Millisecond {
				t.Errorf("%d of 20 were begun, the slowest in %v", n, took)
			}
			if !s.Degraded() {
				t.Error("the breaker is closed: this shows nothing")
			}
			time.Sleep(100 * time.Millisecond)
			if l.failed("begin stalled")+l.failed("begin open")+l.failed("begin timeout") != 0 {
				t.Errorf("failed: %v", l.failures)
			}
		})
	}
}

// One that hangs keeps those waiting that are under way, each for one timeout, and
// nobody who comes later.
func TestAttemptsDoNotWaitForAServerThatHangs(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		locks := s.Locker()
		attempts(locks, 10)
		for range 3 { // outages
			remote.hangs()
			go attempts(locks, 10)
			time.Sleep(30 * time.Millisecond)
			if n, took := attempts(locks, 50); n != 0 || took != 100*time.Millisecond {
				t.Errorf("%d were begun, the slowest took %v", n, took)
			}
			calls := remote.asked(func() {
				if n, took := attempts(locks, 50); n != 0 || took != 0 {
					t.Errorf("later, %d were begun, the slowest took %v", n, took)
				}
			})
			if calls != 0 {
				t.Errorf("%d calls", calls)
			}
			returns(t, s, remote)
			if n, _ := attempts(locks, 50); n != 50 {
				t.Errorf("%d of 50 were begun when it was back", n)
			}
			time.Sleep(2 * probation)
		}
	})
}

// Where Close has ended all calls none is made.
func TestNoAttemptAsksAfterClose(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		locks := s.Locker()
		attempts(locks, 1)
		if err := s.Retire(true); err != nil {
			t.Fatal(err)
		}
		if calls := remote.asked(func() { attempts(locks, 10) }); calls != 0 || len(l.failures) != 0 {
			t.Errorf("%d calls, failed: %v", calls, l.failures)
		}
	})
}
