package store

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // a zone with summer time, wherever the tests run
)

const day = 24 * time.Hour

func TestWindowsAreAlignedToTheEpoch(t *testing.T) {
	utc := func(y int, m time.Month, d, hh, mm, ss, ns int) time.Time {
		return time.Date(y, m, d, hh, mm, ss, ns, time.UTC)
	}
	for _, tt := range []struct {
		name     string
		length   time.Duration
		at, ends time.Time
	}{
		{"a nanosecond is a window", 1, utc(2026, 7, 1, 12, 30, 15, 7), utc(2026, 7, 1, 12, 30, 15, 8)},
		{"a second ends on the second", time.Second, utc(2026, 7, 1, 12, 30, 15, 7), utc(2026, 7, 1, 12, 30, 16, 0)},
		{"a minute ends on the minute", time.Minute, utc(2026, 7, 1, 12, 30, 15, 7), utc(2026, 7, 1, 12, 31, 0, 0)},
		{"the last nanosecond is inside", time.Minute, utc(2026, 7, 1, 12, 30, 59, 999_999_999), utc(2026, 7, 1, 12, 31, 0, 0)},
		{"the boundary itself begins the next", time.Minute, utc(2026, 7, 1, 12, 31, 0, 0), utc(2026, 7, 1, 12, 32, 0, 0)},
		{"an hour ends on the hour", time.Hour, utc(2026, 12, 31, 23, 59, 59, 0), utc(2027, 1, 1, 0, 0, 0, 0)},
		{"a day ends at midnight UTC", day, utc(2028, 2, 29, 5, 0, 0, 0), utc(2028, 3, 1, 0, 0, 0, 0)},
		{"a week begins on Thursday, as the epoch did", 7 * day, utc(2026, 10, 7, 23, 0, 0, 0), utc(2026, 10, 8, 0, 0, 0, 0)},
		{"thirty days are no month", 30 * day, utc(2000, 1, 31, 0, 0, 0, 0), utc(2000, 2, 23, 0, 0, 0, 0)},
		{"seven seconds do not divide a minute", 7 * time.Second, time.Unix(13, 0), time.Unix(14, 0)},
		{"the first window begins at the epoch", time.Hour, time.Unix(0, 0), time.Unix(3600, 0)},
		{"before the epoch windows end later, too", time.Hour, time.Unix(-1, 0), time.Unix(0, 0)},
		{"a boundary before the epoch begins a window", time.Hour, time.Unix(-3600, 0), time.Unix(0, 0)},
		{"seconds do not end with 32 bits", time.Hour, time.Unix(1<<31, 0), time.Unix(1<<31-1<<31%3600+3600, 0)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// When the store was made plays no part.
			for _, age := range []time.Duration{1, time.Second, 400 * day} {
				f := frame{tt.at.Add(-age).UnixNano(), int64(tt.length)}
				if got, want := f.left(int64(age)), tt.ends.Sub(tt.at); got != want {
					t.Errorf("%v old, at %v: %v left, want %v", age, tt.at.UTC(), got, want)
				}
			}
		})
	}
}

// Whole numbers without a bound say what floor(t / length) is.
func TestWindowIndexIsTheFloor(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		f := frame{r.Int64() - math.MaxInt64/2, 1 + r.Int64N(1<<uint(1+r.IntN(60)))}
		now := r.Int64N(math.MaxInt64 / 4)
		at := new(big.Int).Add(big.NewInt(f.epoch), big.NewInt(now))
		want, into := new(big.Int).DivMod(at, big.NewInt(f.length), new(big.Int)) // Euclid's: the floor
		if got := f.index(now); got != want.Int64() {
			t.Fatalf("%+v at %d: window %d, want %v", f, now, got, want)
		}
		if got := f.left(now); int64(got) != f.length-into.Int64() {
			t.Fatalf("%+v at %d: %d left, want %d", f, now, got, f.length-into.Int64())
		}
	}
}

func TestWindowTake(t *testing.T) {
	minute := frame{0, 60 * second}
	for _, tt := range []struct {
		name        string
		from        window
		now         int64
		limit, cost float64
		want        window // counted, if it is
		ok          bool
		wait        time.Duration // where it does not fit
	}{
		{"counts what fits", window{3, 10 * second}, 20 * second, 10, 2, window{5, 20 * second}, true, 0},
		{"counts up to the limit", window{3, 10 * second}, 20 * second, 10, 7, window{10, 20 * second}, true, 0},
		{"counts fractions", window{3, 10 * second}, 20 * second, 4.75, 1.75, window{4.75, 20 * second}, true, 0},
		{"waits for the boundary", window{3, 10 * second}, 20 * second, 10, 8, window{11, 20 * second}, false, 40 * time.Second},
		{"waits a nanosecond at the last", window{10, 10 * second}, 60*second - 1, 10, 1, window{11, 60*second - 1}, false, 1},
		{"begins anew at the boundary", window{10, 10 * second}, 60 * second, 10, 1, window{1, 60 * second}, true, 0},
		{"begins anew any number of windows later", window{10, 10 * second}, hour + second, 10, 10, window{10, hour + second}, true, 0},
		{"asks at no cost", window{10, 10 * second}, 20 * second, 10, 0, window{10, 20 * second}, true, 0},
		{"is overdrawn above the limit", window{11, 10 * second}, 20 * second, 10, 0, window{11, 20 * second}, false, 40 * time.Second},
		{"never fits above the limit", window{0, 10 * second}, 20 * second, 10, 11, window{11, 20 * second}, false, Never},
		{"never fits under no limit", window{0, 10 * second}, 20 * second, 0, 1, window{1, 20 * second}, false, Never},
		{"never fits under a limit that is no number", window{0, second}, second, math.NaN(), 1, window{1, second}, false, Never},
		{"never fits under a negative limit", window{0, second}, second, -1, 0, window{0, second}, false, Never},
		{"a negative cost is not counted", window{3, 10 * second}, 20 * second, 10, -1, window{3, 10 * second}, false, Never},
		{"a cost that is no number is not counted", window{3, 10 * second}, 20 * second, 10, math.NaN(), window{3, 10 * second}, false, Never},
		{"an infinite cost is not counted", window{3, 10 * second}, 20 * second, 10, math.Inf(1), window{3, 10 * second}, false, Never},
		{"not under an infinite limit either", window{3, 10 * second}, 20 * second, math.Inf(1), math.Inf(1), window{3, 10 * second}, false, Never},
		{"a late reading counts where the last write did", window{3, 65 * second}, 55 * second, 10, 7, window{10, 65 * second}, true, 0},
		{"a late reading does not reopen the earlier window", window{10, 65 * second}, 55 * second, 10, 1, window{11, 65 * second}, false, 65 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.from.take(tt.now, minute, tt.limit, tt.cost)
			if got != tt.want || ok != tt.ok {
				t.Errorf("%+v takes %v of %v at %d: %+v, %v, want %+v, %v", tt.from, tt.cost, tt.limit, tt.now, got, ok, tt.want, tt.ok)
			}
			if ok {
				return
			}
			wait := tt.from.wait(tt.now, minute, tt.limit, tt.cost)
			if wait != tt.wait {
				t.Fatalf("%+v has %v of %v wait %v at %d, want %v", tt.from, tt.cost, tt.limit, wait, tt.now, tt.wait)
			}
			if wait == Never {
				return
			}
			if _, ok := tt.from.take(tt.now+int64(wait), minute, tt.limit, tt.cost); !ok {
				t.Error("refused again after the wait")
			}
			if _, ok := tt.from.take(tt.now+int64(wait)-1, minute, tt.limit, tt.cost); ok {
				t.Error("admitted a nanosecond before the wait was over")
			}
		})
	}
}

