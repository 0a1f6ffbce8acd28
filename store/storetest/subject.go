package storetest

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// hourly is a rate so low that a test sees no refill.
	hourly = 1.0 / 3600
	// slack is how far a count of tokens may be off: half a minute of refill at
	// the hourly rate, and more than any rounding on the way to a store.
	slack = 0.01
)

// patience is how long something that must happen is waited for.
var patience = 10 * time.Second

// subject is the store under test, with helpers that read as claims and fail
// with the rule they belong to.
type subject struct {
	*testing.T
	store store.Store
	rule  rule
}

// broken ends the subtest. It must be called on the subtest's own goroutine.
func (s *subject) broken(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s\nthe rule: a store must %s", fmt.Sprintf(format, args...), s.rule.why)
}

// ask returns a check for cost tokens of a key under B(rate, burst).
func ask(scope, key string, rate, burst, cost float64) store.Check {
	c := store.Check{Scope: scope, Limit: store.Limit{Rate: rate, Burst: burst}, Cost: cost}
	if n := copy(c.Key[:], key); n < len(key) {
		panic("storetest: key longer than 16 bytes: " + key)
	}
	return c
}

// costing returns the same check at another cost.
func costing(c store.Check, cost float64) store.Check {
	c.Cost = cost
	return c
}

// under returns the same check under another limit.
func under(c store.Check, rate, burst float64) store.Check {
	c.Limit = store.Limit{Rate: rate, Burst: burst}
	return c
}

// shadowed returns the same check as a shadow.
func shadowed(c store.Check) store.Check {
	c.Shadow = true
	return c
}

// admit calls Admit and checks what holds for every answer.
func (s *subject) admit(checks ...store.Check) (store.Verdict, []store.State) {
	s.Helper()
	v, states, err := s.store.Admit(s.Context(), checks, nil)
	if err != nil {
		s.broken("Admit(%v) failed: %v", checks, err)
	}
	s.sound("Admit", checks, v, states)
	return v, states
}

// sound checks what holds for every answer, whatever the decision.
func (s *subject) sound(verb string, checks []store.Check, v store.Verdict, states []store.State) {
	s.Helper()
	if len(states) != len(checks) {
		s.broken("%s of %d checks appended %d states", verb, len(checks), len(states))
	}
	for i, st := range states {
		if !(st.Tokens >= 0 && st.Tokens <= checks[i].Limit.Burst) {
			s.broken("%s: state %d tells %v tokens, outside 0…%v", verb, i, st.Tokens, checks[i].Limit.Burst)
		}
		if st.Wait < 0 {
			s.broken("%s: state %d has a negative wait %v", verb, i, st.Wait)
		}
	}
	switch {
	case v.Admitted() && (v.Refused != -1 || v.RetryAfter != 0):
		s.broken("%s admitted, but with the verdict %+v instead of {-1 0}", verb, v)
	case !v.Admitted() && v.Refused >= len(checks):
		s.broken("%s of %d checks blames check %d", verb, len(checks), v.Refused)
	case !v.Admitted() && v.RetryAfter <= 0:
		s.broken("%s refused, but says to come back after %v", verb, v.RetryAfter)
	}
}

// admitted claims that the checks pass.
func (s *subject) admitted(checks ...store.Check) []store.State {
	s.Helper()
	v, states := s.admit(checks...)
	if !v.Admitted() {
		s.broken("refused: %v\nverdict %+v, states %+v", checks, v, states)
	}
	return states
}

// refused claims that the checks do not pass.
func (s *subject) refused(checks ...store.Check) (store.Verdict, []store.State) {
	s.Helper()
	v, states := s.admit(checks...)
	if v.Admitted() {
		s.broken("admitted: %v\nstates %+v", checks, states)
	}
	return v, states
}

// refund calls Refund.
func (s *subject) refund(checks ...store.Check) {
	s.Helper()
	if err := s.store.Refund(s.Context(), checks); err != nil {
		s.broken("Refund(%v) failed: %v", checks, err)
	}
}

// holds claims how many tokens the bucket of c has, asking at no cost.
func (s *subject) holds(want float64, c store.Check) {
	s.Helper()
	c.Shadow = false
	st := s.admitted(costing(c, 0))
	if got := st[0].Tokens; math.Abs(got-want) > slack {
		s.broken("bucket %q %x holds %v tokens, want %v", c.Scope, c.Key, got, want)
	}
}

// count spends one token after another until it is refused, and returns how
// many there were. It gives up one above the bound.
func (s *subject) count(c store.Check, bound int) int {
	s.Helper()
	for n := range bound + 1 {
		if v, _ := s.admit(c); !v.Admitted() {
			return n
		}
	}
	return bound + 1
}

// eventually repeats try until it is true.
func (s *subject) eventually(what string, try func() bool) {
	s.Helper()
	for start := time.Now(); !try(); time.Sleep(time.Millisecond) {
		if time.Since(start) > patience {
			s.broken("%s did not happen within %v", what, patience)
		}
	}
}

// crowd runs f on n goroutines at once and breaks the rule with the first
// error that one of them returns.
func (s *subject) crowd(n int, f func(i int) error) {
	s.Helper()
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			s.broken("caller %d of %d: %v", i, n, err)
		}
	}
}
