package weir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// guarded is a Config with the guard "hsm" and two classes behind it: "sign"
// waits for a slot, "try" fails at once.
func guarded(slots, queue int, timeout time.Duration) Config {
	cfg := noTiers()
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: slots, MaxQueue: queue, AcquireTimeout: Duration(timeout)}}
	return cfg.with(Endpoint{Class: "sign", Guard: "hsm"}, Endpoint{Class: "try", Guard: "hsm", Mode: ModeFail})
}

// busyFor is work that takes so long.
func busyFor(d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(d)
		served(w, r)
	})
}

// shedAt claims that the request is answered 503, when, and why.
func (a *arrival) shedAt(when time.Duration, reason string) {
	a.Helper()
	a.answered(when)
	if a.rec.Code != http.StatusServiceUnavailable || a.rec.Header().Get("Served") != "" {
		a.Errorf("%s was answered %d at %v, want it shed", a.name, a.rec.Code, a.at)
		return
	}
	if !strings.Contains(a.rec.Body.String(), fmt.Sprintf(`"reason":%q`, reason)) {
		a.Errorf("%s was shed with %s, want the reason %s", a.name, a.rec.Body, reason)
	}
	_ = retryAfter(a, a.rec)
}

// guardOf returns the state of one guard.
func guardOf(t testing.TB, l *Limiter, name string) GuardSnapshot {
	t.Helper()
	for _, g := range l.Snapshot().Guards {
		if g.Guard == name {
			return g
		}
	}
	t.Fatalf("the snapshot has no guard %q", name)
	return GuardSnapshot{}
}

// occupied claims how many hold a slot and how many wait.
func occupied(t testing.TB, l *Limiter, inFlight, queued int) {
	t.Helper()
	if g := guardOf(t, l, "hsm"); g.InFlight != inFlight || g.Queued != queued {
		t.Errorf("%d in flight and %d queued, want %d and %d", g.InFlight, g.Queued, inFlight, queued)
	}
}

// meter counts who is inside and remembers the most there ever were.
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

func TestThousandRequestsAreNeverMoreAtWorkThanThereAreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, n = 8, 1000
		b := newBank(t, guarded(slots, n, time.Minute))
		var inside meter
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inside.enter()
			defer inside.exit()
			time.Sleep(time.Millisecond)
			served(w, r)
		})
		var all []*arrival
		var want []string
		for i := range n {
			all = append(all, b.arrive(strconv.Itoa(i), to("sign", alice)))
			want = append(want, strconv.Itoa(i))
		}
		for i, a := range all {
			a.admittedAt(time.Duration(i/slots+1) * time.Millisecond)
		}
		if most := inside.most.Load(); most != slots {
			t.Errorf("at most %d were at work at once, want %d", most, slots)
		}
		// Slots that come free in one instant are taken in no order.
		for i := range n / slots {
			slices.SortFunc(b.order[i*slots:(i+1)*slots], func(a, b string) int { return len(a)*10000 - len(b)*10000 + strings.Compare(a, b) })
		}
		if !slices.Equal(b.order, want) {
			t.Errorf("not served in order of arrival: %v", b.order)
		}
		occupied(t, b.l, 0, 0)
	})
}

func TestRequestsBeyondTheQueueAreShedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 2, time.Minute))
		b.work = busyFor(time.Second)
		first, second, third := b.arrive("1", to("sign", alice)), b.arrive("2", to("sign", bob)), b.arrive("3", to("sign", alice))
		occupied(t, b.l, 1, 2)
		b.arrive("4", to("sign", carol)).shedAt(0, "queue_full")
		first.admittedAt(1 * time.Second)
		second.admittedAt(2 * time.Second)
		third.admittedAt(3 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

func TestClassOfModeFailNeverWaitsWhereOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 64, time.Minute))
		b.work = busyFor(time.Second)
		b.arrive("free", to("try", alice)).admittedAt(time.Second)
		b.arrive("holds", to("sign", alice))
		waits := b.arrive("waits", to("sign", alice))
		b.arrive("fails", to("try", alice)).shedAt(time.Second, "queue_full")
		waits.admittedAt(3 * time.Second)
	})
}

