package storetest

import (
	"fmt"
	"sync/atomic"
)

var burstRules = []rule{{
	name: "the burst is exact",
	why:  "admit burst requests from a full bucket and refuse the next one (boulder#3117 was off by one)",
	test: func(s *subject) {
		for _, n := range []int{1, 2, 1000} {
			c := ask("burst", fmt.Sprint("k", n), hourly, float64(n), 1)
			if got := s.count(c, n); got != n {
				s.broken("burst %d admitted %d", n, got)
			}
		}
	},
}, {
	name: "the burst is exact for a crowd",
	why:  "decide and spend in one step, so that many callers together get the burst and not one token more, and none gets an error for being one of many",
	test: func(s *subject) {
		const callers, each, burst = 64, 25, 1000
		var admitted atomic.Int64
		c := ask("crowd", "hot", hourly, burst, 1)
		s.crowd(callers, func(int) error {
			for range each {
				v, _, err := s.store.Admit(s.Context(), one(c), nil)
				if err != nil {
					return err
				}
				if v.Admitted() {
					admitted.Add(1)
				}
			}
			return nil
		})
		if got := admitted.Load(); got != burst {
			s.broken("%d callers made %d requests of a burst of %d: %d admitted", callers, callers*each, burst, got)
		}
		s.holds(0, c)
	},
}, {
	name: "fractions count",
	why:  "keep fractions of a token, in costs, bursts and rates alike; a rate below 1 is not 0",
	test: func(s *subject) {
		c := ask("fractions", "k", 0.4*hourly, 1.5, 0.5)
		if got := s.count(c, 3); got != 3 {
			s.broken("a burst of 1.5 paid %d times 0.5", got)
		}
		s.holds(0, c)
		v, _ := s.refused(costing(c, 0.25))
		s.waits(v.RetryAfter, 0.25/(0.4*hourly))
		c = ask("fractions", "costs", hourly, 10, 2.75)
		s.admitted(c)
		s.holds(7.25, c)
	},
}, {
	name: "a cost above one is all or nothing",
	why:  "spend the whole cost or nothing of it (requirement T10); a refused cost leaves the rest for smaller ones",
	test: func(s *subject) {
		c := ask("cost", "k", hourly, 10, 8)
		s.admitted(c)
		s.refused(costing(c, 5))
		s.holds(2, c)
		s.admitted(costing(c, 2))
		s.holds(0, c)
	},
}}
