package storetest

import (
	"fmt"
	"time"
)

var refundRules = []rule{{
	name: "a refund is exact",
	why:  "give back to the token what is refunded, whatever happened on the bucket in between (requirement T3; the reservations of golang.org/x/time/rate lose it once anything was granted after them)",
	test: func(s *subject) {
		c := ask("refund", "plain", hourly, 10, 1)
		s.admitted(c)
		s.refund(c)
		s.holds(10, c)

		c = ask("refund", "spent between", hourly, 10, 1)
		s.admitted(costing(c, 4))
		s.admitted(costing(c, 3))
		s.refund(costing(c, 4))
		s.holds(7, c)
		s.admitted(costing(c, 7))
		s.refused(c)
		s.refund(costing(c, 3))
		s.holds(3, c)

		c = ask("refund", "fraction", hourly, 10, 0.75)
		s.admitted(c)
		s.admitted(costing(c, 9.25))
		s.refund(c)
		s.holds(0.75, c)
	},
}, {
	name: "a refund covers each check of the call",
	why:  "give back every check of a refund, one bucket as often as it is named",
	test: func(s *subject) {
		a, b := ask("one", "k", hourly, 10, 2), ask("two", "", hourly, 10, 3)
		s.admitted(a, b, a)
		s.holds(6, a)
		s.holds(7, b)
		s.refund(a, b)
		s.holds(8, a)
		s.holds(10, b)
		s.admitted(costing(b, 9))
		s.refund(a, b, b)
		s.holds(10, a)
		s.holds(7, b)
		s.refund()
	},
}, {
	name: "a refund stops at the burst",
	why:  "never hold more than the burst after a refund, not when refill has been there first, nor when the burst is lower by now",
	test: func(s *subject) {
		c := ask("over", "full", hourly, 10, 1)
		s.admitted(c)
		s.refund(costing(c, 5))
		if got := s.count(c, 10); got != 10 {
			s.broken("a burst of 10 admitted %d after a refund", got)
		}

		c = ask("over", "refilled", 1000, 10, 5)
		s.admitted(c)
		time.Sleep(20 * time.Millisecond)
		s.refund(c)
		c = under(costing(c, 1), hourly, 10)
		if got := s.count(c, 10); got > 10 {
			s.broken("a burst of 10 admitted %d after a refund of what had refilled", got)
		}

		c = ask("over", "lowered", hourly, 20, 4)
		s.admitted(c)
		c = under(c, hourly, 10)
		s.refund(c)
		s.holds(10, c)
	},
}, {
	name: "a refund to a stranger is harmless",
	why:  "take a refund of a key or scope it does not know (evicted, expired, never seen) without an error and without minting tokens",
	test: func(s *subject) {
		for _, c := range keysOf("unknown", 2) {
			s.refund(c)
			if got := s.count(c, 2); got != 2 {
				s.broken("a burst of 2 admitted %d after a refund to a key never seen", got)
			}
		}
	},
}, {
	name: "a crowd's refunds lose nothing",
	why:  "apply refunds in one step too: when all is given back, all is there",
	test: func(s *subject) {
		const callers = 16
		c := ask("crowd", "refunds", hourly, callers, 1)
		s.crowd(callers, func(int) error {
			for range 40 {
				v, _, err := s.store.Admit(s.Context(), one(c), nil)
				if err != nil {
					return err
				}
				if !v.Admitted() {
					return fmt.Errorf("refused, though %d tokens serve %d callers", callers, callers)
				}
				if err := s.store.Refund(s.Context(), one(c)); err != nil {
					return err
				}
			}
			return nil
		})
		s.holds(callers, c)
	},
}}
