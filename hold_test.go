package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// Holding (requirement T15) is tested in bubbles, where an instant is exact:
// the claims below say at which one a request is answered. What the store
// rounds to whole nanoseconds may add up over a long line, hence the slack.
const slack = time.Microsecond

// bank is a Limiter in a bubble and what becomes of the requests that arrive
// at it.
type bank struct {
	*testing.T
	l     *Limiter
	h     http.Handler
	work  http.Handler // what is protected
	start time.Time
	all   sync.WaitGroup
	mu    sync.Mutex
	order []string // the requests that reached the handler, by name
}

// arrival is one request that arrived.
type arrival struct {
	*bank
	name  string
	rec   *httptest.ResponseRecorder
	leave context.CancelFunc // the client goes
	done  chan struct{}
	at    time.Duration // when it was answered
}

// newBank starts the clock. It belongs inside the bubble.
func newBank(t *testing.T, cfg Config, opts ...Option) *bank {
	t.Helper()
	opts = append([]Option{WithAccount(byHeader("Account"))}, opts...)
	b := &bank{T: t, l: newLimiter(t, cfg, opts...), work: served, start: time.Now()}
	t.Cleanup(b.all.Wait)
	b.h = b.l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.order = append(b.order, r.Header.Get("Name"))
		b.mu.Unlock()
		b.work.ServeHTTP(w, r)
	}))
	return b
}

// now is the time since the bank was made.
func (b *bank) now() time.Duration { return time.Since(b.start) }

// until lets time pass.
func (b *bank) until(d time.Duration) {
	time.Sleep(d - b.now())
	synctest.Wait()
}

// arrive sends a request and returns when it has been answered or is held.
func (b *bank) arrive(name string, r *http.Request) *arrival {
	ctx, cancel := context.WithCancel(b.Context())
	a := &arrival{bank: b, name: name, rec: httptest.NewRecorder(), leave: cancel, done: make(chan struct{})}
	r = withHeader(r.WithContext(ctx), "Name", name)
	b.all.Go(func() {
		defer close(a.done)
		defer func() { _ = recover() }() // as net/http does
		defer func() { a.at = b.now() }()
		b.h.ServeHTTP(a.rec, r)
	})
	synctest.Wait()
	return a
}

// drain spends n tokens of what a request like r costs one of.
func (b *bank) drain(n int, r func() *http.Request) {
	b.Helper()
	for range n {
		b.arrive("drain", r()).admittedAt(b.now())
	}
}

func (a *arrival) answered(when time.Duration) {
	a.Helper()
	<-a.done
	if d := a.at - when; d < -slack || d > slack {
		a.Errorf("%s was answered %d at %v, want %v", a.name, a.rec.Code, a.at, when)
	}
}

// admittedAt claims that the request reaches the handler, and when.
func (a *arrival) admittedAt(when time.Duration) {
	a.Helper()
	a.answered(when)
	if a.rec.Header().Get("Served") == "" {
		a.Errorf("%s was refused at %v with %d, Retry-After %s; want it admitted", a.name, a.at, a.rec.Code, a.rec.Header().Get("Retry-After"))
	}
}

// refusedAt claims that the request is refused, when, and how many seconds its
// client is told to wait.
func (a *arrival) refusedAt(when time.Duration, secs int64) {
	a.Helper()
	a.answered(when)
	if a.rec.Header().Get("Served") != "" || a.rec.Code != http.StatusTooManyRequests {
		a.Errorf("%s was answered %d at %v, want it refused", a.name, a.rec.Code, a.at)
		return
	}
	if got := retryAfter(a, a.rec); got != secs {
		a.Errorf("%s was told to wait %d s, want %d", a.name, got, secs)
	}
}

// held claims that the request has not been answered yet.
func (a *arrival) held() {
	a.Helper()
	synctest.Wait()
	select {
	case <-a.done:
		a.Errorf("%s was answered %d at %v, want it held", a.name, a.rec.Code, a.at)
	default:
	}
}

// idle claims that nobody is held and that no line was left behind.
func (b *bank) idle() {
	b.Helper()
	synctest.Wait()
	if n := b.l.Snapshot().Holding; n != 0 {
		b.Errorf("%d requests count as held, want none", n)
	}
	b.l.lines.mu.Lock()
	defer b.l.lines.mu.Unlock()
	if n := len(b.l.lines.m); n != 0 {
		b.Errorf("%d lines were left behind", n)
	}
}

// holding is a Config with one class, "api", whose requests are held up to a
// minute for a token of the global tier.
func holding(rate, burst float64) Config {
	cfg := noTiers()
	cfg.Tiers.Global = TierConfig{Rate: rate, Burst: burst}
	cfg.Tiers.MaxWait = Duration(time.Minute)
	return cfg
}

// with adds classes, reached at /CLASS.
func (c Config) with(endpoints ...Endpoint) Config {
	for _, e := range endpoints {
		e.Pattern = "/" + string(e.Class)
		c.Endpoints = append(c.Endpoints, e)
	}
	return c
}

// to is a request for a class of [Config.with] by a client.
func to(class, addr string) *http.Request { return request("GET", "/"+class, addr, "") }

