package weir

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Nothing that a request takes may stay taken (requirement G7), however the
// request ends: slots, places in a queue or a line, goroutines.

// stormy is a Config in which a request meets everything: three tiers, two of
// which hold it, and two guards.
func stormy() Config {
	cfg := noTiers()
	cfg.Tiers.Global = TierConfig{Rate: 2000, Burst: 100, MaxWait: waiting(200 * time.Millisecond)}
	cfg.Tiers.PerIP = TierConfig{Rate: 50, Burst: 10, MaxWait: waiting(300 * time.Millisecond)}
	cfg.Tiers.PerAccount = TierConfig{Rate: 10, Burst: 10}
	cfg.Tiers.MaxWaiting = 64
	cfg.Guards = map[string]GuardConfig{
		"hsm": {MaxInFlight: 4, MaxQueue: 16, AcquireTimeout: Duration(50 * time.Millisecond)},
		"db":  {MaxInFlight: 3, MaxQueue: 4, AcquireTimeout: Duration(20 * time.Millisecond)},
	}
	return cfg.with(
		Endpoint{Class: "sign", Guard: "hsm", Cost: 2},
		Endpoint{Class: "try", Guard: "hsm", Mode: ModeFail},
		Endpoint{Class: "dear", Guard: "hsm", Cost: 9},
		Endpoint{Class: "now", Guard: "db", MaxWait: waiting(0)},
	)
}

// storm is the work behind the chain: it ends in every way there is.
func storm(l *Limiter, pause func(time.Duration)) http.Handler {
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := rand.IntN(100); {
		case n < 10:
			panic("boom")
		case n < 15:
			panic(http.ErrAbortHandler)
		case n < 20:
			runtime.Goexit()
		case n < 40:
			pause(time.Duration(rand.IntN(20)) * time.Millisecond)
		case n < 45:
			SetAccount(r.Context(), "a"+strconv.Itoa(rand.IntN(5)))
		case n < 50:
			Disown(r.Context())
		case n < 55: // as a handler that streams until its client goes
			<-r.Context().Done()
		}
		served(w, r)
	})
	guarded := l.Guard("db").Handler(inner)
	late := http.TimeoutHandler(l.Guard("hsm").Handler(inner), 5*time.Millisecond, "late")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch rand.IntN(4) {
		case 0:
			guarded.ServeHTTP(w, r)
		case 1:
			late.ServeHTTP(w, r)
		case 2:
			l.Handler(inner).ServeHTTP(w, r)
		default:
			inner.ServeHTTP(w, r)
		}
	})
}

// whole claims that everything has come back: all gauges are zero, no line is
// left, and every slot of every guard can still be taken.
func whole(t *testing.T, l *Limiter) {
	t.Helper()
	s := l.Snapshot()
	if s.Holding != 0 {
		t.Errorf("%d requests count as held", s.Holding)
	}
	l.lines.mu.Lock()
	if n := len(l.lines.m); n != 0 {
		t.Errorf("%d lines were left behind", n)
	}
	l.lines.mu.Unlock()
	for _, g := range s.Guards {
		if g.InFlight != 0 || g.Queued != 0 {
			t.Errorf("guard %s: %d in flight and %d queued", g.Guard, g.InFlight, g.Queued)
		}
		gone, cancel := context.WithCancel(t.Context())
		var releases []func()
		for range g.Slots {
			release, err := l.Guard(g.Guard).Acquire(gone)
			if err != nil {
				t.Errorf("guard %s: a slot is lost: %v", g.Guard, err)
			}
			releases = append(releases, release)
		}
		if got := guardOf(t, l, g.Guard).InFlight; got != g.Slots {
			t.Errorf("guard %s: %d of %d slots could be taken", g.Guard, got, g.Slots)
		}
		cancel()
		for _, release := range releases {
			release()
		}
	}
}