// gauge asks a memory store for windows, with helpers that read as claims.
type gauge struct {
	*testing.T
	m *Memory
}

// gauged runs a test on an empty store, at midnight (synctest begins there).
func gauged(t *testing.T, test func(g gauge)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(gauge{t, NewMemory()}) })
}

// windowed asks for one unit of a window.
func windowed(scope string, n int, length time.Duration, limit float64) Check {
	c := Check{Scope: scope, Limit: Limit{Burst: limit}, Cost: 1, Window: length}
	if n > 0 {
		c.Key = numbered(n)
	}
	return c
}

func costing(c Check, cost float64) Check { c.Cost = cost; return c }
func limited(c Check, limit float64) Check {
	c.Limit.Burst = limit
	return c
}
func lasting(c Check, length time.Duration) Check { c.Window = length; return c }
func arriving(c Check) Check                      { c.Always = true; return c }
func shadowed(c Check) Check                      { c.Shadow = true; return c }

func (g gauge) admit(checks ...Check) (Verdict, []State) {
	g.Helper()
	v, states, err := g.m.Admit(g.Context(), checks, nil)
	if err != nil {
		g.Fatal(err)
	}
	return v, states
}

func (g gauge) peek(checks ...Check) (Verdict, []State) {
	g.Helper()
	v, states, err := g.m.Peek(g.Context(), checks, nil)
	if err != nil {
		g.Fatal(err)
	}
	return v, states
}

func (g gauge) passes(checks ...Check) []State {
	g.Helper()
	v, states := g.admit(checks...)
	if !v.Admitted() {
		g.Fatalf("refused: %+v\nverdict %+v, states %+v", checks, v, states)
	}
	return states
}

func (g gauge) refuses(checks ...Check) (Verdict, []State) {
	g.Helper()
	v, states := g.admit(checks...)
	if v.Admitted() {
		g.Fatalf("admitted: %+v\nstates %+v", checks, states)
	}
	return v, states
}

// leaves claims what is left in the window of c.
func (g gauge) leaves(want float64, c Check) {
	g.Helper()
	_, states := g.peek(costing(c, 0))
	if got := states[0].Tokens; got != want {
		g.Fatalf("%s %x leaves %v of %v, want %v", c.Scope, c.Key[:8], got, c.Limit.Burst, want)
	}
}

// grants claims how many such requests pass before one is refused.
func (g gauge) grants(want int, c Check) {
	g.Helper()
	for got := 0; ; got++ {
		if v, _ := g.admit(c); !v.Admitted() || got > want {
			if got != want {
				g.Fatalf("%s %x of %v grants %d, want %d", c.Scope, c.Key[:8], c.Limit.Burst, got, want)
			}
			return
		}
	}
}

// step moves the store's clock, and nothing else.
func (g gauge) step(d time.Duration) { g.m.base = g.m.base.Add(-d) }

// Midnight of 1 January 2000, where a synctest begins, is a boundary of all the
// lengths here but the two longest.
func TestTheBudgetIsBackExactlyAtTheBoundary(t *testing.T) {
	for length, first := range map[time.Duration]time.Duration{
		1: 1, 2: 2, time.Second: time.Second, time.Minute: time.Minute, time.Hour: time.Hour, day: day,
		7 * day: 5 * day, 30 * day: 23 * day, 90 * time.Millisecond: 90 * time.Millisecond,
	} {
		for n := range 2 { // the one of a scope without keys, and a keyed one
			gauged(t, func(g gauge) {
				c, left := windowed("s", n, length, 3), first
				for range 4 {
					g.grants(3, c)
					if left > 1 {
						time.Sleep(left - 1)
						v, states := g.refuses(c)
						if want := (Verdict{0, 1}); v != want || states[0] != (State{0, 1, 1}) {
							g.Errorf("%v, a nanosecond before the boundary: %+v %+v", length, v, states)
						}
						left = 1
					}
					time.Sleep(left)
					left = length
					if _, states := g.peek(costing(c, 0)); states[0] != (State{3, 0, length}) {
						g.Errorf("%v, at the boundary: %+v", length, states)
					}
				}
			})
		}
	}
}

// Fixed windows let twice the limit through around a boundary (scenario T29):
// that is what they are, and no more than that.
func TestTwoBudgetsMeetAtABoundary(t *testing.T) {
	gauged(t, func(g gauge) {
		c := windowed("s", 1, time.Minute, 50)
		time.Sleep(59*time.Second + 900*time.Millisecond)
		g.grants(50, c)
		time.Sleep(200 * time.Millisecond)
		g.grants(50, c)
		time.Sleep(59*time.Second + 899*time.Millisecond)
		g.grants(0, c)
	})
}

// However a clock steps around one boundary, exactly two budgets pass.
func TestAClockSteppedOverABoundaryGrantsTwoBudgets(t *testing.T) {
	for _, tt := range []struct {
		name  string
		steps []time.Duration // from half a minute before the boundary
	}{
		{"forward", []time.Duration{40 * time.Second}},
		{"onto it", []time.Duration{30 * time.Second}},
		{"forward and back", []time.Duration{40 * time.Second, -40 * time.Second}},
		{"forward and back and forward", []time.Duration{40 * time.Second, -40 * time.Second, 45 * time.Second}},
		{"back by hours and on", []time.Duration{31 * time.Second, -12 * time.Hour, 12 * time.Hour}},
		{"to and fro by a nanosecond", []time.Duration{30 * time.Second, -1, 1, -1, 1, -2, 2}},
	} {
		for _, used := range []int{10, 4, 1} { // of the budget before it
			gauged(t, func(g gauge) {
				c := windowed("s", 1, time.Minute, 10)
				time.Sleep(12*time.Hour + 30*time.Second)
				g.passes(costing(c, float64(used)))
				passed := used
				for _, d := range tt.steps {
					g.step(d)
					for range 30 {
						if v, _ := g.admit(c); v.Admitted() {
							passed++
						}
					}
				}
				if passed != used+10 {
					t.Errorf("%s: %d passed before the boundary and %d in all, want %d", tt.name, used, passed, used+10)
				}
			})
		}
	}
}