func waiting(d time.Duration) *Duration { return new(Duration(d)) }

const (
	alice = "192.0.2.1"
	bob   = "192.0.2.2"
	carol = "192.0.2.3"
)

func fromAlice() *http.Request { return from(alice) }

func TestRequestIsHeldUntilItsTokensAreThereAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, holding(0.25, 1)) // a token every 4 s
		b.drain(1, fromAlice)
		b.until(time.Second)
		a := b.arrive("a", from(alice))
		b.until(4*time.Second - slack)
		a.held()
		if n := b.l.Snapshot().Holding; n != 1 {
			t.Errorf("Holding is %d, want 1", n)
		}
		a.admittedAt(4 * time.Second)
		b.idle()
		if n := classOf(t, b.l, "api").Held; n != 1 {
			t.Errorf("%d requests count as having been held, want 1", n)
		}
	})
}

func TestMaxWaitOfTheClassGoesBeforeTheTiersAndThatBeforeTheCommonOne(t *testing.T) {
	const due = 2 * time.Second
	for _, tt := range []struct {
		name                string
		common, tier, class *Duration
		held                bool
	}{
		{"nobody is held by default", nil, nil, nil, false},
		{"the common one holds", waiting(due), nil, nil, true},
		{"a wait 1 ns longer than the common one is not begun", waiting(due - 1), nil, nil, false},
		{"a tier's own holds where the common one does not", nil, waiting(due), nil, true},
		{"a tier's own is longer", waiting(due - 1), waiting(due), nil, true},
		{"a tier's own is shorter", waiting(due), waiting(due - 1), nil, false},
		{"a tier's own 0s switches off", waiting(due), waiting(0), nil, false},
		{"a class's own holds where nothing else does", nil, nil, waiting(due), true},
		{"a class's own is longer", waiting(due - 1), waiting(0), waiting(due), true},
		{"a class's own is shorter", waiting(due), waiting(due), waiting(due - 1), false},
		{"a class's own 0s switches off", waiting(due), waiting(due), waiting(0), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.PerIP = TierConfig{Rate: 0.5, Burst: 1, MaxWait: tt.tier}
				if tt.common != nil {
					cfg.Tiers.MaxWait = *tt.common
				}
				b := newBank(t, cfg.with(Endpoint{Class: "own", MaxWait: tt.class}))
				b.drain(1, func() *http.Request { return to("own", alice) })
				a := b.arrive("a", to("own", alice))
				if tt.held {
					a.admittedAt(due)
				} else {
					a.refusedAt(0, 2)
				}
				b.idle()
			})
		})
	}
}

func TestWaitLongerThanAllowedIsRefusedAtOnceWithTheWaitOfTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 1).with(Endpoint{Class: "short", MaxWait: waiting(3 * time.Second)})
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		b.until(500 * time.Millisecond)
		// The token of the first is half there, which counts for all behind it.
		b.arrive("due at 1", to("short", alice)).held()
		b.arrive("due at 2", to("short", alice)).held()
		b.arrive("due at 3", to("short", alice)).held()
		b.arrive("due at 4", to("short", alice)).refusedAt(500*time.Millisecond, 4)
		last := b.arrive("longer", from(alice))
		b.arrive("due at 5", to("short", alice)).refusedAt(500*time.Millisecond, 5)
		last.admittedAt(4 * time.Second)
		b.idle()
	})
}

func TestOnlyMaxWaitingAreHeldAndTheNextIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 1)
		cfg.Tiers.MaxWaiting = 3
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		first := b.arrive("first", from(alice))
		b.arrive("second", from(bob))
		b.arrive("third", from(carol))
		b.arrive("fourth", from(alice)).refusedAt(0, 4)
		first.admittedAt(time.Second)
		b.arrive("in its place", from("198.51.100.99")).admittedAt(4 * time.Second)
		b.idle()
	})
}

// The bound holds for the process, not for each bucket: held requests cost
// memory and connections wherever they stand.
func TestMaxWaitingCountsAllLinesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
		cfg.Tiers.MaxWait, cfg.Tiers.MaxWaiting = Duration(time.Minute), 2
		b := newBank(t, cfg)
		for _, client := range []string{alice, bob, carol} {
			b.drain(1, func() *http.Request { return from(client) })
		}
		a, o := b.arrive("a", from(alice)), b.arrive("o", from(bob))
		b.arrive("c", from(carol)).refusedAt(0, 1)
		a.admittedAt(time.Second)
		o.admittedAt(time.Second)
		b.idle()
	})
}

func TestLineOfOneBucketIsServedInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 200, 8
		s := newLedger()
		b := newBank(t, holding(rate, 1), WithStore(s))
		b.drain(1, fromAlice)
		b.order = nil
		var line []*arrival
		var want []string
		for i := range n {
			// A newcomer may be anybody: the bucket is everybody's.
			line = append(line, b.arrive(strconv.Itoa(i), from(fmt.Sprintf("192.0.2.%d", i))))
			want = append(want, strconv.Itoa(i))
			b.until(time.Duration(i+1) * time.Millisecond / 4)
		}
		for i, a := range line {
			a.admittedAt(time.Duration(i+1) * time.Second / rate)
		}
		if !slices.Equal(b.order, want) {
			t.Errorf("served in the order %v", b.order)
		}
		b.idle()
		// When its turn comes and when its tokens are due: a crowd that waits
		// does not keep asking.
		if calls := s.asked("admit"); calls > 2*n+2 {
			t.Errorf("the store was asked %d times for %d requests", calls, n)
		}
	})
}

