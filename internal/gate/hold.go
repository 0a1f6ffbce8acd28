package gate

import (
	"context"
	"sync/atomic"
	"time"
)

// Hold is [Gate.Acquire] with a release that belongs to this one slot (row G6).
// The first call of release gives the slot back, every other call does nothing,
// from whichever goroutine and however many at once. So one holder that
// releases twice never frees the slot of another.
//
// release is never nil; after an error it does nothing, and deferring it before
// looking at the error is safe. A slot costs two small allocations here.
func (g *Gate) Hold(ctx context.Context, maxWait time.Duration) (release func(), err error) {
	if err := g.Acquire(ctx, maxWait); err != nil {
		return func() {}, err
	}
	var released atomic.Bool
	return func() {
		// A swap and not sync.Once: a second caller has no reason to wait
		// for the first.
		if !released.Swap(true) {
			g.Release()
		}
	}, nil
}
