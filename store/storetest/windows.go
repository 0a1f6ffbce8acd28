package storetest

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

var windowRules = []rule{{
	name: "a window has its limit",
	why:  "admit up to Limit.Burst units in a window, whatever the rate says, and tell what is left and when the window ends (requirement W2); a cost above what is left leaves that for smaller ones",
	test: func(s *subject) {
		long := s.long()
		for i, key := range []string{"", "k"} {
			for _, n := range []int{1, 2, 300} {
				c := over(fmt.Sprint("limit", n), key, long, float64(n), 1)
				c.Limit.Rate = float64(i) * 1e6
				if got := s.count(c, n); got != n {
					s.broken("a limit of %d admitted %d", n, got)
				}
			}
			c := over("costs", key, long, 10, 7.5)
			if states := s.admitted(c); math.Abs(states[0].Tokens-2.5) > slack || states[0].Wait != 0 {
				s.broken("7.5 of 10 counted: %+v, want 2.5 left and no wait", states[0])
			}
			s.refused(costing(c, 5))
			s.leaves(2.5, c)
			s.admitted(costing(c, 2.5))
			s.leaves(0, c)
			s.admitted(costing(c, 0))
		}
	},
}, {
	name: "a window ends at its boundary",
	why:  "give the whole limit anew when a window ends, no sooner, and once",
	test: limitAfterLimit,
}, {
	name: "windows are aligned",
	why:  "begin windows at multiples of their length since the Unix epoch, by the store's clock, whoever asks first: replicas and clients must agree where a window begins",
	test: aligned,
}, {
	name: "the wait of a window is the time to its boundary",
	why:  "tell a window's refusal to come back when the window ends, and Never to a cost that no window holds; a bucket has no end to tell",
	test: func(s *subject) {
		c, bucket := over("wait", "k", s.long(), 3, 2), ask("bucket", "k", hourly, 5, 1)
		s.admitted(c)
		v, states := s.refused(bucket, c)
		s.ends(c, states[1])
		if off := v.RetryAfter - states[1].Reset; v.Refused != 1 || states[1].Wait != v.RetryAfter || off < 0 || off > 2*time.Millisecond {
			s.broken("verdict %+v, states %+v: want check 1 blamed, and a wait until its window ends", v, states)
		}
		if states[0].Reset != 0 {
			s.broken("a bucket tells an end: %+v", states[0])
		}
		for _, cost := range []float64{3.5, -1, math.NaN(), math.Inf(1)} {
			if v, _, err := s.store.Admit(s.Context(), one(costing(c, cost)), nil); err == nil && (v.Admitted() || v.RetryAfter != store.Never) {
				s.broken("a cost of %v of a limit of 3: %+v, want Never", cost, v)
			}
		}
		s.leaves(1, c)

		short := over("wait", "short", 20*time.Millisecond, 1, 1)
		for range 3 {
			s.admit(short)
			v, _ := s.admit(short)
			if v.Admitted() {
				continue // a boundary came between
			}
			time.Sleep(v.RetryAfter)
			if v2, _ := s.admit(short); !v2.Admitted() {
				s.broken("told to wait %v, did, and was refused: %+v", v.RetryAfter, v2)
			}
		}
	},
}, {
	name: "a refused request is counted in no window",
	why:  "count a request in every window and spend it from every bucket, or in none: what is refused costs its caller nothing",
	test: func(s *subject) {
		long := s.long()
		subject, address, bucket := over("subject", "k", long, 10, 1), over("address", "", long, 10, 2), ask("bucket", "k", hourly, 10, 3)
		full, drained := over("full", "k", long, 1, 1), ask("drained", "k", hourly, 1, 1)
		s.admitted(full, drained)
		for i, last := range []store.Check{full, drained, costing(subject, 11)} {
			s.admitted(subject, address, bucket)
			for range 3 {
				s.refused(subject, bucket, address, last)
				s.refused(last, address, subject, bucket)
			}
			s.leaves(10-float64(i+1), subject)
			s.leaves(10-2*float64(i+1), address)
			s.holds(10-3*float64(i+1), bucket)
		}
		s.leaves(0, full)
	},
}, {
	name: "arrivals are counted whatever becomes of them",
	why:  "count once a call what is counted Always, also if this check or another refuses, also above the limit, and tell what that leaves (requirement W3)",
	test: func(s *subject) {
		long := s.long()
		drained := ask("drained", "k", hourly, 1, 1)
		s.admitted(drained)
		for _, key := range []string{"", "k"} {
			arrival := over("process", key, long, 5, 1)
			arrival.Always = true
			bucket := ask("bucket", key, hourly, 100, 1)
			s.admitted(arrival, bucket)
			for i, checks := range [][]store.Check{{arrival, drained}, {drained, arrival}, {bucket, drained, arrival}} {
				_, states := s.refused(checks...)
				for j, c := range checks {
					if want := 3 - float64(i); c.Always && math.Abs(states[j].Tokens-want) > slack {
						s.broken("%d of 5 arrived: %v left is told, want %v", i+2, states[j].Tokens, want)
					}
				}
			}
			s.leaves(1, arrival)
			s.admitted(arrival)
			for range 3 { // above the limit
				s.refused(arrival, bucket)
			}
			s.admitted(shadowed(arrival))
			s.refused(costing(arrival, 6)) // six more
			s.leaves(0, arrival)
			s.leaves(5, under(arrival, 0, 20))
			s.holds(99, bucket)
		}
	},
}, {
	name: "a limit may change within a window",
	why:  "count what is used and not what is left: a limit raised within a window gives the difference, however many were refused, and one lowered leaves nothing, and not less than nothing",
	test: func(s *subject) {
		c := over("raised", "k", s.long(), 10, 1)
		if got := s.count(c, 10); got != 10 {
			s.broken("a limit of 10 admitted %d", got)
		}
		for range 40 {
			s.refused(c)
		}
		if got := s.count(under(c, 0, 20), 20); got != 10 {
			s.broken("10 were admitted and the limit was raised from 10 to 20: %d more were", got)
		}
		s.refused(c)

		c = over("lowered", "k", c.Window, 10, 8)
		s.admitted(c)
		lower := under(costing(c, 1), 0, 5)
		s.leaves(0, lower)
		if v, states := s.refused(lower); states[0].Tokens != 0 || v.RetryAfter == store.Never {
			s.broken("8 used of what is now 5: %+v %+v", v, states)
		}
		s.leaves(2, c)
	},
}, {
	name: "a length may change",
	why:  "take the count along to a window of another length, if the last of it lies in that, and keep it there until that ends: to change a setting must not hand a limit out again",
	test: func(s *subject) {
		const short = 40 * time.Millisecond
		long := s.long()
		c := over("length", "k", long, 10, 7)
		s.admitted(c)
		for _, length := range []time.Duration{2 * long, long} {
			c.Window = length
			s.leaves(3, c)
			s.refused(c)
		}
		brief := over("length", "brief", short, 10, 7)
		s.admitted(brief)
		longer := brief
		longer.Window = long
		s.leaves(3, longer)
		time.Sleep(2 * short)
		s.leaves(3, longer)

		c.Window = short // the count lies in a window of this length that is past
		s.eventually("a window of the new length", func() bool {
			v, _ := s.admit(c)
			return v.Admitted()
		})
	},
}, {
	name: "windows of two scopes are apart",
	why:  "count in a window of its own for each pair of scope and key: two rules on one caller, one by the second and one by the hour, neither share a count nor an end",
	test: func(s *subject) {
		long := s.long()
		checks := keysOf("window ", 2)
		for i := range checks {
			checks[i].Window = long
			if states := s.admitted(checks[i]); math.Abs(states[0].Tokens-1) > slack {
				s.broken("scope %q, key %x was never counted and has %v of 2 left", checks[i].Scope, checks[i].Key, states[0].Tokens)
			}
		}
		for _, c := range checks {
			s.leaves(1, c)
		}
		short, hour := over("short", "k", 40*time.Millisecond, 4, 1), over("hour", "k", long, 10, 1)
		s.admitted(short, hour)
		for got := 1; got < 10; {
			s.eventually("another short window", func() bool {
				v, _ := s.admit(short, hour)
				return v.Admitted()
			})
			got++
			s.leaves(10-float64(got), hour)
		}
		s.eventually("a short window in a long one that is used up", func() bool {
			v, states := s.admit(short, hour)
			return v.Refused == 1 && states[0].Wait == 0
		})
	},
}, {
	name: "one window twice is one count",
	why:  "take two checks of one window in a call as one check of their sum, refused or not",
	test: func(s *subject) {
		long := s.long()
		for _, key := range []string{"", "k"} {
			c, other := over("twice", key, long, 10, 2), over("between", key, long, 10, 1)
			states := s.admitted(c, other, costing(c, 3))
			for _, i := range []int{0, 2} {
				if got := states[i].Tokens; math.Abs(got-5) > slack {
					s.broken("state %d tells %v left, after the decision there are 5", i, got)
				}
			}
			s.refused(costing(c, 3), other, costing(c, 3))
			s.leaves(5, c)
			s.leaves(9, other)
			if v, _ := s.refused(costing(c, 6), costing(c, 6)); v.RetryAfter != store.Never {
				s.broken("6 + 6 of a limit of 10: a wait of %v, want Never", v.RetryAfter)
			}
			s.refused(costing(c, 3), costing(c, -2)) // takes nothing off the sum
			s.leaves(5, c)
			arrival := costing(c, 1)
			arrival.Always = true
			s.refused(arrival, costing(c, 9), arrival)
			s.leaves(3, c)
		}
	},
}, {
	name: "a shadow window never refuses",
	why:  "count a shadow that passes, and of one that does not, count nothing and refuse nothing (requirement T11)",
	test: func(s *subject) {
		long := s.long()
		c, bucket := shadowed(over("shadow", "k", long, 3, 2)), ask("real", "k", hourly, 10, 1)
		for i := range 4 {
			if states := s.admitted(c, bucket); (states[0].Wait > 0) != (i > 0) {
				s.broken("call %d of 2 units under a shadow limit of 3: %+v", i+1, states[0])
			}
			s.leaves(1, c)
		}
		s.holds(6, bucket)
		c = over("weighed", "k", long, 10, 6)
		s.admitted(c, shadowed(costing(c, 5)), costing(c, 1)) // what fails weighs nothing,
		s.refused(shadowed(costing(c, 2)), costing(c, 2))     // what passes weighs
		s.leaves(3, c)
	},
}, {
	name: "a peek counts nothing",
	why:  "answer Peek as Admit would answer now, arrivals included, and count nothing",
	test: func(s *subject) {
		p, ok := s.store.(store.Peeker)
		if !ok {
			return
		}
		c := over("peek", "k", s.long(), 10, 4)
		arrival := over("peek", "", c.Window, 10, 1)
		arrival.Always = true
		s.admitted(c)
		for i, checks := range [][]store.Check{{c}, {c, arrival}, {c, c}, {arrival, c, c}, {costing(c, 11), arrival}} {
			before := s.left(c)
			for range 3 {
				v, states, err := p.Peek(s.Context(), checks, nil)
				if err != nil || v.Admitted() != (i < 1) {
					s.broken("case %d: Peek says %+v (error %v), states %+v", i, v, err, states)
				}
				s.sound("Peek", checks, v, states)
				s.leaves(before, c)
				s.leaves(10, arrival)
			}
			if i == 0 {
				s.admitted(c)
			}
		}
	},
}, {
	name: "a refund passes windows over",
	why:  "give nothing back to a window, since it may be another by now than the one that was counted in, and still give their due to the buckets beside it",
	test: func(s *subject) {
		c, bucket := over("refund", "k", s.long(), 10, 4), ask("refunded", "k", hourly, 10, 3)
		s.admitted(c, bucket)
		s.refund(c, bucket, over("refund", "never seen", c.Window, 10, 1))
		s.leaves(6, c)
		s.holds(10, bucket)
	},
}, {
	name: "a crowd gets a window's limit",
	why:  "decide and count in one step: a crowd gets the limit and not one more, and every arrival is counted",
	test: func(s *subject) {
		const callers, each, limit = 64, 10, 333
		long := s.long()
		c, arrival := over("crowd", "hot", long, limit, 1), over("process", "", long, 1e6, 1)
		arrival.Always = true
		var admitted atomic.Int64
		s.crowd(callers, func(int) error {
			for range each {
				v, _, err := s.store.Admit(s.Context(), []store.Check{arrival, c}, nil)
				if err != nil {
					return err
				}
				if v.Admitted() {
					admitted.Add(1)
				}
			}
			return nil
		})
		if got := admitted.Load(); got != limit {
			s.broken("%d requests of a limit of %d: %d admitted", callers*each, limit, got)
		}
		s.leaves(0, c)
		s.leaves(1e6-callers*each, arrival)
	},
}, {
	name: "a late caller opens no window twice",
	why:  "give each window's limit once however many ask at once: a caller that read the clock before a boundary and is served after it must not set the count back (httprate hands the hot key 238 of 200 then)",
	test: crowdOverBoundaries,
}, {
	name: "a spray frees no exhausted window",
	why:  "drop, at the bound, windows that have ended, then the least used (requirement T4): otherwise who is limited sprays other keys and begins anew",
	test: func(s *subject) {
		conf, ok := s.store.(store.Configurer)
		if !ok {
			return
		}
		long := s.long()
		conf.Configure(store.Scope{Name: "sprayed window", MaxKeys: 50, Window: long})
		exhausted := over("sprayed window", "victim", long, 10, 10)
		s.admitted(exhausted)
		for i := range 500 {
			s.admitted(over("sprayed window", fmt.Sprint("k", i), long, 10, 1))
			if sizer, ok := s.store.(store.Sizer); ok && i%50 == 0 {
				if got := sizer.Size("sprayed window"); got.Keys > 50 {
					s.broken("after %d keys under a bound of 50: %+v", i+2, got)
				}
			}
		}
		s.refused(costing(exhausted, 1))
	},
}}