func TestClientThatLeavesSpendsNothingAndFreesItsPlace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		leaves int // which of the line
		want   []time.Duration
	}{
		{"the head leaves and the next moves up", 0, []time.Duration{2, 3, 4}},
		{"one in the middle leaves and those behind move up", 1, []time.Duration{2, 3, 4}},
		{"the last leaves and nobody else notices", 3, []time.Duration{2, 3, 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, holding(1, 1))
				b.drain(1, fromAlice)
				var line []*arrival
				for i := range 4 {
					line = append(line, b.arrive(strconv.Itoa(i), from(alice)))
				}
				b.until(500 * time.Millisecond)
				gone := line[tt.leaves]
				gone.leave()
				gone.answered(500 * time.Millisecond)
				for i, a := range slices.Delete(line, tt.leaves, tt.leaves+1) {
					a.admittedAt(time.Duration(i+1) * time.Second)
				}
				b.idle()
				if len(b.order) != 4 {
					t.Errorf("%v reached the handler, want all but the one that left", b.order)
				}
			})
		})
	}
}

// One that leaves from behind a dearer request finds tokens that would do for
// itself. They are not for it.
func TestClientThatLeavesTakesNoTokensThatLieThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}))
		b.drain(5, fromAlice)
		dear := b.arrive("dear", to("dear", alice))
		cheap := b.arrive("cheap", from(alice))
		b.until(3 * time.Second) // 3 tokens are there
		cheap.leave()
		cheap.answered(3 * time.Second)
		if cheap.rec.Header().Get("Served") != "" {
			t.Error("a client that had left was served")
		}
		dear.admittedAt(5 * time.Second)
		b.idle()
	})
}

func TestCloseSendsEverybodyHomeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}))
		b.drain(5, fromAlice)
		var line []*arrival
		line = append(line, b.arrive("dear", to("dear", alice)))
		for i := range 20 {
			line = append(line, b.arrive(strconv.Itoa(i), from(alice)))
		}
		b.until(2 * time.Second)
		_ = b.l.Close()
		for _, a := range line {
			a.answered(2 * time.Second)
			if a.rec.Code != http.StatusTooManyRequests {
				t.Errorf("%s was answered %d, want 429", a.name, a.rec.Code)
			}
			_ = retryAfter(t, a.rec)
		}
		b.idle()
		// Later ones are limited as before, and never held.
		b.arrive("later", from(alice)).admittedAt(2 * time.Second)
		b.arrive("later", from(alice)).admittedAt(2 * time.Second)
		b.arrive("too many", from(alice)).refusedAt(2*time.Second, 1)
		b.idle()
	})
}

func TestLineOfOneClientDoesNotDelayAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 0.1, Burst: 1, Overrides: map[string]Limit{bob: {1, 1}}}
		cfg.Tiers.MaxWait = Duration(time.Minute)
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		b.drain(1, func() *http.Request { return from(bob) })
		a1, a2 := b.arrive("a1", from(alice)), b.arrive("a2", from(alice))
		b1, b2 := b.arrive("b1", from(bob)), b.arrive("b2", from(bob))
		b.arrive("c", from(carol)).admittedAt(0)
		b1.admittedAt(1 * time.Second)
		b2.admittedAt(2 * time.Second)
		a1.admittedAt(10 * time.Second)
		a2.admittedAt(20 * time.Second)
		b.idle()
	})
}

// Alice lacks her own tokens and everybody lacks the common ones. Where she
// stands in line she must not keep Bob from his turn, whoever came first.
func TestClientShortOfItsOwnTokensDoesNotBlockTheLineOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 4)
		cfg.Tiers.PerIP = TierConfig{Rate: 0.1, Burst: 2}
		b := newBank(t, cfg)
		b.drain(2, fromAlice)
		b.drain(2, func() *http.Request { return from(carol) })
		a1 := b.arrive("a1", from(alice)) // its own token is due at 10
		b1 := b.arrive("b1", from(bob))
		a2 := b.arrive("a2", from(alice))
		b2 := b.arrive("b2", from(bob))
		b1.admittedAt(1 * time.Second)
		b2.admittedAt(2 * time.Second)
		a1.admittedAt(10 * time.Second)
		a2.admittedAt(20 * time.Second)
		b.idle()
	})
}

