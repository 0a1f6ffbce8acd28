package redis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// stopped is a store whose server reads the time from two keys instead of its
// clock: everything else is the script that users run.
type stopped struct {
	*Store
	t      testing.TB
	server *redistest.Server
}

func stop(t testing.TB, server *redistest.Server) *stopped {
	t.Helper()
	return stopStore(t, server, alone(t, server))
}

func stopStore(t testing.TB, server *redistest.Server, s *Store) *stopped {
	t.Helper()
	still := func(source string) string {
		t.Helper()
		replaced := strings.Replace(source, "redis.call('TIME')", "redis.call('MGET', 'seconds', 'microseconds')", 1)
		if replaced == source {
			t.Fatal("the script does not read the time as it did: this test must follow")
		}
		return replaced
	}
	// Keys end by the server's real time, which a slow machine has run ahead of the
	// clock that stands still: an hour more, so that none ends too soon.
	const life = "'PX', format('%.0f', ms)"
	longer := strings.Replace(still(admitSource), life, "'PX', format('%.0f', ms + 3600000)", 1)
	if !strings.Contains(admitSource, life) {
		t.Fatal("the script does not write the life of a key as it did: this test must follow")
	}
	s.admit, s.locks = newScript(longer), newLockScripts(still(lockSource))
	s.attempt = newAttemptScript(longer, still(lockSource)+beginSource)
	return &stopped{s, t, server}
}

// at sets the clock, in microseconds since 1970.
func (s *stopped) at(us int64) {
	s.t.Helper()
	s.server.Do("MSET", "seconds", us/1e6, "microseconds", us%1e6)
}

// step is one thing done to a store, and what the store in memory made of it.
type step struct {
	at     int64 // microseconds since 1970
	verb   string
	checks []store.Check
	v      store.Verdict
	states []store.State
}

// record does random things to the store in memory, in virtual time. What hangs
// on less than a microsecond it leaves out: memory lends what is short by a
// nanosecond of refill, Redis by a microsecond, each by its own clock.
func record(t *testing.T, seed uint64, steps int, steady bool) (recorded []step) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 17))
		m := store.NewMemory()
		ctx := t.Context()
		for len(recorded) < steps {
			time.Sleep(time.Duration(r.Int64N(1+1<<r.IntN(22))) * time.Microsecond) // up to 4 s
			s := step{at: time.Now().UnixMicro(), checks: randomChecks(r, steady)}
			v, states, err := m.Peek(ctx, s.checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			tie := false
			for _, st := range states {
				tie = tie || st.Wait > 0 && st.Wait <= 2*time.Microsecond
			}
			if tie {
				continue
			}
			switch s.verb = []string{"admit", "admit", "admit", "peek", "refund"}[r.IntN(5)]; s.verb {
			case "admit":
				s.v, s.states, err = m.Admit(ctx, s.checks, nil)
			case "peek":
				s.v, s.states = v, states
			case "refund":
				err = m.Refund(ctx, s.checks)
			}
			if err != nil {
				t.Fatal(err)
			}
			recorded = append(recorded, s)
		}
	})
	return recorded
}

// randomChecks are a few checks of few buckets and windows, whose limits change
// now and then unless they are steady.
func randomChecks(r *rand.Rand, steady bool) (checks []store.Check) {
	rates := []float64{1.0 / 3, 0.7, 5, 100.0 / 7, 1000, 33333.3, 100_000}
	for range 1 + r.IntN(4) {
		i := r.IntN(6)
		c := ask(fmt.Sprint("bucket", i), "", rates[i], float64(2+3*i), float64(r.IntN(4)))
		switch r.IntN(12) {
		case 0:
			c.Cost = r.Float64()
		case 1:
			c.Shadow = true
		case 2:
			c.Cost = c.Limit.Burst + 1
		}
		if !steady {
			switch r.IntN(12) {
			case 0:
				c.Limit.Rate *= 2
			case 1:
				// A full bucket that nothing is spent of is not kept, and is full
				// under the next burst too. Memory keeps the ones without keys.
				c.Limit.Burst, c.Key[15] = c.Limit.Burst/2, 1
			case 2:
				c.Limit.Rate = 0
			}
		}
		if r.IntN(3) == 0 {
			c.Scope, c.Window = fmt.Sprint("window", i), time.Duration(i+1)*700*time.Millisecond
			c.Always = r.IntN(3) == 0
		}
		if r.IntN(2) == 0 {
			c.Key[15] = byte(1 + r.IntN(2))
		}
		checks = append(checks, c)
	}
	return checks
}

// Redis decides and tells what memory does, over sequences of everything that
// can be asked, at the same instants. So it does with a slot for each key, as long
// as one call comes after the other and limits stay: what is given back by then
// has been refilled, and clamped, under the limit of the refused call.
func TestDecisionsAreThoseOfTheMemoryStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for seed := range uint64(6) {
		o := unhurried("redis://" + server.Addr)
		o.Namespace, o.SlotPerKey = fresh(), seed%2 == 1
		s := stopStore(t, server, open(t, o))
		for i, want := range record(t, seed, 1500, o.SlotPerKey) {
			s.at(want.at)
			var v store.Verdict
			var states []store.State
			var err error
			switch want.verb {
			case "admit":
				v, states, err = s.Admit(t.Context(), want.checks, nil)
			case "peek":
				v, states, err = s.Peek(t.Context(), want.checks, nil)
			case "refund":
				err = s.Refund(t.Context(), want.checks)
			}
			if err != nil {
				t.Fatal(err)
			}
			if want.verb == "refund" {
				continue
			}
			if v.Refused != want.v.Refused || !near(v.RetryAfter, want.v.RetryAfter) {
				t.Fatalf("seed %d, step %d: %s(%+v)\ngot  %+v %+v\nwant %+v %+v", seed, i, want.verb, want.checks, v, states, want.v, want.states)
			}
			for j, st := range states {
				w := want.states[j]
				w.Tokens = min(w.Tokens, want.checks[j].Limit.Burst) // two checks of a bucket may differ in that
				if math.Abs(st.Tokens-w.Tokens) > 1e-6*math.Max(1, want.checks[j].Limit.Rate) || !near(st.Wait, w.Wait) || !near(st.Reset, w.Reset) {
					t.Fatalf("seed %d, step %d, check %d: %s(%+v)\ngot  %+v\nwant %+v", seed, i, j, want.verb, want.checks, st, w)
				}
			}
		}
		server.Do("DEL", "seconds", "microseconds")
		everyKeyEnds(t, server.Client(), "weir:")
		server.Do("FLUSHALL")
	}
}

// near allows for the microseconds that Redis counts in.
func near(a, b time.Duration) bool {
	return a == b || a != store.Never && b != store.Never && (a-b).Abs() <= 2*time.Microsecond+b/1e12
}
