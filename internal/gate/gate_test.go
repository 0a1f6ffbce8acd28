package gate

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// noBound lets a wait last as long as its context.
const noBound = -1

// acquire takes a slot of the default lane, for nobody in particular.
func (g *Gate) acquire(ctx context.Context, maxWait time.Duration) error {
	_, err := g.Acquire(ctx, &Work{MaxWait: maxWait})
	return err
}

// release gives back a slot that acquire took.
func (g *Gate) release() { Slot{lane: g.lanes[0], kind: &zeroKind}.Release() }

func (g *Gate) resize(slots, queue int) {
	g.Configure(Config{Slots: slots, Default: LaneConfig{Queue: queue}})
}

// checkInvariants walks the gate's queues and holds them against everything that
// must be true whenever the mutex is free.
func checkInvariants(t *testing.T, g *Gate) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()

	held, unfilled, waiting, backends := 0, 0, 0, 0
	for _, ln := range g.lanes {
		held += ln.held
		unfilled += max(0, ln.reserve-ln.held)
		waiting += ln.queue.n
		if ln.held < 0 {
			t.Errorf("lane %q holds %d, want none below zero", ln.name, ln.held)
		}
		if ln.queue.n > 0 && g.mayTake(ln) {
			t.Errorf("lane %q: %d wait beside a slot that is free for them", ln.name, ln.queue.n)
		}
		if ln.reserve > ln.limit {
			t.Errorf("lane %q reserves %d of at most %d", ln.name, ln.reserve, ln.limit)
		}
		ln.queue.check(t)
	}
	for b, n := range g.backends {
		if backends += n; n < 1 {
			t.Errorf("backend %s is remembered with %d slots", b, n)
		}
	}
	if g.held != held || g.unfilled != unfilled || g.waiting != waiting || backends > held {
		t.Errorf("held %d, unfilled %d, waiting %d; the lanes say %d, %d, %d; backends hold %d",
			g.held, g.unfilled, g.waiting, held, unfilled, waiting, backends)
	}
	if g.closed && waiting > 0 {
		t.Errorf("%d wait in a closed gate", waiting)
	}
}

// check walks every list of a queue.
func (q *queue) check(t *testing.T) {
	t.Helper()
	n, flows, longest := 0, 0, 0
	var prev *flow
	for f := q.first; f != nil; prev, f = f, f.next {
		flows++
		if f.prev != prev || q.flows[f.key] != f {
			t.Errorf("flow %d: its links or its key are broken", flows)
		}
		of := 0
		var before *waiter
		for w := f.first; w != nil; before, w = w, w.next {
			of++
			if w.prev != before || w.flow != f || w.verdict != undecided {
				t.Errorf("waiter %d of flow %d: a broken link, or verdict %d while in the queue", of, flows, w.verdict)
			}
		}
		if f.last != before || f.n != of || of == 0 {
			t.Errorf("flow %d says it has %d waiters, it has %d", flows, f.n, of)
		}
		n += of
		longest = max(longest, of)
	}
	if q.last != prev || q.n != n || len(q.flows) != flows || q.longest != longest {
		t.Errorf("the queue says %d waiters in %d flows of at most %d; it has %d, %d, %d", q.n, len(q.flows), q.longest, n, flows, longest)
	}
	sites := map[Flow]int{}
	for t := range q.flows {
		if site, has := t.of.site(); has && !t.rest {
			sites[site]++
		}
	}
	if !maps.Equal(sites, q.sites) {
		t.Errorf("sites have %v turns, counted are %v", sites, q.sites)
	}
	for site, n := range sites {
		if n > siteTurns {
			t.Errorf("site %x has %d turns", site[:6], n)
		}
	}
	like := 0
	for length, f := range q.byLen {
		var prev *flow
		for ; f != nil; prev, f = f, f.nextLike {
			like++
			if f.n != length || f.prevLike != prev || q.flows[f.key] != f {
				t.Errorf("a flow of %d is among those of %d, or its links are broken", f.n, length)
			}
		}
	}
	if like != flows {
		t.Errorf("%d flows are listed by length, want %d", like, flows)
	}
}

// checkIdle states that the gate is as good as new: nothing held, nobody
// waiting, and every slot can be taken, but not one more.
func checkIdle(t *testing.T, g *Gate) {
	t.Helper()
	checkInvariants(t, g)
	checkOccupancy(t, g, 0, 0)
	slots := g.Slots()
	for i := range slots {
		if err := g.acquire(t.Context(), 0); err != nil {
			t.Fatalf("slot %d of %d is lost: %v", i+1, slots, err)
		}
	}
	if err := g.acquire(t.Context(), 0); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("slot %d of %d: got %v, want %v", slots+1, slots, err, ErrQueueFull)
	}
	for range slots {
		g.release()
	}
}

func checkOccupancy(t *testing.T, g *Gate, inFlight, queued int) {
	t.Helper()
	if got := g.InFlight(); got != inFlight {
		t.Errorf("InFlight() = %d, want %d", got, inFlight)
	}
	if got := g.Queued(); got != queued {
		t.Errorf("Queued() = %d, want %d", got, queued)
	}
}

// full returns a gate all of whose slots are taken by the test.
func full(t *testing.T, slots, queue int) *Gate {
	t.Helper()
	g := New(slots, queue)
	for range slots {
		admitted(t, g.acquire(t.Context(), 0))
	}
	return g
}

