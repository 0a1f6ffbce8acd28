package weir

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Requirement L6, every line of the table and its boundaries.
func TestDelaysGrowWithFailures(t *testing.T) {
	const ms = time.Millisecond
	byDefault := ladder{10, 200 * ms, 5 * time.Second}
	for _, tt := range []struct {
		ladder   ladder
		failures int
		want     time.Duration
	}{
		{byDefault, 0, 0}, {byDefault, 1, 0}, {byDefault, 10, 0},
		{byDefault, 11, 200 * ms}, {byDefault, 12, 400 * ms}, {byDefault, 13, 800 * ms},
		{byDefault, 14, 1600 * ms}, {byDefault, 15, 3200 * ms}, {byDefault, 16, 5 * time.Second},
		{byDefault, 17, 5 * time.Second}, {byDefault, 75, 5 * time.Second}, {byDefault, 99, 5 * time.Second},
		{byDefault, math.MaxInt32, 5 * time.Second},
		{ladder{0, time.Second, time.Second}, 1, time.Second},
		{ladder{3, time.Second, 10 * time.Second}, 7, 8 * time.Second},
		{ladder{3, time.Second, 10 * time.Second}, 8, 10 * time.Second},
		{ladder{1, time.Second, math.MaxInt64}, 100, math.MaxInt64},
	} {
		if got := tt.ladder.of(tt.failures); got != tt.want {
			t.Errorf("%+v after %d failures: %v, want %v", tt.ladder, tt.failures, got, tt.want)
		}
	}
}

func TestSleepersAreBounded(t *testing.T) {
	var s sleepers
	for i := range 8 {
		if !s.enter(keyUnknown, 20, 8) {
			t.Fatalf("sleeper %d of 8 of one address found no place", i+1)
		}
	}
	if s.enter(keyUnknown, 20, 8) {
		t.Error("a ninth of one address found a place")
	}
	for i := range 12 {
		if !s.enter(storeKey(i), 20, 8) {
			t.Fatalf("sleeper %d of 20 found no place", i+9)
		}
	}
	if s.enter(storeKey(99), 20, 8) {
		t.Error("a twenty-first found a place")
	}
	if got := s.skipped.value(); got != 2 {
		t.Errorf("%d were counted as skipped, want 2", got)
	}
	s.leave(keyUnknown)
	if !s.enter(storeKey(99), 20, 8) {
		t.Error("a place that was left is not free")
	}
	for range 7 {
		s.leave(keyUnknown)
	}
	for i := range 12 {
		s.leave(storeKey(i))
	}
	s.leave(storeKey(99))
	if s.count() != 0 || len(s.by) != 0 {
		t.Errorf("%d places and %d addresses are left", s.count(), len(s.by))
	}
}

func storeKey(i int) (k [16]byte) {
	copy(k[:], fmt.Sprint("key", i))
	return k
}

// guesser is a client that tries wrong passwords over HTTP Basic.
type guesser struct {
	h    http.Handler
	addr string
	user string
}

func (g guesser) request(ctx context.Context, password string) *http.Request {
	r := request("POST", "/est", g.addr, "").WithContext(ctx)
	r.SetBasicAuth(g.user, password)
	return r
}

// guess makes one attempt and returns its status and how long it took.
func (g guesser) guess(password string) (status int, took time.Duration) {
	began := time.Now()
	w := httptest.NewRecorder()
	g.h.ServeHTTP(w, g.request(context.Background(), password))
	return w.Code, time.Since(began)
}