func TestHundredThousandRequestsOfEveryFateLeaveNothingBehind(t *testing.T) {
	noGoroutineLeft(t)
	synctest.Test(t, func(t *testing.T) {
		const callers = 200
		each := 500
		if testing.Short() {
			each = 50
		}
		l := newLimiter(t, stormy(), WithAccount(byHeader("Account")))
		h := l.Handler(storm(l, time.Sleep))
		var fates [600]atomic.Int64
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for range each {
					var one sync.WaitGroup // a goroutine of its own, for Goexit
					one.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(150))*time.Millisecond)
						defer cancel()
						class := []string{"sign", "try", "dear", "now", "rest"}[rand.IntN(5)]
						r := cheapRequest("/"+class, fmt.Sprintf("192.0.2.%d:40000", caller%40))
						if rand.IntN(2) == 0 {
							r.Header.Set("Account", "a"+strconv.Itoa(rand.IntN(20)))
						}
						w := &nullWriter{h: http.Header{}, status: http.StatusOK}
						fate := &fates[0]
						defer func() {
							if p := recover(); p != nil {
								fate = &fates[1]
							}
							fate.Add(1)
						}()
						h.ServeHTTP(w, r.WithContext(ctx))
						fate = &fates[w.status]
					})
					one.Wait()
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		whole(t, l)
		total := int64(0)
		for i := range fates {
			total += fates[i].Load()
		}
		if total != int64(callers*each) {
			t.Errorf("%d of %d requests came back", total, callers*each)
		}
		s := l.Snapshot()
		for what, n := range map[string]int64{
			"served": fates[200].Load(), "throttled": fates[429].Load(), "shed": fates[503].Load(),
			"panicked": fates[1].Load(), "ended by Goexit": fates[0].Load(), "held": int64(classOf(t, l, "sign").Held),
		} {
			t.Logf("%s: %d", what, n)
			if n == 0 {
				t.Errorf("no request was %s: the storm is too weak to show anything", what)
			}
		}
		for _, c := range s.Classes {
			t.Logf("%+v", c)
		}
	})
}

// allCome waits until nobody else holds a slot: behind a TimeoutHandler work may
// go on after its request has been answered.
func allCome(t *testing.T, g *Guard, slots int) {
	t.Helper()
	for range slots {
		release, err := g.Acquire(t.Context())
		for tries := 0; err != nil && tries < 100; tries++ {
			release, err = g.Acquire(t.Context())
		}
		defer release()
	}
}

// The same over real connections, which are cut at any moment or hijacked, and
// real time, in which everything that races here can race.
func TestConnectionsThatAreCutLeaveNothingBehind(t *testing.T) {
	noGoroutineLeft(t)
	l := newLimiter(t, stormy())
	work := storm(l, func(time.Duration) { runtime.Gosched() })
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rand.IntN(5) == 0 {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
			if rand.IntN(2) == 0 {
				panic(http.ErrAbortHandler)
			}
			return
		}
		work.ServeHTTP(w, r)
	})
	var under sync.WaitGroup
	var arrived atomic.Int64
	chain := l.Handler(inner)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		under.Add(1)
		defer under.Done()
		arrived.Add(1)
		// A client that is slow to be missed must not make the test slow.
		ctx, cancel := context.WithTimeout(r.Context(), 20*time.Millisecond)
		defer cancel()
		chain.ServeHTTP(w, r.WithContext(ctx))
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	const callers = 16
	each := 100
	if testing.Short() {
		each = 10
	}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				conn, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				class := []string{"sign", "try", "dear", "now", "rest"}[rand.IntN(5)]
				_, _ = fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", class)
				if rand.IntN(2) == 0 {
					_, _ = conn.Read(make([]byte, 1))
				}
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	srv.Close()
	under.Wait()
	if arrived.Load() == 0 {
		t.Error("no request arrived")
	}
	for _, g := range l.Snapshot().Guards {
		allCome(t, l.Guard(g.Guard), g.Slots)
	}
	whole(t, l)
}
