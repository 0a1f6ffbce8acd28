package storetest

import (
	"errors"

	"github.com/weir-go/weir/store"
)

var attemptRules = []rule{{
	name: "one call admits and begins",
	why:  "decide, spend, reserve and tell in AdmitAttempt what Admit and Begin would, one after the other",
	test: func(s *subject) {
		l := s.attempts()
		if l == nil {
			return
		}
		c := ask("early", "k", hourly, 10, 3)
		a := by("a", 2)
		if states, v := s.begins(l, &a, c); !near(states[0].Tokens, 7) || !v.Admitted() || a.Ticket != 0 {
			s.broken("the first attempt: %+v, %+v, ticket %d", states, v, a.Ticket)
		}
		if v := s.settle(l, &a, store.Failed); v.Failures != 1 {
			s.broken("the first failure: %+v", v)
		}
		a = by("a", 2)
		if _, v := s.begins(l, &a, c); !v.Admitted() || a.Ticket == 0 {
			s.broken("the second attempt: %+v, ticket %d", v, a.Ticket)
		}
		b := by("a", 2)
		if v := s.begin(l, &b); v.Admitted() || !v.Full {
			s.broken("a third, which would exceed the limit: %+v", v)
		}
		if v := s.settle(l, &a, store.Ignored); !v.Admitted() {
			s.broken("the place of the second is given back: %+v", v)
		}
		s.fits(l, 1, func() store.Attempt { return by("a", 2) })
		s.holds(4, c)
	},
}, {
	name: "a refused request begins no attempt",
	why:  "reserve nothing for a request that the checks refuse: nobody would give the place back",
	test: func(s *subject) {
		l := s.attempts()
		if l == nil {
			return
		}
		c := ask("early", "drained", hourly, 1, 1)
		s.admitted(c)
		s.tried(l, by("a", 2), store.Failed)
		for range 3 {
			a := by("a", 2)
			a.Ticket = 77
			v, states, lock, err := l.AdmitAttempt(s.Context(), one(c), []store.State{mark}, &a)
			if err != nil || v.Refused != 0 || len(states) != 2 || states[0] != mark {
				s.broken("an empty bucket: %+v, %+v, error %v", v, states, err)
			}
			if lock != (store.LockVerdict{Refused: -1}) || a.Ticket != 0 {
				s.broken("the attempt of a refused request: %+v, ticket %d", lock, a.Ticket)
			}
		}
		s.fits(l, 1, func() store.Attempt { return by("a", 2) })
	},
}, {
	name: "who is locked out still pays",
	why:  "leave the checks spent where a lock refuses: a flood of guesses at what is locked must end at the tiers",
	test: func(s *subject) {
		l := s.attempts()
		if l == nil {
			return
		}
		c := ask("early", "guesser", hourly, 10, 1)
		s.tried(l, by("a", 1), store.Failed)
		for range 3 {
			a := by("a", 1)
			if _, v := s.begins(l, &a, c); v.Admitted() || v.Refused != 0 || v.Full || a.Ticket != 0 {
				s.broken("behind a lock: %+v, ticket %d", v, a.Ticket)
			}
		}
		s.holds(7, c)
	},
}, {
	name: "a closed store begins no attempt",
	why:  "answer AdmitAttempt with ErrClosed after Close, dst as it was",
	test: func(s *subject) {
		l := s.attempts()
		if l == nil {
			return
		}
		_ = s.store.Close()
		for _, checks := range [][]store.Check{one(ask("early", "k", hourly, 1, 1)), nil} {
			a := by("a", 1)
			a.Ticket = 77
			_, states, _, err := l.AdmitAttempt(s.Context(), checks, []store.State{mark}, &a)
			if !isClosed(err) || len(states) != 1 || states[0] != mark || a.Ticket != 0 {
				s.broken("AdmitAttempt(%v): states %v, ticket %d, error %v", checks, states, a.Ticket, err)
			}
		}
	},
}}

// attempts returns the store's power to admit and begin at once, or nil.
func (s *subject) attempts() store.AttemptAdmitter {
	l, _ := s.store.(store.AttemptAdmitter)
	return l
}

// begins claims that the checks pass, and returns what became of the attempt, which
// the store may have left to Begin.
func (s *subject) begins(l store.AttemptAdmitter, a *store.Attempt, checks ...store.Check) ([]store.State, store.LockVerdict) {
	s.Helper()
	v, states, lock, err := l.AdmitAttempt(s.Context(), checks, nil, a)
	if err != nil && !errors.Is(err, store.ErrNotBegun) {
		s.broken("AdmitAttempt(%v, %+v) failed: %v", checks, *a, err)
	}
	s.sound("AdmitAttempt", checks, v, states)
	if !v.Admitted() {
		s.broken("refused: %v\nverdict %+v, states %+v", checks, v, states)
	}
	if err != nil {
		if a.Ticket != 0 {
			s.broken("an attempt that has not begun has the ticket %d", a.Ticket)
		}
		return states, s.begin(l, a)
	}
	s.soundLock("AdmitAttempt", a, lock)
	return states, lock
}

// near reports whether a count of tokens is what it should be.
func near(got, want float64) bool { return got > want-slack && got < want+slack }
