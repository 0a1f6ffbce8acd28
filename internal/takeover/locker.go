package takeover

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Locker returns the remote store's power to count failed attempts, or nil. While
// the breaker is open its calls fail at once with [ErrOpen], but for one case: see
// try. Who counts meanwhile is the caller's to say, for an attempt must be settled
// where it was begun. It is a [store.AttemptAdmitter] if the remote store is, unless
// that keeps what a call concerns on several nodes.
func (s *Store) Locker() store.Locker {
	l, ok := s.remote.(store.Locker)
	if !ok {
		return nil
	}
	if a, ok := l.(store.AttemptAdmitter); ok && s.sharded == nil {
		return attemptLocker{&locker{Locker: l, s: s}, a}
	}
	return &locker{Locker: l, s: s}
}

type locker struct {
	store.Locker
	s *Store
	// silent says that a call about locks has failed since the breaker was last seen
	// closed: who waits for one now waits in vain.
	silent atomic.Bool
}

// try makes a call that nobody here can make in the place of the remote store.
//
// The breaker opens when an answer is late, since a request that is decided here is
// decided as well. An attempt is not: each process that counts by itself tells its
// own limit, so a server that is merely busy for some 25 ms would tell a multiple of
// it. So a call about locks is never given up before its time is over, and as long
// as such calls are answered within it they are made even if the breaker is open.
// The first that is not ends that, until the breaker closes: what hangs costs each
// attempt that is under way one timeout, and those that come later none.
func (l *locker) try(ctx context.Context, op string, f func(context.Context) error) error {
	s := l.s
	if s.closed.Load() {
		return store.ErrClosed
	}
	c, ok := s.enter()
	if ok {
		l.silent.Store(false)
		c.ctx = context.Background() // the breaker's would end when it opens
		err := s.call(ctx, c, op, f)
		l.heard(err)
		return err
	}
	if l.silent.Load() || s.isRetired() {
		if s.pass.Load() { // else the caller has the process count
			s.opts.Hooks.Failed(op, ReasonOf(ErrOpen), ErrOpen)
		}
		return ErrOpen
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	begun := s.now()
	err := contained(ctx, f)
	if l.heard(err); err != nil {
		s.opts.Hooks.Failed(op, ReasonOf(err), err)
	} else {
		s.opts.Hooks.Answered(op, time.Duration(s.now()-begun))
	}
	return err
}

// heard notes how a call ended.
func (l *locker) heard(err error) {
	if err != nil {
		l.silent.Store(true)
	}
}

func (s *Store) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
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

func (l *locker) Begin(ctx context.Context, a *store.Attempt) (v store.LockVerdict, err error) {
	err = l.try(ctx, "begin", func(ctx context.Context) (err error) {
		v, err = Sound(a)(l.Locker.Begin(ctx, a))
		return err
	})
	return v, err
}

func (l *locker) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (v store.LockVerdict, err error) {
	err = l.try(ctx, "settle", func(ctx context.Context) (err error) {
		v, err = Sound(a)(l.Locker.Settle(ctx, a, o))
		return err
	})
	return v, err
}

func (l *locker) Unlock(ctx context.Context, scope string, key, caller store.Key) (was bool, err error) {
	err = l.try(ctx, "unlock", func(ctx context.Context) (err error) {
		was, err = l.Locker.Unlock(ctx, scope, key, caller)
		return err
	})
	return was, err
}

func (l *locker) Locks(ctx context.Context, scope string, n int, dst []store.Lock) (locks []store.Lock, err error) {
	locks = dst
	err = l.try(ctx, "locks", func(ctx context.Context) (err error) {
		locks, err = l.Locker.Locks(ctx, scope, n, dst)
		return err
	})
	return locks, err
}
