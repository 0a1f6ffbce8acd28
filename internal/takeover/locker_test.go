package takeover

import (
	"context"
	"errors"
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
			t.Errorf("%v, told of %v", err, l.failures)
		}
		s.SetPass(false)
		if _, err := attempt(); !errors.Is(err, ErrOpen) || l.failed("begin open") != 100 {
			t.Errorf("%v, told of %v where the process counts", err, l.failures)
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