// A caller reads the clock before it has the lock: when it is late, others may
// have counted in the next window already. It joins them.
func TestALateReadingJoinsTheWindowOfTheLastWrite(t *testing.T) {
	gauged(t, func(g gauge) {
		c := windowed("s", 1, time.Minute, 10)
		time.Sleep(59 * time.Second)
		g.passes(costing(c, 4))
		g.step(3 * time.Second)
		g.passes(costing(c, 7))
		g.step(-3 * time.Second) // a reading of 59 s
		g.leaves(3, c)
		if states := g.passes(c); states[0] != (State{2, 0, 61 * time.Second}) {
			g.Errorf("a late reading tells %+v", states)
		}
		v, states := g.refuses(costing(c, 3))
		if v.RetryAfter != 61*time.Second || states[0] != (State{2, 61 * time.Second, 61 * time.Second}) {
			g.Errorf("a late reading is refused with %+v %+v", v, states)
		}
		g.grants(2, c)
		g.step(3 * time.Second)
		g.grants(0, c)
		g.step(58 * time.Second)
		g.grants(10, c)
	})
}

func TestWindowStates(t *testing.T) {
	const wait = 40 * time.Second
	base := windowed("s", 1, time.Minute, 10)
	at := func(cost float64) Check { return costing(base, cost) }
	for _, tt := range []struct {
		name  string
		check Check // of 8 used
		want  State
		after float64 // left under a limit of 10 afterwards
	}{
		{"one that passes is counted", at(1), State{1, 0, wait}, 1},
		{"the last one leaves nothing", at(2), State{0, 0, wait}, 0},
		{"a fraction is counted", at(1.5), State{0.5, 0, wait}, 0.5},
		{"a cost above what is left is refused, and what is left stays", at(3), State{2, wait, wait}, 2},
		{"a cost of the whole limit waits for the boundary", at(10), State{2, wait, wait}, 2},
		{"a cost above the limit never passes", at(10.5), State{2, Never, wait}, 2},
		{"a negative cost never passes", at(-1), State{2, Never, wait}, 2},
		{"a cost that is no number never passes", at(math.NaN()), State{2, Never, wait}, 2},
		{"an infinite cost never passes", at(math.Inf(1)), State{2, Never, wait}, 2},
		{"an infinite cost never passes an infinite limit", limited(at(math.Inf(1)), math.Inf(1)), State{math.Inf(1), Never, wait}, 2},
		{"a cost of nothing passes", at(0), State{2, 0, wait}, 2},
		{"a cost of nothing passes at the limit", limited(at(0), 8), State{0, 0, wait}, 2},
		{"a cost of nothing does not pass above a lowered limit", limited(at(0), 5), State{0, wait, wait}, 2},
		{"a lowered limit leaves nothing, and not less", limited(at(1), 5), State{0, wait, wait}, 2},
		{"a cost above a lowered limit never passes", limited(at(6), 5), State{0, Never, wait}, 2},
		{"a raised limit leaves the difference", limited(at(12), 20), State{0, 0, wait}, -10},
		{"no limit at all is none to wait for", limited(at(1), 0), State{0, Never, wait}, 2},
		{"a negative limit leaves nothing", limited(at(1), -5), State{0, Never, wait}, 2},
		{"a limit that is no number leaves nothing", limited(at(1), math.NaN()), State{0, Never, wait}, 2},
		{"an infinite limit leaves everything", limited(at(1), math.Inf(1)), State{math.Inf(1), 0, wait}, 1},
		{"an arrival that passes is counted once", arriving(at(1)), State{1, 0, wait}, 1},
		{"an arrival that is refused is counted", arriving(at(3)), State{0, wait, wait}, -1},
		{"an arrival above the limit is counted", arriving(at(11)), State{0, Never, wait}, -9},
		{"an arrival of negative cost is not counted", arriving(at(-1)), State{2, Never, wait}, 2},
		{"an arrival whose cost is no number is not counted", arriving(at(math.NaN())), State{2, Never, wait}, 2},
		{"an arrival of infinite cost is not counted", arriving(at(math.Inf(1))), State{2, Never, wait}, 2},
		{"a shadow that passes is counted", shadowed(at(2)), State{0, 0, wait}, 0},
		{"a shadow that does not pass is not counted", shadowed(at(3)), State{2, wait, wait}, 2},
		{"a shadow of an arrival is counted either way", shadowed(arriving(at(3))), State{0, wait, wait}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for n := range 2 {
				gauged(t, func(g gauge) {
					c, plain := tt.check, windowed("s", n, time.Minute, 10)
					c.Key = plain.Key
					time.Sleep(10 * time.Second)
					g.passes(costing(plain, 8))
					time.Sleep(10 * time.Second)
					want := Verdict{Refused: -1}
					if tt.want.Wait > 0 && !c.Shadow {
						want = Verdict{0, tt.want.Wait}
					}
					for range 2 {
						if v, states := g.peek(c); v != want || states[0] != tt.want {
							g.Errorf("Peek tells %+v %+v, want %+v %+v", v, states[0], want, tt.want)
						}
					}
					g.leaves(2, plain)
					if v, states := g.admit(c); v != want || states[0] != tt.want {
						g.Errorf("Admit tells %+v %+v, want %+v %+v", v, states[0], want, tt.want)
					}
					g.leaves(tt.after+100, limited(plain, 110)) // a negative count would show
					if wait := want.RetryAfter; wait > 0 && wait != Never {
						time.Sleep(wait)
						g.passes(c) // nobody else came: it must, now
					}
				})
			}
		})
	}
}

func TestACostAboveWhatIsLeftLeavesItForOthers(t *testing.T) {
	gauged(t, func(g gauge) {
		c := windowed("s", 1, time.Hour, 10)
		g.passes(costing(c, 8))
		if _, states := g.refuses(costing(c, 5)); states[0].Tokens != 2 { // scenario T12
			g.Errorf("%v left, want 2", states[0].Tokens)
		}
		g.grants(2, c)
	})
}

func TestALimitMayChangeWithinAWindow(t *testing.T) {
	gauged(t, func(g gauge) {
		for n := range 2 {
			c := windowed("raised", n, time.Hour, 10) // scenario T32
			for i := range 50 {
				if v, _ := g.admit(c); v.Admitted() != (i < 10) {
					g.Fatalf("request %d: %+v", i, v)
				}
			}
			g.grants(10, limited(c, 20))
			g.grants(0, limited(c, 20))
			g.grants(0, c)
			g.grants(5, limited(c, 25))

			c = windowed("lowered", n, time.Hour, 10) // scenario T31
			g.passes(costing(c, 8))
			g.leaves(0, limited(c, 5))
			g.grants(0, limited(c, 5))
			g.grants(0, limited(c, 8))
			g.grants(1, limited(c, 9))
			g.grants(1, c)
		}
		time.Sleep(time.Hour)
		g.grants(5, windowed("lowered", 1, time.Hour, 5))
		g.grants(25, windowed("raised", 1, time.Hour, 25))
	})
}