func TestQueuedRequestWaitsAsLongAsTheAcquireTimeoutAndNoLonger(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		busy    time.Duration
		in      bool
		retry   string
	}{
		{"a slot comes in time", 3 * time.Second, 3*time.Second - 1, true, ""},
		{"a slot comes too late", 3 * time.Second, 3*time.Second + 1, false, "3"},
		{"by default that is 5 s", 0, 5*time.Second + 1, false, "5"},
		{"less than a second still asks for one", 10 * time.Millisecond, time.Second, false, "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, guarded(1, 1, tt.timeout))
				b.work = busyFor(tt.busy)
				holder, waiter := b.arrive("holder", to("sign", alice)), b.arrive("waiter", to("sign", bob))
				if tt.in {
					waiter.admittedAt(2 * tt.busy)
				} else {
					timeout := tt.timeout
					if timeout == 0 {
						timeout = 5 * time.Second
					}
					waiter.shedAt(timeout, "timeout")
					if got := waiter.rec.Header().Get("Retry-After"); got != tt.retry {
						t.Errorf("Retry-After is %s, want %s", got, tt.retry)
					}
				}
				<-holder.done
				occupied(t, b.l, 0, 0)
			})
		})
	}
}

func TestQueuedRequestLeavesWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 2, time.Minute))
		b.work = busyFor(2 * time.Second)
		b.arrive("holder", to("sign", alice))
		gone, next := b.arrive("gone", to("sign", bob)), b.arrive("next", to("sign", carol))
		b.until(time.Second)
		gone.leave()
		gone.shedAt(time.Second, "canceled")
		occupied(t, b.l, 1, 1)
		next.admittedAt(4 * time.Second)
		if want := []string{"holder", "next"}; !slices.Equal(b.order, want) {
			t.Errorf("%v reached the handler, want %v", b.order, want)
		}
	})
}

// The client goes in the very instant in which its slot is granted. The slot
// is handed on, whichever came first.
func TestClientThatGoesInTheInstantOfItsGrantLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 64, time.Minute))
		b.work = busyFor(time.Second)
		for round := range 50 {
			b.until(time.Duration(3*round) * time.Second)
			holder := b.arrive("holder", to("sign", alice))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second) // when the holder ends
			waiter := b.arrive("waiter", to("sign", bob).WithContext(ctx))
			<-holder.done
			<-waiter.done
			synctest.Wait()
			occupied(t, b.l, 0, 0)
			cancel()
		}
	})
}

func TestShedRequestIsToldAndCountedByItsReasonAndItsTokensStaySpent(t *testing.T) {
	for _, tt := range []struct {
		kind        Kind
		contentType string
		says        string
	}{
		{KindAPI, "application/problem+json", `"reason":"queue_full"`},
		{KindACME, "application/problem+json", `urn:ietf:params:acme:error:rateLimited`},
		{KindOCSP, "application/ocsp-response", "\x30\x03\x0a\x01\x03"}, // tryLater, RFC 6960 section 4.2.1
		{KindS3, "application/xml", "SlowDown"},
		{KindPage, "text/html; charset=utf-8", "<h1>"},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := guarded(1, 1, time.Minute)
				cfg.Tiers.PerIP = perHour(3)
				cfg = cfg.with(Endpoint{Class: "kind", Kind: tt.kind, Guard: "hsm", Mode: ModeFail})
				reg := prometheus.NewRegistry()
				b := newBank(t, cfg, WithRegisterer(reg))
				b.work = busyFor(time.Minute)
				b.arrive("holder", to("sign", bob))
				for range 3 {
					r := to("kind", alice)
					if tt.kind == KindPage {
						r.Header.Set("Accept", "text/html")
					}
					a := b.arrive("shed", r)
					a.answered(0)
					if a.rec.Code != 503 || a.rec.Header().Get("Content-Type") != tt.contentType || !strings.Contains(a.rec.Body.String(), tt.says) {
						t.Fatalf("answered %d %v %q, want 503 %s with %q", a.rec.Code, a.rec.Header(), a.rec.Body, tt.contentType, tt.says)
					}
					if got := a.rec.Header().Get("Retry-After"); got != "60" {
						t.Errorf("Retry-After is %q, want 60", got)
					}
				}
				// Three tokens are gone although nothing was done for them.
				b.arrive("fourth", to("try", alice)).refusedAt(0, 3600)
				if got := metric(t, reg, "weir_hsm_guard_rejected_total", "endpoint", "kind", "reason", "queue_full"); got != 3 {
					t.Errorf("%v sheds are counted, want 3", got)
				}
				if got := classOf(t, b.l, "kind"); got.Shed["queue_full"] != 3 || got.Admitted != 3 {
					t.Errorf("the snapshot says %+v, want 3 admitted by the tiers and 3 shed", got)
				}
			})
		})
	}
}