// over returns a check for cost units of a window.
func over(scope, key string, length time.Duration, limit, cost float64) store.Check {
	c := ask(scope, key, 0, limit, cost)
	c.Window = length
	return c
}

// long returns a length of about an hour, whose window goes on for a minute at
// least: no boundary falls into a rule.
func (s *subject) long() time.Duration {
	s.Helper()
	lengths := []time.Duration{time.Hour, 61 * time.Minute, 67 * time.Minute} // seldom end together
	for _, l := range lengths {
		c := over("how long", l.String(), l, 1, 0)
		states := s.admitted(c)
		s.ends(c, states[0])
		if states[0].Reset > time.Minute {
			return l
		}
	}
	s.broken("windows of %v all end within a minute", lengths)
	return 0
}

// ends claims that a state tells when a window ends.
func (s *subject) ends(c store.Check, st store.State) {
	s.Helper()
	if st.Reset <= 0 || st.Reset > c.Window {
		s.broken("a window of %v is told to end in %v", c.Window, st.Reset)
	}
}

// left returns what is left in the window of c, asking at no cost; one that is
// overdrawn refuses even that.
func (s *subject) left(c store.Check) float64 {
	s.Helper()
	c.Shadow, c.Always = false, false
	_, states := s.admit(costing(c, 0))
	s.ends(c, states[0])
	return states[0].Tokens
}

