package takeover

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// asked reports how many calls f made.
func (f *far) asked(do func()) int64 {
	before := f.calls.Load()
	do()
	return f.calls.Load() - before
}

func TestWhatWasRefusedIsRefusedHere(t *testing.T) {
	used := ask("a", 0.5, 5, 1) // two seconds a token
	for name, tt := range map[string]struct {
		then func(t *testing.T, s *Store, remote *far)
		c    store.Check
		call bool
	}{
		"again":                          {nil, used, false},
		"at a greater cost":              {nil, ask("a", 0.5, 5, 2), false},
		"not at a smaller cost":          {nil, ask("a", 0.5, 5, 0.5), true},
		"not under a raised burst":       {nil, ask("a", 0.5, 6, 1), true},
		"not under another rate":         {nil, ask("a", 0.6, 5, 1), true},
		"not for another key":            {nil, ask("b", 0.5, 5, 1), true},
		"not in shadow":                  {nil, func() store.Check { c := used; c.Shadow = true; return c }(), true},
		"just before it asks again":      {func(*testing.T, *Store, *far) { time.Sleep(time.Second - 1) }, used, false},
		"not after a second without ask": {func(*testing.T, *Store, *far) { time.Sleep(time.Second) }, used, true},
		"not after the tokens are there": {func(*testing.T, *Store, *far) { time.Sleep(3 * time.Second) }, used, true},
		"not after a refund":             {func(t *testing.T, s *Store, _ *far) { _ = s.Refund(context.Background(), []store.Check{used}) }, used, true},
		"all the same after another's": {func(t *testing.T, s *Store, _ *far) {
			_ = s.Refund(context.Background(), []store.Check{ask("b", 0.5, 5, 1)})
		}, used, false},
		"not after it was reset":           {func(t *testing.T, s *Store, _ *far) { s.Forget("tier", used.Key) }, used, true},
		"all the same after another's too": {func(t *testing.T, s *Store, _ *far) { s.Forget("tier", ask("b", 0, 0, 0).Key) }, used, false},
		"not after its tier was dropped":   {func(t *testing.T, s *Store, _ *far) { s.Drop("tier") }, used, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				time.Sleep(time.Second)
				admits(t, s, 5, 6, used)
				if tt.then != nil {
					tt.then(t, s, remote)
				}
				if got := remote.asked(func() { verdict(t, s, tt.c) }) > 0; got != tt.call {
					t.Errorf("asked the store: %v, want %v", got, tt.call)
				}
			})
		})
	}
}

func TestARefusalHereTellsWhatTheStoreWould(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		time.Sleep(time.Minute)
		checks := []store.Check{ask("a", 0.5, 5, 1), ask("b", 1, 100, 1), within(time.Hour, ask("a", 0, 50, 1))}
		admits(t, s, 5, 6, checks...)
		for range 9 {
			time.Sleep(100 * time.Millisecond)
			want, wantStates, _ := remote.Memory.Peek(context.Background(), checks, nil)
			got, states, err := s.Admit(context.Background(), checks, nil)
			if err != nil || got != want {
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
			if states[0] != wantStates[0] || states[1].Wait != 0 || states[2].Reset != wantStates[2].Reset {
				t.Errorf("%+v, want %+v", states, wantStates)
			}
			for i := range states { // of what is nearly full it is not known how full
				if off := states[i].Tokens - wantStates[i].Tokens; off < 0 || off > checks[i].Limit.Burst/10 {
					t.Errorf("check %d: %v tokens, want %v", i, states[i].Tokens, wantStates[i].Tokens)
				}
			}
		}
	})
}

func TestARefusalForEverIsAskedAgain(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := ask("a", 1, 5, 6) // never
		if got := remote.asked(func() { admits(t, s, 0, 100, c) }); got != 1 {
			t.Errorf("%d calls, want 1", got)
		}
		if v := verdict(t, s, c); v.RetryAfter != store.Never {
			t.Errorf("retry after %v", v.RetryAfter)
		}
	})
}

func TestNobodyIsRefusedHereWhoseTokensAreThere(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := ask("a", 10, 5, 1)
		admits(t, s, 5, 6, c)
		for range 100 {
			v := verdict(t, s, c)
			if v.Admitted() {
				continue
			}
			time.Sleep(v.RetryAfter)
			admitted(t, s, c)
		}
	})
}

func TestAFloodOfRefusedRequestsDoesNotReachTheStore(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		const n = 15_000
		calls := remote.asked(func() {
			for range n { // 1500 a second, of which 2 pass
				verdict(t, s, store.Check{Scope: "global", Limit: store.Limit{Rate: 100, Burst: 100}, Cost: 1}, ask("flood", 2, 5, 1))
				time.Sleep(time.Second / 1500)
			}
		})
		if calls > n/100 {
			t.Errorf("%d of %d reached the store, want 1 %% at most", calls, n)
		}
	})
}

