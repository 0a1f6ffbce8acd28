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
	k := c.keyed[0]
	c.within(t, func(t *testing.T) {
		ask := k.open(t, quota{n: 10, per: time.Second}, 0)
		switch a := ask(client, 11); {
		case a.ok:
			cells = []cell{{k.as, "admitted", wrong}}
		case a.err != nil:
			cells = []cell{{k.as, "an error", right}}
		case a.wait == never:
			cells = []cell{{k.as, "never", right}}
		case a.wait < 0:
			cells = []cell{{k.as, "refused", right}}
		default:
			time.Sleep(a.wait)
			again, v := "refused again", wrong
			if ask(client, 11).ok {
				again, v = "passes", right
			}
			cells = []cell{{k.as, fmt.Sprintf("%s, then %s", seconds(a.wait), again), v}}
		}
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

const clockAsks = "10 at once and 1 a second, where the time can be told to it: the 10 are spent, the clock is set back by an hour (20 asked), and goes on to 5 s after the start (20 asked). " +
	"Admitted then: 0 and 5 is right; 0 and less leaves a client out; more is minted. weir's clock is monotonic and is told by nobody; on Redis, see the store's documentation."

func clockBack(t *testing.T, c *column) []cell {
	if c.clock == nil {
		return nil
	}
	at := c.clock(t, quota{n: 1, per: time.Second, burst: 10})
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ask := func(now time.Time) int { return taken(20, func() bool { return at(now) }) }
	spent := ask(start)
	back, on := ask(start.Add(-time.Hour)), ask(start.Add(5*time.Second))
	v := right
	switch {
	case spent != 10 || back > 0 || on > 5:
		v = wrong
	case on < 5:
		v = weak
	}
	return []cell{{"", fmt.Sprintf("%d, %d", back, on), v}}
}