func admitted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want a slot", err)
	}
}

func refusedWith(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}

func ended(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	cancel()
	return ctx
}

func TestNewAndResizePanicOnSizesNoGateCanHave(t *testing.T) {
	for _, tt := range []struct {
		name         string
		slots, queue int
	}{
		{"no slot", 0, 10},
		{"less than no slot", -1, 10},
		{"a negative queue", 1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mustPanic(t, "New", func() { New(tt.slots, tt.queue) })
			g := New(3, 5)
			mustPanic(t, "Resize", func() { g.resize(tt.slots, tt.queue) })
			if g.Slots() != 3 || g.QueueCap() != 5 {
				t.Errorf("a refused Resize left %d slots, queue %d; want 3, 5", g.Slots(), g.QueueCap())
			}
			checkIdle(t, g)
		})
	}
}

// None of these has to wait. One that blocks nevertheless is alone in its bubble,
// which the runtime reports as a deadlock.
func TestAcquireAnswersAtOnce(t *testing.T) {
	free := func(*testing.T) *Gate { return New(1, 1) }
	taken := func(queue int) func(*testing.T) *Gate {
		return func(t *testing.T) *Gate { return full(t, 1, queue) }
	}
	closed := func(held int) func(*testing.T) *Gate {
		return func(t *testing.T) *Gate {
			g := New(2, 1)
			for range held {
				admitted(t, g.acquire(t.Context(), 0))
			}
			g.Close()
			return g
		}
	}
	for _, tt := range []struct {
		name    string
		gate    func(*testing.T) *Gate
		ended   bool
		maxWait time.Duration
		want    error
	}{
		{"a free slot is given to who would not wait", free, false, 0, nil},
		{"a free slot is given to who would wait a while", free, false, time.Second, nil},
		{"a free slot is given to who would wait for ever", free, false, noBound, nil},
		{"an ended context gets no slot even if one is free", free, true, noBound, ErrCanceled},
		{"an ended context does not join the queue", taken(1), true, noBound, ErrCanceled},
		{"an ended context is told so rather than that the queue is full", taken(0), true, 0, ErrCanceled},
		{"who would not wait is refused though the queue has room", taken(1), false, 0, ErrQueueFull},
		{"without a queue nobody waits a while", taken(0), false, time.Second, ErrQueueFull},
		{"without a queue nobody waits for ever", taken(0), false, noBound, ErrQueueFull},
		{"a closed gate refuses beside free slots", closed(0), false, noBound, ErrClosed},
		{"a closed gate refuses when full", closed(2), false, noBound, ErrClosed},
		{"a closed gate tells an ended context of its end", closed(0), true, noBound, ErrCanceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := tt.gate(t)
				before := g.InFlight()
				ctx := t.Context()
				if tt.ended {
					ctx = ended(ctx)
				}
				if err := g.acquire(ctx, tt.maxWait); !errors.Is(err, tt.want) {
					t.Fatalf("got %v, want %v", err, tt.want)
				}
				want := before
				if tt.want == nil {
					want++
				}
				checkOccupancy(t, g, want, 0)
				checkInvariants(t, g)
			})
		})
	}
}

func TestCanceledMatchesTheContextErrorAndItsCause(t *testing.T) {
	hungUp := errors.New("client hung up")
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) context.Context
		want []error
		text string
	}{
		{
			"a plain cancellation", ended,
			[]error{ErrCanceled, context.Canceled},
			"canceled before a slot was granted: context canceled",
		},
		{
			"a cancellation with a cause",
			func(ctx context.Context) context.Context {
				ctx, cancel := context.WithCancelCause(ctx)
				cancel(hungUp)
				return ctx
			},
			[]error{ErrCanceled, context.Canceled, hungUp},
			"canceled before a slot was granted: client hung up",
		},
		{
			"a deadline with a cause",
			func(ctx context.Context) context.Context {
				ctx, cancel := context.WithDeadlineCause(ctx, time.Unix(0, 0), hungUp)
				cancel()
				return ctx
			},
			[]error{ErrCanceled, context.DeadlineExceeded, hungUp},
			"canceled before a slot was granted: client hung up",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := New(1, 0).acquire(tt.ctx(t.Context()), 0)
			for _, want := range tt.want {
				refusedWith(t, err, want)
			}
			if err.Error() != tt.text {
				t.Errorf("got text %q, want %q", err, tt.text)
			}
			for _, other := range []error{ErrQueueFull, ErrTimeout, ErrClosed} {
				if errors.Is(err, other) {
					t.Errorf("%v also matches %v", err, other)
				}
			}
		})
	}
}

func TestReleasePanicsWhenNothingIsHeld(t *testing.T) {
	g := New(2, 0)
	mustPanic(t, "Release of a new gate", g.release)

	admitted(t, g.acquire(t.Context(), 0))
	g.release()
	mustPanic(t, "second Release", g.release)

	// The panic must leave neither the mutex locked nor a slot too many.
	checkIdle(t, g)
}

func TestCloseLetsHoldersReleaseAndMayBeRepeated(t *testing.T) {
	g := full(t, 2, 1)
	g.Close()
	g.Close()
	checkOccupancy(t, g, 2, 0)
	g.release()
	g.resize(5, 5)
	refusedWith(t, g.acquire(t.Context(), noBound), ErrClosed)
	g.release()
	checkOccupancy(t, g, 0, 0)
	mustPanic(t, "Release after the last", g.release)
}
