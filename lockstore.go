package weir

import (
	"context"

	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/store"
)

// lockerOf returns who counts failures: the store, if it can.
func lockerOf(s store.Store, local *store.Memory) store.Locker {
	if l, ok := s.(store.Locker); ok {
		if s != store.Store(local) {
			return foreignLocker{l}
		}
		return l
	}
	return local
}

// foreignLocker is a [foreign] store's power to count failures.
type foreignLocker struct{ store.Locker }

func (f foreignLocker) Begin(ctx context.Context, a *store.Attempt) (v store.LockVerdict, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return takeover.Sound(a)(f.Locker.Begin(ctx, a))
}

func (f foreignLocker) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (v store.LockVerdict, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return takeover.Sound(a)(f.Locker.Settle(ctx, a, o))
}

// configureLocks tells the stores how many counters to keep, and has what the
// auth lock counts exported from now on.
func (l *Limiter) configureLocks(p *policy) {
	if p.lock == nil {
		return
	}
	l.counts.authLock.Store(true)
	for _, op := range []string{"begin", "settle"} {
		countIn(l.counts, l.counts.errors, errorKey(op, "other"))
	}
	for _, callback := range []string{"credential", "audit"} {
		countIn(l.counts, l.counts.panics, callback)
	}
	for _, w := range p.lock.words() {
		sc := store.LockScope{Name: p.lock.scopes[w], MaxKeys: p.cfg.AuthLock.MaxKeys}
		l.local.ConfigureLocks(sc)
		if l.locker != store.Locker(l.local) {
			l.locker.ConfigureLocks(sc)
		}
	}
}
