package takeover

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

const ms = int64(time.Millisecond)

func TestTheBreakerOpens(t *testing.T) {
	type step struct {
		enter bool
		at    int64
		end   int // which call ends
		how   outcome
	}
	in := func(at int64) step { return step{enter: true, at: at} }
	out := func(call int, at int64, how outcome) step { return step{at: at, end: call, how: how} }
	row := func(n int, how outcome) (steps []step) {
		for i := range n {
			steps = append(steps, in(int64(i)*10*ms), out(i, int64(i)*10*ms+ms, how))
		}
		return steps
	}
	for name, tt := range map[string]struct {
		steps []step
		want  bool
	}{
		"on five failures in a row":                             {row(5, failed), true},
		"on five time-outs in a row":                            {row(5, timedOut), true},
		"not on four":                                           {row(4, failed), false},
		"not on calls whose callers had no time":                {row(50, moot), false},
		"not on answers":                                        {row(50, answered), false},
		"not if one between was answered":                       {append(row(4, failed), in(50*ms), out(4, 51*ms, answered), in(60*ms), out(5, 61*ms, failed)), false},
		"when a call comes and the oldest has waited too long":  {[]step{in(0), in(25 * ms)}, true},
		"not when it has waited less":                           {[]step{in(0), in(25*ms - 1)}, false},
		"not when an answer has come since":                     {[]step{in(0), in(20 * ms), out(1, 21*ms, answered), in(40 * ms)}, false},
		"when no answer has come for as long":                   {[]step{in(0), in(20 * ms), out(1, 21*ms, answered), in(46 * ms)}, true},
		"not when the call before has ended long ago":           {[]step{in(0), out(0, ms, answered), in(90 * ms)}, false},
		"not when that was the caller's doing":                  {[]step{in(0), out(0, ms, moot), in(90 * ms)}, false},
		"on one call without an answer for as long":             {[]step{in(0), out(0, 100*ms, timedOut)}, true},
		"not on one that failed late":                           {[]step{in(0), out(0, 100*ms, failed)}, false},
		"not at 100 ms if the server has been as slow before":   {append([]step{in(0), out(0, 20*ms, answered)}, in(30*ms), in(130*ms)), false},
		"at eight times what the server has taken before, then": {append([]step{in(0), out(0, 20*ms, answered)}, in(30*ms), in(190*ms)), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBreaker(usualStall)
			var calls []call
			told := false
			for _, s := range tt.steps {
				if s.enter {
					c, ok, opened := b.enter(s.at)
					if told = told || opened; ok {
						calls = append(calls, c)
					}
					continue
				}
				opened, _ := b.leave(calls[s.end], s.at, s.how)
				told = told || opened
			}
			if got := b.isOpen.Load(); got != tt.want || told != tt.want {
				t.Errorf("open: %v, and told so: %v, want %v", got, told, tt.want)
			}
			if tt.want {
				for _, c := range calls {
					if c.ctx.Err() == nil {
						t.Error("a call goes on")
					}
				}
			}
		})
	}
}

func TestAnOpenBreakerIgnoresTheCallsBefore(t *testing.T) {
	b := newBreaker(usualStall)
	before, _, _ := b.enter(0)
	b.stop()
	b.close(0, 0)
	for range 10 {
		if opened, _ := b.leave(before, 1, failed); opened {
			t.Fatal("a call of before its return has opened it")
		}
	}
	if b.flying != 0 {
		t.Errorf("%d calls under way, want none", b.flying)
	}
}

func TestTheFirstFailureAfterTheReturnOpensAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		at   int64
		want bool
	}{
		"within a second": {int64(probation) - 1, true},
		"not later":       {int64(probation), false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBreaker(usualStall)
			b.stop()
			b.close(0, 0)
			c, _, _ := b.enter(tt.at)
			if opened, _ := b.leave(c, tt.at, failed); opened != tt.want {
				t.Errorf("opened: %v, want %v", opened, tt.want)
			}
		})
	}
}

func TestTheSlowestIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		start, usual, rare time.Duration // one in fifty is rare
	}{
		"from below": {time.Microsecond, time.Millisecond, 20 * time.Millisecond},
		"from above": {time.Second, time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := slowest{}
			s.add(tt.start)
			for i := range 20_000 {
				if i%50 == 0 {
					s.add(tt.rare)
				} else {
					s.add(tt.usual)
				}
			}
			if got := s.p99(); got < tt.rare/2 || got > tt.rare*2 {
				t.Errorf("p99 = %v, want about %v", got, tt.rare)
			}
		})
	}
}

func TestNoFaultOfTheRemoteStoreFailsACall(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  func(ctx context.Context) error
		reason string
		most   int64 // calls of a thousand that reach the store, its probes included
	}{
		"it refuses":         {func(context.Context) error { return errDown }, "other", 5 + 10},
		"it is closed":       {func(context.Context) error { return store.ErrClosed }, "closed", 5 + 10},
		"it panics":          {func(context.Context) error { panic("oops") }, "panic", 5 + 10},
		"it hangs":           {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "timeout", 1 + 10},
		"it says why":        {func(context.Context) error { return reasoned{} }, "because", 5 + 10},
		"it gives up early":  {func(ctx context.Context) error { return context.DeadlineExceeded }, "timeout", 5 + 10},
		"it cancels on us":   {func(ctx context.Context) error { return context.Canceled }, "canceled", 5 + 10},
		"it panics with nil": {func(context.Context) error { panic(nil) }, "panic", 5 + 10},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
				remote.breaks(tt.fault)
				for range 1000 {
					admitted(t, s, ask("a", 1, 1e6, 1))
					time.Sleep(time.Millisecond)
				}
				if got := remote.calls.Load(); got > tt.most {
					t.Errorf("%d calls reached the store, want %d at most", got, tt.most)
				}
				if l.failed("admit "+tt.reason) == 0 {
					t.Errorf("no failure is put down to %q: %v", tt.reason, l.failedAs())
				}
				returns(t, s, remote)
				if want := []bool{true, false}; !slices.Equal(l.turned(), want) {
					t.Errorf("it degraded and came back as %v, want %v", l.turned(), want)
				}
				before := remote.calls.Load()
				admitted(t, s, ask("a", 1, 1e6, 1))
				if got := remote.calls.Load() - before; got != 1 {
					t.Errorf("%d calls of one request after its return", got)
				}
			})
		})
	}
}

type reasoned struct{}

func (reasoned) Error() string       { return "reasoned" }
func (reasoned) StoreReason() string { return "because" }

func TestAnAnswerAboutOtherChecksIsAFailure(t *testing.T) {
	for name, answer := range map[string]func(v *store.Verdict, states *[]store.State){
		"too few states":         func(_ *store.Verdict, s *[]store.State) { *s = (*s)[:len(*s)-1] },
		"too many states":        func(_ *store.Verdict, s *[]store.State) { *s = append(*s, store.State{}) },
		"another check to blame": func(v *store.Verdict, _ *[]store.State) { v.Refused = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := new(log)
				s := New(odd{store.NewMemory(), answer}, store.NewMemory(), Options{Hooks: l.hooks()})
				defer func() { _ = s.Close() }()
				admitted(t, s, ask("a", 1, 5, 1), ask("b", 1, 5, 1))
				if got := l.failed("admit reply"); got != 1 {
					t.Errorf("%d such failures, want 1: %v", got, l.failedAs())
				}
			})
		})
	}
}

type odd struct {
	*store.Memory
	answer func(*store.Verdict, *[]store.State)
}

func (o odd) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	v, states, err := o.Memory.Admit(ctx, checks, dst)
	o.answer(&v, &states)
	return v, states, err
}

func TestAHungStoreHoldsUpOnlyThoseWhoCameAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		admitted(t, s, ask("a", 1, 1e6, 1)) // a quick answer, to know what is usual
		remote.hangs()
		var longest time.Duration
		waited := 0
		done := make(chan time.Duration)
		const n = 200
		for range n { // a request each 5 ms, whoever is answered
			go func() {
				begun := time.Now()
				admitted(t, s, ask("a", 1, 1e6, 1))
				done <- time.Since(begun)
			}()
			time.Sleep(5 * time.Millisecond)
			for drained := false; !drained; {
				select {
				case d := <-done:
					longest = max(longest, d)
					if d > time.Millisecond {
						waited++
					}
				default:
					drained = true
				}
			}
		}
		synctest.Wait()
		if waited > 5 {
			t.Errorf("%d of %d waited, want 5 at most", waited, n)
		}
		if longest > usualStall {
			t.Errorf("one waited %v of virtual time, want %v at most", longest, usualStall)
		}
	})
}

