package storetest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

var refillRules = []rule{{
	name: "refill never outruns the rate",
	why:  "admit at most burst + rate × elapsed however many call at once: a caller that read the clock early and got the lock late must not set the bucket back in time, or the same interval refills it twice",
	test: refillUnderContention,
}, {
	name: "refill comes",
	why:  "refill a bucket by elapsed × rate; what was spent is there again in time",
	test: func(s *subject) {
		c := ask("refill", "k", 500, 3, 1)
		got := s.count(c, 100)
		s.eventually("20 more tokens at 500/s", func() bool {
			if v, _ := s.admit(c); v.Admitted() {
				got++
			}
			return got >= 23
		})
	},
}, {
	name: "refill stops at the burst",
	why:  "never hold more than the burst, however long nobody asks",
	test: func(s *subject) {
		c := ask("full", "k", 1000, 4, 1)
		s.count(c, 100)
		time.Sleep(30 * time.Millisecond) // thirty tokens, were there room
		s.eventually("a refill to the burst", func() bool {
			v, states := s.admit(c)
			return v.Admitted() && states[0].Tokens >= 3-slack
		})
		// What is left is counted under a limit that refills nothing meanwhile.
		if got := s.count(under(c, hourly, 4), 4); got > 3 {
			s.broken("a burst of 4 held %d", got+1)
		}
	},
}, {
	name: "the wait is enough",
	why:  "tell a wait after which the same request passes if nobody else spends: a client that does as it was told must not be refused again",
	test: func(s *subject) {
		for _, c := range []store.Check{
			ask("wait", "whole", 50, 1, 1),
			ask("wait", "cost", 250, 5, 5),
			ask("wait", "fraction", 37.5, 1.5, 0.75),
			ask("wait", "third", 200.0/3, 1, 1),
		} {
			s.count(c, 10)
			s.admit(costing(c, 0.1)) // an odd remainder, if it is there
			begun := time.Now()
			v, _ := s.admit(c)
			if v.Admitted() {
				continue // this machine was so slow that the token was back
			}
			if most := time.Duration(c.Cost/c.Limit.Rate*1e9) + time.Millisecond; v.RetryAfter > most {
				s.broken("%v: a wait of %v, more than the whole cost takes to refill (%v)", c, v.RetryAfter, most)
			}
			time.Sleep(v.RetryAfter)
			if v2, _ := s.admit(c); !v2.Admitted() {
				s.broken("%v: told to wait %v, came back after %v, told to wait %v more",
					c, v.RetryAfter, time.Since(begun), v2.RetryAfter)
			}
		}
	},
}, {
	name: "the wait is what is missing divided by the rate",
	why:  "tell as wait the time to refill what is missing, no less and (clients would come too late) no more",
	test: func(s *subject) {
		for _, c := range []store.Check{
			ask("missing", "hour", hourly, 1, 1),
			ask("missing", "minutes", 1.0/60, 3, 3),
			ask("missing", "slow", 0.4, 1, 1),
			ask("missing", "week", hourly/168, 2, 2),
		} {
			s.admitted(c)
			begun := time.Now()
			v, states := s.refused(c)
			s.waitsSince(begun, v.RetryAfter, c.Cost/c.Limit.Rate)
			s.waitsSince(begun, states[0].Wait, c.Cost/c.Limit.Rate)
		}
	},
}}

// refillUnderContention counts what a crowd gets at a rate of a quarter of what
// the store can answer: slow enough that most are refused, fast enough that a
// bucket set back by one late caller has tokens for it.
func refillUnderContention(s *subject) {
	const burst = 100
	calls, _, took := s.hammer(ask("rate", "calibration", 1e-6, burst, 1))
	rate := float64(calls) / took.Seconds() / 4
	for round := range 3 {
		_, admitted, took := s.hammer(ask("rate", fmt.Sprint(round), rate, burst, 1))
		if most := burst + rate*took.Seconds() + 1; float64(admitted) > most {
			s.broken("B(%.0f/s, %d) admitted %d in %v, at most %.0f were due", rate, burst, admitted, took, most)
		}
	}
}

// hammer has sixteen callers ask for one token after another for a while.
func (s *subject) hammer(c store.Check) (calls, admitted int64, took time.Duration) {
	s.Helper()
	var all, passed atomic.Int64
	begun := time.Now()
	s.crowd(16, func(int) error {
		for time.Since(begun) < 20*time.Millisecond {
			v, _, err := s.store.Admit(s.Context(), one(c), nil)
			if err != nil {
				return err
			}
			all.Add(1)
			if v.Admitted() {
				passed.Add(1)
			}
		}
		return nil
	})
	return all.Load(), passed.Load(), time.Since(begun)
}

// waits claims a wait of so many seconds, give or take what a few calls refill.
func (s *subject) waits(got time.Duration, seconds float64) {
	s.Helper()
	s.waitsSince(time.Now().Add(-time.Second), got, seconds)
}

// waitsSince claims that a wait told now for a bucket as it was at begun (or
// shortly before) is so many seconds less what passed; a store may round up to
// its clock's unit.
func (s *subject) waitsSince(begun time.Time, got time.Duration, seconds float64) {
	s.Helper()
	want := time.Duration(seconds * 1e9)
	passed := time.Since(begun) + 100*time.Millisecond + want/1000
	if got > want+2*time.Millisecond || got < want-passed {
		s.broken("a wait of %v, want %v (less at most %v that passed)", got, want, passed)
	}
}

// one is a call of a single check.
func one(c store.Check) []store.Check { return []store.Check{c} }
