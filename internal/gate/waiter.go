package gate

import (
	"context"
	"time"
)

// A waiter is one caller that waits for a slot. Everything in it is guarded by
// the gate's mutex, except as noted.
//
// Waiters are not pooled. Recycling them would be safe with respect to the gate
// (once the verdict is in, nobody else keeps a pointer), but the channel would
// outlive the wait: a channel made inside a testing/synctest bubble must not be
// used in another one, and a user's tests would crash over a cache they cannot
// see. Only callers that wait anyway pay for the allocation.
type waiter struct {
	flow       *flow // nil once it is out of the queue
	prev, next *waiter

	// These never change. due and deadline are by the gate's clock, never for
	// none.
	lane     *Lane
	kind     *Kind
	maxWait  time.Duration
	due      time.Duration // when the wait has lasted for maxWait
	deadline time.Duration

	start   time.Duration // when it was granted a slot
	verdict verdict

	// decided is closed when the gate has decided; it orders the writes of
	// verdict and start before the waiter's reads, which may then do without
	// the mutex.
	decided chan struct{}
}

// A verdict is what the gate has decided about a waiter.
type verdict uint8

const (
	undecided verdict = iota // in the queue; all others are out of it
	granted                  // owns a slot, counted in Gate.held
	shut                     // the gate was closed
	displaced                // its place in the queue went to another
	expired                  // its turn came when it had waited for as long as it would
	tooLate                  // its turn came when it could not be done in time any more
	overShare                // its turn came when its backend had its share
)

// errs is what each verdict means to the caller.
var errs = [...]error{granted: nil, shut: ErrClosed, displaced: ErrQueueFull, expired: ErrTimeout, tooLate: ErrDeadline, overShare: ErrBackendShare}

// decide tells w, which is out of the queue, what became of it. It may be called
// once, and it is the last time that the gate touches w.
func (w *waiter) decide(v verdict) {
	w.verdict = v
	close(w.decided)
}

// await blocks until w, which is in the queue or has just been taken out of it
// by a verdict, knows how its wait ended.
func (w *waiter) await(ctx context.Context) (Slot, error) {
	done := ctx.Done()
	var start time.Time
	var expired <-chan time.Time // nil, never ready, without a bound
	if w.maxWait > 0 {
		start = time.Now()
		timer := time.NewTimer(w.maxWait)
		defer timer.Stop()
		expired = timer.C
	}

	timedOut := false
	select {
	case <-w.decided:
	case <-done:
	case <-expired:
		timedOut = true
	}

	// select picks at random among the cases that are ready, and more may have
	// become ready since. So look again, in the order in which they count. The
	// done channel answers in constant time; ctx.Err walks up through every
	// layer of values first. For the bound the clock is asked and not the
	// timer's channel, which has something to say only after the runtime has
	// run the timer: a grant in the very instant of the timeout can be faster.
	switch {
	case isClosed(done):
		// Leave before asking for the cause: that runs foreign code, which
		// may panic, and the slot must not go with it.
		w.leave()
		return Slot{}, canceled(ctx)
	case timedOut || w.maxWait > 0 && time.Since(start) >= w.maxWait:
		w.leave()
		return Slot{}, ErrTimeout
	}

	// Only the verdict is left to have woken us.
	if err := errs[w.verdict]; err != nil {
		return Slot{}, err
	}
	return Slot{w.lane, w.kind, w.start}, nil
}

// leave gives up whatever w has: its place in the queue, or the slot that was
// granted while w was already on its way out. This second case is where slots
// get lost if the waiter's decision to go and the gate's decision to grant are
// not made one after the other: both are made under mu, and here w learns which
// came first.
func (w *waiter) leave() {
	g := w.lane.gate
	g.mu.Lock()
	defer g.mu.Unlock()

	switch w.verdict {
	case undecided:
		// No slot comes free by this, so there is nobody to wake.
		g.removeLocked(w)
	case granted:
		w.lane.timesOf(w.kind.Times).lost(w.start)
		g.giveLocked(w.lane, w.kind.Backend)
		g.grantLocked()
	default:
		// It is out already.
	}
}

// isClosed reports whether c is closed. A nil channel, which a context that never
// ends has, is not.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
