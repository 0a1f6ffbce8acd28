package storetest

import (
	"math"
	"time"

	"github.com/weir-go/weir/store"
)

var blameRules = []rule{{
	name: "the longest wait is blamed",
	why:  "blame, of the checks that refuse, the one with the longest wait, and tell the wait of the request as a whole (requirement T14): a client sent back by the shortest would be refused again",
	test: func(s *subject) {
		minute, hour := ask("minute", "k", 1.0/60, 1, 1), ask("hour", "k", hourly, 1, 1)
		fine := ask("fine", "", hourly, 1000, 1)
		s.admitted(minute, hour, fine)
		for _, tt := range []struct {
			checks  []store.Check
			blamed  int
			seconds float64
		}{
			{[]store.Check{minute, hour, fine}, 1, 3600},
			{[]store.Check{fine, hour, minute}, 1, 3600},
			{[]store.Check{hour, minute}, 0, 3600},
			{[]store.Check{fine, minute}, 1, 60},
			{[]store.Check{minute, fine}, 0, 60},
		} {
			v, states := s.refused(tt.checks...)
			if v.Refused != tt.blamed {
				s.broken("blamed check %d, want %d: states %+v", v.Refused, tt.blamed, states)
			}
			s.waits(v.RetryAfter, tt.seconds)
			for i, c := range tt.checks {
				if (states[i].Wait > 0) != (c.Scope != "fine") {
					s.broken("check %d of %v: wait %v", i, tt.checks, states[i].Wait)
				}
			}
		}
	},
}, {
	name: "a check that passes is never blamed",
	why:  "leave a check that passes out of the blame and the wait, even if its next token is a week away (boulder#8674)",
	test: func(s *subject) {
		week, hour := ask("week", "k", hourly/168, 1, 1), ask("hour", "k", hourly, 1, 1)
		s.admitted(hour)
		v, states := s.refused(week, hour)
		if v.Refused != 1 || states[0].Wait != 0 {
			s.broken("verdict %+v, states %+v: want check 1 blamed and no wait for check 0", v, states)
		}
		s.waits(v.RetryAfter, 3600)
	},
}, {
	name: "never is said where waiting is in vain",
	why:  "answer a cost above the burst, and a bucket that does not refill, with Never (others say “in 100 ms” for ever), and change nothing",
	test: func(s *subject) {
		above := ask("vain", "above", 1000, 5, 6)
		still := ask("vain", "still", 0, 2, 1)
		s.admitted(still, still)
		long := ask("vain", "long", hourly, 1, 1)
		s.admitted(long)
		for _, tt := range []struct {
			name   string
			checks []store.Check
			blamed int
		}{
			{"cost above burst", []store.Check{above}, 0},
			{"rate 0", []store.Check{still}, 0},
			{"burst 0", []store.Check{ask("vain", "none", 1, 0, 1)}, 0},
			{"beside a long wait", []store.Check{long, above}, 1},
		} {
			if v, states := s.refused(tt.checks...); v.RetryAfter != store.Never || v.Refused != tt.blamed || states[tt.blamed].Wait != store.Never {
				s.broken("%s: verdict %+v, states %+v, want Never and check %d", tt.name, v, states, tt.blamed)
			}
		}
		s.holds(5, above)
		s.holds(0, still)
	},
}, {
	name: "no number breaks a bucket",
	why:  "stay sound under costs and limits that a caller got wrong: a negative or undefined cost neither passes nor mints tokens, and the bucket is as it was",
	test: func(s *subject) {
		c := ask("odd", "k", hourly, 10, 1)
		s.admitted(c)
		for _, cost := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1)} {
			if v, _, err := s.store.Admit(s.Context(), one(costing(c, cost)), nil); err == nil && v.Admitted() {
				s.broken("a cost of %v was admitted", cost)
			}
			_ = s.store.Refund(s.Context(), one(costing(c, min(cost, -1)))) // an error is as good
			s.holds(9, c)
		}
		for _, l := range []store.Limit{{Rate: math.NaN(), Burst: 10}, {Rate: -1, Burst: 10}, {Rate: 1, Burst: math.NaN()}, {Rate: 1, Burst: -1}} {
			bad := c
			bad.Limit, bad.Cost = l, 10
			if v, _, err := s.store.Admit(s.Context(), one(bad), nil); err == nil && v.Admitted() {
				s.broken("10 tokens of a bucket that held 9 were admitted under %+v", l)
			}
			s.holds(9, c)
		}
	},
}, {
	name: "a long wait does not overflow",
	why:  "tell a wait that a clock cannot count as a long one, never as a negative or short one",
	test: func(s *subject) {
		for _, rate := range []float64{1e-9, 1e-12, 1e-300, math.SmallestNonzeroFloat64} {
			c := ask("overflow", "k", rate, 1, 1)
			s.admit(c)
			if v, _ := s.refused(c); v.RetryAfter < 24*365*time.Hour {
				s.broken("at %v tokens a second: a wait of %v", rate, v.RetryAfter)
			}
		}
	},
}}