// The tiers refuse first: a flood that they can stop takes no place in the
// queue.
func TestRequestRefusedByATierTakesNoPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 64, time.Minute)
		cfg.Tiers.PerIP = perHour(2)
		b := newBank(t, cfg)
		b.work = busyFor(time.Second)
		for range 10 {
			b.arrive("flood", to("sign", alice))
		}
		occupied(t, b.l, 1, 1)
		b.arrive("bob", to("sign", bob)).admittedAt(3 * time.Second)
	})
}

func TestExemptRequestsStillPassTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 1, time.Minute)
		cfg.Tiers.PerIP = perHour(1)
		cfg.Exempt.Networks = []string{alice}
		b := newBank(t, cfg)
		b.work = busyFor(time.Second)
		b.arrive("holds", to("sign", alice))
		b.arrive("fails", to("try", alice)).shedAt(0, "queue_full")
	})
}

// endings are the ways in which work can end without returning, and what the
// caller of the chain sees of it.
var endings = []struct {
	name string
	end  func()
	sees any
}{
	{"a panic", func() { panic("boom") }, "boom"},
	{"a panic with an error", func() { panic(errStoreDown) }, errStoreDown},
	{"an aborted response", func() { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
	{"runtime.Goexit", runtime.Goexit, nil},
}

func TestWorkThatDoesNotReturnGivesItsSlotBack(t *testing.T) {
	for _, wiring := range []struct {
		name string
		wrap func(*Limiter, http.Handler) http.Handler
	}{
		{"in the chain", func(l *Limiter, next http.Handler) http.Handler { return l.Handler(next) }},
		{"in Protect", func(l *Limiter, next http.Handler) http.Handler { return l.Protect("sign", next) }},
		{"in a guard by hand", func(l *Limiter, next http.Handler) http.Handler { return l.Guard("hsm").Handler(next) }},
		{"in both", func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Guard("hsm").Handler(next)) }},
	} {
		for _, tt := range endings {
			t.Run(wiring.name+" "+tt.name, func(t *testing.T) {
				l := newLimiter(t, guarded(2, 2, time.Second))
				h := wiring.wrap(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					occupied(t, l, 1, 0)
					tt.end()
				}))
				for range 5 {
					var seen any
					var wg sync.WaitGroup
					wg.Go(func() {
						defer func() { seen = recover() }()
						send(h, to("sign", alice))
					})
					wg.Wait()
					if seen != tt.sees {
						t.Errorf("the caller sees %v, want %v unchanged", seen, tt.sees)
					}
					occupied(t, l, 0, 0)
				}
			})
		}
	}
}

func TestSlotIsHeldUntilTheHandlerOfAHijackedConnectionReturns(t *testing.T) {
	l := newLimiter(t, guarded(1, 1, time.Minute))
	entered, leave := make(chan struct{}), make(chan struct{})
	left := make(chan struct{})
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
		close(entered)
		<-leave
		_ = conn.Close()
	}))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte("GET /sign HTTP/1.1\r\nHost: a\r\n\r\n"))
	<-entered
	occupied(t, l, 1, 0)
	close(leave)
	<-left
	occupied(t, l, 0, 0)
}

// nest puts a handler into guards, the first outermost.
func nest(l *Limiter, names []string, next http.Handler) http.Handler {
	for _, name := range slices.Backward(names) {
		next = l.Guard(name).Handler(next)
	}
	return next
}