// A changed length takes the count along if the last of it lies in the new
// window (scenario R6). With Configure it also outlives the end of the old one
// where room is scarce or the key is idle.
func TestALengthMayChange(t *testing.T) {
	for _, tt := range []struct {
		name     string
		from, to time.Duration
		at       time.Duration // after midnight, when 8 are counted
		then     time.Duration // after midnight, when the length changes
		left     float64       // of 10
		reset    time.Duration
	}{
		{"longer, in the same window", time.Minute, time.Hour, 10 * time.Second, 20 * time.Second, 2, time.Hour - 20*time.Second},
		{"longer, when the short one has ended", time.Minute, time.Hour, 10 * time.Second, 30 * time.Minute, 2, 30 * time.Minute},
		{"longer, at its last nanosecond", time.Minute, time.Hour, 10 * time.Second, time.Hour - 1, 2, 1},
		{"longer, when the long one has ended", time.Minute, time.Hour, 10 * time.Second, time.Hour, 10, time.Hour},
		{"shorter, in the same window", time.Hour, time.Minute, 10 * time.Second, 20 * time.Second, 2, 40 * time.Second},
		{"shorter, when the short one has ended", time.Hour, time.Minute, 10 * time.Second, time.Minute, 10, time.Minute},
		{"to one that is not a multiple", time.Minute, 50 * time.Second, 45 * time.Second, 49 * time.Second, 2, time.Second},
		{"to one that is not a multiple and begins between", time.Minute, 50 * time.Second, 45 * time.Second, 51 * time.Second, 10, 49 * time.Second},
	} {
		for _, configured := range []bool{false, true} {
			gauged(t, func(g gauge) {
				var windows []Check
				for n := range 2 {
					windows = append(windows, windowed("s", n, tt.from, 10))
				}
				if configured {
					g.m.Configure(Scope{Name: "s", MaxKeys: 5, IdleTTL: 1, Window: tt.from})
				}
				time.Sleep(tt.at)
				for _, c := range windows {
					g.passes(costing(c, 8))
				}
				time.Sleep(tt.then - tt.at)
				if configured {
					g.m.Configure(Scope{Name: "s", MaxKeys: 5, IdleTTL: 1, Window: tt.to})
					for i := range 20 { // newcomers for four places
						g.passes(windowed("s", 100+i, tt.to, 10))
					}
					g.m.Size("s")
				}
				for _, c := range windows {
					c = lasting(c, tt.to)
					if _, states := g.peek(costing(c, 0)); states[0] != (State{tt.left, 0, tt.reset}) {
						g.Errorf("%s (configured %v): %+v, want %v left and a reset in %v", tt.name, configured, states[0], tt.left, tt.reset)
					}
					g.grants(int(tt.left), c)
				}
				time.Sleep(tt.reset)
				for _, c := range windows {
					g.grants(10, lasting(c, tt.to))
				}
			})
		}
	}
}

func TestArrivalsAreCountedWhateverBecomesOfThem(t *testing.T) {
	full := Check{Scope: "full", Key: numbered(9), Limit: Limit{0, 1}, Cost: 1}
	closed := windowed("closed", 1, time.Hour, 0)
	for _, tt := range []struct {
		name   string
		limit  float64
		checks func(arrival Check) []Check
		passes bool
		counts float64
	}{
		{"one that passes", 10, func(a Check) []Check { return []Check{a} }, true, 1},
		{"one that it refuses itself", 0, func(a Check) []Check { return []Check{a} }, false, 1},
		{"one that a bucket after it refuses", 10, func(a Check) []Check { return []Check{a, full} }, false, 1},
		{"one that a bucket before it refuses", 10, func(a Check) []Check { return []Check{full, a} }, false, 1},
		{"one that a window refuses", 10, func(a Check) []Check { return []Check{closed, a, closed} }, false, 1},
		{"one that everything refuses", 0, func(a Check) []Check { return []Check{full, a, closed} }, false, 1},
		{"one with a shadow that fails", 10, func(a Check) []Check { return []Check{a, shadowed(full)} }, true, 1},
		{"one that is asked twice", 10, func(a Check) []Check { return []Check{a, costing(a, 2)} }, true, 3},
		{"one that is asked twice and refused", 10, func(a Check) []Check { return []Check{a, full, costing(a, 2)} }, false, 3},
		{"one that is asked twice and does not fit", 2, func(a Check) []Check { return []Check{a, costing(a, 2)} }, false, 3},
		{"one that is counted only if it passes, and does", 10, func(a Check) []Check { b := a; b.Always = false; return []Check{costing(b, 5), a} }, true, 6},
		{"one that is counted only if it passes, and does not", 10, func(a Check) []Check { b := a; b.Always = false; return []Check{costing(b, 5), a, full} }, false, 1},
		{"and the same the other way round", 10, func(a Check) []Check { b := a; b.Always = false; return []Check{a, costing(b, 5), full} }, false, 1},
		{"and among others", 10, func(a Check) []Check {
			b := costing(a, 4)
			b.Always = false
			return []Check{b, a, b, full, costing(a, 2)}
		}, false, 3},
		{"a shadow that fails", 2, func(a Check) []Check { return []Check{shadowed(costing(a, 3))} }, true, 3},
		{"a shadow that fails, before another that is refused by it", 3, func(a Check) []Check { return []Check{shadowed(costing(a, 4)), a} }, false, 5},
		{"a shadow that fails, before another shadow", 3, func(a Check) []Check { return []Check{shadowed(costing(a, 4)), shadowed(a)} }, true, 5},
		{"a negative cost beside it", 10, func(a Check) []Check { return []Check{costing(a, 5), costing(a, -4)} }, false, 5},
		{"no cost at all", 10, func(a Check) []Check { return []Check{costing(a, 0), full} }, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for n := range 2 {
				for _, old := range []float64{0, 7} { // a count of the window before is past
					gauged(t, func(g gauge) {
						a := arriving(windowed("process", n, time.Minute, tt.limit))
						g.admit(full)
						g.admit(costing(a, old))
						time.Sleep(time.Minute)
						v, states := g.peek(tt.checks(a)...)
						if v2, states2 := g.admit(tt.checks(a)...); v2 != v || !slices.Equal(states, states2) {
							g.Errorf("Peek tells %+v %+v, Admit %+v %+v", v, states, v2, states2)
						}
						if v.Admitted() != tt.passes {
							g.Errorf("verdict %+v, states %+v", v, states)
						}
						for i, c := range tt.checks(a) {
							if left := max(0, tt.limit-tt.counts); c.Scope == a.Scope && states[i].Tokens != left {
								g.Errorf("state %d tells %v left after the decision, want %v", i, states[i].Tokens, left)
							}
						}
						g.leaves(1000-tt.counts, limited(a, 1000))
						g.leaves(0, Check{Scope: "full", Key: numbered(9), Limit: Limit{0, 1}})
						g.leaves(1, limited(closed, 1))
					})
				}
			}
		})
	}
}

