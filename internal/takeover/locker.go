package takeover

import (
	"context"

	"github.com/weir-go/weir/store"
)

// Locker returns the remote store's power to count failed attempts, or nil. Its
// calls go through the breaker too: while it is open they fail at once with
// [ErrOpen]. Who counts meanwhile is the caller's to say, for an attempt must be
// settled where it was begun.
func (s *Store) Locker() store.Locker {
	if l, ok := s.remote.(store.Locker); ok {
		return locker{l, s}
	}
	return nil
}

type locker struct {
	store.Locker
	s *Store
}

// try makes a call that nobody here can make in the place of the remote store.
func (s *Store) try(ctx context.Context, op string, f func(context.Context) error) error {
	c, ok := s.enter()
	if !ok {
		if s.pass.Load() { // else the caller has the process count
			s.opts.Hooks.Failed(op, ReasonOf(ErrOpen), ErrOpen)
		}
		return ErrOpen
	}
	return s.call(ctx, c, op, f)
}

// Sound makes an error of a verdict that names counters which the attempt is not
// under: whoever looks up what it blames must not be led astray.
func Sound(a *store.Attempt) func(store.LockVerdict, error) (store.LockVerdict, error) {
	n := len(a.Counters)
	if a.Account.Scope != "" {
		n++
	}
	return func(v store.LockVerdict, err error) (store.LockVerdict, error) {
		if err == nil && (v.Refused >= n || v.Started>>n != 0) {
			return store.LockVerdict{Refused: -1}, errStates
		}
		return v, err
	}
}

func (l locker) Begin(ctx context.Context, a *store.Attempt) (v store.LockVerdict, err error) {
	err = l.s.try(ctx, "begin", func(ctx context.Context) (err error) {
		v, err = Sound(a)(l.Locker.Begin(ctx, a))
		return err
	})
	return v, err
}

func (l locker) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (v store.LockVerdict, err error) {
	err = l.s.try(ctx, "settle", func(ctx context.Context) (err error) {
		v, err = Sound(a)(l.Locker.Settle(ctx, a, o))
		return err
	})
	return v, err
}

func (l locker) Unlock(ctx context.Context, scope string, key, caller store.Key) (was bool, err error) {
	err = l.s.try(ctx, "unlock", func(ctx context.Context) (err error) {
		was, err = l.Locker.Unlock(ctx, scope, key, caller)
		return err
	})
	return was, err
}

func (l locker) Locks(ctx context.Context, scope string, n int, dst []store.Lock) (locks []store.Lock, err error) {
	locks = dst
	err = l.s.try(ctx, "locks", func(ctx context.Context) (err error) {
		locks, err = l.Locker.Locks(ctx, scope, n, dst)
		return err
	})
	return locks, err
}