// leaves claims what is left in the window of c.
func (s *subject) leaves(want float64, c store.Check) {
	s.Helper()
	if got := s.left(c); math.Abs(got-want) > slack {
		s.broken("window %q %x leaves %v of %v, want %v", c.Scope, c.Key, got, c.Limit.Burst, want)
	}
}

// limitAfterLimit asks through short windows until it has seen two whole ones,
// one after the other, in which it was told no. A window of which it may have
// missed a part, because the machine was busy, proves nothing.
func limitAfterLimit(s *subject) {
	const length, limit = 50 * time.Millisecond, 4
	c := over("boundary", "k", length, limit, 1)
	asked, admitted, whole, seen := 0, 0, false, 0
	last, reset := time.Now(), time.Duration(0)
	s.eventually("two whole windows", func() bool {
		begun := time.Now()
		v, states := s.admit(c)
		s.ends(c, states[0])
		if time.Since(last) > length/2 { // a boundary may have gone by unseen
			asked, admitted, whole, seen, reset = 0, 0, false, 0, 0
		}
		last = begun
		if states[0].Reset > reset { // another window
			if whole && asked > limit {
				if admitted != limit {
					s.broken("a window of %d admitted %d of %d", limit, admitted, asked)
				}
				seen++
			} else {
				seen = 0
			}
			asked, admitted, whole = 0, 0, reset > 0
		}
		reset = states[0].Reset
		asked++
		if v.Admitted() {
			admitted++
		}
		if admitted > limit {
			s.broken("a window of %d admitted %d", limit, admitted)
		}
		return seen == 2
	})
}