// A window and buckets in one call are all or nothing, to the bit.
func TestRefusedWindowsChangeNotABit(t *testing.T) {
	gauged(t, func(g gauge) {
		bucket := Check{Scope: "bucket", Key: numbered(1), Limit: Limit{1.0 / 3, 10}, Cost: 0.7}
		drained := Check{Scope: "drained", Key: numbered(3), Limit: Limit{0, 1}, Cost: 1}
		subject, global := windowed("subject", 1, time.Minute, 10), windowed("global", 0, time.Hour, 20)
		fresh, spent := windowed("subject", 2, time.Minute, 10), windowed("spent", 1, time.Hour, 1)
		g.m.Configure(Scope{Name: "subject", MaxKeys: 2, Window: time.Minute})
		g.passes(bucket, drained, costing(subject, 3), global, spent)
		before := imageOf(g.m)
		for at, what := range []string{"in the same window", "in the next", "in one long after"} {
			for i, checks := range [][]Check{
				{subject, global, bucket, drained}, {drained, bucket, global, subject}, {bucket, subject, spent}, {spent, bucket, global},
				{fresh, drained}, {costing(fresh, 11), bucket}, {bucket, global, costing(subject, 11)}, {subject, subject, fresh, drained},
				{shadowed(subject), shadowed(spent), bucket, drained}, {costing(subject, -1), bucket}, {bucket, costing(global, math.NaN())},
			} {
				g.refuses(append(checks, drained)...)
				g.peek(checks...)
				g.peek(bucket, subject, fresh, arriving(global))
				if after := imageOf(g.m); !slices.EqualFunc(before, after, image.equal) {
					g.Fatalf("case %d, %s, changed the store\nfrom %+v\nto   %+v", i, what, before, after)
				}
			}
			time.Sleep([]time.Duration{time.Minute, 100 * time.Hour, 0}[at])
		}
		// An arrival among them is counted, and nothing else is.
		before = imageOf(g.m)
		g.refuses(bucket, subject, arriving(global), drained)
		after := imageOf(g.m)
		for i := range after {
			if same := before[i].equal(after[i]); same == (after[i].name == "global") {
				g.Errorf("scope %s: unchanged %v", after[i].name, same)
			}
		}
		g.leaves(19, global)
	})
}

// Arrivals are counted in windows; a bucket keeps what a refused request asked.
func TestABucketCountsNoArrivals(t *testing.T) {
	gauged(t, func(g gauge) {
		drained := Check{Scope: "drained", Key: numbered(3), Limit: Limit{0, 1}, Cost: 1}
		g.passes(drained)
		for n := range 2 {
			bucket := arriving(windowed("bucket", n, 0, 10))
			g.passes(bucket)
			g.refuses(bucket, drained)
			g.refuses(costing(bucket, 11))
			g.passes(shadowed(costing(bucket, 11)))
			g.leaves(9, bucket)
		}
	})
}

func TestShadowWindowsNeverRefuse(t *testing.T) {
	gauged(t, func(g gauge) {
		c, bucket := windowed("shadow", 1, time.Minute, 3), Check{Scope: "bucket", Limit: Limit{0, 100}, Cost: 1}
		time.Sleep(20 * time.Second)
		for i := range 8 {
			states := g.passes(shadowed(costing(c, 2)), bucket)
			if got, want := states[0], (State{1, 0, 40 * time.Second}); i == 0 && got != want {
				g.Errorf("the first tells %+v, want %+v", got, want)
			} else if want.Wait = 40 * time.Second; i > 0 && got != want {
				g.Errorf("one that is refused in earnest tells %+v, want %+v", got, want)
			}
		}
		g.leaves(1, c) // none was overdrawn
		if v, _ := g.refuses(shadowed(costing(c, 9)), costing(c, 2)); v != (Verdict{1, 40 * time.Second}) {
			g.Errorf("blamed %+v", v)
		}
		g.passes(shadowed(costing(c, math.NaN())), shadowed(costing(c, 9)), c) // what fails weighs nothing
		g.leaves(0, c)
	})
}

func TestTheLongestWaitAmongWindowsAndBucketsIsBlamed(t *testing.T) {
	gauged(t, func(g gauge) {
		minute, hour := windowed("minute", 1, time.Minute, 1), windowed("hour", 1, time.Hour, 1)
		bucket := Check{Scope: "bucket", Limit: Limit{1.0 / 600, 1}, Cost: 1} // ten minutes a token
		g.passes(minute, hour, bucket)
		time.Sleep(20 * time.Second)
		for _, tt := range []struct {
			checks []Check
			want   Verdict
		}{
			{[]Check{minute, hour, bucket}, Verdict{1, time.Hour - 20*time.Second}},
			{[]Check{minute, bucket}, Verdict{1, 580 * time.Second}},
			{[]Check{minute}, Verdict{0, 40 * time.Second}},
			{[]Check{minute, shadowed(hour)}, Verdict{0, 40 * time.Second}},
			{[]Check{hour, costing(minute, 2)}, Verdict{1, Never}},
		} {
			v, states := g.refuses(tt.checks...)
			if v.Refused != tt.want.Refused || v.RetryAfter.Round(time.Microsecond) != tt.want.RetryAfter.Round(time.Microsecond) {
				g.Errorf("%+v: %+v, want %+v", tt.checks, v, tt.want)
			}
			for i, c := range tt.checks {
				if (states[i].Reset > 0) != (c.Window > 0) {
					g.Errorf("state %d tells a reset in %v", i, states[i].Reset)
				}
			}
		}
	})
}

func TestRefundsPassWindowsOver(t *testing.T) {
	gauged(t, func(g gauge) {
		bucket := Check{Scope: "bucket", Key: numbered(1), Limit: Limit{0, 10}, Cost: 4}
		for n := range 2 {
			c := windowed("window", n, time.Hour, 10)
			g.passes(costing(c, 3), bucket)
			if err := g.m.Refund(g.Context(), []Check{costing(c, 3), bucket, arriving(c), windowed("never seen", n, 1, 1)}); err != nil {
				g.Fatal(err)
			}
			g.leaves(7, c)
			g.leaves(10, bucket)
		}
	})
}

