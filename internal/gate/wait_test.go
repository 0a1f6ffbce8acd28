package gate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A call is one Acquire in a goroutine of its own, inside a bubble. After
// synctest.Wait its fields may be read.
type call struct {
	slot  Slot
	err   error
	over  bool
	after time.Duration // virtual time from call to answer
}

func acquireFor(ctx context.Context, g *Gate, w Work) *call {
	c := &call{}
	go func() {
		start := time.Now()
		c.slot, c.err = g.Acquire(ctx, &w)
		c.after = time.Since(start)
		c.over = true
	}()
	synctest.Wait() // so that calls queue in the order in which they are made
	return c
}

func acquire(ctx context.Context, g *Gate, maxWait time.Duration) *call {
	return acquireFor(ctx, g, Work{MaxWait: maxWait})
}

func (c *call) waiting(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if c.over {
		t.Fatalf("answered %v after %v, want it to wait", c.err, c.after)
	}
}

func (c *call) answered(t *testing.T, want error, after time.Duration) {
	t.Helper()
	synctest.Wait()
	if !c.over {
		t.Fatalf("still waits, want %v", want)
	}
	if !errors.Is(c.err, want) || c.after != after {
		t.Fatalf("answered %v after %v, want %v after %v", c.err, c.after, want, after)
	}
}

func TestOneRunsTenWaitAndTheTwelfthIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 10)
		var waiting []*call
		for range 10 {
			waiting = append(waiting, acquire(t.Context(), g, noBound))
		}
		acquire(t.Context(), g, time.Hour).answered(t, ErrQueueFull, 0)
		checkOccupancy(t, g, 1, 10)
		for _, c := range waiting {
			c.waiting(t)
		}

		// The place of whoever was let in is free again.
		g.release()
		waiting[0].answered(t, nil, 0)
		waiting = append(waiting, acquire(t.Context(), g, noBound))
		acquire(t.Context(), g, noBound).answered(t, ErrQueueFull, 0)

		for _, c := range waiting[1:] {
			c.waiting(t)
			g.release()
			c.answered(t, nil, 0)
		}
		g.release()
		checkIdle(t, g)
	})
}

func TestWaitersAreServedInTheOrderOfTheirArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 500
		g := full(t, 1, n)
		var order []int // written by the one holder of the one slot
		for i := range n {
			go func() {
				if g.acquire(t.Context(), noBound) != nil {
					return
				}
				order = append(order, i)
				time.Sleep(time.Millisecond)
				g.release()
			}()
			synctest.Wait()
		}
		g.release()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(order) != n || !slices.IsSorted(order) {
			t.Errorf("served %d of %d in the order %v", len(order), n, order)
		}
		checkIdle(t, g)
	})
}

func TestNewcomerDoesNotOvertakeAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 1)
		first := acquire(t.Context(), g, noBound)
		// No goroutine switch has to happen in between: the slot is the
		// waiter's before the waiter runs.
		g.release()
		refusedWith(t, g.acquire(t.Context(), 0), ErrQueueFull)
		first.answered(t, nil, 0)
		g.release()
		checkIdle(t, g)
	})
}

func TestWaitLastsExactlyAsLongAsAllowed(t *testing.T) {
	for _, tt := range []struct {
		name     string
		maxWait  time.Duration
		deadline time.Duration
		want     error
		after    time.Duration
	}{
		{"a bound of 100 ms", 100 * time.Millisecond, time.Hour, ErrTimeout, 100 * time.Millisecond},
		{"a bound of 1 ns", time.Nanosecond, time.Hour, ErrTimeout, time.Nanosecond},
		{"a deadline before the bound", time.Second, 50 * time.Millisecond, ErrCanceled, 50 * time.Millisecond},
		{"a deadline and no bound", noBound, 3 * time.Hour, ErrCanceled, 3 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := full(t, 1, 1)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				c := acquire(ctx, g, tt.maxWait)
				time.Sleep(tt.after - time.Nanosecond)
				c.waiting(t)
				checkOccupancy(t, g, 1, 1)
				time.Sleep(time.Nanosecond)
				c.answered(t, tt.want, tt.after)
				checkOccupancy(t, g, 1, 0)

				// Whoever left is not granted anything later.
				g.release()
				checkIdle(t, g)
			})
		})
	}
}

func TestCanceledWaiterLeavesAtOnceFromAnyPlace(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave []int
	}{
		{"the first", []int{0}},
		{"one in the middle", []int{2}},
		{"the last", []int{4}},
		{"all but one, out of order", []int{3, 0, 4, 1}},
		{"all", []int{0, 1, 2, 3, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := full(t, 1, 5)
				var calls [5]*call
				var cancels [5]context.CancelFunc
				for i := range calls {
					var ctx context.Context
					ctx, cancels[i] = context.WithCancel(t.Context())
					defer cancels[i]()
					calls[i] = acquire(ctx, g, time.Hour)
				}
				for n, i := range tt.leave {
					cancels[i]()
					calls[i].answered(t, ErrCanceled, 0)
					checkOccupancy(t, g, 1, 4-n)
					checkInvariants(t, g)
				}
				for i, c := range calls {
					if slices.Contains(tt.leave, i) {
						continue
					}
					c.waiting(t)
					g.release()
					c.answered(t, nil, 0)
				}
				g.release()
				checkIdle(t, g)
			})
		})
	}
}

func TestCloseSendsEveryWaiterAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 2, 3)
		calls := []*call{
			acquire(t.Context(), g, noBound),
			acquire(t.Context(), g, time.Hour),
			acquire(t.Context(), g, noBound),
		}
		g.Close()
		for _, c := range calls {
			c.answered(t, ErrClosed, 0)
		}
		checkInvariants(t, g)
		checkOccupancy(t, g, 2, 0)
		g.release()
		g.release()
		checkOccupancy(t, g, 0, 0)
	})
}
