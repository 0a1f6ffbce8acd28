package main

import (
	"fmt"
	"runtime"
	"testing"
)

const sprayAsks = "A client spends its 10 an hour; then 2000 others send one request each, to a limiter bounded to 1000 keys where it has a bound. What the first gets " +
	"afterwards: 0 is right."

func spray(t *testing.T, c *column) []cell {
	if c.keyed == nil || c.keyed[0].as == "bursty" {
		return nil // one limiter for all
	}
	k := c.keyed[0]
	var freed int
	c.within(t, func(t *testing.T) {
		ask := k.open(t, perHour(10), 1000)
		taken(20, func() bool { return ask(client, 1).ok })
		for i := range 2000 {
			ask(address(i), 1)
		}
		freed = taken(20, func() bool { return ask(client, 1).ok })
	})
	got := fmt.Sprint(freed)
	if !c.bounded {
		got += " (no bound)"
	}
	return []cell{{k.as, got, verdictOn(freed == 0, wrong)}}
}

const growthAsks = "60 000 made-up keys at 10 an hour, with a bound of 1000 where there is one: MiB of heap after 20 000 and after 60 000. That it does not grow is right. " +
	"What sweeps keys once their time is over is weak: it grows until then."

func growth(t *testing.T, c *column) []cell {
	if c.keyed == nil || c.keyed[0].as == "bursty" || c.name == "redis_rate" {
		return nil // one limiter for all; the memory of another process
	}
	k := c.keyed[0]
	var after [2]float64
	c.within(t, func(t *testing.T) {
		before := heap()
		ask := k.open(t, perHour(10), 1000)
		for i := range 60_000 {
			ask(address(i), 1)
			if i+1 == 20_000 {
				after[0] = heap() - before
			}
		}
		after[1] = heap() - before
		runtime.KeepAlive(ask)
	})
	return []cell{{k.as, fmt.Sprintf("%.1f, %.1f", max(0, after[0]), max(0, after[1])), verdictOn(after[1]-after[0] < 1, weak)}}
}

// heap is what is alive, in MiB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

const sharedAsks = "Two limiters on one store, of 1 and of 5 an hour, are asked about the same client: the first is used up (2 asked), then the second. What the second admits: 5 is right."

func sharedStore(t *testing.T, c *column) []cell {
	var cells []cell
	for _, s := range c.shared {
		inTime(t, s.wall, func(t *testing.T) {
			a, b := s.open(t, perHour(1), perHour(5))
			taken(2, a)
			n := taken(20, b)
			cells = append(cells, cell{s.as, fmt.Sprint(n), verdictOn(n == 5, wrong)})
		})
	}
	return cells
}
