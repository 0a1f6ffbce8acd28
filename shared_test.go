package weir

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/store"
)

// awayStore is a store that can go away, as its Ping says.
type awayStore struct{ *brokenStore }

func (s awayStore) Ping(ctx context.Context) error { return s.broken(ctx) }

func fromAddr1() *http.Request { return from(addr1) }

// backends counts the names that tests have registered: they stay so.
var backends int

// backendOfTest registers a backend of a name of its own.
func backendOfTest(open store.OpenFunc) (name string) {
	backends++
	name = fmt.Sprint("backend", backends)
	store.Register(name, open)
	return name
}

// sharedBy keeps the counts in that backend. The one tier holds 3 requests.
func sharedBy(name string) Config {
	cfg := noTiersBut(TierPerIP)
	cfg.Tiers.PerIP = perHour(3)
	cfg.Store.Backend, cfg.Store.KeySecret, cfg.Store.Redis.DSN = name, secret, dsn
	return cfg
}

func TestSharedStoreThatFailsIsNotAskedUntilItIsBack(t *testing.T) {
	for onError, want := range map[string]int{"local": 0, "allow": 100} {
		t.Run(onError, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, reg := awayStore{newBrokenStore(nil)}, prometheus.NewRegistry()
				var calls atomic.Int32
				logged, log := withLog()
				cfg := sharedBy("memory")
				cfg.Store.Redis.DSN, cfg.Store.OnError = "", onError
				l := newLimiter(t, cfg, WithStore(s), WithRegisterer(reg), log)
				defer func() { _ = l.Close() }()
				h := l.Handler(served)
				degraded := func() bool { return metric(t, reg, "weir_store_degraded") == 1 }
				admits(h, 5, fromAddr1)
				if degraded() {
					t.Fatal("degraded before anything has failed")
				}
				s.breakAs(func(context.Context) error { calls.Add(1); return errStoreDown })
				for range 100 { // of one address that has used up what it had
					send(h, from("192.0.2.77"))
				}
				if !degraded() || calls.Load() > 5 {
					t.Errorf("degraded: %v; %d of 100 requests asked the store, want 5 at most", degraded(), calls.Load())
				}
				if got := admits(h, 100, fromAddr1); got != want {
					t.Errorf("%d of 100 were admitted, want %d", got, want)
				}
				time.Sleep(10*time.Minute + time.Second)
				if n := len(logged.with("ERROR")); n < 9 || n > 11 {
					t.Errorf("%d lines in ten minutes, want one a minute:\n%s", n, strings.Join(logged.with("ERROR"), "\n"))
				}
				s.repair()
				time.Sleep(time.Second)
				synctest.Wait()
				if degraded() || len(logged.with("WARN", "the store is back")) != 1 {
					t.Errorf("it is not back: %q", logged.with("WARN"))
				}
				if got := admits(h, 100, fromAddr1); got != 0 { // the hour is not over
					t.Errorf("%d of 100 were admitted after its return, want none", got)
				}
			})
		})
	}
}

// When a store is taken to hang follows from how long a command may take. Of a store of
// the program's own nobody has said that.
func TestAHungStoreIsNoticedAfterAQuarterOfTheCommandTimeout(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout time.Duration // 0: the store comes by WithStore
		want    time.Duration
	}{
		"the default":                  {100 * time.Millisecond, 25 * time.Millisecond},
		"a server that is far away":    {2 * time.Second, 500 * time.Millisecond},
		"a server that is close by":    {8 * time.Millisecond, 2 * time.Millisecond},
		"a store of the program's own": {0, 25 * time.Millisecond},
		"a server with much patience":  {20 * time.Second, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := awayStore{newBrokenStore(nil)}
				cfg, opts := sharedBy("memory"), []Option{WithStore(s)}
				cfg.Store.Redis.DSN = ""
				if tt.timeout > 0 {
					cfg, opts = sharedBy(backendOfTest(func(context.Context, store.OpenConfig) (store.Store, error) { return s, nil })), nil
					cfg.Store.Redis.CommandTimeout = Duration(tt.timeout)
				}
				l := newLimiter(t, cfg, opts...)
				defer func() { _ = l.Close() }()
				h := l.Handler(served)
				s.breakAs(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
				begun := time.Now()
				for !l.shared.Degraded() && time.Since(begun) < time.Minute {
					go send(h, from(addr1))
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				// It is noticed by the request that comes then, a millisecond before we look.
				if got := time.Since(begun) - time.Millisecond; got != tt.want {
					t.Errorf("noticed after %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestReloadSaysWhatAFailureOfTheSharedStoreMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := awayStore{newBrokenStore(failAtOnce)}
		cfg := sharedBy("memory")
		cfg.Store.Redis.DSN = ""
		l := newLimiter(t, cfg, WithStore(s))
		defer func() { _ = l.Close() }()
		h := l.Handler(served)
		for _, want := range []struct {
			onError string
			passed  int
		}{{"local", 3}, {"allow", 10}, {"local", 0}} {
			cfg.Store.OnError = want.onError
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
			if got := admits(h, 10, fromAddr1); got != want.passed {
				t.Errorf("%s: %d of 10 passed, want %d", want.onError, got, want.passed)
			}
		}
	})
}

func TestLatencyOfTheSharedStoreIsAHistogram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := awayStore{newBrokenStore(func(context.Context) error { time.Sleep(2 * time.Millisecond); return nil })}, prometheus.NewRegistry()
		cfg := sharedBy("memory")
		cfg.Store.Redis.DSN = ""
		l := newLimiter(t, cfg, WithStore(s), WithRegisterer(reg))
		admits(l.Handler(served), 3, fromAddr1)
		seen := func() string {
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "weir_store_seconds" {
					h := f.GetMetric()[0].GetHistogram()
					return fmt.Sprintf("%d answers, %d within 1 ms, %d within 2.5 ms", h.GetSampleCount(), h.GetBucket()[2].GetCumulativeCount(), h.GetBucket()[3].GetCumulativeCount())
				}
			}
			return "none"
		}
		if got, want := seen(), "3 answers, 0 within 1 ms, 3 within 2.5 ms"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		other := newLimiter(t, cfg, WithRegisterer(reg), WithStore(store.NewMemory()))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got, want := seen(), "3 answers, 0 within 1 ms, 3 within 2.5 ms"; got != want {
			t.Errorf("after Close: %s, want %s", got, want)
		}
		_ = other.Close()
	})
}

