package gate

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// noGoroutineLeft states at the end of the test that it leaves as many
// goroutines as it found. A goroutine may still be on its way out after its
// WaitGroup says so; yielding lets it go.
func noGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 100_000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("%d goroutines, before the test there were %d", runtime.NumGoroutine(), before)
	})
}

// A meter counts who is inside and remembers the most there ever were.
type meter struct{ now, most atomic.Int64 }

func (m *meter) enter() {
	n := m.now.Add(1)
	for {
		most := m.most.Load()
		if n <= most || m.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (m *meter) exit() { m.now.Add(-1) }

func TestThousandCallersAreNeverMoreThanEightInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, callers = 8, 1000
		g := New(slots, callers-slots)
		var inside meter
		var served atomic.Int64
		start := time.Now()
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				if err := g.acquire(t.Context(), noBound); err != nil {
					t.Error(err)
					return
				}
				defer g.release()
				inside.enter()
				defer inside.exit()
				time.Sleep(time.Millisecond)
				served.Add(1)
			})
		}
		wg.Wait()
		if most := inside.most.Load(); most != slots {
			t.Errorf("at most %d were inside at once, want exactly %d", most, slots)
		}
		if served.Load() != callers {
			t.Errorf("served %d of %d", served.Load(), callers)
		}
		// Full all the time: 1000 callers by eights, a millisecond each.
		if got, want := time.Since(start), callers/slots*time.Millisecond; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
		checkIdle(t, g)
	})
}

func TestRealGoroutinesAreNeverMoreThanTheSlots(t *testing.T) {
	noGoroutineLeft(t)
	const slots, callers, rounds = 3, 64, 200
	g := New(slots, callers)
	var inside meter
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				if err := g.acquire(t.Context(), noBound); err != nil {
					t.Error(err)
					return
				}
				inside.enter()
				runtime.Gosched()
				inside.exit()
				g.release()
			}
		})
	}
	wg.Wait()
	if most := inside.most.Load(); most != slots {
		t.Errorf("at most %d were inside at once, want exactly %d", most, slots)
	}
	checkIdle(t, g)
}

// One waiter, whose cancellation and whose grant come from two goroutines that
// start together. What the answer is does not matter here, only that a slot
// never goes with it.
func TestGrantAndCancelTogetherLoseNoSlot(t *testing.T) {
	noGoroutineLeft(t)
	reps := 100_000
	if testing.Short() {
		reps = 5_000
	}
	g := New(1, 1)
	type round struct {
		ctx    context.Context
		cancel context.CancelFunc
	}
	waiters, cancels := make(chan round), make(chan round)
	answers := make(chan error)
	go func() {
		for r := range waiters {
			answers <- g.acquire(r.ctx, noBound)
		}
	}()
	go func() {
		for r := range cancels {
			r.cancel()
		}
	}()

	kept := 0
	for range reps {
		admitted(t, g.acquire(t.Context(), 0)) // fails if the last round lost the slot
		var r round
		r.ctx, r.cancel = context.WithCancel(t.Context())
		waiters <- r
		for g.Queued() == 0 {
			runtime.Gosched()
		}
		cancels <- r
		g.release()
		switch err := <-answers; {
		case err == nil:
			kept++
			g.release()
		case !errors.Is(err, ErrCanceled):
			t.Fatal(err)
		}
	}
	close(waiters)
	close(cancels)
	t.Logf("of %d waiters %d kept the slot", reps, kept)
	checkIdle(t, g)
}

// Everything at once: callers that give up after a random number of yields or
// after a wait of microseconds, holders that stay a random while, a gate that
// grows and shrinks meanwhile.
func TestStormOfCancellationsTimeoutsAndResizesLeavesTheGateWhole(t *testing.T) {
	noGoroutineLeft(t)
	const callers, most = 32, 6
	rounds := 1_000
	if testing.Short() {
		rounds = 100
	}
	g := New(most, callers/2)
	var inside meter
	var answers [4]atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				var hangUp sync.WaitGroup
				yields := rand.IntN(20)
				hangUp.Go(func() {
					for range yields {
						runtime.Gosched()
					}
					cancel()
				})
				wait := time.Duration(rand.IntN(50)-10) * time.Microsecond
				switch err := g.acquire(ctx, wait); {
				case err == nil:
					answers[0].Add(1)
					inside.enter()
					for range rand.IntN(5) {
						runtime.Gosched()
					}
					inside.exit()
					g.release()
				case errors.Is(err, ErrQueueFull):
					answers[1].Add(1)
				case errors.Is(err, ErrTimeout), errors.Is(err, ErrDeadline):
					answers[2].Add(1)
				case errors.Is(err, ErrCanceled):
					answers[3].Add(1)
				default:
					t.Error(err)
				}
				hangUp.Wait()
			}
		})
	}
	stop := make(chan struct{})
	var resizer sync.WaitGroup
	resizer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				g.resize(1+rand.IntN(most), rand.IntN(callers))
				checkInvariants(t, g)
				runtime.Gosched()
			}
		}
	})
	wg.Wait()
	close(stop)
	resizer.Wait()

	if n := inside.most.Load(); n > most {
		t.Errorf("at most %d were inside at once, want no more than %d", n, most)
	}
	t.Logf("admitted %d, queue full %d, timeout %d, canceled %d",
		answers[0].Load(), answers[1].Load(), answers[2].Load(), answers[3].Load())
	checkIdle(t, g)
}

func TestHolderThatDoesNotReturnGivesItsSlotBack(t *testing.T) {
	acquireAndRelease := func(g *Gate) (func(), error) {
		return g.release, g.acquire(context.Background(), noBound)
	}
	hold := func(g *Gate) (func(), error) { return g.Hold(context.Background(), &Work{MaxWait: noBound}) }
	for _, tt := range []struct {
		name string
		take func(*Gate) (func(), error)
		end  func()
	}{
		{"a panic after Acquire", acquireAndRelease, func() { panic("boom") }},
		{"a panic after Hold", hold, func() { panic("boom") }},
		{"an aborted handler", hold, func() { panic(http.ErrAbortHandler) }},
		{"a runtime error", acquireAndRelease, func() { var none []int; none[len(none)] = 1 }},
		{"Goexit after Acquire", acquireAndRelease, runtime.Goexit},
		{"Goexit after Hold", hold, runtime.Goexit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noGoroutineLeft(t)
			g := New(2, 50)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					defer func() { _ = recover() }()
					release, err := tt.take(g)
					if err != nil {
						t.Error(err)
						return
					}
					defer release()
					tt.end()
				})
			}
			wg.Wait()
			checkIdle(t, g)
		})
	}
}