// Two checks of one place are one spend of their sum, whatever is wrong with
// one of them; of buckets and windows alike.
func TestChecksOfOnePlaceAreTheirSum(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		name   string
		costs  []float64
		shadow []bool
		passes bool
		left   float64 // of 10
	}{
		{"a sum that fits", []float64{2, 3}, nil, true, 5},
		{"a sum that just fits", []float64{2, 3, 5}, nil, true, 0},
		{"a sum that does not", []float64{6, 5}, nil, false, 10},
		{"nothing and something", []float64{0, 3, 0}, nil, true, 7},
		{"a negative cost takes nothing off the sum", []float64{5, -4}, nil, false, 10},
		{"nor does one that comes first", []float64{-4, 5}, nil, false, 10},
		{"nor does one that comes to nothing", []float64{5, -5, 0}, nil, false, 10},
		{"one that is no number", []float64{5, nan, 1}, nil, false, 10},
		{"an infinite one", []float64{1, math.Inf(1), 1}, nil, false, 10},
		{"a shadow that fails weighs nothing", []float64{6, 5, 4}, []bool{false, true, false}, true, 0},
		{"a shadow that is negative weighs nothing", []float64{6, -5, 3}, []bool{false, true, false}, true, 1},
		{"a shadow that is no number weighs nothing", []float64{nan, 3}, []bool{true, false}, true, 7},
		{"an infinite shadow weighs nothing", []float64{math.Inf(1), 3}, []bool{true, false}, true, 7},
		{"a shadow that passes weighs", []float64{6, 3, 2}, []bool{false, true, false}, false, 10},
	} {
		for _, length := range []time.Duration{0, time.Hour} {
			for n := range 2 {
				gauged(t, func(g gauge) {
					place := windowed("s", n, length, 10)
					var checks []Check
					for i, cost := range tt.costs {
						checks = append(checks, costing(place, cost), windowed("between", 1, time.Hour, 100))
						checks[2*i].Shadow = tt.shadow != nil && tt.shadow[i]
					}
					v, states := g.admit(checks...)
					if v.Admitted() != tt.passes {
						g.Errorf("%s (window %v): %+v", tt.name, length, v)
					}
					for i := range tt.costs {
						if got := states[2*i].Tokens; got != tt.left {
							g.Errorf("%s (window %v): state %d tells %v left, want %v", tt.name, length, i, got, tt.left)
						}
					}
					g.leaves(tt.left, place)
				})
			}
		}
	}
}

// Two rules for one caller count apart, each in a scope of its own (scenario
// T27): the end of the short window leaves the long one alone.
func TestWindowsOfTwoScopesAreApart(t *testing.T) {
	gauged(t, func(g gauge) {
		second, hour := windowed("second", 1, time.Second, 5), windowed("hour", 1, time.Hour, 20)
		var got []int
		for range 6 {
			n := 0
			for range 10 {
				if v, _ := g.admit(second, hour); v.Admitted() {
					n++
				}
			}
			got = append(got, n)
			time.Sleep(time.Second)
		}
		if want := []int{5, 5, 5, 5, 0, 0}; !slices.Equal(got, want) {
			g.Errorf("passed in each second: %v, want %v", got, want)
		}
		g.leaves(5, second)
		g.leaves(0, hour)
		g.leaves(20, windowed("hour", 2, time.Hour, 20))
		g.leaves(20, windowed("hour", 0, time.Hour, 20))
	})
}

// Where the machine stands is no matter (scenario T33): a day ends at midnight
// UTC also where clocks change that night, and a month is 30 days.
func TestWindowsKnowNoTimeZone(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	local := time.Local
	time.Local = zone
	defer func() { time.Local = local }()
	gauged(t, func(g gauge) {
		for _, tt := range []struct {
			now    string
			length time.Duration
			ends   string
		}{
			{"2000-01-31T12:00:00-05:00", 30 * day, "2000-02-23T00:00:00Z"},
			{"2000-04-02T01:59:59-05:00", day, "2000-04-03T00:00:00Z"}, // a second before clocks go forward
			{"2000-04-02T03:00:00-04:00", time.Hour, "2000-04-02T08:00:00Z"},
			{"2000-10-29T01:30:00-04:00", time.Hour, "2000-10-29T06:00:00Z"}, // this hour comes twice
			{"2000-10-29T01:30:00-05:00", time.Hour, "2000-10-29T07:00:00Z"},
			{"2000-10-29T23:00:00-05:00", 7 * day, "2000-11-02T00:00:00Z"},
		} {
			now, err := time.Parse(time.RFC3339, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			ends, err := time.Parse(time.RFC3339, tt.ends)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(now))
			if states := g.passes(windowed(tt.now, 1, tt.length, 1)); states[0].Reset != ends.Sub(now) {
				g.Errorf("at %v a window of %v ends in %v, want at %v", now, tt.length, states[0].Reset, ends)
			}
		}
	})
}

func TestEndedWindowsGoFirstAndAreNoLoss(t *testing.T) {
	gauged(t, func(g gauge) {
		g.m.Configure(Scope{Name: "s", MaxKeys: 1000, Window: time.Minute})
		for i := range 1000 {
			g.passes(costing(windowed("s", 1+i, time.Minute, 10), 10))
		}
		time.Sleep(time.Minute)
		for i := range 1000 {
			g.passes(windowed("s", 2001+i, time.Minute, 10))
		}
		if got := g.m.Size("s"); got != (Size{Keys: 1000, Max: 1000}) {
			g.Errorf("1000 ended windows made room for 1000: %+v", got)
		}
		for i := range 1000 {
			g.leaves(9, windowed("s", 2001+i, time.Minute, 10))
		}
		walk(t, g.m.tableOf("s"))
	})
}

func TestTheLeastUsedWindowsGoNext(t *testing.T) {
	gauged(t, func(g gauge) {
		g.m.Configure(Scope{Name: "s", MaxKeys: 100, Window: time.Hour})
		for i := range 100 {
			g.passes(costing(windowed("s", 1+i, time.Hour, 200), 1+float64(i)))
			time.Sleep(time.Second) // when it was last asked plays no part
		}
		for i := range 40 {
			g.passes(costing(windowed("s", 1001+i, time.Hour, 200), 200))
		}
		for i := range 100 {
			want := 199 - float64(i)
			if i < 40 {
				want = 200
			}
			g.leaves(want, windowed("s", 1+i, time.Hour, 200))
		}
		if got := g.m.Size("s"); got != (Size{Keys: 100, Max: 100, Evicted: 40}) {
			g.Errorf("%+v", got)
		}
	})
}

// Who has used up his window does not get another by spraying new keys, nor by
// having himself counted above the limit.
func TestSprayFreesNoExhaustedWindow(t *testing.T) {
	for _, bound := range []int{10, 200, 5000} {
		gauged(t, func(g gauge) {
			g.m.Configure(Scope{Name: "s", MaxKeys: bound, Window: time.Hour})
			exhausted := windowed("s", 1, time.Hour, 5)
			g.grants(5, exhausted)
			for i := range 5 * bound {
				g.passes(windowed("s", 2+i, time.Hour, 5))
				if i%bound == 0 {
					g.refuses(exhausted)
				}
			}
			g.refuses(exhausted)
			if got := g.m.Size("s"); got.Keys > bound || got.Evicted != uint64(5*bound+1-got.Keys) {
				g.Errorf("%d keys through a bound of %d: %+v", 5*bound+1, bound, got)
			}
			walk(t, g.m.tableOf("s"))
		})
	}
}