func TestGuardsNested(t *testing.T) {
	for _, tt := range []struct {
		name     string
		guards   []string
		hsm, db  int // slots taken inside
		endpoint string
	}{
		{"one guard mounted twice takes one slot", []string{"hsm", "hsm"}, 1, 0, "none"},
		{"the guard of the class mounted again takes one slot", []string{"hsm", "hsm"}, 1, 0, "sign"},
		{"two guards take a slot of each", []string{"hsm", "db"}, 1, 1, "none"},
		{"the inner one mounted twice", []string{"hsm", "db", "db"}, 1, 1, "none"},
		{"alternating", []string{"hsm", "db", "hsm", "db", "hsm"}, 1, 1, "sign"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := guarded(1, 1, time.Minute).with(Endpoint{Class: "none"})
				cfg.Guards["db"] = GuardConfig{MaxInFlight: 1}
				b := newBank(t, cfg)
				b.work = nest(b.l, tt.guards, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					occupied(t, b.l, tt.hsm, 0)
					if got := guardOf(t, b.l, "db").InFlight; got != tt.db {
						t.Errorf("%d slots of the other guard are taken, want %d", got, tt.db)
					}
					served(w, r)
				}))
				for range 3 {
					b.arrive("a", to(tt.endpoint, alice)).admittedAt(0) // waits for itself otherwise
				}
				occupied(t, b.l, 0, 0)
				if got := guardOf(t, b.l, "db").InFlight; got != 0 {
					t.Errorf("%d slots of the other guard are still taken", got)
				}
			})
		})
	}
}

func TestRequestTakesASlotEachTimeItComesToTheGuardAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 1, time.Minute).with(Endpoint{Class: "none"}))
		step := b.l.Guard("hsm").Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			occupied(t, b.l, 1, 0)
			time.Sleep(time.Second)
			served(w, r)
		}))
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			step.ServeHTTP(w, r)
			occupied(t, b.l, 0, 0)
			time.Sleep(time.Second) // without a slot
			step.ServeHTTP(w, r)
		})
		b.arrive("a", to("none", alice)).admittedAt(3 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

// A request that fans out inside itself holds one slot, until the last of its
// parts is done, even if what it came through has returned meanwhile.
func TestSlotOfOneRequestIsHeldUntilTheLastPartOfItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 1, time.Minute))
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for i := range 3 {
				go b.l.Guard("hsm").Handler(busyFor(time.Duration(i+1)*time.Second)).ServeHTTP(httptest.NewRecorder(), r)
			}
			time.Sleep(time.Millisecond)
			served(w, r)
		})
		b.arrive("a", to("sign", alice)).admittedAt(time.Millisecond)
		b.until(3*time.Second - 1)
		occupied(t, b.l, 1, 0)
		b.until(3 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

// Two parts of one request wait for a slot, and each gets one in the same
// instant. One is too many, and goes back.
func TestPartsThatGetASlotEachKeepOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(2, 4, time.Minute).with(Endpoint{Class: "none"}))
		var holders []func()
		for range 2 {
			release, err := b.l.Guard("hsm").Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			holders = append(holders, release)
		}
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var parts sync.WaitGroup
			for range 2 {
				parts.Go(func() {
					b.l.Guard("hsm").Handler(busyFor(time.Second)).ServeHTTP(httptest.NewRecorder(), r)
				})
			}
			parts.Wait()
			served(w, r)
		})
		a := b.arrive("a", to("none", alice))
		occupied(t, b.l, 2, 2)
		for _, release := range holders {
			release()
		}
		synctest.Wait()
		occupied(t, b.l, 1, 0)
		a.admittedAt(time.Second)
		occupied(t, b.l, 0, 0)
	})
}

