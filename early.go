package weir

import (
	"context"
	"errors"

	"github.com/weir-go/weir/store"
)

// early is the attempt of a request that brings its credential along, as it goes
// through the tiers: where each call of the store is a round trip, the attempt begins
// in the call that admits the request (requirement S6). What is decided, and in what
// order, is what two calls would decide.
type early struct {
	a       *Attempt
	begun   bool
	verdict store.LockVerdict // if begun
}

// foresee returns the attempt that the auth lock's stage is about to begin, or nil if
// it shall begin by itself. That is so where it saves nothing, and with the function
// of WithCredential, which is called for requests that are admitted, and sees them
// with their Info.
func (l *Limiter) foresee(t *transit) *early {
	if !t.signs || l.attempts == nil || l.opts.credential != nil {
		return nil
	}
	cred, ok := credentialOf(t.c.auth, t.r)
	if !ok {
		return nil
	}
	a := &Attempt{l: l, p: t.p, who: t.who, class: t.c.name}
	t.p.lock.fill(a, &l.keyer, cred, true)
	return &early{a: a}
}

// spend asks the store, and begins the attempt of the basket if that admits. An
// attempt that this process would refuse by itself, or whose store is away, is left to
// the stage.
func (l *Limiter) spend(ctx context.Context, b *basket) (store.Verdict, []store.State, error) {
	if l.shared != nil { // that the client hangs up is no way past it, see beginLock
		ctx = context.WithoutCancel(ctx)
	}
	e := b.early
	if e == nil || !l.recall.refuses(&e.a.at).Admitted() || !l.lockedHere(ctx, e.a).Admitted() {
		return l.store.Admit(ctx, b.checks, b.states[:0])
	}
	sent := l.recall.now()
	v, states, lock, err := l.attempts.AdmitAttempt(ctx, b.checks, b.states[:0], &e.a.at)
	switch {
	case errors.Is(err, store.ErrNotBegun):
		err = nil
	case err == nil && v.Admitted():
		e.begun, e.verdict, e.a.by = true, lock, l.locker
		l.recall.begun(&e.a.at, lock, sent)
	}
	return v, states, err
}

// beginEarly is begin for an attempt that was foreseen, and has begun or begins now.
func (l *Limiter) beginEarly(ctx context.Context, e *early, v *visit, s *signIn) (*Attempt, *LockedError) {
	e.a.v, e.a.sign = v, s
	if !e.begun {
		e.verdict = l.beginLock(ctx, e.a)
	}
	return l.entered(e.a, e.verdict)
}

// drop gives back what an attempt has reserved that is not made after all.
func (e *early) drop() {
	if e != nil && e.begun && e.verdict.Admitted() {
		e.a.Ignore()
	}
}
