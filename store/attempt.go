package store

import (
	"context"
	"errors"
)

// ErrNotBegun is the error of an [AttemptAdmitter] that has admitted the checks and
// has not asked about the attempt. It is to be compared by [errors.Is].
var ErrNotBegun = errors.New("store: the checks are spent, the attempt has not begun")

// AttemptAdmitter is implemented by stores that can admit a request and begin its
// attempt in one call, where each call is a round trip (requirement S6). A limiter
// uses it of a [Pinger], for a request that brings its credential along. It is of no
// use to a store in the same process.
type AttemptAdmitter interface {
	Locker
	// AdmitAttempt is [Store.Admit] and then, if that admits, [Locker.Begin]: it
	// decides, spends, reserves and tells what these would, in this order.
	//
	// A request that the checks refuse begins no attempt: nothing is reserved, no
	// counter is told of, a.Ticket is 0 and the LockVerdict that of one that is
	// admitted. A lock that refuses leaves the checks spent, for who is locked out
	// still pays.
	//
	// On error nothing is known to have been spent or reserved, a.Ticket is 0 and
	// dst is returned as it was. There is one exception: with [ErrNotBegun] the checks
	// are admitted and spent as the Verdict and the states say, and Begin is left to
	// the caller. A store may answer so at any time.
	AdmitAttempt(ctx context.Context, checks []Check, dst []State, a *Attempt) (Verdict, []State, LockVerdict, error)
}
