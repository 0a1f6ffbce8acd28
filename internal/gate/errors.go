package gate

import (
	"context"
	"errors"
)

// What Acquire and Hold report. Compare with [errors.Is]. Requirement row G3
// turns the first three into the reasons of a rejection.
var (
	// ErrQueueFull is returned as it is, so that a refusal allocates nothing.
	ErrQueueFull = errors.New("queue full")

	// ErrTimeout says that no slot came within the longest wait allowed.
	ErrTimeout = errors.New("no slot within the longest wait")

	// ErrCanceled says that the caller's context ended first. An error that
	// matches it also matches the context's error and its cause.
	ErrCanceled = errors.New("canceled before a slot was granted")

	// ErrClosed says that the gate grants no more slots.
	ErrClosed = errors.New("gate closed")
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
