package gate

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// take takes slots of a lane until there is none.
func take(t *testing.T, g *Gate, lane string) (slots []Slot) {
	t.Helper()
	for {
		s, err := g.Acquire(t.Context(), &Work{Kind: &Kind{Lane: g.Lane(lane)}})
		if err != nil {
			refusedWith(t, err, ErrQueueFull)
			return slots
		}
		slots = append(slots, s)
	}
}

func TestReservesAreLeftToTheirLanes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		slots  int
		lanes  map[string]LaneConfig
		order  []string // lanes that take all they can, one after the other
		expect []int
	}{
		{"without reserves the first takes all", 4, map[string]LaneConfig{"a": {}}, []string{"a", ""}, []int{4, 0}},
		{"one lane's reserve is left", 4, map[string]LaneConfig{"a": {Reserve: 1}}, []string{"", "a"}, []int{3, 1}},
		{"a lane takes its own and what is free", 4, map[string]LaneConfig{"a": {Reserve: 1}}, []string{"a", ""}, []int{4, 0}},
		{"two lanes leave each other theirs", 4, map[string]LaneConfig{"a": {Reserve: 1}, "b": {Reserve: 2}}, []string{"a", "b", ""}, []int{2, 2, 0}},
		{"the rest has what nobody reserved", 4, map[string]LaneConfig{"a": {Reserve: 1}, "b": {Reserve: 2}}, []string{"", "b", "a"}, []int{1, 2, 1}},
		{"a limit is kept beside free slots", 4, map[string]LaneConfig{"a": {Limit: 3}}, []string{"a", ""}, []int{3, 1}},
		{"reserves are cut to leave one slot", 3, map[string]LaneConfig{"a": {Reserve: 3}, "b": {Reserve: 3}}, []string{"", "a", "b"}, []int{1, 1, 1}},
		{"one slot has no room for reserves", 1, map[string]LaneConfig{"a": {Reserve: 1}}, []string{"", "a"}, []int{1, 0}},
		{"a reserve is cut to the limit", 4, map[string]LaneConfig{"a": {Reserve: 3, Limit: 1}}, []string{"", "a"}, []int{3, 1}},
		{"a lane that is not configured is the default one", 4, map[string]LaneConfig{"a": {Reserve: 1}}, []string{"c", "a"}, []int{3, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := New(1, 0)
			g.Configure(Config{Slots: tt.slots, Lanes: tt.lanes})
			var all []Slot
			for i, lane := range tt.order {
				got := take(t, g, lane)
				if all = append(all, got...); len(got) != tt.expect[i] {
					t.Errorf("lane %q took %d slots, want %d", lane, len(got), tt.expect[i])
				}
				checkInvariants(t, g)
			}
			for _, s := range all {
				s.Release()
			}
			g.Configure(Config{Slots: tt.slots})
			checkIdle(t, g)
		})
	}
}

func TestReserveThatIsRaisedIsFilledBeforeOthersTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(4, 4)
		rest := take(t, g, "")
		g.Configure(Config{Slots: 4, Default: LaneConfig{Queue: 4}, Lanes: map[string]LaneConfig{"a": {Reserve: 2, Queue: 4}, "b": {Reserve: 1, Queue: 4}}})
		waits := acquire(t.Context(), g, noBound)
		var a []*call
		for range 2 {
			a = append(a, acquireFor(t.Context(), g, Work{Kind: &Kind{Lane: g.Lane("a")}, MaxWait: noBound}))
		}
		b := acquireFor(t.Context(), g, Work{Kind: &Kind{Lane: g.Lane("b")}, MaxWait: noBound})
		for _, next := range []*call{a[0], b, a[1], waits} { // the one with least of its own first
			next.waiting(t)
			rest[0].Release()
			rest = rest[1:]
			next.answered(t, nil, 0)
		}
		checkInvariants(t, g)
	})
}

// What is free goes to the lane that holds least, so that one whose work is slow
// does not end up with all slots.
func TestSlowWorkDoesNotCrowdOutQuickWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(1, 0)
		g.Configure(Config{Slots: 8, Default: LaneConfig{Queue: 100}, Lanes: map[string]LaneConfig{"slow": {Queue: 100}}})
		var done [2]atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 40 {
			w, d := Work{MaxWait: noBound}, 10*time.Millisecond
			if i%2 == 1 {
				w.Kind, d = &Kind{Lane: g.Lane("slow")}, time.Second
			}
			wg.Go(func() {
				for {
					s, err := g.Acquire(ctx, &w)
					if err != nil {
						return
					}
					time.Sleep(d)
					done[i%2].Add(1)
					s.Release()
				}
			})
		}
		wg.Wait()
		// Four slots each: 400 and 4 a second, less the seconds in which the slow
		// lane still had more.
		if quick, slow := done[0].Load(), done[1].Load(); quick < 3600 || slow < 36 {
			t.Errorf("%d quick and %d slow were done, want at least 3600 and 36", quick, slow)
		}
		checkIdle(t, g)
	})
}

