package weir

import (
	"context"

	"github.com/weir-go/weir/store"
)

// Who decides over an attempt: the store, or, while it fails, this process
// (requirements S4, S8). An attempt that was begun here is settled here. One that
// was begun there is settled there and, if that fails, here: its failure may then be
// counted in both, but is never lost. For a Config that says on_error "allow",
// whatever the store does not take is not counted at all.
//
// While the store is away each process counts from what it knows (see recall), so R
// processes tell at most R times the limit, beside what the store has told in the
// same window. On return the counts are not merged, and what is locked here stays
// so until it ends.

// beginLock asks whether an attempt may be made. The store is asked even if the
// request is over: who closes its half of the connection, or trickles its body until
// a deadline has passed, still reads the answer, and would else guess where nobody
// counts. The store's own timeout bounds the wait.
func (l *Limiter) beginLock(ctx context.Context, a *Attempt) store.LockVerdict {
	if l.locker == store.Locker(l.local) {
		return l.beginLocally(ctx, a)
	}
	ctx = context.WithoutCancel(ctx)
	if v := l.recall.refuses(&a.at); !v.Admitted() {
		return v
	}
	if v := l.lockedHere(ctx, a); !v.Admitted() {
		return v
	}
	sent := l.recall.now()
	v, err := l.locker.Begin(ctx, &a.at)
	if err == nil {
		a.by = l.locker
		l.recall.begun(&a.at, v, sent)
		return v
	}
	l.storeFailed("begin", err)
	if a.p.cfg.Store.OnError == "allow" {
		return store.LockVerdict{Refused: -1}
	}
	l.stoodIn.Store(true)
	l.recall.admit(&a.at)
	if v := l.recall.locked(&a.at); !v.Admitted() {
		return v
	}
	return l.beginLocally(ctx, a)
}

func (l *Limiter) beginLocally(ctx context.Context, a *Attempt) store.LockVerdict {
	v, err := l.local.Begin(ctx, &a.at)
	if err != nil {
		return store.LockVerdict{Refused: -1}
	}
	a.by = l.local
	return v
}

// lockedHere is the longest lock in the way that this process has begun while it
// stood in. It holds until it ends, also when the store is back. The look costs a
// mutex and a few map look-ups, beside a call to another process.
func (l *Limiter) lockedHere(ctx context.Context, a *Attempt) store.LockVerdict {
	open := store.LockVerdict{Refused: -1}
	if !l.stoodIn.Load() {
		return open
	}
	look := a.at
	look.Reserve = store.ReserveNever
	l.recall.admit(&look)
	v, err := l.local.Begin(ctx, &look)
	if err != nil || v.Admitted() {
		return open
	}
	if v.Refused < len(look.Counters) || v.Known || look.Account.Remember <= 0 {
		return v
	}
	// The account is locked here, but not for a caller that the store knows.
	there := a.at
	there.Reserve = store.ReserveNever
	sent := l.recall.now()
	w, err := l.locker.Begin(ctx, &there)
	switch {
	case err != nil:
		return v
	case !w.Known:
		l.recall.refused(&a.at, v, sent)
		return v
	}
	l.recall.begun(&there, w, sent)
	look.Account.Admitted = true
	if v, err = l.local.Begin(ctx, &look); err != nil || v.Admitted() {
		return open
	}
	return v
}

// settleLock settles an attempt where it was begun. The client may have gone;
// its verdict is due all the same. a.mu is held.
func (l *Limiter) settleLock(a *Attempt, o store.Outcome) store.LockVerdict {
	ctx, sent := context.Background(), l.recall.now()
	v, err := a.by.Settle(ctx, &a.at, o)
	if err == nil {
		if a.by != store.Locker(l.local) {
			l.recall.settled(&a.at, v, o, sent)
		}
		return v
	}
	l.storeFailed("settle", err)
	open := store.LockVerdict{Refused: -1}
	// The places of an attempt without a verdict are free again after
	// store.ReservationTTL.
	if o == store.Ignored || a.by == store.Locker(l.local) || a.p.cfg.Store.OnError == "allow" {
		return open
	}
	l.stoodIn.Store(true)
	here := a.at
	here.Ticket = 0
	l.recall.admit(&here)
	if v := l.recall.locked(&here); !v.Admitted() {
		return v
	}
	if v, err = l.local.Settle(ctx, &here, o); err != nil {
		return open
	}
	return v
}