// The wait that a newcomer is told, and by which it is turned away, must not
// count requests that will not take the common tokens in their turn.
func TestClientShortOfItsOwnTokensTakesNoPlaceInTheLineOfAll(t *testing.T) {
	for _, tt := range []struct {
		name   string
		perIP  *Duration
		expect func(*arrival)
	}{
		{"not held for its own tokens", waiting(0), func(a *arrival) { a.refusedAt(0, 10) }},
		{"held for its own tokens", waiting(time.Hour), func(a *arrival) { a.held() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := holding(1, 4)
				cfg.Tiers.Global.MaxWait = waiting(3 * time.Second)
				cfg.Tiers.PerIP = TierConfig{Rate: 0.1, Burst: 2, MaxWait: tt.perIP}
				b := newBank(t, cfg)
				b.drain(2, fromAlice)
				b.drain(2, func() *http.Request { return from(carol) })
				b1 := b.arrive("b1", from(bob))
				for i := range 10 {
					a := b.arrive(fmt.Sprint("a", i), from(alice))
					if i == 0 {
						tt.expect(a)
					}
					defer a.leave()
				}
				b2 := b.arrive("b2", from(bob))
				b1.admittedAt(1 * time.Second)
				b2.admittedAt(2 * time.Second)
			})
		})
	}
}

func TestRequestThatLacksTokensOfTwoTiersWaitsForBoth(t *testing.T) {
	for _, tt := range []struct {
		name          string
		global, perIP float64 // rates
		want          time.Duration
	}{
		{"the common ones come last", 0.25, 1, 4 * time.Second},
		{"its own come last", 1, 0.25, 4 * time.Second},
		{"both come in the same instant", 0.5, 0.5, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLedger()
				cfg := holding(tt.global, 1)
				cfg.Tiers.PerIP = TierConfig{Rate: tt.perIP, Burst: 1}
				b := newBank(t, cfg, WithStore(s))
				b.drain(1, fromAlice)
				a := b.arrive("a", from(alice))
				a.admittedAt(tt.want)
				b.idle()
				for id, tokens := range s.tokens() { // both paid, once
					rate := tt.global
					if id.scope == "weir/per_ip" {
						rate = tt.perIP
					}
					want := min(1, rate*tt.want.Seconds()) - 1
					if d := tokens - want; d < -1e-6 || d > 1e-6 {
						t.Errorf("%s holds %v, want %v", id.scope, tokens, want)
					}
				}
			})
		})
	}
}

func TestHoldOfTheShorterTierBoundsItsOwnTokensOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(0.1, 1) // due at 10 s, may wait a minute
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1, MaxWait: waiting(2 * time.Second)}
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		// Lacks its own for 1 s, which it may wait for, and the common ones for 10.
		b.arrive("a", from(alice)).admittedAt(10 * time.Second)
		b.idle()
	})
}

func TestDearRequestsAndCheapOnesKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}, Endpoint{Class: "half", Cost: 0.5}))
		b.drain(5, fromAlice)
		line := []*arrival{
			b.arrive("cheap", from(alice)), b.arrive("dear", to("dear", bob)),
			b.arrive("half", to("half", carol)), b.arrive("dear", to("dear", alice)), b.arrive("cheap", from(bob)),
		}
		for i, at := range []float64{1, 6, 6.5, 11.5, 12.5} {
			line[i].admittedAt(seconds(at))
		}
		b.idle()
	})
}

// Whoever may wait stands in line or is refused: tokens that the head is
// saving up are not for a cheaper request that comes later. Otherwise a flood
// of cheap ones starves every dear one.
func TestNewcomersThatMayWaitNeverOvertakeALine(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit int
		class string
	}{
		{"their wait would be too long", 256, "short"},
		{"the places are taken", 1, "api"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}, Endpoint{Class: "short", MaxWait: waiting(time.Millisecond)})
				cfg.Tiers.MaxWaiting = tt.limit
				b := newBank(t, cfg)
				b.drain(5, fromAlice)
				dear := b.arrive("dear", to("dear", bob))
				for at := 500 * time.Millisecond; at < 5*time.Second; at += 500 * time.Millisecond {
					b.until(at)
					// 5 for the dear one, then its own.
					b.arrive("cheap", to(tt.class, alice)).refusedAt(at, int64((6*time.Second-at+time.Second-1)/time.Second))
				}
				dear.admittedAt(5 * time.Second)
				b.idle()
			})
		})
	}
}

// The head of another line asks for the common tokens too. It takes its turn
// in the line of all like anybody else.
func TestHeadsOfOtherLinesDoNotOvertakeTheLineOfAll(t *testing.T) {
	for _, tt := range []struct {
		name  string
		store func() store.Store
	}{
		{"the store can look", func() store.Store { return newLedger() }},
		{"the store can only admit", func() store.Store { return struct{ store.Store }{newLedger()} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := holding(1, 5).with(Endpoint{Class: "dear", Cost: 5, Limits: map[string]Limit{"fleet": {}}})
				cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 0.625, Burst: 1}}
				b := newBank(t, cfg, WithKey("fleet", byHeader("Fleet")), WithStore(tt.store()))
				fleet := func(name string) *http.Request { return withHeader(from(alice), "Fleet", name) }
				b.drain(1, func() *http.Request { return fleet("x") })
				b.drain(1, func() *http.Request { return fleet("y") })
				b.drain(3, fromAlice)
				x := b.arrive("x", fleet("x")) // its own is due at 1.6 s
				b.until(100 * time.Millisecond)
				dear := b.arrive("dear", to("dear", bob))
				b.until(2 * time.Second)
				y := b.arrive("y", fleet("y"))
				dear.admittedAt(5 * time.Second)
				x.admittedAt(6 * time.Second)
				y.admittedAt(7 * time.Second)
				b.idle()
			})
		})
	}
}

