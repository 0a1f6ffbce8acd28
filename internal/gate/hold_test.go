package gate

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestReleaseOfAHoldCountsOnce(t *testing.T) {
	g := New(2, 0)
	mine, err := g.Hold(t.Context(), &Work{MaxWait: 0})
	admitted(t, err)
	other, err := g.Hold(t.Context(), &Work{MaxWait: 0})
	admitted(t, err)

	mine()
	mine()
	mine()
	checkOccupancy(t, g, 1, 0) // the slot of the other is untouched

	// Nor does a late call free the slot of whoever took it next.
	next, err := g.Hold(t.Context(), &Work{MaxWait: 0})
	admitted(t, err)
	mine()
	checkOccupancy(t, g, 2, 0)
	next()
	other()
	checkIdle(t, g)
}

func TestReleaseOfAHoldMayBeCalledByManyAtOnce(t *testing.T) {
	noGoroutineLeft(t)
	g := New(4, 0)
	for range 500 {
		keep, err := g.Hold(t.Context(), &Work{MaxWait: 0})
		admitted(t, err)
		release, err := g.Hold(t.Context(), &Work{MaxWait: 0})
		admitted(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(release)
		}
		wg.Wait()
		checkOccupancy(t, g, 1, 0)
		keep()
	}
	checkIdle(t, g)
}

func TestReleaseOfARefusedHoldDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 1)
		for _, tt := range []struct {
			wait time.Duration
			want error
		}{{0, ErrQueueFull}, {time.Second, ErrTimeout}} {
			release, err := g.Hold(t.Context(), &Work{MaxWait: tt.wait})
			refusedWith(t, err, tt.want)
			release()
			checkOccupancy(t, g, 1, 0)
		}
		release, err := g.Hold(ended(t.Context()), &Work{MaxWait: noBound})
		refusedWith(t, err, ErrCanceled)
		release()
		g.Close()
		release, err = g.Hold(t.Context(), &Work{MaxWait: noBound})
		refusedWith(t, err, ErrClosed)
		release()
		checkOccupancy(t, g, 1, 0)
		g.release()
	})
}
