package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// These tests are about two events in one instant. Where the order of events is
// fixed, the answer must be too, whatever the scheduler does; so each of them
// runs often, and never looks away from a wrong answer as one of bad luck.
const instants = 300

func TestCancellationBeforeTheGrantAlwaysWins(t *testing.T) {
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 2)
			ctx, cancel := context.WithCancel(t.Context())
			first := acquire(ctx, g, noBound)
			second := acquire(t.Context(), g, noBound)

			cancel()
			g.release() // finds first still in the queue, or does not

			first.answered(t, ErrCanceled, 0)
			second.answered(t, nil, 0)
			checkOccupancy(t, g, 1, 0)
			g.release()
			checkIdle(t, g)
		})
	}
}

// Here the waiter has seen its cancellation and stands before the mutex when
// the grant is made: the exact interleaving in which a careless gate loses the
// slot.
func TestSlotGrantedToALeaverIsHandedOn(t *testing.T) {
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 2)
			ctx, cancel := context.WithCancel(t.Context())
			first := acquire(ctx, g, noBound)
			second := acquire(t.Context(), g, noBound)

			g.mu.Lock()
			w := g.lanes[0].queue.first.first
			cancel()
			g.giveLocked(g.lanes[0], "")
			g.grantLocked()
			chosen := w.verdict == granted
			g.mu.Unlock()
			if !chosen {
				t.Fatal("the slot did not go to the first waiter")
			}

			first.answered(t, ErrCanceled, 0)
			second.answered(t, nil, 0)
			checkOccupancy(t, g, 1, 0)
			g.release()
			checkIdle(t, g)
		})
	}
}

// A crowd of sleepers, due in the same instant, keeps the runtime busy between
// the timer of the releaser and that of the waiter. So in many of the rounds
// the grant reaches a waiter whose own timer has not been run yet.
func TestGrantInTheInstantOfTheTimeoutIsHandedOn(t *testing.T) {
	const bound = 100 * time.Millisecond
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 2)
			go func() {
				time.Sleep(bound)
				g.release()
			}()
			synctest.Wait()
			for range 100 {
				go time.Sleep(bound)
			}
			first := acquire(t.Context(), g, bound)
			second := acquire(t.Context(), g, 2*bound)

			time.Sleep(bound)
			first.answered(t, ErrTimeout, bound)
			second.answered(t, nil, bound)
			checkOccupancy(t, g, 1, 0)
			g.release()
			checkIdle(t, g)
		})
	}
}

func TestGrantJustBeforeTheTimeoutIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 100 * time.Millisecond
		g := full(t, 1, 1)
		c := acquire(t.Context(), g, bound)
		time.Sleep(bound - time.Nanosecond)
		g.release()
		c.answered(t, nil, bound-time.Nanosecond)
		time.Sleep(bound)
		checkOccupancy(t, g, 1, 0)
		g.release()
		checkIdle(t, g)
	})
}

// Which of the two the waiter notices is open, as the context needs a goroutine
// of its own to end. That it leaves, once and on time, is not.
func TestDeadlineAndBoundInOneInstantEndTheWaitOnce(t *testing.T) {
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := acquire(ctx, g, time.Second)
			time.Sleep(time.Second)
			synctest.Wait()
			if !errors.Is(c.err, ErrCanceled) {
				c.answered(t, ErrTimeout, time.Second)
			}
			checkOccupancy(t, g, 1, 0)
			g.release()
			checkIdle(t, g)
		})
	}
}

func TestSlotHandedOnAfterAShrinkStaysUnused(t *testing.T) {
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 2, 2)
			ctx, cancel := context.WithCancel(t.Context())
			first := acquire(ctx, g, noBound)
			second := acquire(t.Context(), g, noBound)

			cancel()
			g.release()
			g.resize(1, 2)

			// second may have got the slot that first handed on before the
			// shrink came, but not after it, when one of one is taken.
			first.answered(t, ErrCanceled, 0)
			checkInvariants(t, g)
			g.release()
			second.answered(t, nil, 0)
			for g.InFlight() > 0 {
				g.release()
			}
			checkIdle(t, g)
		})
	}
}

func TestCancellationCountsBeforeClose(t *testing.T) {
	for range instants {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 2)
			ctx, cancel := context.WithCancel(t.Context())
			first := acquire(ctx, g, noBound)
			second := acquire(t.Context(), g, noBound)
			cancel()
			g.Close()
			first.answered(t, ErrCanceled, 0)
			second.answered(t, ErrClosed, 0)
			checkOccupancy(t, g, 1, 0)
			g.release()
		})
	}
}

func TestGrantCountsBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 1)
		c := acquire(t.Context(), g, noBound)
		g.release()
		g.Close()
		c.answered(t, nil, 0)
		checkOccupancy(t, g, 1, 0)
		g.release()
	})
}
