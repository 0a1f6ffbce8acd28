package weir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryAfterOfAShedRequestFollowsTheQueueAndTheWork(t *testing.T) {
	for _, tt := range []struct {
		name    string
		work    time.Duration
		timeout time.Duration
		busy    time.Duration // how long the slot is held when the request comes
		want    string
	}{
		{"quick work asks for a second", 10 * time.Millisecond, time.Minute, 0, "1"},
		{"three are before it, of 2 s each", 2 * time.Second, time.Minute, 0, "6"},
		{"rounded up", 1400 * time.Millisecond, time.Minute, 0, "5"},
		{"a backend that hangs for 30 s may do so again", time.Second, time.Hour, 30 * time.Second, "32"},
		{"but nobody stays away for longer than a minute", time.Second, time.Hour, 30 * time.Minute, "60"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, guarded(1, 2, tt.timeout))
				work := tt.work
				b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(work) })
				for range 10 {
					b.arrive("learns", to("sign", alice)).answered(b.now() + tt.work)
				}
				if tt.busy > 0 {
					work = time.Hour
				}
				b.arrive("holds", to("sign", alice))
				for i := range 2 {
					b.arrive("waits", to("sign", fmt.Sprint("192.0.2.", i)))
				}
				b.until(b.now() + tt.busy)
				a := b.arrive("shed", to("sign", carol))
				a.shedAt(b.now(), "queue_full")
				if got := a.rec.Header().Get("Retry-After"); got != tt.want {
					t.Errorf("Retry-After is %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestRetryAfterIsThatOfTheLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := laned(2, LaneConfig{Reserve: 1, MaxShare: 50})
		b := newBank(t, cfg)
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/sign") {
				time.Sleep(10 * time.Second)
			}
			time.Sleep(10 * time.Millisecond)
		})
		for range 10 {
			for _, class := range []string{"sign", "ocsp"} {
				a := b.arrive("learns", to(class, alice))
				<-a.done
			}
		}
		for class, want := range map[string]string{"sign": "51", "ocsp": "1"} {
			for range 5 {
				b.arrive("fills", to(class, alice))
			}
			a := b.arrive("shed", to(class, alice))
			a.shedAt(b.now(), "queue_full")
			if got := a.rec.Header().Get("Retry-After"); got != want {
				t.Errorf("Retry-After of %s is %s, want %s", class, got, want)
			}
		}
	})
}

// taught is a bank whose guard has learned that work takes a second.
func taught(t *testing.T, cfg Config) *bank {
	b := newBank(t, cfg)
	b.work = busyFor(time.Second)
	for range 10 {
		b.arrive("learns", to("sign", alice)).admittedAt(b.now() + time.Second)
	}
	b.start = time.Now()
	return b
}

// before puts something before the chain, for the requests that arrive from now
// on: arrive gives a request a context of its own.
func (b *bank) before(change func(http.ResponseWriter, *http.Request) (http.ResponseWriter, *http.Request)) {
	inside := b.h
	b.h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inside.ServeHTTP(change(w, r)) })
}

// within gives requests a deadline, as http.TimeoutHandler does.
func (b *bank) within(d time.Duration) {
	b.before(func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		b.Cleanup(cancel)
		return w, r.WithContext(ctx)
	})
}

func TestRequestBehindMoreThanTheTimeoutLastsIsShedWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, 5*time.Second/2))
		b.arrive("holds", to("sign", alice))
		first, second := b.arrive("first", to("sign", alice)), b.arrive("second", to("sign", alice))
		b.arrive("third", to("sign", alice)).shedAt(0, "deadline")
		b.arrive("another client is served before", to("sign", bob)).admittedAt(3 * time.Second)
		first.admittedAt(2 * time.Second)
		second.shedAt(5*time.Second/2, "timeout")
		if got := classOf(t, b.l, "sign").Shed["deadline"]; got != 1 {
			t.Errorf("%d are counted, want 1", got)
		}
	})
}

func TestRequestThatWouldBeAnsweredTooLateTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, time.Minute))
		b.arrive("holds", to("sign", alice))
		b.arrive("in time", to("sign", alice)).held()
		chain := b.h
		b.within(5 * time.Second / 2)
		b.arrive("late", to("sign", alice)).shedAt(0, "deadline") // after 2 s it would begin, after 3 s be done
		b.h = chain
		b.within(4 * time.Second)
		b.arrive("in time too", to("sign", alice)).admittedAt(3 * time.Second)
	})
}

// When it came it looked as if there were time enough.
func TestRequestWhoseTurnComesTooLateLetsTheNextHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, time.Minute))
		b.work = busyFor(3 * time.Second) // slower than it was
		b.arrive("holds", to("sign", alice))
		chain := b.h
		b.within(4 * time.Second)
		late := b.arrive("late", to("sign", bob))
		b.h = chain
		next := b.arrive("next", to("sign", carol))
		late.shedAt(3*time.Second, "deadline")
		next.admittedAt(6 * time.Second)
	})
}

func TestEarlyRefusalMatchesTheErrorOfALateOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, time.Minute))
		b.arrive("holds", to("sign", alice))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := b.l.Guard("hsm").Acquire(ctx)
		if !errors.Is(err, ErrTimeout) || errors.Is(err, ErrQueueFull) || err.Error() == ErrTimeout.Error() || time.Since(start) != 0 {
			t.Errorf("after %v: %v; want an ErrTimeout at once that says why", time.Since(start), err)
		}
	})
}

// A free slot is given whatever the estimate says, or a wrong one would last.
func TestFreeSlotIsGivenWhateverTheGuardExpects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, time.Millisecond))
		b.within(time.Millisecond)
		b.work = busyFor(0)
		b.arrive("a", to("sign", alice)).admittedAt(0)
	})
}