// The queue is one flow's as long as nobody else wants a place.
func TestFlowsTakePlacesFromTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 6)
		join := func(flow byte) *call {
			return acquireFor(t.Context(), g, Work{Flow: Flow{flow}, MaxWait: noBound})
		}
		var a, b []*call
		for range 6 {
			a = append(a, join('a'))
		}
		join('a').answered(t, ErrQueueFull, 0)
		for i := range 2 {
			b = append(b, join('b'))
			a[5-i].answered(t, ErrQueueFull, 0)
		}
		b = append(b, join('b'))
		a[3].answered(t, ErrQueueFull, 0)
		join('b').answered(t, ErrQueueFull, 0) // three each
		c := join('c')
		checkInvariants(t, g)
		left := []*call{a[0], b[0], c, a[1], b[1]} // c took the place of a[2] or of b[2]
		for _, next := range left {
			next.waiting(t)
			g.release()
			next.answered(t, nil, 0)
		}
		checkOccupancy(t, g, 1, 1)
	})
}

// Somebody sends a request from each of his 65536 networks, and others come after
// all of those have.
func TestSiteHasFewTurnsHoweverManyNetworks(t *testing.T) {
	for _, order := range []Order{Fair, NewestFirst, ControlledDelay} {
		synctest.Test(t, func(t *testing.T) {
			g := full(t, 1, 16)
			g.Configure(Config{Slots: 1, Default: LaneConfig{Queue: 16, Order: order}})
			crowd := 0
			flood := func() {
				for range 100 {
					crowd++
					acquireFor(t.Context(), g, Work{Flow: Flow{0x20, 1, 0xd, 0xb8, 0, 1, byte(crowd >> 8), byte(crowd)}, MaxWait: noBound})
				}
			}
			flood()
			checkOccupancy(t, g, 1, 16)
			var others []*call
			for i := range byte(8) {
				others = append(others, acquireFor(t.Context(), g, Work{Flow: Flow{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: i}, MaxWait: noBound}))
				flood()
			}
			checkInvariants(t, g)
			for range len(others) + siteTurns + 1 { // one round
				g.release()
				synctest.Wait()
			}
			for i, c := range others {
				if !c.over || c.err != nil {
					t.Errorf("order %d: %d of the others was not served in its turn: over %v, %v", order, i, c.over, c.err)
				}
			}
			g.Close()
		})
	}
}

// 20 000 flows leave nothing behind.
func TestFlowsThatHaveGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := full(t, 1, 8)
		for i := range 20_000 {
			ctx, cancel := context.WithCancel(t.Context())
			c := acquireFor(ctx, g, Work{Flow: Flow{byte(i), byte(i >> 8)}, Kind: &Kind{Backend: "x"}, MaxWait: noBound})
			cancel()
			c.answered(t, ErrCanceled, 0)
		}
		q := &g.lanes[0].queue
		if len(q.flows) != 0 || len(q.sites) != 0 || q.first != nil || q.last != nil || len(g.backends) != 0 || len(q.byLen) > 2 {
			t.Errorf("left are %d flows, %d backends, %d lengths", len(q.flows), len(g.backends), len(q.byLen))
		}
		g.release()
		checkIdle(t, g)
	})
}

// Everything at once, in lanes that come and go.
func TestStormInLanesThatChangeLosesNoSlot(t *testing.T) {
	noGoroutineLeft(t)
	const callers, most = 32, 6
	rounds := 1_000
	if testing.Short() {
		rounds = 100
	}
	g := New(most, callers/2)
	names, backends := []string{"", "a", "b", "c"}, []string{"", "x", "y"}
	var inside meter
	var answers [6]atomic.Int64
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
				w := Work{
					Kind:    &Kind{Lane: g.Lane(names[rand.IntN(4)]), Backend: backends[rand.IntN(3)], Times: new(Times)},
					Flow:    Flow{byte(rand.IntN(4))},
					MaxWait: time.Duration(rand.IntN(50)-10) * time.Microsecond,
				}
				if rand.IntN(4) == 0 {
					w.Deadline = time.Now().Add(time.Duration(rand.IntN(100)) * time.Microsecond)
				}
				s, err := g.Acquire(ctx, &w)
				for i, want := range []error{nil, ErrQueueFull, ErrTimeout, ErrCanceled, ErrDeadline, ErrBackendShare} {
					if errors.Is(err, want) {
						answers[i].Add(1)
					}
				}
				if err == nil {
					inside.enter()
					for range rand.IntN(5) {
						runtime.Gosched()
					}
					inside.exit()
					s.Release()
				}
				hangUp.Wait()
			}
		})
	}
	stop := make(chan struct{})
	var changer sync.WaitGroup
	changer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c := Config{Slots: 1 + rand.IntN(most), BackendLimit: rand.IntN(4), Lanes: map[string]LaneConfig{}}
				c.Default = LaneConfig{Queue: rand.IntN(callers), Order: Order(rand.IntN(3))}
				for _, name := range names[1:] {
					if rand.IntN(2) == 0 {
						c.Lanes[name] = LaneConfig{Reserve: rand.IntN(3), Limit: rand.IntN(4), Queue: rand.IntN(callers), Order: Order(rand.IntN(3))}
					}
				}
				g.Configure(c)
				checkInvariants(t, g)
				runtime.Gosched()
			}
		}
	})
	wg.Wait()
	close(stop)
	changer.Wait()

	if n := inside.most.Load(); n > most {
		t.Errorf("at most %d were inside at once, want no more than %d", n, most)
	}
	for i := range answers {
		t.Logf("answer %d: %d", i, answers[i].Load())
	}
	g.resize(3, 3)
	checkIdle(t, g)
}