// passwordIs is a handler that checks HTTP Basic in no time.
func passwordIs(password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, got, ok := r.BasicAuth(); !ok || got != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="est"`)
			http.Error(w, "wrong", http.StatusUnauthorized)
			return
		}
		served(w, r)
	})
}

func TestAFailedAnswerIsKeptBackAndASuccessIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 }))
		g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
		for i, want := range []time.Duration{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 200e6, 400e6, 800e6, 1600e6, 3200e6, 5e9, 5e9} {
			if status, took := g.guess("wrong"); status != 401 || took != want {
				t.Errorf("failure %d: %d after %v, want 401 after %v", i+1, status, took, want)
			}
		}
		if status, took := g.guess("right"); status != 200 || took != 0 {
			t.Errorf("the right password: %d after %v, want 200 at once", status, took)
		}
		if status, took := g.guess("wrong"); status != 401 || took != 5*time.Second {
			t.Errorf("the next failure: %d after %v, want 401 after 5s", status, took)
		}
	})
}

// failures makes n attempts fail, all told, in no time.
func failures(t *testing.T, l *Limiter, addr, account string, n int) {
	t.Helper()
	l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for i := range n {
			a, err := l.Attempt(r.Context(), Credential{ID: account, Account: account})
			if err == nil {
				err = a.Fail()
			}
			if err != nil {
				t.Fatalf("failure %d of %d of %s from %s: %v", i+1, n, account, addr, err)
			}
		}
	})).ServeHTTP(nil, from(addr))
}

func TestADelayEndsEarly(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(l *Limiter, client context.CancelFunc)
	}{
		{"when the client goes away", func(_ *Limiter, client context.CancelFunc) { client() }},
		{"when the Limiter is closed", func(l *Limiter, _ context.CancelFunc) { _ = l.Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 }))
				g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
				failures(t, l, addr1, "bob", 20)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began := time.Now()
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() { g.h.ServeHTTP(httptest.NewRecorder(), g.request(ctx, "wrong")) })
				}
				time.Sleep(150 * time.Millisecond)
				if got := l.Snapshot().Auth.Delaying; got != 8 {
					t.Errorf("%d answers are kept back, want 8", got)
				}
				if got := l.Snapshot().Auth.Failures["address"]; got != 28 {
					t.Errorf("%d failures are counted while the answers are kept back, want 28", got)
				}
				tt.end(l, cancel)
				wg.Wait()
				if took := time.Since(began); took != 150*time.Millisecond {
					t.Errorf("they were kept back for %v", took)
				}
				if got := l.Snapshot().Auth.Delaying; got != 0 {
					t.Errorf("%d places are not given back", got)
				}
			})
		})
	}
}

// Scenarios D1, D2 and D5: one client cannot take every place, all clients
// together not more than there are, and what finds none is answered at once.
func TestAnswersAboveTheBoundAreSentAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name       string
		addresses  int
		each       int
		sleep      int
		atOnce     int
		mostAtOnce int
	}{
		{"of one address", 1, 60, 8, 52, 1024},
		{"of all", 10, 5, 20, 30, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) {
					a.Account.MaxFailures, a.Delay.MaxSleeping = 1000, tt.mostAtOnce
				}))
				h := l.Handler(passwordIs("right"))
				var mu sync.Mutex
				var wg sync.WaitGroup
				slept, atOnce := 0, 0
				for i := range tt.addresses {
					g := guesser{h, fmt.Sprintf("203.0.113.%d", i), "bob"}
					failures(t, l, g.addr, "bob", 20)
					for range tt.each {
						wg.Go(func() {
							status, took := g.guess("wrong")
							mu.Lock()
							defer mu.Unlock()
							if took == 5*time.Second {
								slept++
							} else if took == 0 {
								atOnce++
							}
							if status != 401 {
								t.Errorf("status %d", status)
							}
						})
					}
				}
				wg.Wait()
				if slept != tt.sleep || atOnce != tt.atOnce {
					t.Errorf("%d slept and %d were answered at once, want %d and %d", slept, atOnce, tt.sleep, tt.atOnce)
				}
				if got := l.counts.sleepers.skipped.value(); got != uint64(tt.atOnce) {
					t.Errorf("%d are counted as skipped", got)
				}
			})
		})
	}
}

// Scenario D7: nothing of the handler's, a guard's slot above all, is held
// while the answer sleeps.
func TestTheGuardsSlotIsFreeWhileTheAnswerSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 })
		cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
		cfg.Endpoints[0].Guard = "hsm"
		l := newLimiter(t, cfg)
		g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
		failures(t, l, addr1, "bob", 20)
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.guess("wrong")
		}()
		synctest.Wait()
		if s := l.Snapshot(); s.Auth.Delaying != 1 || s.Guards[0].InFlight != 0 {
			t.Errorf("%d answers sleep and %d slots are held", s.Auth.Delaying, s.Guards[0].InFlight)
		}
		if status, took := (guesser{g.h, "198.51.100.7", "eve"}).guess("right"); status != 200 || took != 0 {
			t.Errorf("somebody else: %d after %v", status, took)
		}
		<-done
	})
}

func TestStreamsAreNotDelayed(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler func(w http.ResponseWriter)
		flushed bool
	}{
		{"one that flushes its header", func(w http.ResponseWriter) {
			w.WriteHeader(401)
			_ = http.NewResponseController(w).Flush()
		}, true},
		{"one that flushes what it has written", func(w http.ResponseWriter) {
			w.WriteHeader(401)
			_, _ = w.Write([]byte("wro"))
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte("ng"))
		}, true},
		{"one that is too long to be kept", func(w http.ResponseWriter) {
			w.WriteHeader(401)
			for range 2 {
				_, _ = w.Write(make([]byte, maxKept*2/3))
			}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 }))
				failures(t, l, addr1, "bob", 20)
				g := guesser{l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tt.handler(w) })), addr1, "bob"}
				began := time.Now()
				w := httptest.NewRecorder()
				g.h.ServeHTTP(w, g.request(t.Context(), "wrong"))
				if took := time.Since(began); took != 0 || w.Code != 401 || w.Flushed != tt.flushed {
					t.Errorf("%d after %v, flushed %v", w.Code, took, w.Flushed)
				}
				if got := l.Snapshot().Auth.Failures["address"]; got != 21 {
					t.Errorf("%d failures, want 21", got)
				}
			})
		})
	}
}
