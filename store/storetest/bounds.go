package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/store"
)

var boundRules = []rule{{
	name: "keys stay within the bound",
	why:  "hold at most MaxKeys keys of a scope and block no newcomer for it (requirement T4): unique keys must not grow memory without end",
	test: func(s *subject) {
		sizer, ok := s.bounded("bounded", 50)
		if !ok {
			return
		}
		for i := range 500 {
			s.admitted(ask("bounded", fmt.Sprint("k", i), hourly, 10, 1))
			if got := sizer.Size("bounded"); got.Keys > 50 || got.Max != 50 {
				s.broken("after %d keys under a bound of 50: %+v", i+1, got)
			}
		}
		if got := sizer.Size("bounded"); got.Keys < 10 || got.Evicted == 0 {
			s.broken("500 drained keys went through a bound of 50: %+v, want it in use and losses counted", got)
		}
		if got := sizer.Size("never seen").Keys; got != 0 {
			s.broken("%d keys in a scope never seen", got)
		}
	},
}, {
	name: "a spray frees no drained key",
	why:  "drop, at the bound, the buckets that are nearest to full (requirement T4): otherwise who is limited sprays other keys and begins anew",
	test: func(s *subject) {
		if _, ok := s.bounded("sprayed", 50); !ok {
			return
		}
		victim := ask("sprayed", "victim", hourly, 10, 10)
		s.admitted(victim)
		for i := range 500 {
			s.admitted(ask("sprayed", fmt.Sprint("k", i), hourly, 10, 1))
		}
		s.refused(costing(victim, 1))
	},
}, {
	name: "a refused request leaves no key",
	why:  "create a bucket only when something is spent from it: neither a refused request nor a peek may fill the store",
	test: func(s *subject) {
		sizer, ok := s.bounded("refused", 1000)
		if !ok {
			return
		}
		drained := ask("drained", "k", hourly, 1, 1)
		s.admitted(drained)
		s.admitted(ask("refused", "one", hourly, 2, 1))
		for i := range 100 {
			c := ask("refused", fmt.Sprint("k", i), hourly, 2, 1)
			s.refused(c, drained)
			s.refused(costing(c, 3))
			s.admitted(shadowed(costing(c, 3)))
			if p, ok := s.store.(store.Peeker); ok {
				if v, _, err := p.Peek(s.Context(), one(c), nil); err != nil || !v.Admitted() {
					s.broken("Peek of a fresh key: %+v, %v", v, err)
				}
			}
			s.refund(c)
		}
		if got := sizer.Size("refused").Keys; got != 1 {
			s.broken("%d keys after one was admitted and 100 only asked", got)
		}
	},
}}

// bounded bounds a scope, if the store can be told to and says how full it is.
func (s *subject) bounded(scope string, keys int) (store.Sizer, bool) {
	conf, ok := s.store.(store.Configurer)
	if !ok {
		return nil, false
	}
	conf.Configure(store.Scope{Name: scope, MaxKeys: keys, Limit: store.Limit{Rate: hourly, Burst: 10}})
	sizer, ok := s.store.(store.Sizer)
	return sizer, ok
}

// closed claims that a verb answers ErrClosed and leaves dst alone.
func (s *subject) closed(name string, verb func(context.Context, []store.Check, []store.State) (store.Verdict, []store.State, error), checks []store.Check) {
	s.Helper()
	_, dst, err := verb(s.Context(), checks, []store.State{mark})
	if !isClosed(err) || len(dst) != 1 || dst[0] != mark {
		s.broken("%s(%v) after Close: error %v, want ErrClosed; dst %v", name, checks, err, dst)
	}
}

func isClosed(err error) bool { return errors.Is(err, store.ErrClosed) }
