package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// lockStep is one thing done to failure counters, and what those in memory made of
// it.
type lockStep struct {
	at      int64 // microseconds since 1970
	verb    string
	attempt store.Attempt
	number  int // of the attempt; it is settled under the same one
	o       store.Outcome
	key     lockPlace
	v       store.LockVerdict
	ticket  bool
	was     bool
	locks   map[store.Lock]bool
}

type lockPlace struct {
	scope       string
	key, caller store.Key
}

// recordLocks does random things to the counters in memory, in virtual time.
func recordLocks(t *testing.T, seed uint64, steps int) (recorded []lockStep) {
	synctest.Test(t, func(t *testing.T) {
		r, m, ctx := rand.New(rand.NewPCG(seed, 23)), store.NewMemory(), t.Context()
		open := map[int]*store.Attempt{}
		for n := range steps {
			switch r.IntN(6) {
			case 0: // to a boundary as often as not
				pauses := []time.Duration{time.Microsecond, time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, time.Hour}
				time.Sleep(pauses[r.IntN(len(pauses))])
			case 1:
				time.Sleep(time.Duration(r.Int64N(1e6)) * time.Microsecond)
			}
			s := lockStep{at: time.Now().UnixMicro(), number: n}
			var err error
			switch k := r.IntN(12); {
			case k == 0:
				s.verb = "unlock"
				s.key.scope = []string{"address", "spray", "account"}[r.IntN(3)]
				s.key.key = ask("", fmt.Sprint(r.IntN(3)), 0, 0, 0).Key
				if s.key.scope == "account" && r.IntN(2) == 0 {
					s.key.caller = ask("", fmt.Sprint(r.IntN(3)), 0, 0, 0).Key
				}
				s.was, err = m.Unlock(ctx, s.key.scope, s.key.key, s.key.caller)
			case k == 1:
				s.verb, s.key.scope = "locks", []string{"address", "spray", "account"}[r.IntN(3)]
				var list []store.Lock
				list, err = m.Locks(ctx, s.key.scope, 100, nil)
				s.locks = map[store.Lock]bool{}
				for _, one := range list {
					s.locks[one] = true
				}
			case k < 7 || len(open) == 0:
				s.verb, s.attempt = "begin", randomAttempt(r)
				a := s.attempt
				if s.v, err = m.Begin(ctx, &a); s.v.Admitted() {
					open[n] = &a
				}
				s.ticket = a.Ticket != 0
			default:
				s.verb, s.o = "settle", []store.Outcome{store.Failed, store.Failed, store.Failed, store.Succeeded, store.Ignored}[r.IntN(5)]
				for s.number = r.IntN(n + 1); open[s.number] == nil; s.number = r.IntN(n + 1) {
				}
				s.v, err = m.Settle(ctx, open[s.number], s.o)
				delete(open, s.number)
			}
			if err != nil {
				t.Fatal(err)
			}
			recorded = append(recorded, s)
		}
	})
	return recorded
}

// randomAttempt is under few counters, whose limits change all the time.
func randomAttempt(r *rand.Rand) store.Attempt {
	limit := func() store.LockLimit {
		return store.LockLimit{Max: 1 + r.IntN(5), Window: time.Minute, Lockout: 2 * time.Minute}
	}
	address := fmt.Sprint(r.IntN(3))
	a := store.Attempt{Reserve: store.Reserve(r.IntN(3))}
	if r.IntN(5) > 0 {
		a.Counters = append(a.Counters, counting("address", address, limit()))
		if r.IntN(2) == 0 {
			c := counting("spray", fmt.Sprint(r.IntN(2)), limit())
			c.First = r.IntN(2) == 0
			a.Counters = append(a.Counters, c)
		}
		if r.IntN(3) == 0 {
			a.Counters = append(a.Counters, counting("ceiling", address, limit()))
		}
	}
	if len(a.Counters) == 0 || r.IntN(3) > 0 {
		a.Account = store.Account{
			Counter: counting("account", fmt.Sprint(r.IntN(3)), limit()), Caller: ask("", address, 0, 0, 0).Key,
			Remember: time.Duration(r.IntN(2)) * 5 * time.Minute, Admitted: r.IntN(8) == 0, OwnOnly: r.IntN(2) == 0,
		}
	}
	return a
}

// Redis decides and tells what memory does, over sequences of everything that can
// be asked, at the same instants, also with a slot for each key.
func TestLocksAreThoseOfTheMemoryStore(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for seed := range uint64(8) {
		o := unhurried("redis://" + server.Addr)
		o.Namespace, o.SlotPerKey = fresh(), seed%2 == 1
		s := stopStore(t, server, open(t, o))
		open := map[int]*store.Attempt{}
		for i, want := range recordLocks(t, seed, 1200) {
			s.at(want.at)
			var v store.LockVerdict
			var err error
			wrong := false
			switch want.verb {
			case "unlock":
				var was bool
				was, err = s.Unlock(t.Context(), want.key.scope, want.key.key, want.key.caller)
				wrong = was != want.was
			case "locks":
				var list []store.Lock
				list, err = s.Locks(t.Context(), want.key.scope, 100, nil)
				wrong = len(list) != len(want.locks)
				for _, one := range list {
					wrong = wrong || !want.locks[one]
				}
				if wrong {
					t.Logf("listed %+v", list)
				}
			case "begin":
				a := want.attempt
				v, err = s.Begin(t.Context(), &a)
				open[i] = &a
				wrong = v != want.v || (a.Ticket != 0) != want.ticket
			case "settle":
				v, err = s.Settle(t.Context(), open[want.number], want.o)
				wrong = v != want.v
			}
			if err != nil || wrong {
				t.Fatalf("seed %d, step %d: %+v\ngot %+v, %v", seed, i, want, v, err)
			}
		}
		server.Do("DEL", "seconds", "microseconds")
		for _, key := range server.Client().Keys(t.Context(), "*").Val() {
			if ttl := server.Client().Do(t.Context(), "PTTL", key).Val(); ttl == int64(-1) {
				t.Errorf("key %q has no end", key)
			}
		}
		server.Do("FLUSHALL")
	}
}
