package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

var atomicRules = []rule{{
	name: "a refused request spends nothing",
	why:  "spend every check or none (requirement T3): where one refuses, those before and after it stay as they were, to the token",
	test: func(s *subject) {
		drained := ask("drained", "k", hourly, 1, 1)
		s.admitted(drained)
		const n = 5
		for at := range n {
			checks := make([]store.Check, 0, n)
			for i := range n {
				checks = append(checks, ask(fmt.Sprint("tier", i), fmt.Sprint("refused at ", at), hourly, 10, 1.5))
			}
			s.admitted(checks...)
			asked := append([]store.Check(nil), checks...)
			asked[at] = drained
			for range 3 {
				s.refused(asked...)
			}
			for _, c := range checks {
				s.holds(8.5, c)
			}
		}
		s.holds(0, drained)
	},
}, {
	name: "one caller at its limit costs the others nothing",
	why:  "take from shared buckets only for requests that are admitted: fifty requests of an address at its limit leave the global bucket for the others",
	test: func(s *subject) {
		global, address := ask("global", "", hourly, 100, 1), ask("address", "a", hourly, 1, 1)
		for i := range 50 {
			if v, _ := s.admit(global, address); v.Admitted() != (i == 0) {
				s.broken("request %d of an address with burst 1: admitted %v", i+1, v.Admitted())
			}
		}
		s.holds(99, global)
	},
}, {
	name: "a crowd of one address spends one token",
	why:  "check all and spend all in one step: of 64 at once one is admitted, and when they are gone one token is",
	test: func(s *subject) {
		for round := range 8 {
			global := ask("global", fmt.Sprint(round), hourly, 1000, 1)
			address := ask("address", fmt.Sprint(round), hourly, 1, 1)
			var admitted atomic.Int64
			s.crowd(64, func(int) error {
				v, _, err := s.store.Admit(s.Context(), []store.Check{global, address}, nil)
				if err == nil && v.Admitted() {
					admitted.Add(1)
				}
				return err
			})
			if got := admitted.Load(); got != 1 {
				s.broken("an address with burst 1 was admitted %d times", got)
			}
			s.holds(999, global)
		}
	},
}, {
	name: "a doomed request is never in the way",
	why:  "not let anyone see a spend that is about to be given back: a request that is refused in the end must not, in between, have the last token that another one is entitled to (the phantom rejection of reserve-then-refund)",
	test: phantomRejection,
}, {
	name: "calls over many buckets finish",
	why:  "not deadlock on calls that name the same buckets in different orders, nor lose a count to them",
	test: func(s *subject) {
		const buckets, rounds = 8, 60
		c := make([]store.Check, buckets)
		for i := range c {
			c[i] = ask(fmt.Sprint("tier", i%3), fmt.Sprint("k", i), hourly, 1e6, 1)
		}
		done := make(chan struct{})
		late := time.AfterFunc(time.Minute, func() {
			select {
			case <-done:
			default:
				panic("storetest: calls over the same buckets in different orders did not finish: a deadlock")
			}
		})
		defer late.Stop()
		s.crowd(16, func(g int) error {
			for r := range rounds {
				order := make([]store.Check, buckets)
				for i := range order {
					// 3 and 5 have no factor in common with 8: each is a permutation.
					order[i] = c[(i*(3+2*(g%2))+r+g)%buckets]
				}
				v, _, err := s.store.Admit(s.Context(), order, nil)
				if err != nil {
					return err
				}
				if !v.Admitted() {
					return errors.New("refused by a bucket that is nearly full")
				}
			}
			return nil
		})
		close(done)
		for i := range c {
			s.holds(1e6-16*rounds, c[i])
		}
	},
}}

// phantomRejection lets doomed requests reach for the last token of a shared
// bucket, all the time, while a legitimate one comes for it; and that many
// times over, each with a fresh bucket.
func phantomRejection(s *subject) {
	const rounds = 400
	drained := ask("address", "drained", hourly, 1, 1)
	s.admitted(drained)
	shared := func(i int64) store.Check { return ask("global", fmt.Sprint(i), hourly, 1, 1) }
	var round atomic.Int64
	failed := make(chan error, 1)
	fail := func(format string, args ...any) error {
		err := fmt.Errorf(format, args...)
		select {
		case failed <- err:
		default:
		}
		round.Store(rounds)
		return err
	}
	s.crowd(4, func(g int) error {
		if g > 0 {
			for i := round.Load(); i < rounds; i = round.Load() {
				v, _, err := s.store.Admit(s.Context(), []store.Check{shared(i), drained}, nil)
				if err != nil || v.Admitted() {
					return fail("a doomed request: admitted %v, error %v", v.Admitted(), err)
				}
				runtime.Gosched() // one processor is enough, too
			}
			return nil
		}
		for i := range int64(rounds) {
			round.Store(i)
			mine := ask("address", fmt.Sprint(i), hourly, 1, 1)
			v, _, err := s.store.Admit(s.Context(), []store.Check{shared(i), mine}, nil)
			if err != nil || !v.Admitted() {
				return fail("round %d: the token was there, the request was refused (error %v, blamed %d)", i, err, v.Refused)
			}
		}
		round.Store(rounds)
		return nil
	})
	select {
	case err := <-failed:
		s.broken("%v", err)
	default:
	}
}
