package storetest

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/store"
)

// keysOf returns a full bucket of the burst for each of many pairs of scope and
// key that a careless store would take for one another: joined without their
// lengths, with a separator that the names contain, cut at a NUL or at a
// length, folded in case, or confused by the braces of a Redis hash tag.
func keysOf(prefix string, burst float64) []store.Check {
	long := strings.Repeat("x", 300)
	all := strings.Repeat("\xff", 16)
	zeroButOne := strings.Repeat("\x00", 15) + "\x01"
	var checks []store.Check
	for _, p := range []struct{ scope, key string }{
		{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"abc", zeroButOne}, {"a", ""}, {"ab", ""},
		{"a:b", "c"}, {"a", "b:c"}, {"a", ":bc"}, {"a:", "bc"}, {"a:b:c", ""},
		{"a/b", "c"}, {"a", "b/c"}, {"a_b", "c"}, {"a", "b_c"}, {"a|b", "c"}, {"a", "b|c"}, {"a.b", "c"}, {"a", "b.c"},
		{"a\nb", "c"}, {"a", "b\nc"}, {"a b", "c"}, {"a", "b c"}, {"a,b", "c"}, {"a", "b,c"},
		{"a\x00b", "c"}, {"a\x00", "bc"}, {"a", "\x00bc"}, {"a", "b\x00c"},
		{"{a}b", "c"}, {"{a}", "bc"}, {"a{", "bc"}, {"a", "{b}c"}, {"a", "{}bc"}, {"{}a", "bc"}, {"a}", "bc"},
		{"a", "BC"}, {"A", "bc"}, {"ä", "bc"}, {"a\u0308", "bc"}, {"\xe4", "bc"}, {"%61", "bc"}, {"a*", "bc"}, {"a?", "bc"},
		{"a", all}, {"a", all[:15]}, {"a", all[:15] + "\xfe"}, {"ab", all}, {"a", zeroButOne}, {"ab", zeroButOne},
		{"a", "6263"}, {"a", "62630000"}, {"a", "1"}, {"a1", ""}, {"1", "a"},
		{long, "k"}, {long + "y", "k"}, {long + "z", "k"}, {long, ""}, {long + long, "k"},
	} {
		checks = append(checks, ask(prefix+p.scope, p.key, hourly, burst, 1))
	}
	for i := range checks {
		for j := range i {
			if checks[i].Scope == checks[j].Scope && checks[i].Key == checks[j].Key {
				panic(fmt.Sprintf("storetest: %q %x is listed twice", checks[i].Scope, checks[i].Key))
			}
		}
	}
	return checks
}

var bucketRules = []rule{{
	name: "scopes and keys are apart",
	why:  "keep a bucket of its own for each pair of scope and key, whatever the names contain (requirement S12): spending from one must not be felt in another",
	test: func(s *subject) {
		checks := keysOf("", 1)
		for _, c := range checks {
			if v, _ := s.admit(c); !v.Admitted() {
				s.broken("scope %q, key %x was never touched and is refused: it shares a bucket with an earlier one", c.Scope, c.Key)
			}
		}
		for _, c := range checks {
			s.refused(c)
		}
		// One given back is one, too.
		for i, c := range checks[:8] {
			s.refund(c)
			for j, other := range checks[:8] {
				if v, _ := s.admit(other); v.Admitted() != (i == j) {
					s.broken("after a refund to %q %x: %q %x admitted %v", c.Scope, c.Key, other.Scope, other.Key, v.Admitted())
				}
			}
		}
	},
}, {
	name: "one bucket twice is one spend",
	why:  "take two checks of one bucket in a call as one check of their sum: each passing by itself is not enough",
	test: func(s *subject) {
		for _, key := range []string{"k", ""} {
			c, other := ask("twice", key, hourly, 10, 2), ask("between", key, hourly, 10, 1)
			states := s.admitted(c, other, costing(c, 3))
			s.holds(5, c)
			for _, i := range []int{0, 2} {
				if got := states[i].Tokens; got < 5-slack || got > 5+slack {
					s.broken("state %d tells %v tokens, after the decision there are 5", i, got)
				}
			}
			v, _ := s.refused(costing(c, 3), other, costing(c, 3))
			s.waits(v.RetryAfter, 3600)
			s.holds(5, c)
			s.holds(9, other)
			if v, _ := s.refused(costing(c, 6), costing(c, 6)); v.RetryAfter != store.Never {
				s.broken("6 + 6 of a burst of 10: a wait of %v, want Never", v.RetryAfter)
			}
			s.admitted(c, c, costing(c, 1))
			s.holds(0, c)
		}
	},
}}