func TestBackendIsOpenedWithWhatTheConfigSays(t *testing.T) {
	t.Setenv("WEIR_TEST_DSN", dsn)
	var got []store.OpenConfig
	s := &closable{Memory: store.NewMemory()}
	name := backendOfTest(func(_ context.Context, c store.OpenConfig) (store.Store, error) {
		got = append(got, c)
		return s, nil
	})
	cfg := sharedBy(name)
	cfg.Namespace, cfg.Store.Redis.DSN = "ca", "${WEIR_TEST_DSN}"
	l := newLimiter(t, cfg)
	want := store.OpenConfig{Namespace: "ca", DSN: dsn, KeyPrefix: "weir:", Fingerprint: l.keyer.fingerprint(), ConnectTimeout: 5 * time.Second, CommandTimeout: 100 * time.Millisecond}
	if err := l.Reload(l.Config()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0] != want {
		t.Fatalf("opened with %v, want once, with %v", got, want)
	}
	left(t, l.Handler(served), 3, fromAddr1)
	if n := s.Size("ca/" + TierPerIP).Keys; n != 1 {
		t.Errorf("%d keys in the store, want 1", n)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.closed != 1 {
		t.Errorf("it was closed %d times, want once", s.closed)
	}
	refused(t, l.Handler(served), from(addr1)) // by what this process knows
}

// closable counts how often it is closed.
type closable struct {
	*store.Memory
	closed int
}

func (s *closable) Close() error { s.closed++; return s.Memory.Close() }

func TestBackendThatIsNotThereIsNoStart(t *testing.T) {
	gone := errors.New("gave up after 5s")
	opened := 0
	name := backendOfTest(func(context.Context, store.OpenConfig) (store.Store, error) {
		if opened++; opened > 1 {
			return store.NewMemory(), nil
		}
		return nil, gone
	})
	cfg := sharedBy(name)
	cfg.Enabled = false
	l := newLimiter(t, cfg)
	if opened != 0 {
		t.Error("it was dialled for a Config that is disabled")
	}
	cfg.Enabled = true
	if err := l.Reload(cfg); !errors.Is(err, gone) || !strings.HasPrefix(err.Error(), "weir: store.backend "+name+": ") {
		t.Errorf("error %v", err)
	}
	if l.Config().Enabled {
		t.Error("the Config is in force all the same")
	}
	if err := l.Reload(cfg); err != nil {
		t.Errorf("when it is there: %v", err)
	}
	_ = l.Close()
}

func TestBackendIsLetGoWhereTheMetricsFindNoPlace(t *testing.T) {
	s := &closable{Memory: store.NewMemory()}
	name := backendOfTest(func(context.Context, store.OpenConfig) (store.Store, error) { return s, nil })
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ratelimit_holding", Help: "Mine."}))
	if _, err := New(sharedBy(name), WithRegisterer(reg)); err == nil {
		t.Fatal("it started")
	}
	if s.closed != 1 {
		t.Errorf("it was closed %d times, want once", s.closed)
	}
}