// Without a look at what is there a newcomer is taken to find nothing: it waits
// where it may, and is not let past anybody.
func TestLineOfAStoreThatCannotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}, Endpoint{Class: "short", MaxWait: waiting(5 * time.Second)})
		b := newBank(t, cfg, WithStore(struct{ store.Store }{newLedger()}))
		b.drain(5, fromAlice)
		dear := b.arrive("dear", to("dear", bob))
		b.until(2 * time.Second) // 2 tokens are there
		cheap := b.arrive("cheap", from(alice))
		b.arrive("short", to("short", alice)).refusedAt(2*time.Second, 7)
		dear.admittedAt(5 * time.Second)
		cheap.admittedAt(6 * time.Second)
		b.idle()
	})
}

// Nobody waits for tokens that another lacks, in whichever of its lines.
func TestRequestThatLacksOtherTokensInItsTurnLetsTheNextHaveIts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers().with(Endpoint{Class: "now", MaxWait: waiting(0)})
		cfg.Tiers.MaxWait = Duration(time.Minute)
		cfg.Tiers.PerIP = TierConfig{Rate: 0.5, Burst: 2}
		cfg.Tiers.PerAccount = TierConfig{Rate: 1, Burst: 1}
		b := newBank(t, cfg)
		b.drain(1, func() *http.Request { return claiming("x", alice) })
		first := b.arrive("first", claiming("x", alice)) // for its account until 1 s
		next := b.arrive("next", claiming("x", bob))
		b.drain(1, func() *http.Request { return to("now", alice) }) // now it lacks its own until 2 s
		next.admittedAt(1 * time.Second)
		first.admittedAt(2 * time.Second)
		b.idle()
	})
}

// Requests that may not wait have delayed the line. One whose time is up then
// goes, told what is still before it, and takes nothing that lies there.
func TestWaitThatHasBecomeTooLongEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}, Endpoint{Class: "now", MaxWait: waiting(0)}, Endpoint{Class: "short", MaxWait: waiting(6 * time.Second)})
		b := newBank(t, cfg)
		b.drain(5, fromAlice)
		dear := b.arrive("dear", to("dear", alice))
		short := b.arrive("short", to("short", bob)) // due at 6
		b.until(2 * time.Second)
		b.drain(2, func() *http.Request { return to("now", carol) })
		short.refusedAt(6*time.Second, 2) // 4 of 5 + 1 tokens are there
		dear.admittedAt(7 * time.Second)
		b.idle()
	})
}

// The places are taken and the line that was in the way has gone between two
// looks. Whoever finds no line and tokens that do is let in.
func TestLineThatGoesWhileANewcomerLooksRefusesNobody(t *testing.T) {
	l := newLimiter(t, holding(1, 5))
	l.lines.n.Store(256)
	defer l.lines.n.Store(0)
	p := l.policy.Load()
	c := p.endpoints.fallback
	var b basket
	b.add(&c.uses[0], store.Key{}, c.uses[0].limit)
	h := l.newHold(t.Context(), p, c, &b)
	if v := h.wait(h.look(0), 0); !v.Admitted() {
		t.Errorf("it was refused with %+v", v)
	}
	left(t, l.Handler(served), 4, fromAlice)
}

// Its own tokens are there at 5 s. From then on it stands among all, where
// each client short of its own has one place at a time.
func TestDearRequestGetsThroughBothLinesInAFloodOfCheapOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(2, 10).with(Endpoint{Class: "dear", Cost: 5})
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 5}
		b := newBank(t, cfg)
		b.drain(5, fromAlice)
		b.drain(5, func() *http.Request { return from(bob) })
		dear := b.arrive("dear", to("dear", alice))
		var flood []*arrival
		for at := 250 * time.Millisecond; at < 12*time.Second; at += 250 * time.Millisecond {
			b.until(at)
			for _, client := range []string{alice, bob, carol} {
				flood = append(flood, b.arrive(client, from(client)))
			}
		}
		<-dear.done
		if dear.rec.Code != http.StatusOK || dear.at < 5*time.Second || dear.at > 10*time.Second {
			t.Errorf("the dear request was answered %d at %v, want it admitted soon after 5 s", dear.rec.Code, dear.at)
		}
		for _, a := range flood {
			a.leave()
		}
		b.idle()
	})
}

// Requests that may not wait are decided by the bucket alone, at once: a line
// of others is no reason to hold or to refuse them.
func TestRequestsThatMayNotWaitPassTheLineIfTheBucketHasTheirTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, holding(1, 5).with(Endpoint{Class: "dear", Cost: 5}, Endpoint{Class: "now", MaxWait: waiting(0)}))
		b.drain(5, fromAlice)
		dear := b.arrive("dear", to("dear", alice))
		b.until(500 * time.Millisecond)
		b.arrive("now", to("now", alice)).refusedAt(500*time.Millisecond, 1)
		b.until(2 * time.Second)
		b.arrive("now", to("now", alice)).admittedAt(2 * time.Second)
		dear.admittedAt(6 * time.Second) // a second later for it
		b.idle()
	})
}