func TestAServerThatIsMerelyFarAwayIsNotTakenToHang(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		remote.slow(60 * time.Millisecond)
		for range 40 {
			for range 10 {
				go admitted(t, s, ask("a", 1, 1e6, 1))
				time.Sleep(7 * time.Millisecond)
			}
		}
		time.Sleep(time.Second)
		if s.Degraded() || len(l.turned()) > 2 {
			t.Errorf("it decides not: %v", l.turned())
		}
	})
}

func TestAProbeMustDoWhatARequestDoes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		degrade(t, s, remote)
		time.Sleep(10 * time.Second)
		if !s.Degraded() || len(l.turned()) != 1 {
			t.Errorf("it is taken to be back while it fails: %v", l.turned())
		}
		if got := l.failed("probe other"); got < 10 || got > 50 {
			t.Errorf("%d probes in ten seconds, want about 25", got)
		}
		returns(t, s, remote)
	})
}

func TestACallerWithoutTimeIsNoFailureOfTheStore(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		remote.slow(10 * time.Millisecond)
		for range 50 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			v, _, err := s.Admit(ctx, []store.Check{ask("a", 1, 1e6, 1)}, nil)
			if err != nil || !v.Admitted() {
				t.Fatalf("%+v, %v", v, err)
			}
			cancel()
		}
		if s.Degraded() {
			t.Error("the local store has taken over")
		}
	})
}

func TestACallerThatIsGoneDoesNotEndTheCall(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		remote.slow(time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for range 20 {
			if _, _, err := s.Admit(ctx, []store.Check{ask("a", hourly, 20, 1)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(l.failedAs()) > 0 {
			t.Errorf("failures: %v", l.failedAs())
		}
		remote.up()
		refused(t, remote, ask("a", hourly, 20, 1))
	})
}

func TestPassedRequestsAreToldOf(t *testing.T) {
	bubble(t, Options{Pass: true}, func(t *testing.T, s *Store, remote *far, l *log) {
		remote.down()
		for range 100 {
			if _, _, err := s.Admit(context.Background(), []store.Check{ask("a", hourly, 5, 1)}, nil); err == nil {
				t.Fatal("decided, though nobody could")
			}
		}
		if got := l.failed("admit other") + l.failed("admit open"); got != 100 {
			t.Errorf("told of %d, want 100: %v", got, l.failedAs())
		}
		s.SetPass(false)
		admitted(t, s, ask("a", hourly, 5, 1))
		s.SetPass(true)
		returns(t, s, remote)
		admits(t, s, 4, 10, ask("a", hourly, 5, 1))
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	for name, stop := range map[string]func(s *Store) error{
		"by Close":                        (*Store).Close,
		"by Retire":                       func(s *Store) error { return s.Retire(true) },
		"by Retire, with the store alive": func(s *Store) error { return s.Retire(false) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
				remote := newFar()
				s := New(remote, store.NewMemory(), Options{})
				degrade(t, s, remote)
				if err := stop(s); err != nil {
					t.Error(err)
				}
				if err := stop(s); err != nil {
					t.Error(err)
				}
				verdict := func() error {
					_, _, err := s.Admit(context.Background(), []store.Check{ask("a", 1, 1, 1)}, nil)
					return err
				}
				if err := verdict(); (err == store.ErrClosed) != (name == "by Close") {
					t.Errorf("afterwards: %v", err)
				}
			})
		})
	}
}

func TestARetiredStoreStillAsks(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		if err := s.Retire(false); err != nil {
			t.Fatal(err)
		}
		before := remote.calls.Load()
		admitted(t, s, ask("a", 1, 1, 1))
		if remote.calls.Load() == before {
			t.Error("the remote store was not asked")
		}
		remote.down()
		admits(t, s, 100, 100, ask("b", 1, 1e3, 1)) // for good, since nobody looks
	})
}
