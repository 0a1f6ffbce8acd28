package takeover

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store"
)

// ErrOpen is the error of a call that was not made because calls before it
// failed.
var ErrOpen = errors.New("not asked: the store has failed, and is not back yet")

var (
	errStalled = errors.New("no answer: the oldest call under way is too old")
	errGivenUp = errors.New("given up: the store has failed meanwhile")
	errStates  = errors.New("the store answered about other checks or counters than it was asked")
)

// Panic is a panic of a store, as an error.
type Panic struct{ Value any }

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// ReasonOf says in one word why a call failed.
func ReasonOf(err error) string {
	if r, ok := errors.AsType[store.Reasoner](err); ok {
		return r.StoreReason()
	}
	if _, ok := errors.AsType[*Panic](err); ok {
		return "panic"
	}
	switch {
	case errors.Is(err, ErrOpen):
		return "open"
	case errors.Is(err, errStalled), errors.Is(err, errGivenUp):
		return "stalled"
	case errors.Is(err, errStates):
		return "reply"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, store.ErrClosed):
		return "closed"
	}
	return "other"
}