// A held request asks the store several times. It is one arrival (requirement
// W3), also where it is turned away at the end of a line and never asks, and
// counts once in its window.
func TestHeldRequestArrivesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 1).with(Endpoint{Class: "now", MaxWait: waiting(0)})
		cfg.Tiers.MaxWaiting = 2 * lineShare
		cfg.Windows = WindowsConfig{Enabled: true, PerAddress: 2, PerSubject: 2, Process: 6}
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		first, second := b.arrive("first", from(bob)), b.arrive("second", from(bob))
		b.arrive("no place", from(bob)).refusedAt(0, 3)
		first.admittedAt(1 * time.Second)
		second.admittedAt(2 * time.Second)
		b.until(3 * time.Second)
		b.arrive("over its window", from(bob)).refusedAt(3*time.Second, 57) // the fifth arrival
		b.arrive("sixth", to("now", carol)).admittedAt(3 * time.Second)
		b.until(4 * time.Second)
		seventh := b.arrive("seventh", to("now", carol))
		seventh.refusedAt(4*time.Second, 56)
		if !strings.Contains(seventh.rec.Body.String(), WindowProcess) {
			t.Errorf("the seventh was refused by %s, want the process ceiling", seventh.rec.Body)
		}
		b.idle()
	})
}

// Nobody is held in front of a tier that would let it through anyway.
func TestTierInShadowHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 1)
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		a := b.arrive("a", from(alice))
		cfg.Shadow = []string{TierGlobal}
		if err := b.l.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		b.arrive("b", from(alice)).admittedAt(0)
		a.admittedAt(time.Second)
		b.idle()
	})
}

func TestTierInShadowDoesNotProlongAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := holding(1, 1)
		cfg.Tiers.PerIP = perHour(1)
		cfg.Shadow = []string{TierPerIP}
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		b.arrive("a", from(alice)).admittedAt(1 * time.Second)
		b.arrive("b", from(alice)).admittedAt(2 * time.Second)
		b.idle()
	})
}

func TestHeldRequestsEndUnderTheLimitsTheyBeganWith(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		next   time.Duration // when one that arrives after the reload is admitted
	}{
		{"the rate rises", func(c *Config) { c.Tiers.PerIP.Rate = 10 }, 2100 * time.Millisecond},
		{"the rate falls", func(c *Config) { c.Tiers.PerIP.Rate = 0.1 }, 12 * time.Second},
		{"nobody is held any more", func(c *Config) { c.Tiers.MaxWait = 0 }, -1},
		{"the tier is gone", func(c *Config) {
			c.Tiers.PerIP, c.Tiers.Global = TierConfig{}, TierConfig{Rate: 1, Burst: 9}
		}, 500 * time.Millisecond},
		{"everything is switched off", func(c *Config) { c.Enabled = false }, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
				cfg.Tiers.MaxWait = Duration(time.Minute)
				b := newBank(t, cfg)
				b.drain(1, fromAlice)
				line := []*arrival{b.arrive("1", from(alice)), b.arrive("2", from(alice))}
				b.until(500 * time.Millisecond)
				tt.change(&cfg)
				if err := b.l.Reload(cfg); err != nil {
					t.Fatal(err)
				}
				next := b.arrive("next", from(alice))
				if tt.next < 0 {
					next.refusedAt(500*time.Millisecond, 1)
				} else {
					next.admittedAt(tt.next)
				}
				for i, a := range line {
					a.admittedAt(time.Duration(i+1) * time.Second)
				}
				b.idle()
			})
		})
	}
}

func TestStoreThatFailsMeanwhileEndsTheWait(t *testing.T) {
	for _, tt := range []struct {
		name, onError string
		second        func(*arrival)
	}{
		{"local counting starts with full buckets", "local", func(a *arrival) { a.admittedAt(2 * time.Second) }},
		{"allow lets everybody pass", "allow", func(a *arrival) { a.admittedAt(time.Second) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newBrokenStore(nil)
				cfg := holding(1, 1)
				cfg.Store.OnError = tt.onError
				b := newBank(t, cfg, WithStore(s))
				b.drain(1, fromAlice)
				first, second := b.arrive("first", from(alice)), b.arrive("second", from(alice))
				b.until(500 * time.Millisecond)
				s.breakAs(failAtOnce)
				first.admittedAt(time.Second)
				tt.second(second)
				b.idle()
			})
		})
	}
}

// A panic out of a store is the embedder's to see, but those behind in line
// have nothing to do with it.
func TestPanicOfTheStoreDoesNotStopTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBrokenStore(nil)
		b := newBank(t, holding(1, 1), WithStore(s))
		b.drain(1, fromAlice)
		first, second := b.arrive("first", from(alice)), b.arrive("second", from(alice))
		panics := 1
		s.breakAs(func(context.Context) error {
			if panics--; panics >= 0 {
				panic("boom")
			}
			return nil
		})
		first.answered(time.Second)
		second.admittedAt(time.Second)
		b.idle()
	})
}

