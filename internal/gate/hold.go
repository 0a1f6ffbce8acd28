package gate

import (
	"context"
	"sync/atomic"
)

// Hold is [Gate.Acquire] with a release that belongs to this one slot (row G6).
// The first call of release gives the slot back, every other call does nothing,
// from whichever goroutine and however many at once. So one holder that
// releases twice never frees the slot of another.
//
// release is never nil; after an error it does nothing, and deferring it before
// looking at the error is safe. A slot costs a small allocation here.
func (g *Gate) Hold(ctx context.Context, w *Work) (release func(), err error) {
	s, err := g.Acquire(ctx, w)
	if err != nil {
		return func() {}, err
	}
	h := &held{slot: s}
	return h.release, nil
}

type held struct {
	slot     Slot
	released atomic.Bool
}

func (h *held) release() {
	// A swap and not sync.Once: a second caller has no reason to wait for the
	// first.
	if !h.released.Swap(true) {
		h.slot.Release()
	}
}
