package storetest

import (
	"time"

	"github.com/weir-go/weir/store"
)

var limitRules = []rule{{
	name: "a lower burst clamps at once",
	why:  "apply the limit of each call to buckets that exist (requirement T6): a lower burst clamps what they hold, and raising it again gives nothing back",
	test: func(s *subject) {
		c := ask("reload", "rich", hourly, 20, 5)
		s.admitted(c)
		lower := under(costing(c, 1), hourly, 10)
		states := s.admitted(lower)
		if got := states[0].Tokens; got > 9+slack {
			s.broken("15 of 20 tokens under a burst of 10, one spent: %v left, want 9", got)
		}
		s.holds(9, lower)
		s.holds(9, under(c, hourly, 20))

		c = ask("reload", "poor", hourly, 20, 15)
		s.admitted(c)
		s.holds(5, under(c, hourly, 10))
		if v, _ := s.refused(under(c, hourly, 10)); v.RetryAfter != store.Never {
			s.broken("a cost of 15 under a burst of now 10: a wait of %v, want Never", v.RetryAfter)
		}
	},
}, {
	name: "a higher rate refills at once",
	why:  "refill buckets that exist at the rate of the call: a raised limit must reach a client that is waiting (s3-orchestrator#84, supabase/auth#2358)",
	test: func(s *subject) {
		c := ask("reload", "k", hourly, 5, 1)
		s.count(c, 5)
		fast := under(c, 500, 5)
		s.eventually("a token at the raised rate", func() bool {
			v, _ := s.admit(fast)
			return v.Admitted()
		})
		// And a lowered one holds those back who would have had it.
		s.count(fast, 1000)
		v, _ := s.refused(under(c, hourly, 5))
		if v.RetryAfter < time.Second {
			s.broken("less than a token at one an hour: a wait of %v", v.RetryAfter)
		}
	},
}, {
	name: "a changed limit resets nobody",
	why:  "keep what was spent over any change of limits: a thousand reloads in a flood admit no more than one configuration does",
	test: func(s *subject) {
		c := ask("reload", "flood", hourly, 10, 1)
		got := 0
		for i := range 300 {
			l := c
			if i%3 != 0 {
				l = under(c, hourly*float64(1+i%2), float64(10*(1+i%3)))
			}
			if v, _ := s.admit(l); v.Admitted() {
				got++
			}
		}
		if got != 10 {
			s.broken("a bucket that began with 10 tokens admitted %d while its limit changed", got)
		}
	},
}, {
	name: "configuring a scope keeps its buckets",
	why:  "carry buckets over when a scope is configured, with the same bound or another, and forget them only when told to drop the scope",
	test: func(s *subject) {
		conf, ok := s.store.(store.Configurer)
		if !ok {
			return
		}
		c := ask("configured", "k", hourly, 10, 7)
		global := ask("configured", "", hourly, 10, 4)
		s.admitted(c, global)
		for _, bound := range []int{0, 1000, 1000, 100_000, 10, 50} {
			conf.Configure(store.Scope{Name: "configured", MaxKeys: bound, Limit: c.Limit})
			s.holds(3, c)
			s.holds(6, global)
		}
		conf.Drop("configured")
		s.holds(10, c)
		s.holds(10, global)
		conf.Drop("configured")
		conf.Drop("never seen")
	},
}}

var shadowRules = []rule{{
	name: "a shadow never refuses",
	why:  "decide and report for a shadow check, but neither refuse because of it nor blame it (requirement T11)",
	test: func(s *subject) {
		real, spent := ask("real", "k", hourly, 10, 1), ask("shadow", "k", hourly, 1, 1)
		s.admitted(spent)
		for _, shadow := range []store.Check{shadowed(spent), shadowed(ask("shadow", "above", hourly, 5, 6))} {
			states := s.admitted(shadow, real)
			if states[0].Wait <= 0 || states[1].Wait != 0 {
				s.broken("states %+v: want a wait for the shadow alone", states)
			}
			s.admitted(shadow)
		}
		s.holds(8, real)

		short := ask("short", "k", 1.0/60, 1, 1)
		s.admitted(short)
		if v, _ := s.refused(short, shadowed(spent)); v.Refused != 0 {
			s.broken("blamed check %d, a shadow", v.Refused)
		} else {
			s.waits(v.RetryAfter, 60)
		}
	},
}, {
	name: "a shadow spends what is there",
	why:  "spend a shadow check that passes, as if it were in force, and nothing for one that does not: its bucket is never overdrawn",
	test: func(s *subject) {
		c := shadowed(ask("shadow", "k", hourly, 3, 2))
		s.admitted(c)
		s.holds(1, c)
		for range 3 {
			s.admitted(c)
			s.holds(1, c)
		}
		drained := ask("real", "k", hourly, 1, 1)
		s.admitted(drained)
		s.refused(costing(c, 1), drained)
		s.holds(1, c)
	},
}, {
	name: "a shadow that fails weighs nothing",
	why:  "leave the cost of a failing shadow out of what other checks of the same bucket ask",
	test: func(s *subject) {
		c := ask("shadow", "same", hourly, 10, 6)
		s.admitted(c, shadowed(costing(c, 5)), costing(c, 4))
		s.holds(0, c)
	},
}}