// http.TimeoutHandler answers while the work behind it goes on. A guard next to
// the work knows when it ends; one that stands outside only does not.
func TestSlotBehindATimeoutHandlerIsHeldUntilTheWorkEnds(t *testing.T) {
	const answer, work = time.Second, 10 * time.Second
	for _, tt := range []struct {
		name string
		wrap func(*Limiter, http.Handler) http.Handler
		free time.Duration // when the slot is free again
	}{
		{"the chain inside the timeout", func(l *Limiter, next http.Handler) http.Handler {
			return http.TimeoutHandler(l.Handler(next), answer, "late")
		}, work},
		{"a guard inside the timeout", func(l *Limiter, next http.Handler) http.Handler {
			return http.TimeoutHandler(l.Guard("hsm").Handler(next), answer, "late")
		}, work},
		{"the chain outside and the guard again inside", func(l *Limiter, next http.Handler) http.Handler {
			return l.Handler(http.TimeoutHandler(l.Guard("hsm").Handler(next), answer, "late"))
		}, work},
		{"outside only, the slot is free while the work goes on", func(l *Limiter, next http.Handler) http.Handler {
			return l.Handler(http.TimeoutHandler(next, answer, "late"))
		}, answer},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, guarded(1, 1, time.Minute))
				b.h = tt.wrap(b.l, busyFor(work))
				a := b.arrive("a", to("sign", alice))
				a.answered(answer)
				if a.rec.Code != http.StatusServiceUnavailable || a.rec.Body.String() != "late" {
					t.Errorf("answered %d %q, want the timeout's answer", a.rec.Code, a.rec.Body)
				}
				if tt.free == work {
					b.until(work - 1)
					occupied(t, b.l, 1, 0)
				}
				b.until(tt.free)
				occupied(t, b.l, 0, 0)
				b.until(work)
			})
		})
	}
}

func TestReloadResizesTheGuardThatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 4, time.Minute)
		b := newBank(t, cfg)
		b.work = busyFor(10 * time.Second)
		guard := b.l.Guard("hsm")
		resize := func(slots, queue int) {
			t.Helper()
			cfg.Guards["hsm"] = GuardConfig{MaxInFlight: slots, MaxQueue: queue, AcquireTimeout: Duration(time.Minute)}
			if err := b.l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if b.l.Guard("hsm") != guard {
				t.Error("it is another guard now")
			}
			if g := guardOf(t, b.l, "hsm"); g.Slots != slots || g.Queue != queue {
				t.Errorf("%d slots and a queue of %d, want %d and %d", g.Slots, g.Queue, slots, queue)
			}
		}
		var all []*arrival
		for i := range 5 {
			all = append(all, b.arrive(strconv.Itoa(i), to("sign", alice)))
		}
		occupied(t, b.l, 1, 4)
		b.until(time.Second)
		resize(3, 4) // two of those who wait come in at once
		occupied(t, b.l, 3, 2)
		resize(1, 1) // nobody is thrown out
		occupied(t, b.l, 3, 2)
		b.arrive("too many", to("sign", alice)).shedAt(time.Second, "queue_full")
		all[0].admittedAt(10 * time.Second)
		occupied(t, b.l, 2, 2)
		all[1].admittedAt(11 * time.Second)
		all[2].admittedAt(11 * time.Second)
		occupied(t, b.l, 1, 1) // only now there is a slot for the next
		all[3].admittedAt(21 * time.Second)
		all[4].admittedAt(31 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

// Under load the bound that holds is the largest that was ever in force.
func TestGuardResizedUnderLoadIsNeverOverfull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 1000, time.Hour)
		b := newBank(t, cfg)
		var inside meter
		b.work = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			inside.enter()
			defer inside.exit()
			time.Sleep(time.Millisecond)
		})
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() { send(b.h, to("sign", alice)) })
		}
		for i := range 100 {
			time.Sleep(500 * time.Microsecond)
			cfg.Guards["hsm"] = GuardConfig{MaxInFlight: 1 + i%7, MaxQueue: 1000, AcquireTimeout: Duration(time.Hour)}
			if err := b.l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if most := inside.most.Load(); most > 7 {
			t.Errorf("%d were at work at once, at most 7 were ever allowed", most)
		}
		occupied(t, b.l, 0, 0)
	})
}

func TestGuardThatIsInUseCannotBeDropped(t *testing.T) {
	cfg := guarded(1, 1, time.Second)
	l := newLimiter(t, cfg)
	_ = l.Guard("hsm")
	cfg.Guards, cfg.Endpoints = map[string]GuardConfig{"other": {MaxInFlight: 1}}, nil
	err := l.Reload(cfg)
	if err == nil || !strings.Contains(err.Error(), "guards.hsm") {
		t.Errorf("the reload says %v, want it to name guards.hsm", err)
	}
}