// All windows end together, so when they end does not tell which is worth most.
func TestShrinkingKeepsTheMostUsedWindows(t *testing.T) {
	for _, sizes := range [][2]int{{100, 10}, {20_000, 10}} {
		gauged(t, func(g gauge) {
			g.m.Configure(Scope{Name: "s", MaxKeys: sizes[0], Window: time.Hour})
			keys := sizes[0] / 2
			for i := range keys {
				cost := 1.0
				if i%(keys/5) == 0 {
					cost = 10
				}
				g.passes(costing(windowed("s", 1+i, time.Hour, 10), cost))
			}
			g.m.Configure(Scope{Name: "s", MaxKeys: sizes[1], Window: time.Hour})
			for i := 0; i < keys; i += keys / 5 {
				g.leaves(0, windowed("s", 1+i, time.Hour, 10))
			}
			if got := g.m.Size("s"); got.Keys != sizes[1] || got.Evicted != uint64(keys-sizes[1]) {
				g.Errorf("%d keys became %+v", keys, got)
			}
			walk(t, g.m.tableOf("s"))
		})
	}
}

func TestIdleWindowsGoOnlyWhenTheyHaveEnded(t *testing.T) {
	gauged(t, func(g gauge) {
		g.m.Configure(Scope{Name: "s", IdleTTL: time.Minute, Window: time.Hour})
		g.m.Configure(Scope{Name: "long idle", IdleTTL: 3 * time.Hour, Window: time.Hour})
		time.Sleep(30 * time.Minute)
		c, d := windowed("s", 1, time.Hour, 1), windowed("long idle", 1, time.Hour, 1)
		g.passes(c, d)
		time.Sleep(30*time.Minute - 1)
		for _, scope := range []string{"s", "long idle"} {
			if got := g.m.Size(scope).Keys; got != 1 {
				g.Errorf("%s: %d keys a nanosecond before the window ends", scope, got)
			}
		}
		g.refuses(c)
		time.Sleep(time.Nanosecond)
		if got := g.m.Size("s"); got.Keys != 0 || got.Evicted != 0 {
			g.Errorf("idle for half an hour, ended: %+v", got)
		}
		time.Sleep(2*time.Hour + 30*time.Minute - 1)
		if got := g.m.Size("long idle").Keys; got != 1 {
			g.Errorf("%d keys before the IdleTTL is over", got)
		}
		time.Sleep(time.Nanosecond)
		if got := g.m.Size("long idle").Keys; got != 0 {
			g.Errorf("%d keys after the IdleTTL", got)
		}
	})
}

func TestOnlyWhatIsCountedMakesAKey(t *testing.T) {
	gauged(t, func(g gauge) {
		full := Check{Scope: "full", Key: numbered(1), Limit: Limit{0, 0}, Cost: 1}
		for i := range 50 {
			c := windowed("s", 1+i, time.Hour, 5)
			g.passes(costing(c, 0))
			g.passes(shadowed(costing(c, 6)))
			g.refuses(costing(c, 6))
			g.refuses(c, full)
			g.peek(arriving(c))
			g.refuses(arriving(costing(c, -1)))
		}
		if got := g.m.Size("s").Keys; got != 0 {
			g.Errorf("%d keys of which nothing was counted", got)
		}
		for i, c := range []Check{
			windowed("s", 1, time.Hour, math.Inf(1)), windowed("s", 2, time.Hour, 1e18), // rounding must not lose it
			arriving(windowed("s", 3, time.Hour, 0)), arriving(windowed("s", 4, time.Hour, -1)),
		} {
			g.admit(c)
			if got := g.m.Size("s").Keys; got != i+1 {
				g.Errorf("%d keys, want %d: a unit of %v is lost", got, i+1, c.Limit.Burst)
			}
			g.leaves(9, limited(c, 10))
		}
	})
}

// Sixty-four callers ask for an hour, far more than they may have: each minute
// admits its limit and not one more.
func TestAnHourOfSixtyFourCallersAdmitsEachMinuteItsLimit(t *testing.T) {
	gauged(t, func(g gauge) {
		const callers, limit = 64, 37
		c, arrivals := windowed("s", 1, time.Minute, limit), arriving(windowed("process", 0, time.Hour, 1e9))
		begun := time.Now()
		var minutes [60]atomic.Int64
		var asked atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 0))
				for time.Since(begun) < time.Hour {
					v, _, err := g.m.Admit(g.Context(), []Check{arrivals, c}, nil)
					if err != nil {
						g.Error(err)
					}
					asked.Add(1)
					if v.Admitted() {
						minutes[time.Since(begun)/time.Minute].Add(1)
					}
					time.Sleep(time.Duration(r.Int64N(int64(4 * time.Second))))
				}
			})
		}
		wg.Wait()
		for i := range minutes {
			if got := minutes[i].Load(); got != limit {
				g.Errorf("minute %d admitted %d, want %d", i, got, limit)
			}
		}
		g.leaves(1e9-float64(asked.Load()), lasting(arrivals, 100*day)) // every one arrived
	})
}

