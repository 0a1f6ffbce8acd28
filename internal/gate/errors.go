package gate

import (
	"context"
	"errors"
)

// What Acquire and Hold report. Compare with [errors.Is]. All but
// ErrClosed are reasons of a rejection (requirement rows G3, G5, G8).
var (
	// ErrQueueFull is returned as it is, so that a refusal allocates nothing.
	ErrQueueFull = errors.New("queue full")

	// ErrTimeout says that no slot came within the longest wait allowed.
	ErrTimeout = errors.New("no slot within the longest wait")

	// ErrCanceled says that the caller's context ended first. An error that
	// matches it also matches the context's error and its cause.
	ErrCanceled = errors.New("canceled before a slot was granted")

	// ErrDeadline says that the caller could not have been served in time: within
	// the longest wait allowed, or by its deadline with the work done. It is told
	// so when it comes, or when its turn comes.
	ErrDeadline = errors.New("no slot in time to be of use")

	// ErrBackendShare says that the backend holds as many slots as one may.
	ErrBackendShare = errors.New("backend at its share of the slots")

	// ErrClosed says that the gate grants no more slots.
	ErrClosed = errors.New("gate closed")

	// errMustWait never leaves the package.
	errMustWait = errors.New("no slot at once")
)

// canceledError keeps the cause beside the context's own error. Wrapping the
// cause alone would hide context.DeadlineExceeded from callers who match that,
// whenever somebody set a cause of their own.
type canceledError struct {
	err   error // ctx.Err()
	cause error // context.Cause(ctx)
}

// canceled describes why ctx, which is done, ended.
func canceled(ctx context.Context) error {
	return &canceledError{err: ctx.Err(), cause: context.Cause(ctx)}
}

func (e *canceledError) Error() string {
	return ErrCanceled.Error() + ": " + e.cause.Error()
}

func (e *canceledError) Unwrap() []error {
	return []error{ErrCanceled, e.err, e.cause}
}
