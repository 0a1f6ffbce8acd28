package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const refundAsks = "64 goroutines take one token and give it back, 1000 times over all, from a bucket of 2000 that hardly refills; " +
	"then 10 more are taken, and each is given back twice. How many tokens are there: 2000 is right. Where a library has no refund but a cost below 0 " +
	"is taken, that is what was used."

func refunds(t *testing.T, c *column) []cell {
	if c.refund == nil {
		return nil
	}
	var lost, over int
	c.within(t, func(t *testing.T) {
		q := perHour(2000)
		q.per *= 1000
		if c.wall {
			q.per = time.Hour // an interval of 1000 h is beyond what they can hold
		}
		r := c.refund(t, q)
		parallel(64, func(int) {
			for range 1000 / 64 {
				if back := r.take(); back != nil {
					back()
				}
			}
		})
		lost = 2000 - r.left()
		r = c.refund(t, q)
		for range 10 {
			if back := r.take(); back != nil {
				back()
				back()
			}
		}
		over = r.left() - 2000
	})
	return []cell{{"", fmt.Sprintf("%d lost, %d minted", lost, max(0, over)), verdictOn(lost == 0 && over <= 0, wrong)}}
}

const contentionAsks = "64 goroutines ask for one key without a pause for half a second, three times. Admitted, as a percentage of the most that the quota allows in the time " +
	"that was measured: burst + rate × time for a bucket, limit × (windows touched) for a counter of windows. 100 % or less is right. Errors are counted apart."

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
		var worst float64
		var errors int64
		for range 3 {
			share, failed := rush(k.open(t, q, 0), q, windows)
			worst, errors = max(worst, share), errors+failed
		}
		got := fmt.Sprintf("%.0f %%", worst*100)
		if errors > 0 {
			got += fmt.Sprintf(", %d errors", errors)
		}
		cells = append(cells, cell{k.as, got, verdictOn(worst <= 1 && errors == 0, wrong)})
	}
	return cells
}

// rush returns what was admitted, as a share of the most that may be, and how
// many calls failed.
func rush(ask take, q quota, windows bool) (share float64, failed int64) {
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
	return float64(admitted.Load()) / bound, errors.Load()
}

const boundaryAsks = "10 a second. After one request, and then a pause of 0.05 to 0.95 s (each on a fresh limiter), as many as pass are sent, and again every 50 ms for a second. " +
	"The most that were admitted in any interval as long as the window, and in any 50 ms. Up to 10 and 10 keeps a window's promise; a bucket promises burst + rate × time, " +
	"so 20 and 10, less one that is not quite there; 20 and 20, the fixed window, lets two budgets through in a moment."

func boundary(t *testing.T, c *column) []cell {
	if c.keyed == nil {
		return nil
	}
	const n, per, step = 10, time.Second, 50 * time.Millisecond
	var cells []cell
	for _, k := range c.keyed {
		if k.as == "AllowN" {
			continue
		}
		var long, short int
		c.within(t, func(t *testing.T) {
			pauses := 19
			first := 1
			if c.wall {
				first = 17 // real seconds: the late ones only
			}
			for p := first; p <= pauses; p++ {
				ask := k.open(t, quota{n: n, per: per}, 0)
				var at []time.Time
				burst := func() {
					for ask(client, 1).ok {
						at = append(at, time.Now())
					}
				}
				if ask(client, 1).ok {
					at = append(at, time.Now())
				}
				time.Sleep(time.Duration(p) * step)
				for range per/step + 1 {
					burst()
					time.Sleep(step)
				}
				long, short = max(long, most(at, per)), max(short, most(at, step))
			}
		})
		v := wrong
		switch {
		case long <= n:
			v = right
		case short <= n && long <= 2*n:
			v = weak
		}
		cells = append(cells, cell{k.as, fmt.Sprintf("%d, %d", long, short), v})
	}
	return cells
}

// most is how many of the instants lie in one half-open interval at most.
func most(at []time.Time, length time.Duration) (n int) {
	slices.SortFunc(at, time.Time.Compare)
	for first, last := 0, 0; last < len(at); last++ {
		for at[last].Sub(at[first]) >= length {
			first++
		}
		n = max(n, last-first+1)
	}
	return n
}

const refillAsks = "100 000 a second, burst 100 where there is one, written as its documentation writes a rate; one caller asks every 10 µs for 3 s. " +
	"What it gets of the 300 000: 99 to 101 % is right. Where the seconds are real ones the caller asks without a pause (redis_rate: 20 tokens a call)."

func refill(t *testing.T, c *column) []cell {
	if c.keyed == nil {
		return nil
	}
	var share float64
	k := c.keyed[0]
	c.within(t, func(t *testing.T) {
		const length = 3 * time.Second
		q := quota{n: 100_000, per: time.Second, burst: 100}
		ask, cost, got := k.open(t, q, 0), 1, 0
		if c.wall && c.costs {
			cost = 20
		}
		start := time.Now()
		for time.Since(start) < length {
			if ask(client, cost).ok {
				got += cost
			}
			if !c.wall {
				time.Sleep(10 * time.Microsecond)
			}
		}
		share = float64(got) / (q.rate() * time.Since(start).Seconds())
	})
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