func TestAnAnswerThatARefundOvertookIsNotKept(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		time.Sleep(time.Second)
		c := ask("a", hourly, 5, 1)
		admits(t, s, 5, 5, c)
		// The refusal is decided, and still under way when the refund comes.
		m := remote.Memory
		late := make(chan struct{})
		slow := New(tardy{m, late}, store.NewMemory(), Options{})
		defer func() { _ = slow.Close() }()
		go refused(t, slow, c)
		synctest.Wait()
		time.Sleep(time.Millisecond)
		if err := slow.Refund(context.Background(), []store.Check{c}); err != nil {
			t.Fatal(err)
		}
		close(late)
		synctest.Wait()
		admitted(t, slow, c)
	})
}

// tardy decides at once and answers late.
type tardy struct {
	*store.Memory
	late chan struct{}
}

func (r tardy) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	v, states, err := r.Memory.Admit(ctx, checks, dst)
	<-r.late
	return v, states, err
}

func TestArrivalsAreCountedWhoeverRefuses(t *testing.T) {
	process := within(time.Hour, store.Check{Limit: store.Limit{Burst: 1000}, Cost: 1, Always: true})
	process.Scope = "process"
	used := ask("a", hourly, 3, 1)
	count := func(t *testing.T, remote *far) float64 {
		t.Helper()
		look := process
		look.Cost = 0
		_, states, err := remote.Memory.Peek(context.Background(), []store.Check{look}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return 1000 - states[0].Tokens
	}
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		time.Sleep(time.Minute)
		calls := remote.asked(func() { admits(t, s, 3, 500, used, process) })
		if calls != 4 {
			t.Errorf("%d calls, want 4", calls)
		}
		if got := count(t, remote); got != 4 {
			t.Errorf("%v counted at once, want 4", got)
		}
		admitted(t, s, process, ask("b", hourly, 3, 1))
		if got := count(t, remote); got != 501 {
			t.Errorf("%v counted after the next call, want all 501", got)
		}
		admits(t, s, 0, 99, process, used)
		time.Sleep(arrivalDelay)
		synctest.Wait()
		if got := count(t, remote); got != 600 {
			t.Errorf("%v counted a tenth of a second later, want 600", got)
		}
		admits(t, s, 0, 50, process, used)
		degrade(t, s, remote)
		admits(t, s, 0, 50, process, used)
		returns(t, s, remote)
		if got := count(t, remote); got != 700 {
			t.Errorf("%v counted after an outage, want 700", got)
		}
		// The ceiling is met where the arrivals say, and then nobody asks any more.
		admits(t, s, 0, 297, process, used)
		admits(t, s, 3, 10, process, ask("c", hourly, 100, 1))
		if got := remote.asked(func() { admits(t, s, 0, 100, process, ask("d", hourly, 100, 1)) }); got != 0 {
			t.Errorf("%d calls above the ceiling, want none", got)
		}
	})
}

func TestALookIsAnsweredFromWhatWasRefused(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := ask("a", hourly, 3, 1)
		peek := func() store.Verdict {
			v, states, err := s.Peek(context.Background(), []store.Check{c}, nil)
			if err != nil || len(states) != 1 {
				t.Fatalf("%v, %v", states, err)
			}
			return v
		}
		for i, want := range []bool{true, true, true, false} {
			if got := peek().Admitted(); got != want {
				t.Errorf("look %d: %v, want %v", i, got, want)
			}
			verdict(t, s, c)
		}
		if got := remote.asked(func() { peek() }); got != 0 {
			t.Errorf("%d calls, want none", got)
		}
		degrade(t, s, remote)
		if peek().Admitted() {
			t.Error("a look during an outage would pass what is used up")
		}
	})
}

// blind is a remote store that cannot look.
type blind struct{ store.Store }

func TestAStoreThatCannotLookIsTakenToPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(blind{store.NewMemory()}, store.NewMemory(), Options{})
		defer func() { _ = s.Close() }()
		c := ask("a", hourly, 1, 1)
		for _, want := range []bool{true, true, false} {
			v, states, err := s.Peek(context.Background(), []store.Check{c}, nil)
			if err != nil || len(states) != 1 || v.Admitted() != want {
				t.Errorf("%+v, %v, %v, want %v", v, states, err, want)
			}
			verdict(t, s, c)
		}
	})
}

func TestTheCacheCanBeTurnedOff(t *testing.T) {
	bubble(t, Options{Recheck: -1}, func(t *testing.T, s *Store, remote *far, _ *log) {
		if got := remote.asked(func() { admits(t, s, 1, 50, ask("a", hourly, 1, 1)) }); got != 50 {
			t.Errorf("%d calls, want 50", got)
		}
	})
}

func BenchmarkRefusedHere(b *testing.B) {
	s := New(store.NewMemory(), store.NewMemory(), Options{Recheck: time.Hour})
	defer func() { _ = s.Close() }()
	checks := []store.Check{{Scope: "global", Limit: store.Limit{Rate: 1e9, Burst: 1e9}, Cost: 1}, ask("a", hourly, 1, 1)}
	verdict(b, s, checks...)
	b.RunParallel(func(pb *testing.PB) {
		states := make([]store.State, 0, 4)
		for pb.Next() {
			_, _, _ = s.Admit(context.Background(), checks, states[:0])
		}
	})
}