func TestHeldCrowdGetsExactlyWhatTheBucketHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, rate, burst, end = 64, 10, 5, 100 * time.Second
		b := newBank(t, holding(rate, burst))
		var mu sync.Mutex
		var times []time.Duration
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for b.now() <= end {
					send(b.h, from(fmt.Sprintf("192.0.2.%d", i)))
					mu.Lock()
					times = append(times, b.now())
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		slices.Sort(times)
		for i, at := range times {
			want := time.Duration(max(0, i-burst+1)) * time.Second / rate
			if d := at - want; d < 0 || d > slack {
				t.Fatalf("token %d was handed out at %v, want %v", i, at, want)
			}
		}
		b.idle()
	})
}

func TestFloodOfHoldersIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood, most, rate, burst = 10_000, 256, 16, 20
		cfg := holding(rate, burst)
		cfg.Tiers.MaxWaiting = most
		b := newBank(t, cfg)
		var mu sync.Mutex
		codes := map[int]int{}
		for i := range flood {
			go func() {
				w := send(b.h, from(fmt.Sprintf("192.0.%d.%d", i>>8, i&255)))
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
			}()
			if i%1000 == 999 {
				synctest.Wait()
			}
		}
		mu.Lock()
		if codes[200] != burst || codes[429] != flood-burst-most {
			t.Errorf("at once %d were admitted and %d refused, want %d and %d", codes[200], codes[429], burst, flood-burst-most)
		}
		mu.Unlock()
		if n := b.l.Snapshot().Holding; n != most {
			t.Errorf("%d are held, want %d", n, most)
		}
		b.until(most*time.Second/rate + slack)
		mu.Lock()
		defer mu.Unlock()
		if codes[200] != burst+most {
			t.Errorf("in the end %d were admitted, want %d", codes[200], burst+most)
		}
		b.idle()
	})
}

// heldRequest is one request of a random run, and what became of it.
type heldRequest struct {
	at, leaves time.Duration // leaves: its client goes; 0: it stays
	class      int
	client     int
	admitted   bool
	answered   time.Duration
	secs       int64 // Retry-After
}

// lineModel is one bucket of one token a second and its line, the plain way.
// Tokens are counted in nanoseconds of refill, so that nothing is rounded.
type lineModel struct {
	have, last, burst time.Duration
	limit             int
	line              []*heldRequest
	cost              func(*heldRequest) time.Duration
	maxWait           func(*heldRequest) time.Duration
}

func (m *lineModel) refill(now time.Duration) {
	m.have = min(m.burst, m.have+now-m.last)
	m.last = now
}

// serve admits all whose tokens are there by now, the first in line first.
func (m *lineModel) serve(now time.Duration) {
	for len(m.line) > 0 {
		r := m.line[0]
		due := m.last + max(0, m.cost(r)-m.have)
		if due > now {
			break
		}
		m.refill(due)
		m.have -= m.cost(r)
		r.admitted, r.answered = true, due
		m.line = m.line[1:]
	}
	m.refill(now)
}

func (m *lineModel) arrive(r *heldRequest) {
	m.serve(r.at)
	wait := m.cost(r) - m.have
	for _, before := range m.line {
		wait += m.cost(before)
	}
	switch {
	case len(m.line) == 0 && wait <= 0:
		m.have -= m.cost(r)
		r.admitted, r.answered = true, r.at
	case wait > m.maxWait(r) || len(m.line) >= m.limit:
		r.answered, r.secs = r.at, int64((wait+time.Second-1)/time.Second)
	default:
		m.line = append(m.line, r)
	}
}

func (m *lineModel) leave(r *heldRequest) {
	m.serve(r.leaves)
	if i := slices.Index(m.line, r); i >= 0 {
		m.line = slices.Delete(m.line, i, i+1)
		r.answered = r.leaves
	}
}

// run plays requests from the first to the last event.
func (m *lineModel) run(list []*heldRequest) {
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	for _, r := range list {
		events = append(events, event{r.at, func() { m.arrive(r) }})
		if r.leaves > 0 {
			events = append(events, event{r.leaves, func() { m.leave(r) }})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range events {
		e.do()
	}
	m.serve(1 << 62)
}

// holdClasses are the classes of random runs: their costs and their patience.
var holdClasses = []struct {
	name string
	cost float64
	wait time.Duration
}{{"a", 1, 2 * time.Second}, {"b", 2, 30 * time.Second}, {"c", 0.25, 10 * time.Second}, {"d", 5, 20 * time.Second}, {"e", 1, 5 * time.Second}}

func withHoldClasses(cfg Config) Config {
	for _, c := range holdClasses {
		cfg = cfg.with(Endpoint{Class: Class(c.name), Cost: c.cost, MaxWait: waiting(c.wait)})
	}
	return cfg
}

// randomRequests arrive at odd nanoseconds: two things in one instant have no
// order, and the model would have to have none either.
func randomRequests(rnd *rand.Rand, n int, every time.Duration) (list []*heldRequest) {
	at := time.Duration(0)
	for range n {
		at += time.Duration(rnd.ExpFloat64() * float64(every))
		at += time.Duration(rnd.IntN(1000)) * time.Nanosecond
		r := &heldRequest{at: at, class: rnd.IntN(len(holdClasses)), client: rnd.IntN(4)}
		if rnd.IntN(3) == 0 {
			r.leaves = at + 1 + time.Duration(rnd.Int64N(int64(15*time.Second)))
		}
		list = append(list, r)
	}
	return list
}

// play sends the requests to a bank.
func (b *bank) play(list []*heldRequest) (got []*heldRequest) {
	var wg sync.WaitGroup
	for _, r := range list {
		g := *r
		got = append(got, &g)
		wg.Go(func() {
			time.Sleep(g.at - b.now())
			ctx := b.Context()
			if g.leaves > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, g.leaves-g.at)
				defer cancel()
			}
			w := send(b.h, to(holdClasses[g.class].name, fmt.Sprintf("192.0.2.%d", g.client)).WithContext(ctx))
			g.answered = b.now()
			if g.admitted = w.Header().Get("Served") != ""; !g.admitted {
				g.secs = retryAfter(b, w)
			}
		})
	}
	wg.Wait()
	b.idle()
	return got
}

