package storetest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

var callRules = []rule{{
	name: "no checks are admitted",
	why:  "admit a call that asks for nothing, and hand dst back",
	test: func(s *subject) {
		for _, checks := range [][]store.Check{nil, {}} {
			v, dst, err := s.store.Admit(s.Context(), checks, []store.State{mark})
			if err != nil || v != (store.Verdict{Refused: -1}) || len(dst) != 1 || dst[0] != mark {
				s.broken("verdict %+v, states %v, error %v", v, dst, err)
			}
		}
	},
}, {
	name: "states are appended in order",
	why:  "append one state for each check, in order, admitted or not, and leave alone what dst held before",
	test: func(s *subject) {
		a, b := ask("order", "a", hourly, 10, 1), ask("order", "b", hourly, 20, 1)
		c, drained := ask("other", "", hourly, 30, 1), ask("order", "drained", hourly, 1, 1)
		s.admitted(drained)
		for _, room := range []int{0, 1, 16} {
			for _, tt := range []struct {
				checks []store.Check
				want   []float64 // tokens told, before what earlier rounds spent
				spends bool
			}{
				{[]store.Check{a, b, c}, []float64{9, 19, 29}, true},
				{[]store.Check{c, a, b}, []float64{29, 9, 19}, true},
				{[]store.Check{c, drained, a, b}, []float64{30, 0, 10, 20}, false},
			} {
				dst := append(make([]store.State, 0, 2+room), mark, mark)
				v, got, err := s.store.Admit(s.Context(), tt.checks, dst)
				if err != nil || v.Admitted() != tt.spends {
					s.broken("%v: verdict %+v, error %v", tt.checks, v, err)
				}
				if len(got) != 2+len(tt.checks) || got[0] != mark || got[1] != mark {
					s.broken("dst held two states and the call has %d checks: got %v", len(tt.checks), got)
				}
				for i, want := range tt.want {
					if math.Abs(got[2+i].Tokens-want) > slack {
						s.broken("%v: state %d tells %v tokens, want %v", tt.checks, i, got[2+i].Tokens, want)
					}
				}
				if tt.spends {
					s.refund(tt.checks...)
				}
			}
		}
	},
}, {
	name: "the caller keeps its slices",
	why:  "neither change nor retain the checks, nor retain dst: the caller reuses both at once",
	test: func(s *subject) {
		a, b := ask("slices", "a", hourly, 10, 1), ask("slices", "b", hourly, 10, 1)
		drained := ask("slices", "drained", hourly, 1, 1)
		s.admitted(drained)
		var old [][]store.State
		for round := range 4 {
			checks := []store.Check{a, drained, a}
			if round%2 == 0 {
				checks[1] = a
			}
			asked := slices.Clone(checks)
			v, dst, err := s.store.Admit(s.Context(), checks, make([]store.State, 0, 8))
			if err != nil || !slices.Equal(checks, asked) {
				s.broken("the checks were changed from %v to %v (error %v)", asked, checks, err)
			}
			dst = dst[:cap(dst)]
			for i := range dst {
				dst[i] = mark
			}
			old = append(old, dst)
			for i := range checks {
				checks[i] = costing(b, 5)
			}
			if v.Admitted() {
				s.refund(asked[0], asked[2])
			}
			for _, dst := range old {
				if slices.ContainsFunc(dst, func(st store.State) bool { return st != mark }) {
					s.broken("dst of an earlier call was written to: %v", dst)
				}
			}
		}
		refunds := []store.Check{a}
		s.refund(refunds...)
		refunds[0] = costing(b, 5)
		s.holds(9, a) // three spent and two given back, twice, and one more given back
		s.holds(10, b)
	},
}, {
	name: "a cancelled call spends all or nothing",
	why:  "answer a call whose context is over with an error or with a decision, but never spend some of its checks",
	test: func(s *subject) {
		a, b := ask("cancelled", "a", hourly, 1000, 1), ask("other", "b", hourly, 1000, 1)
		least := 0.0
		for i := range 20 {
			ctx, cancel := context.WithCancel(s.Context())
			if i%2 == 0 {
				cancel()
			} else {
				time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
			}
			v, dst, err := s.store.Admit(ctx, []store.Check{a, b}, []store.State{mark})
			cancel()
			switch {
			case err == nil && v.Admitted():
				least++
			case err == nil:
				s.broken("refused by buckets that are nearly full: %+v", v)
			case len(dst) != 1 || dst[0] != mark:
				s.broken("on error dst is not as it was: %v", dst)
			}
		}
		left := s.admitted(costing(a, 0), costing(b, 0))
		if math.Abs(left[0].Tokens-left[1].Tokens) > slack {
			s.broken("one bucket has %v tokens left and the other %v", left[0].Tokens, left[1].Tokens)
		}
		if spent := 1000 - left[0].Tokens; spent < least-slack || spent > 20+slack {
			s.broken("20 calls, %v of them admitted, spent %v", least, spent)
		}
	},
}, {
	name: "a late deadline is kept",
	why:  "return within the deadline of the context, whatever becomes of the call",
	test: func(s *subject) {
		ctx, cancel := context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = s.store.Admit(ctx, one(ask("deadline", "k", hourly, 1, 1)), nil)
			_ = s.store.Refund(ctx, one(ask("deadline", "k", hourly, 1, 1)))
		}()
		select {
		case <-done:
		case <-time.After(patience):
			s.broken("a call whose deadline is past has not returned after %v", patience)
		}
	},
}, {
	name: "a peek decides and changes nothing",
	why:  "answer Peek as Admit would answer now, and leave every bucket as it was",
	test: func(s *subject) {
		p, ok := s.store.(store.Peeker)
		if !ok {
			return
		}
		a, b := ask("peek", "a", hourly, 10, 4), ask("peek", "", hourly, 10, 3)
		drained := ask("drained", "k", hourly, 1, 1)
		s.admitted(drained)
		for i, checks := range [][]store.Check{
			nil, {a}, {a, b}, {a, b, a}, {b, drained, a}, {shadowed(drained), a}, {a, a, a}, {costing(b, 11), a}, {drained, b},
		} {
			for range 3 {
				v, states, err := p.Peek(s.Context(), checks, []store.State{mark})
				if err != nil || len(states) == 0 || states[0] != mark {
					s.broken("Peek(%v): states %v, error %v", checks, states, err)
				}
				states = states[1:]
				s.sound("Peek", checks, v, states)
				s.holds(10, a)
				s.holds(10, b)
				s.holds(0, drained)
				want, wantStates := s.admit(checks...)
				if v.Refused != want.Refused {
					s.broken("case %d: Peek says %+v, Admit %+v", i, v, want)
				}
				for j := range states {
					if math.Abs(states[j].Tokens-wantStates[j].Tokens) > slack || (states[j].Wait > 0) != (wantStates[j].Wait > 0) {
						s.broken("case %d, check %d: Peek tells %+v, Admit %+v", i, j, states[j], wantStates[j])
					}
				}
				if want.Admitted() {
					for j, c := range checks {
						if wantStates[j].Wait == 0 {
							s.refund(c)
						}
					}
				}
			}
		}
	},
}}

