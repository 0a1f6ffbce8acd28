package gate

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestShrinkGrantsNothingUntilBelowAndGrowthWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 8, 6)
		var calls []*call
		for range 6 {
			calls = append(calls, acquire(t.Context(), g, noBound))
		}

		g.resize(4, 6)
		for held := 7; held >= 4; held-- {
			g.release()
			synctest.Wait()
			checkOccupancy(t, g, held, 6)
			checkInvariants(t, g)
		}
		g.release() // from 4 to 3: below
		calls[0].answered(t, nil, 0)
		checkOccupancy(t, g, 4, 5)

		g.resize(8, 6)
		for _, c := range calls[1:5] {
			c.answered(t, nil, 0)
		}
		calls[5].waiting(t)
		checkOccupancy(t, g, 8, 1)

		for range 9 {
			g.release()
			synctest.Wait()
		}
		calls[5].answered(t, nil, 0)
		checkIdle(t, g)
	})
}

func TestShorterQueueThrowsNobodyOutAndRefusesNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 4)
		var calls []*call
		for range 4 {
			calls = append(calls, acquire(t.Context(), g, time.Hour))
		}
		g.resize(1, 1)
		checkOccupancy(t, g, 1, 4)
		acquire(t.Context(), g, time.Hour).answered(t, ErrQueueFull, 0)

		// Each release lets one in; the queue takes newcomers again only
		// when it is shorter than its new bound.
		for _, c := range calls {
			acquire(t.Context(), g, time.Hour).answered(t, ErrQueueFull, 0)
			c.waiting(t)
			g.release()
			c.answered(t, nil, 0)
		}
		last := acquire(t.Context(), g, time.Hour)
		last.waiting(t)
		g.release()
		last.answered(t, nil, 0)
		g.release()
		checkIdle(t, g)
	})
}

func TestLongerQueueTakesMoreAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 0)
		acquire(t.Context(), g, noBound).answered(t, ErrQueueFull, 0)
		g.resize(1, 1)
		c := acquire(t.Context(), g, noBound)
		c.waiting(t)
		acquire(t.Context(), g, noBound).answered(t, ErrQueueFull, 0)
		g.release()
		c.answered(t, nil, 0)
		g.release()
		checkIdle(t, g)
	})
}

func TestNumbersReportedFollowResize(t *testing.T) {
	g := New(3, 7)
	for _, size := range [][2]int{{1, 0}, {100, 1000}, {3, 7}} {
		g.resize(size[0], size[1])
		if g.Slots() != size[0] || g.QueueCap() != size[1] {
			t.Errorf("after Resize(%d, %d): Slots() = %d, QueueCap() = %d",
				size[0], size[1], g.Slots(), g.QueueCap())
		}
	}
	checkIdle(t, g)
}