// aligned asks for several windows in one call, at one instant, so the ends
// that are told can be compared to the last digit.
func aligned(s *subject) {
	checks := []store.Check{
		over("second", "k", time.Second, 100, 1), over("minute", "k", time.Minute, 100, 1),
		over("hour", "k", time.Hour, 100, 1), over("hour", "", time.Hour, 100, 1), over("hour", "other", time.Hour, 100, 1),
	}
	for _, c := range checks {
		s.admitted(c) // at odd times
		time.Sleep(7 * time.Millisecond)
	}
	states := s.admitted(checks...)
	for i, c := range checks {
		s.ends(c, states[i])
		for j, d := range checks[:i] {
			// Where the long one ends the short one does: the ends differ by a
			// multiple of the short length, give or take what a store rounds.
			off := (states[i].Reset - states[j].Reset) % d.Window
			if c.Window == d.Window {
				off = states[i].Reset - states[j].Reset
			}
			if off = off.Abs(); min(off, d.Window-off) > 2*time.Millisecond {
				s.broken("a window of %v ends in %v and one of %v in %v: not on a boundary of both", c.Window, states[i].Reset, d.Window, states[j].Reset)
			}
		}
	}
	// The clocks of store and suite agree to half a minute, or nothing does.
	end := time.Now().Add(states[2].Reset + 30*time.Second)
	if off := time.Duration(end.UnixNano() % int64(time.Hour)); off > time.Minute {
		s.broken("an hour is told to end at %v", end.Add(-30*time.Second).UTC())
	}
}

// crowdOverBoundaries counts what a crowd gets while windows come and go: the
// first and the last may be partly seen, so there are at most two more than the
// time that passed has room for.
func crowdOverBoundaries(s *subject) {
	const length, limit = 5 * time.Millisecond, 5
	c := over("crowd over", "k", length, limit, 1)
	begun := time.Now()
	var admitted atomic.Int64
	s.crowd(16, func(int) error {
		for time.Since(begun) < 12*length {
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
	took := time.Since(begun)
	if got, most := admitted.Load(), limit*(int64(took/length)+2); got > most {
		s.broken("windows of %v with %d each admitted %d in %v, at most %d were due", length, limit, got, took, most)
	}
}
