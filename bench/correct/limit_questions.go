package main

import (
	"fmt"
	"testing"
	"time"
)

const costAsks = "10 a second, and 11 are asked for at once, which can never pass. What the caller is told; then, if that was a time, it waits so long and asks again. " +
	"\"Never\", or a refusal without a time, is right; a time after which it is refused again is wrong, for it is told so for ever."

func costly(t *testing.T, c *column) []cell {
	if c.keyed == nil || !c.costs {
		return nil
	}
	var cells []cell
	if c.dear != nil {
		got, v := "made", wrong
		if c.dear() != nil {
			got, v = "refused when made", right
		}
		cells = append(cells, cell{"in a configuration", got, v})
	}
	k := c.keyed[0]
	c.within(t, func(t *testing.T) {
		ask := k.open(t, quota{n: 10, per: time.Second}, 0)
		a := ask(client, 11)
		answered := cell{k.as, "refused", right}
		switch {
		case a.ok:
			answered.got, answered.verdict = "admitted", wrong
		case a.err != nil:
			answered.got = "an error"
		case a.wait == never:
			answered.got = "never"
		case a.wait >= 0:
			time.Sleep(a.wait)
			again := "passes"
			if !ask(client, 11).ok {
				again, answered.verdict = "refused again", wrong
			}
			answered.got = seconds(a.wait) + ", then " + again
		}
		cells = append(cells, answered)
	})
	return cells
}

const zeroAsks = "Limits of nothing, as far as they can be written. Of 20 requests at once: admitted. None, an error when it is made, or the burst and no more is right; something else that is documented is weak; " +
	"a panic, an error with each request, or more than was written is wrong."

func nothing(t *testing.T, c *column) []cell {
	var cells []cell
	for _, z := range c.zeros {
		c.within(t, func(t *testing.T) {
			got, v := tryZero(t, z)
			cells = append(cells, cell{z.as, got, v})
		})
	}
	return cells
}

func tryZero(t *testing.T, z zero) (got string, v verdict) {
	defer func() {
		if recover() != nil {
			got, v = "panics", wrong
		}
	}()
	ask, err := z.open(t)
	if err != nil {
		return "refused when made", right
	}
	errors := 0
	n := taken(20, func() bool {
		a := ask(client, 1)
		if a.err != nil {
			errors++
		}
		return a.ok
	})
	switch {
	case errors > 0:
		return "errors", wrong
	case n == 0, n == 5 && z.as == "rate 0, burst 5", n == 1 && z.as == "MaxBurst 0":
		return fmt.Sprint(n), right // throttled's MaxBurst is what goes beyond the one
	case documented(z.as):
		return fmt.Sprint(n), weak
	}
	return fmt.Sprint(n), wrong
}

func documented(as string) bool {
	return as == "both 0 (documented: no limit)" || as == "Tokens 0 (documented: 1)"
}

const reloadAsks = "10 an hour, of which 2 are spent; then the limit becomes 3 an hour, by the means it has, without a restart. What this client then still gets: 1 to 3 is right " +
	"(3 less the 2, or a bucket clamped to 3), more has not reached it."

func reloads(t *testing.T, c *column) []cell {
	if c.reload == nil {
		return nil
	}
	var cells []cell
	c.within(t, func(t *testing.T) {
		r := c.reload(t, perHour(10), perHour(3))
		taken(2, r.take)
		r.change()
		n := taken(20, r.take)
		cells = []cell{{r.as, fmt.Sprint(n), verdictOn(n >= 1 && n <= 3, wrong)}}
	})
	return cells
}

const clockAsks = "10 at once and 1 a second, where the time can be told to it. 5 are spent; the clock is set back by an hour (20 asked), and goes on to 5 s after the start (20 asked). " +
	"Admitted then and then: 10 together is right, which are the 5 that were left and 5 s of refill; more is minted, less leaves a client out. weir's memory store reads a monotonic clock, which nobody sets."

func clockBack(t *testing.T, c *column) []cell {
	if c.clock == nil {
		return nil
	}
	at := c.clock(t, quota{n: 1, per: time.Second, burst: 10})
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ask := func(n int, now time.Time) int { return taken(n, func() bool { return at(now) }) }
	if spent := ask(5, start); spent != 5 {
		t.Fatalf("%s: %d of 5 from a full bucket", c.name, spent)
	}
	back, on := ask(20, start.Add(-time.Hour)), ask(20, start.Add(5*time.Second))
	v := right
	switch {
	case back+on > 10:
		v = wrong
	case back+on < 10:
		v = weak
	}
	return []cell{{"", fmt.Sprintf("%d, %d", back, on), v}}
}