// On a real clock callers read it before they have the lock. However late they
// are, no more passes than the windows had that came and went.
func TestACrowdOverManyBoundariesGetsEachBudgetOnce(t *testing.T) {
	const limit = 20
	for _, length := range []time.Duration{200 * time.Microsecond, 3 * time.Millisecond} {
		m := NewMemory()
		c := windowed("s", 1, length, limit)
		f, first := m.frame(&c), m.now()
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for m.now()-first < int64(30*time.Millisecond) {
					if v, _, _ := m.Admit(context.Background(), []Check{c}, nil); v.Admitted() {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		windows := f.index(m.now()) - f.index(first) + 1
		if got := admitted.Load(); got > windows*limit {
			t.Errorf("%d windows of %v with %d each admitted %d", windows, length, limit, got)
		}
	}
}

// register is a store of windows as one would explain it: what was counted,
// when, and a sum over it at each question. Its buckets do not refill.
type register map[place][]units

type place struct {
	scope string
	key   Key
}

type units struct {
	at time.Time
	n  float64
}

// begin is when the window that t lies in began.
func begin(t time.Time, length time.Duration) time.Time {
	return t.Add(-time.Duration(t.UnixNano() % int64(length)))
}

func (r register) used(c Check, now time.Time) (n float64) {
	for _, u := range r[place{c.Scope, c.Key}] {
		if c.Window == 0 || !u.at.Before(begin(now, c.Window)) {
			n += u.n
		}
	}
	return n
}

// decide answers a call and returns what the register then holds.
func (r register) decide(checks []Check, now time.Time) (Verdict, []State, register) {
	v, states := Verdict{Refused: -1}, make([]State, len(checks))
	asked := map[place]float64{}
	for i, c := range checks {
		p := place{c.Scope, c.Key}
		st, sum := &states[i], asked[p]+c.Cost
		sane := c.Cost >= 0 && !math.IsInf(c.Cost, 1)
		if c.Window > 0 {
			st.Reset = begin(now, c.Window).Add(c.Window).Sub(now)
		}
		switch {
		case sane && r.used(c, now)+sum <= c.Limit.Burst:
		case sane && sum <= c.Limit.Burst && c.Window > 0:
			st.Wait = st.Reset
		default:
			st.Wait = Never
		}
		if st.Wait > v.RetryAfter && !c.Shadow {
			v = Verdict{i, st.Wait}
		}
		switch {
		case st.Wait == 0 || c.Always && sane:
			asked[p] = sum
		case !c.Shadow && sane:
			asked[p] = sum
		case !c.Shadow:
			asked[p] = math.NaN()
		}
	}
	after := maps.Clone(r)
	for i, c := range checks {
		passed := v.Admitted() && states[i].Wait == 0
		if sane := c.Cost >= 0 && !math.IsInf(c.Cost, 1); passed || c.Always && sane {
			p := place{c.Scope, c.Key}
			after[p] = append(slices.Clone(after[p]), units{now, c.Cost})
		}
	}
	for i, c := range checks {
		states[i].Tokens = max(0, c.Limit.Burst-after.used(c, now))
	}
	return v, states, after
}

// forget drops what lies before the windows of all the checks.
func (r register) forget(now time.Time, longest time.Duration) {
	for p, counted := range r {
		if p.scope != "bucket" {
			r[p] = slices.DeleteFunc(slices.Clone(counted), func(u units) bool { return u.at.Before(begin(now, longest)) })
		}
	}
}

// Ten thousand random requests over several windows and a bucket, their limits
// changing and time passing, mostly from boundary to boundary: every verdict,
// remaining, wait and reset is that of the register.
func TestWindowsAreARegister(t *testing.T) {
	seeds := uint64(4)
	if raceDetector {
		seeds = 1
	}
	lengths := map[string]time.Duration{"bucket": 0, "second": time.Second, "minute": time.Minute, "hour": time.Hour, "week": 7 * day, "odd": 7 * time.Second}
	scopes := slices.Sorted(maps.Keys(lengths))
	costs := []float64{0, 1, 1, 1, 1, 1, 0.5, 2, 2.25, 5, 30, -1, math.NaN(), math.Inf(1)}
	limits := []float64{0, 1, 2.5, 5, 10, 20, 40}
	for seed := range seeds {
		gauged(t, func(g gauge) {
			r := rand.New(rand.NewPCG(seed, 10))
			reg, limit := register{}, map[string]float64{"bucket": 1000}
			random := func() (checks []Check) {
				for range 1 + r.IntN(4) {
					scope := scopes[r.IntN(len(scopes))]
					c := windowed(scope, r.IntN(4), lengths[scope], limit[scope])
					c.Cost = costs[r.IntN(len(costs)-4*min(1, r.IntN(4)))] // mostly sound ones
					c.Shadow = r.IntN(8) == 0
					c.Always = scope != "bucket" && r.IntN(5) == 0
					checks = append(checks, c)
				}
				return checks
			}
			counts := map[bool]int{}
			for n := range 10_000 {
				if n%20 == 0 {
					scope := scopes[r.IntN(len(scopes))]
					if scope != "bucket" || n == 0 {
						limit[scope] = limits[r.IntN(len(limits))]
					}
				}
				now := time.Now()
				checks := random()
				want, wantStates, after := reg.decide(checks, now)
				for _, spend := range []bool{false, true} {
					v, states, err := g.m.decide(checks, nil, spend)
					if err != nil || v != want || !slices.Equal(states, wantStates) {
						g.Fatalf("request %d (spend %v) at %v\n%+v\n%+v, %+v, want\n%+v, %+v", n, spend, now, checks, v, states, want, wantStates)
					}
				}
				reg = after
				counts[want.Admitted()]++
				reg.forget(now, 7*day)
				switch length := lengths[scopes[r.IntN(len(scopes))]]; {
				case r.IntN(3) > 0 || length == 0:
				case r.IntN(3) == 0: // to the last instant before a boundary
					time.Sleep(begin(now, length).Add(length-1).Sub(now) % (26 * time.Hour))
				case r.IntN(3) == 0: // onto one
					time.Sleep(begin(now, length).Add(length).Sub(now) % (26 * time.Hour))
				default:
					time.Sleep(time.Duration(r.Int64N(int64(min(length, time.Hour)))))
				}
			}
			if counts[true] < 2000 || counts[false] < 2000 {
				g.Errorf("%d admitted, %d refused: the sequence shows little", counts[true], counts[false])
			}
		})
	}
}

// A window beside a bucket, alone and with it and the process ceiling.
//
//	go test -run '^$' -bench AdmitWindow -cpu 1,2 ./store
func BenchmarkAdmitWindow(b *testing.B) {
	const keys = 10_000
	order := keyOrder(keys, "uniform")
	for _, outcome := range []string{"admit", "refuse"} {
		limit := Limit{Rate: 1e-9, Burst: 1e12}
		if outcome == "refuse" {
			limit.Burst = 1
		}
		bucket := Check{Scope: "bucket", Key: numbered(0), Limit: limit, Cost: 1}
		window := windowed("window", 1, 365*day, limit.Burst)
		process := arriving(windowed("process", 0, time.Hour, 1e12))
		for _, tt := range []struct {
			kind   string
			checks []Check
		}{
			{"bucket", []Check{bucket}}, {"window", []Check{window}}, {"arrival", []Check{arriving(window)}},
			{"bucket,window,process", []Check{bucket, window, process}},
		} {
			b.Run(fmt.Sprintf("kind=%s/%s", tt.kind, outcome), func(b *testing.B) {
				m := NewMemory()
				call := func(checks []Check, dst []State, k Key) Verdict {
					for i := range checks {
						if checks[i].Key != (Key{}) {
							checks[i].Key = k
						}
					}
					v, _, _ := m.Admit(context.Background(), checks, dst)
					return v
				}
				for i := range keys {
					call(slices.Clone(tt.checks), nil, numbered(i))
				}
				var lane atomic.Int64
				b.ReportAllocs()
				b.ResetTimer()
				b.RunParallel(func(pb *testing.PB) {
					checks, dst := slices.Clone(tt.checks), make([]State, 0, len(tt.checks))
					for i := int(lane.Add(1)) * 7919; pb.Next(); i++ {
						if v := call(checks, dst, numbered(int(order[i%len(order)]))); v.Admitted() != (outcome == "admit") {
							b.Errorf("%+v, want %s", v, outcome)
							return
						}
					}
				})
			})
		}
	}
}
