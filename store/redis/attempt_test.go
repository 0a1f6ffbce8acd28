package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// scantChecks are buckets and windows that are soon used up, at times the same one
// twice.
func scantChecks(r *rand.Rand) (checks []store.Check) {
	for range 1 + r.IntN(4) {
		c := ask([]string{"global", "address"}[r.IntN(2)], fmt.Sprint(r.IntN(3)), []float64{0.01, 0.1}[r.IntN(2)], 5, float64(r.IntN(4)))
		if r.IntN(3) == 0 {
			c.Scope = "window"
			c = within(time.Minute, c)
			c.Always = r.IntN(2) == 0
		}
		c.Shadow = r.IntN(6) == 0
		checks = append(checks, c)
	}
	return checks
}

// One call decides, spends, reserves and tells what two calls at the same instant do,
// and leaves what they leave.
func TestOneCallIsWhatTwoAre(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 31))
		one, two := stop(t, server), stop(t, server)
		type pair struct{ one, two store.Attempt }
		var open []*pair
		now, begun, refused, locked := int64(today), 0, 0, 0
		for step := range 800 {
			now += []int64{0, 1, second / 10, 5 * second, 40 * second}[r.IntN(5)]
			one.at(now) // the server's clock is that of both
			if len(open) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(open))
				o := []store.Outcome{store.Failed, store.Failed, store.Succeeded, store.Ignored}[r.IntN(4)]
				v, errOne := one.Settle(t.Context(), &open[i].one, o)
				w, errTwo := two.Settle(t.Context(), &open[i].two, o)
				if v != w || errOne != nil || errTwo != nil {
					t.Fatalf("seed %d, step %d: settled %+v %v, want %+v %v", seed, step, v, errOne, w, errTwo)
				}
				open = append(open[:i], open[i+1:]...)
				continue
			}
			checks, attempt := scantChecks(r), randomAttempt(r)
			p := &pair{attempt, attempt}
			p.one.Ticket = 77
			v, states, lock, err := one.AdmitAttempt(t.Context(), checks, nil, &p.one)
			if err != nil {
				t.Fatal(err)
			}
			w, wantStates, err := two.Admit(t.Context(), checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			wantLock := store.LockVerdict{Refused: -1}
			if w.Admitted() {
				if wantLock, err = two.Begin(t.Context(), &p.two); err != nil {
					t.Fatal(err)
				}
			}
			if v != w || lock != wantLock || !reflect.DeepEqual(states, wantStates) || (p.one.Ticket == 0) != (p.two.Ticket == 0) {
				t.Fatalf("seed %d, step %d: %+v %+v\n%+v %+v %+v ticket %d, want\n%+v %+v %+v ticket %d",
					seed, step, checks, attempt, v, states, lock, p.one.Ticket, w, wantStates, wantLock, p.two.Ticket)
			}
			switch {
			case !w.Admitted():
				refused++
			case !lock.Admitted():
				locked++
			default:
				begun++
				open = append(open, p)
			}
		}
		if begun < 50 || refused < 50 || locked < 20 {
			t.Errorf("seed %d: %d begun, %d refused, %d locked: too few to tell anything", seed, begun, refused, locked)
		}
	}
}

func TestAForgottenScriptIsSentAgainOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	c := ask("forgotten", "k", hourly, 10, 1)
	for range 3 {
		server.Do("SCRIPT", "FLUSH")
		a := store.Attempt{Counters: []store.Counter{counting("address", "a", store.LockLimit{Max: 3, Window: time.Hour, Lockout: time.Hour})}}
		v, _, lock, err := s.AdmitAttempt(t.Context(), []store.Check{c}, nil, &a)
		if err != nil || !v.Admitted() || !lock.Admitted() {
			t.Fatalf("%+v, %+v, %v", v, lock, err)
		}
	}
	if states := admitted(t, s, costing(0, c)); states[0].Tokens < 6.9 || states[0].Tokens > 7.1 {
		t.Errorf("three requests left %v tokens of 10", states[0].Tokens)
	}
}

func TestWithASlotForEachKeyTheAttemptIsLeftToBegin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	o.Namespace, o.SlotPerKey = fresh(), true
	s := open(t, o)
	c := ask("apart", "k", hourly, 1, 1)
	a := store.Attempt{Counters: []store.Counter{counting("address", "a", store.LockLimit{Max: 3, Window: time.Hour, Lockout: time.Hour})}, Ticket: 77}
	v, states, lock, err := s.AdmitAttempt(t.Context(), []store.Check{c}, nil, &a)
	if !errors.Is(err, store.ErrNotBegun) || !v.Admitted() || len(states) != 1 || !lock.Admitted() || a.Ticket != 0 {
		t.Errorf("admitted: %+v, %+v, %+v, ticket %d, %v", v, states, lock, a.Ticket, err)
	}
	v, _, lock, err = s.AdmitAttempt(t.Context(), []store.Check{c}, nil, &a)
	if err != nil || v.Admitted() || !lock.Admitted() {
		t.Errorf("refused: %+v, %+v, %v", v, lock, err)
	}
}

func FuzzAttemptReply(f *testing.F) {
	for _, text := range []string{"0 9\n0 0 0 0 0 0", "1 0,5,0", "0 9\n1 1000000 0 1 0 0", "0 9\n0 0 1 0 1 0", "0 9", "1 0,5,0\n0 0 0 0 0 0", "0 9\n9 1 0 0 0 0", "\n", "", "0 9\n\n"} {
		f.Add(text)
	}
	checks := []store.Check{ask("a", "k", 1, 10, 1)}
	f.Fuzz(func(t *testing.T, text string) {
		p := &lockPart{index: []int{0}, counters: []store.Counter{{Limit: store.LockLimit{Max: 1}}}}
		v, states, reply, err := readAttempt(text, checks, nil, p)
		if err != nil {
			if states != nil || reply.reserved || reply.counts != nil {
				t.Errorf("%q: %+v %+v beside %v", text, states, reply, err)
			}
			return
		}
		if len(states) != 1 || v.Refused < -1 || v.Refused > 0 || reply.v.Refused < -1 || reply.v.Refused > 0 {
			t.Errorf("%q: %+v %+v %+v", text, v, states, reply)
		}
		if strings.Contains(text, "\n") != v.Admitted() || !v.Admitted() && reply.reserved {
			t.Errorf("%q: %+v with the attempt %+v", text, v, reply)
		}
	})
}