func TestSizeOfTheGuardComesFromThePoolWhereTheConfigHasNone(t *testing.T) {
	size := 3
	cfg := guarded(0, 1, time.Second)
	l := newLimiter(t, cfg, WithPoolSize("hsm", func() int { return size }))
	if got := guardOf(t, l, "hsm").Slots; got != 3 {
		t.Errorf("%d slots, want the pool's 3", got)
	}
	size = 5
	if got := guardOf(t, l, "hsm").Slots; got != 3 {
		t.Errorf("%d slots, want 3 until the next Reload", got)
	}
	if err := l.Reload(cfg); err != nil || guardOf(t, l, "hsm").Slots != 5 {
		t.Errorf("Reload: %v; %d slots, want the pool's 5", err, guardOf(t, l, "hsm").Slots)
	}
	size = 0
	if err := l.Reload(cfg); err == nil || guardOf(t, l, "hsm").Slots != 5 {
		t.Errorf("a pool of 0 is taken: %v, %d slots", err, guardOf(t, l, "hsm").Slots)
	}
	if err := l.Reload(guarded(2, 1, time.Second)); err != nil || guardOf(t, l, "hsm").Slots != 2 {
		t.Errorf("Reload: %v; %d slots, want the config's 2 before the pool's", err, guardOf(t, l, "hsm").Slots)
	}
}

func TestUnknownGuardPanicsWhenWiredAndSaysWhichThereAre(t *testing.T) {
	cfg := guarded(1, 1, time.Second)
	cfg.Guards["codec"] = GuardConfig{MaxInFlight: 1}
	l := newLimiter(t, cfg)
	defer func() {
		text := fmt.Sprint(recover())
		for _, want := range []string{"hms", "codec, hsm"} {
			if !strings.Contains(text, want) {
				t.Errorf("the panic says %q, want it to name %q", text, want)
			}
		}
	}()
	l.Guard("hms")
}

func TestGuardOfADisabledLimiterLetsEverythingPass(t *testing.T) {
	l := newLimiter(t, Config{})
	g := l.Guard("anything")
	if next := http.NewServeMux(); g.Handler(next) != http.Handler(next) {
		t.Error("the handler is not handed back as it is")
	}
	for range 1000 {
		release, err := g.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer release()
	}
}

func TestGuardThatIsSwitchedOffLetsEverythingPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 1, time.Minute))
		b.work = busyFor(time.Second)
		b.arrive("holder", to("sign", alice))
		waiter := b.arrive("waiter", to("sign", alice))
		if err := b.l.Reload(Config{}); err != nil {
			t.Fatal(err)
		}
		b.arrive("free", to("sign", alice)).admittedAt(time.Second)
		waiter.admittedAt(2 * time.Second) // ends as it began
		for range 10 {
			release, err := b.l.Guard("hsm").Acquire(t.Context())
			if err != nil {
				t.Error(err)
			}
			release()
		}
	})
}

