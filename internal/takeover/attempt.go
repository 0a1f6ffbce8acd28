package takeover

import (
	"context"
	"errors"

	"github.com/weir-go/weir/store"
)

// attemptLocker is the Locker of a remote store that begins an attempt in the call
// that admits its request (requirement S6).
type attemptLocker struct {
	*locker
	remote store.AttemptAdmitter
}

var _ store.AttemptAdmitter = attemptLocker{}

// AdmitAttempt implements [store.AttemptAdmitter]. It decides over the checks as the
// Store's Admit does, be it from what the remote store has refused, from leases, or in
// its place. The attempt is begun if the remote store was asked and has admitted; in
// all else that is admitted the error is [store.ErrNotBegun], and Begin goes its own
// way: only the remote store may begin what it is to settle.
func (l attemptLocker) AdmitAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt) (store.Verdict, []store.State, store.LockVerdict, error) {
	a.Ticket = 0
	g := beginning{remote: l.remote, attempt: a, v: store.LockVerdict{Refused: -1}}
	v, states, err := l.s.decide(ctx, "admit", checks, &g, dst)
	switch {
	case err != nil:
		return v, states, store.LockVerdict{Refused: -1}, err
	case v.Admitted() && !g.begun:
		err = store.ErrNotBegun
	}
	return v, states, g.v, err
}

// beginning is an attempt that begins with the call that admits its request.
type beginning struct {
	remote  store.AttemptAdmitter
	attempt *store.Attempt
	begun   bool
	v       store.LockVerdict
}

// admit is the one call. An answer that is none, to either question, is an error of
// both, and nothing has begun.
func (g *beginning) admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	v, states, lock, err := g.remote.AdmitAttempt(ctx, checks, dst, g.attempt)
	switch {
	case errors.Is(err, store.ErrNotBegun):
		err = nil
	case err == nil && v.Admitted():
		n := len(g.attempt.Counters)
		if g.attempt.Account.Scope != "" {
			n++
		}
		if g.begun = lock.Refused < n && len(states) == len(dst)+len(checks); g.begun {
			g.v = lock
			return v, states, nil
		}
		err = errStates
	}
	g.attempt.Ticket = 0
	return v, states, err
}
