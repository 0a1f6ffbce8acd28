package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const refundAsks = "64 goroutines take one token and give it back, 1024 times over all, from a bucket of 2000 that hardly refills; " +
	"then, on a fresh one, 10 are taken and each is given back twice. How many tokens are there, against a bucket that nobody touched: as many is right, one less of the 1024 (rounding) is weak. " +
	"Where a library has no refund but takes a cost below 0, that is what was used."

// refunds passes in real time, for what is lost here is lost to the clock.
func refunds(t *testing.T, c *column) []cell {
	if c.refund == nil {
		return nil
	}
	q := quota{n: 2000, per: 1000 * time.Hour}
	full := c.refund(t, q).left()
	r := c.refund(t, q)
	parallel(64, func(int) {
		for range 1024 / 64 {
			if back := r.take(); back != nil {
				back()
			}
		}
	})
	lost := full - r.left()
	r = c.refund(t, q)
	for range 10 {
		if back := r.take(); back != nil {
			back()
			back()
		}
	}
	minted := max(0, r.left()-full)
	v := verdictOn(lost == 0 && minted == 0, wrong)
	if lost == 1 && minted == 0 {
		v = weak // rounding
	}
	return []cell{{"", fmt.Sprintf("%d lost, %d minted", lost, minted), v}}
}

const contentionAsks = "64 goroutines ask for one key without a pause for half a second, five times; the worst counts. Admitted, as a percentage of the most that the quota allows in the time " +
	"that was measured: burst + rate × time for a bucket, limit × (windows touched) for a counter of windows. 100 % or less is right (less is what a machine with other work does not ask for in time). Errors are counted apart. What is wrong here is so by luck of the schedule, in some runs more than in others."

func contention(t *testing.T, c *column) []cell {
	if c.keyed == nil {
		return nil
	}
	var cells []cell
	for _, k := range c.keyed {
		if k.as == "both" || k.as == "smooth" || k.as == "fixed window" || k.as == "sliding window" {
			continue // the same code under the lock, or not one key's
		}
		q, windows := c.hot, c.windows
		if k.as == "window" {
			q, windows = quota{n: 200, per: 20 * time.Millisecond}, true
		}
		if k.wall {
			q = serverHot
		}
		var worst rush
		var errors int64
		for range 5 {
			r := rushed(k.open(t, q, 0), q, windows)
			if r.share >= worst.share {
				worst = r
			}
			errors += r.errors
		}
		got := fmt.Sprintf("%.2f %%", worst.share*100)
		if errors > 0 {
			got += fmt.Sprintf(", %d errors", errors)
		}
		cells = append(cells, cell{k.as, got, verdictOn(worst.share <= 1 && errors == 0, wrong)})
	}
	return cells
}

// rush is what came of many callers at once: the share admitted of the most that
// may be, and how many calls failed.
type rush struct {
	share  float64
	errors int64
}

func rushed(ask take, q quota, windows bool) rush {
	var admitted, errors atomic.Int64
	start := time.Now()
	parallel(64, func(int) {
		for time.Since(start) < 500*time.Millisecond {
			switch a := ask(client, 1); {
			case a.err != nil:
				errors.Add(1)
			case a.ok:
				admitted.Add(1)
			}
		}
	})
	elapsed := time.Since(start)
	bound := float64(q.size()) + q.rate()*elapsed.Seconds()
	if windows {
		bound = float64(q.n) * float64(elapsed/q.per+2)
	}
	return rush{float64(admitted.Load()) / bound, errors.Load()}
}

const boundaryAsks = "10 a second. After one request, and then a pause of 0.043 to 0.993 s (each on a fresh limiter), as many as pass are sent, and again every 50 ms for a second. " +
	"The most that were admitted in any interval as long as the window, and in any 100 ms. No more than 10 is right: it is what a window promises. A bucket promises burst + rate × time, " +
	"which is up to 20, and 11 in 100 ms: weak here. More than that, two budgets in a moment, is wrong, also where it is documented."

func boundary(t *testing.T, c *column) []cell {
	if c.keyed == nil {
		return nil
	}
	const n, per, step = 10, time.Second, 50 * time.Millisecond
	var cells []cell
	for _, k := range c.keyed {
		if k.as == "Reserve, Cancel" {
			continue
		}
		var long, short int
		wall := c.wall || k.wall
		inTime(t, wall, func(t *testing.T) {
			first := 1
			if wall {
				first = 19 // real seconds: the late ones only
			}
			for p := first; p <= 20; p++ {
				time.Sleep(time.Until(time.Now().Truncate(per).Add(per))) // some windows begin with the second
				ask := k.open(t, quota{n: n, per: per}, 0)
				var passed []span
				try := func() bool {
					begun := time.Now()
					if !ask(client, 1).ok {
						return false
					}
					passed = append(passed, span{begun, time.Now()})
					return true
				}
				try()
				time.Sleep(time.Duration(p)*step - 7*time.Millisecond) // never on a boundary
				for range per/step + 1 {
					for try() {
					}
					time.Sleep(step)
				}
				long, short = max(long, most(passed, per)), max(short, most(passed, 2*step))
			}
		})
		v := wrong
		switch {
		case long <= n:
			v = right
		case short <= n+1 && long <= 2*n:
			v = weak
		}
		cells = append(cells, cell{k.as, fmt.Sprintf("%d, %d", long, short), v})
	}
	return cells
}

// span is a call: what it did, it did at some instant within.
type span struct{ begun, ended time.Time }

// most is how many of the calls, which are in order, surely lie in one half-open
// interval: one that is slow to answer never makes it more.
func most(calls []span, length time.Duration) (n int) {
	first := 0
	for last := range calls {
		for first < last && calls[last].ended.Sub(calls[first].begun) >= length {
			first++
		}
		if calls[last].ended.Sub(calls[first].begun) < length {
			n = max(n, last-first+1)
		}
	}
	return n
}

const refillAsks = "100 000 a second, burst 10 000 where there is one, written as its documentation writes a rate; one caller asks every 5 µs for 3 s, twice as often. " +
	"What it gets of the 300 000, and of the burst: 99 to 101 % is right. Where the seconds are real ones the caller asks without a pause (redis_rate: 50 tokens a call), " +
	"and there is no answer if it could not ask for as much."

func refill(t *testing.T, c *column) []cell {
	if c.keyed == nil {
		return nil
	}
	var share, asked float64
	k := c.keyed[0]
	c.within(t, func(t *testing.T) {
		const length = 3 * time.Second
		q := quota{n: 100_000, per: time.Second, burst: 10_000}
		ask, cost, calls, got := k.open(t, q, 0), 1, 0, 0
		if c.wall && c.costs {
			cost = 50
		}
		start := time.Now()
		for time.Since(start) < length {
			calls++
			if ask(client, cost).ok {
				got += cost
			}
			if !c.wall {
				time.Sleep(5 * time.Microsecond)
			}
		}
		all := q.rate() * time.Since(start).Seconds()
		if !c.windows {
			all += float64(q.size())
		}
		share, asked = float64(got)/all, float64(calls*cost)/all
	})
	if c.wall && asked < 1.5 {
		return nil
	}
	v := wrong
	switch {
	case share > 0.99 && share < 1.01:
		v = right
	case share > 0.9 && share <= 1:
		v = weak
	}
	return []cell{{k.as, fmt.Sprintf("%.1f %%", share*100), v}}
}

// parallel runs n goroutines and waits for them.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}