// mark is a state that no store tells.
var mark = store.State{Tokens: -12345, Wait: -1}

var closeRules = []rule{{
	name: "a closed store says so",
	why:  "answer every call after Close with ErrClosed, dst as it was, and a second Close without harm",
	test: func(s *subject) {
		c := ask("closed", "k", hourly, 10, 1)
		s.admitted(c)
		for range 2 {
			if err := s.store.Close(); err != nil {
				s.broken("Close failed: %v", err)
			}
			for _, checks := range [][]store.Check{one(c), nil} {
				s.closed("Admit", s.store.Admit, checks)
				if p, ok := s.store.(store.Peeker); ok {
					s.closed("Peek", p.Peek, checks)
				}
				if err := s.store.Refund(s.Context(), checks); !isClosed(err) {
					s.broken("Refund(%v) after Close: %v, want ErrClosed", checks, err)
				}
			}
			if conf, ok := s.store.(store.Configurer); ok {
				conf.Configure(store.Scope{Name: "closed", MaxKeys: 10})
				conf.Drop("closed")
			}
			if sizer, ok := s.store.(store.Sizer); ok {
				if got := sizer.Size("closed").Keys; got != 0 {
					s.broken("%d keys after Close", got)
				}
			}
		}
	},
}, {
	name: "close may come at any time",
	why:  "let Close run beside other calls: each of them is answered as before or with ErrClosed, and all of them return",
	test: func(s *subject) {
		conf, _ := s.store.(store.Configurer)
		s.crowd(8, func(g int) error {
			if g == 0 {
				time.Sleep(2 * time.Millisecond)
				return s.store.Close()
			}
			for i := 0; ; i++ {
				checks := []store.Check{ask("closing", fmt.Sprint(i%100), hourly, 10, 1), ask("global", "", hourly, 1e9, 1)}
				v, _, err := s.store.Admit(s.Context(), checks, nil)
				if err == nil && v.Admitted() {
					err = s.store.Refund(s.Context(), checks)
				}
				if conf != nil && i%16 == g {
					conf.Configure(store.Scope{Name: "closing", MaxKeys: 1 + i%64, Limit: checks[0].Limit})
				}
				if isClosed(err) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("%w, want nil or ErrClosed", err)
				}
			}
		})
	},
}}