func TestHoldingAgreesWithAPlainLine(t *testing.T) {
	var admitted, late, turnedAway, left int
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		load := time.Duration(rnd.IntN(3000)+200) * time.Millisecond
		list := randomRequests(rnd, 150, load)
		for i := range list {
			list[i].client = i // an address each: the model knows no share of one
		}
		limit := 2 + rnd.IntN(12)
		model := &lineModel{
			have: 6 * time.Second, burst: 6 * time.Second, limit: limit,
			cost:    func(r *heldRequest) time.Duration { return seconds(holdClasses[r.class].cost) },
			maxWait: func(r *heldRequest) time.Duration { return holdClasses[r.class].wait },
		}
		var got []*heldRequest
		synctest.Test(t, func(t *testing.T) {
			cfg := withHoldClasses(holding(1, 6))
			cfg.Tiers.MaxWaiting = limit
			if seed%2 == 0 { // a tier with tokens for all changes nothing
				cfg.Tiers.PerIP = TierConfig{Rate: 1000, Burst: 1000}
			}
			got = newBank(t, cfg).play(list)
		})
		model.run(list)
		for i, want := range list {
			g := got[i]
			if d := g.answered - want.answered; g.admitted != want.admitted || d < -slack || d > slack {
				t.Fatalf("seed %d: request %d, a %s at %v: answered at %v (admitted: %v), in the model at %v (%v)",
					seed, i, holdClasses[g.class].name, g.at, g.answered, g.admitted, want.answered, want.admitted)
			}
			switch {
			case want.admitted && want.answered == want.at:
				admitted++
			case want.admitted:
				late++
			case want.secs > 0:
				turnedAway++
				if g.secs != want.secs {
					t.Fatalf("seed %d: request %d at %v was told to wait %d s, in the model %d", seed, i, g.at, g.secs, want.secs)
				}
			default:
				left++
			}
		}
	}
	t.Logf("admitted at once %d, after a wait %d, turned away %d, left %d", admitted, late, turnedAway, left)
}

// Over two tiers there is no plain model of every instant, but there is of
// what must never happen.
func TestHoldingOverTwoTiersOverdrawsNoBucketAndOutstaysNoDeadline(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		list := randomRequests(rnd, 150, time.Duration(rnd.IntN(1000)+100)*time.Millisecond)
		var got []*heldRequest
		synctest.Test(t, func(t *testing.T) {
			cfg := withHoldClasses(holding(1.5, 6))
			cfg.Tiers.PerIP = TierConfig{Rate: 0.5, Burst: 6}
			cfg.Tiers.MaxWaiting = 3 + rnd.IntN(40)
			got = newBank(t, cfg).play(list)
		})
		for i, g := range got {
			if deadline := g.at + holdClasses[g.class].wait; g.answered > deadline+slack {
				t.Errorf("seed %d: request %d of %v was answered at %v, after its deadline %v", seed, i, g.at, g.answered, deadline)
			}
		}
		got = slices.DeleteFunc(got, func(r *heldRequest) bool { return !r.admitted })
		notOverdrawn(t, seed, got, 1.5, 6)
		for client := range 4 {
			others := func(r *heldRequest) bool { return r.client != client }
			notOverdrawn(t, seed, slices.DeleteFunc(slices.Clone(got), others), 0.5, 6)
		}
	}
}

// notOverdrawn claims that a bucket can have given all that was admitted.
func notOverdrawn(t *testing.T, seed uint64, list []*heldRequest, rate, burst float64) {
	t.Helper()
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *heldRequest) int { return int(a.answered - b.answered) })
	tokens, last := burst, time.Duration(0)
	for _, r := range list {
		tokens = min(burst, tokens+rate*(r.answered-last).Seconds()) - holdClasses[r.class].cost
		if last = r.answered; tokens < -1e-6 {
			t.Fatalf("seed %d: the bucket is overdrawn by %v at %v", seed, -tokens, r.answered)
		}
	}
}