// The server's WriteTimeout began when the request was read. What is spent in a
// queue, or held for tokens, must not cost the answer.
func TestWaitingOutlastsTheWriteTimeout(t *testing.T) {
	const timeout, wait = 200 * time.Millisecond, 600 * time.Millisecond
	for _, tt := range []struct {
		name   string
		cfg    func() Config
		status int
	}{
		{"in the queue, and then served", func() Config { return guarded(1, 1, time.Minute) }, http.StatusOK},
		{"in the queue, and then shed", func() Config { return guarded(1, 1, wait/2) }, http.StatusServiceUnavailable},
		{"held for tokens", func() Config {
			cfg := guarded(2, 1, time.Minute)
			cfg.Tiers.Global = TierConfig{Rate: float64(time.Second) / float64(wait), Burst: 1}
			cfg.Tiers.MaxWait = Duration(time.Minute)
			return cfg
		}, http.StatusOK},
	} {
		for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(tt.name+" over "+proto, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLimiter(t, tt.cfg())
					entered := make(chan struct{}, 2)
					client := piped(t, proto == "HTTP/2.0", timeout, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						entered <- struct{}{}
						if r.Header.Get("First") != "" {
							time.Sleep(wait)
						}
						served(w, r)
					})))
					get := func(first string) (*http.Response, error) {
						r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://ca.example/sign", nil)
						r.Header.Set("First", first)
						return client.Do(r)
					}
					done := make(chan struct{})
					go func() {
						defer close(done)
						if resp, err := get("yes"); err == nil { // it outlasts the timeout itself
							_ = resp.Body.Close()
						}
					}()
					<-entered
					resp, err := get("")
					if err != nil {
						t.Fatalf("no answer: %v", err)
					}
					_ = resp.Body.Close()
					if resp.StatusCode != tt.status || resp.Proto != proto {
						t.Errorf("answered %d over %s, want %d over %s", resp.StatusCode, resp.Proto, tt.status, proto)
					}
					<-done
					time.Sleep(time.Minute) // its handler goes on after the stream has ended
				})
			})
		}
	}
}

// piped is a client of a server that it reaches through net.Pipe, which a bubble
// can wait for, deadlines included.
func piped(t *testing.T, http2 bool, writeTimeout time.Duration, h http.Handler) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	conns := newPipes()
	srv := &http.Server{Handler: h, WriteTimeout: writeTimeout, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = srv.Serve(conns) }()
	transport := &http.Transport{Protocols: protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		conns.conns <- there
		return here, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = srv.Close()
	})
	return &http.Client{Transport: transport}
}

// stubborn is a ResponseWriter whose deadline cannot be moved, or who panics
// when it is.
type stubborn struct {
	http.ResponseWriter
	panics bool
	calls  int
}

func (s *stubborn) SetWriteDeadline(time.Time) error {
	if s.calls++; s.panics && s.calls == 2 {
		panic("boom")
	}
	return http.ErrNotSupported
}

// behind puts a stubborn writer and a server with a WriteTimeout before requests.
func (b *bank) behind(writeTimeout time.Duration, panics bool) {
	b.before(func(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
		ctx := context.WithValue(r.Context(), http.ServerContextKey, &http.Server{WriteTimeout: writeTimeout})
		return &stubborn{ResponseWriter: w, panics: panics}, r.WithContext(ctx)
	})
}

func TestWriteTimeoutThatCannotBeMovedIsADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := taught(t, guarded(1, 64, time.Minute))
		b.arrive("holds", to("sign", alice))
		b.arrive("waits", to("sign", alice))
		chain := b.h
		b.behind(5*time.Second/2, false)
		b.arrive("late", to("sign", alice)).shedAt(0, "deadline")
		b.h = chain
		b.behind(4*time.Second, false)
		b.arrive("in time", to("sign", alice)).admittedAt(3 * time.Second)
	})
}

func TestWriterThatPanicsOverItsDeadlineLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 64, time.Minute))
		b.work = busyFor(time.Second)
		b.arrive("holds", to("sign", alice))
		b.behind(time.Minute, true)
		b.arrive("panics", to("sign", alice)).answered(time.Second)
		occupied(t, b.l, 0, 0)
	})
}

func TestTimeoutHandlerRightInsideTheChainIsAdvisedAgainst(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  Config
		wire func(*Limiter)
		want bool
	}{
		{"inside the chain", guarded(1, 1, time.Second), func(l *Limiter) { l.Handler(http.TimeoutHandler(served, time.Second, "")) }, true},
		{"inside Protect", guarded(1, 1, time.Second), func(l *Limiter) { l.Protect("sign", http.TimeoutHandler(served, time.Second, "")) }, true},
		{"outside", guarded(1, 1, time.Second), func(l *Limiter) { http.TimeoutHandler(l.Handler(served), time.Second, "") }, false},
		{"with a guard next to the work", guarded(1, 1, time.Second), func(l *Limiter) {
			l.Handler(http.TimeoutHandler(l.Guard("hsm").Handler(served), time.Second, ""))
		}, false},
		{"without guards", noTiers().with(Endpoint{Class: "a"}).withPerIP(), func(l *Limiter) { l.Handler(http.TimeoutHandler(served, time.Second, "")) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			l := newLimiter(t, tt.cfg, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			tt.wire(l)
			if got := strings.Contains(log.String(), "TimeoutHandler"); got != tt.want {
				t.Errorf("the log says %s, want it to speak of a TimeoutHandler: %v", &log, tt.want)
			}
		})
	}
}

func (c Config) withPerIP() Config {
	c.Tiers.PerIP = perHour(1)
	return c
}