func TestAcquireWithoutHTTP(t *testing.T) {
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(errStoreDown)
	for _, tt := range []struct {
		name   string
		slots  int // free
		queue  int // free
		ctx    func(context.Context) (context.Context, context.CancelFunc)
		after  time.Duration
		is     []error
		isNot  []error
		reason string
	}{
		{"a free slot is taken at once", 1, 1, context.WithCancel, 0, nil, nil, ""},
		{"no slot and no place in the queue", 0, 0, context.WithCancel, 0,
			[]error{ErrQueueFull}, []error{ErrTimeout, ErrCanceled}, "queue_full"},
		{"no slot within the acquire timeout", 0, 1, context.WithCancel, 3 * time.Second,
			[]error{ErrTimeout}, []error{ErrQueueFull, ErrCanceled, context.DeadlineExceeded}, "timeout"},
		{"the caller had gone before", 1, 1, func(context.Context) (context.Context, context.CancelFunc) { return gone, func() {} }, 0,
			[]error{ErrCanceled, context.Canceled, errStoreDown}, []error{ErrTimeout, ErrQueueFull}, "canceled"},
		{"the caller's deadline comes first", 0, 1, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, time.Second, []error{ErrCanceled, context.DeadlineExceeded}, []error{ErrTimeout, context.Canceled}, "canceled"},
		{"the caller goes while it waits", 0, 1, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, time.Second, []error{ErrCanceled, context.Canceled}, []error{ErrTimeout, context.DeadlineExceeded}, "canceled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				l := newLimiter(t, guarded(1, 1, 3*time.Second), WithRegisterer(reg))
				g := l.Guard("hsm")
				base, stop := context.WithCancel(t.Context())
				defer stop()
				if tt.slots == 0 {
					release, err := g.Acquire(base)
					if err != nil {
						t.Fatal(err)
					}
					defer release()
				}
				if tt.queue == 0 {
					var wg sync.WaitGroup
					wg.Go(func() { _, _ = g.Acquire(base) })
					defer wg.Wait()
					synctest.Wait()
				}
				start := time.Now()
				ctx, cancel := tt.ctx(base)
				defer cancel()
				release, err := g.Acquire(ctx)
				if waited := time.Since(start); waited != tt.after {
					t.Errorf("it took %v, want %v", waited, tt.after)
				}
				release() // never nil
				if (err != nil) != (tt.is != nil) {
					t.Fatalf("the error is %v", err)
				}
				for _, want := range tt.is {
					if !errors.Is(err, want) {
						t.Errorf("%v does not match %v", err, want)
					}
				}
				for _, other := range tt.isNot {
					if errors.Is(err, other) {
						t.Errorf("%v matches %v", err, other)
					}
				}
				for _, reason := range shedReasons {
					want := 0.0
					if reason == tt.reason {
						want = 1
					}
					if got := metric(t, reg, "weir_hsm_guard_rejected_total", "endpoint", "direct", "reason", reason); got != want {
						t.Errorf("%v were counted as %s, want %v", got, reason, want)
					}
				}
			})
		})
	}
}

func TestReleaseMayBeCalledByAnybodyAndMoreThanOnce(t *testing.T) {
	l := newLimiter(t, guarded(2, 1, time.Second))
	g := l.Guard("hsm")
	mine, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := g.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(mine)
	}
	wg.Wait()
	occupied(t, l, 1, 0) // the other slot is not mine to give back
	theirs()
	theirs()
	occupied(t, l, 0, 0)
}

func TestRequestsAndDirectWorkShareTheSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 2, time.Minute))
		release, err := b.l.Guard("hsm").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := b.arrive("a", to("sign", alice))
		b.until(time.Second)
		release()
		a.admittedAt(time.Second)
	})
}

func TestGuardsDoNotKnowOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 1, time.Minute)
		cfg.Guards["ocsp"] = GuardConfig{MaxInFlight: 2, MaxQueue: 1}
		b := newBank(t, cfg.with(Endpoint{Class: "ocsp", Guard: "ocsp"}, Endpoint{Class: "open"}))
		b.work = busyFor(time.Second)
		b.arrive("holds", to("sign", alice))
		b.arrive("waits", to("sign", alice))
		b.arrive("shed", to("sign", alice)).shedAt(0, "queue_full")
		o1, o2, open := b.arrive("o1", to("ocsp", alice)), b.arrive("o2", to("ocsp", alice)), b.arrive("open", to("open", alice))
		for _, a := range []*arrival{o1, o2, open} {
			a.admittedAt(time.Second)
		}
		if got := classOf(t, b.l, "ocsp").Shed["queue_full"]; got != 0 {
			t.Errorf("%d sheds are counted for the other guard's class, want none", got)
		}
	})
}

// Outside the chain a guard knows no class, and says so in no document.
func TestGuardByHandShedsAsAnAPIWhereThereIsNoClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := guarded(1, 1, time.Second)
		cfg.DefaultClass = ""
		b := newBank(t, cfg)
		b.h = b.l.Guard("hsm").Handler(busyFor(time.Minute))
		b.arrive("holds", from(alice))
		b.arrive("waits", from(alice)).shedAt(time.Second, "timeout")
		if got := classOf(t, b.l, "direct").Shed["timeout"]; got != 1 {
			t.Errorf("%d sheds are counted without a class, want 1", got)
		}
	})
}
