package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redis"
)

// weirs is this library: buckets (the tiers), and fixed windows.
func weirs() *column {
	return &column{
		name:    "weir",
		hot:     quota{n: 100_000, per: time.Second, burst: 1000},
		costs:   true,
		bounded: true,
		keyed: []kind{
			{as: "tier", open: weirStore(false)},
			{as: "window", open: weirStore(true)},
			{as: "both", open: weirBoth},
			{as: "tier, Redis", open: weirRedisStore, wall: true},
		},
		direct: []mount{{"", func(t *testing.T, q quota) mounted {
			cfg := weirPerIP(q)
			cfg.Headers.RateLimit = "always" // as those of the peers that have them
			return weirHandler(t, cfg)
		}}},
		proxied: []mount{{"", func(t *testing.T, q quota) mounted {
			cfg := weirPerIP(q)
			cfg.ClientIP.TrustedProxies = []string{proxy}
			return weirHandler(t, cfg)
		}}},
		refund: weirRefund,
		zeros: []zero{
			{"rate 0, burst 5", weirZero(weir.TierConfig{Rate: 0, Burst: 5})},
			{"rate 5, burst 0", weirZero(weir.TierConfig{Rate: 5, Burst: 0})},
			{"both 0 (documented: no limit)", weirZero(weir.TierConfig{})},
		},
		dear: func() error {
			cfg := weirPerIP(quota{n: 10, per: time.Second})
			cfg.Endpoints = []weir.Endpoint{{Pattern: "/dear", Class: "dear", Cost: 11}}
			_, err := weir.New(cfg, weir.WithLogger(slog.New(slog.DiscardHandler)))
			return err
		},
		chain:  weirChain,
		reload: weirReload,
		shared: []sharing{
			{open: weirShared("weir", "weir")},
			{as: "a Namespace each", open: weirShared("a", "b")},
		},
		redis: weirRedis,
		guards: []guard{{"", func(t *testing.T, slots int) mounted {
			cfg := weirBare()
			cfg.Guards = map[string]weir.GuardConfig{"g": {MaxInFlight: slots, AcquireTimeout: weir.Duration(time.Second)}}
			return weirNew(t, cfg).Guard("g").Handler
		}}},
	}
}

// weirBare limits nothing yet, and gives every request a class.
func weirBare() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.DefaultClass = "all"
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = weir.TierConfig{}, weir.TierConfig{}, weir.TierConfig{}
	return cfg
}

func weirPerIP(q quota) weir.Config {
	cfg := weirBare()
	cfg.Tiers.PerIP = weirTier(q)
	return cfg
}

func weirTier(q quota) weir.TierConfig {
	return weir.TierConfig{Rate: q.rate(), Burst: float64(q.size())}
}

func weirNew(t *testing.T, cfg weir.Config, opts ...weir.Option) *weir.Limiter {
	t.Helper()
	l, err := weir.New(cfg, append([]weir.Option{weir.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func weirHandler(t *testing.T, cfg weir.Config, opts ...weir.Option) mounted {
	return weirNew(t, cfg, opts...).Handler
}

// weirStore is the decision alone, over the memory store.
func weirStore(window bool) func(*testing.T, quota, int) take {
	return func(t *testing.T, q quota, bound int) take {
		m := store.NewMemory()
		t.Cleanup(func() { _ = m.Close() })
		check := store.Check{Scope: "s", Limit: store.Limit{Rate: q.rate(), Burst: float64(q.size())}}
		if window {
			check.Window = q.per
		}
		m.Configure(store.Scope{Name: check.Scope, MaxKeys: bound, Limit: check.Limit, Window: check.Window})
		return weirTake(m, check)
	}
}

// weirRedisStore is the decision alone, on a Redis server.
func weirRedisStore(t *testing.T, q quota, _ int) take {
	s, err := redis.Open(t.Context(), redis.Options{
		DSN: "redis://" + redistest.Start(t).Addr + "/0", ConnectTimeout: 20 * time.Second, CommandTimeout: 20 * time.Second, // a busy machine is not the question
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return weirTake(s, store.Check{Scope: "s", Limit: store.Limit{Rate: q.rate(), Burst: float64(q.size())}})
}

func weirTake(s store.Store, check store.Check) take {
	return func(key string, cost int) answer {
		checks := [1]store.Check{check}
		checks[0].Key, checks[0].Cost = netip.MustParseAddr(key).As16(), float64(cost)
		var states [1]store.State
		v, _, err := s.Admit(context.Background(), checks[:], states[:0])
		return answer{err == nil && v.Admitted(), v.RetryAfter, err}
	}
}

// weirBoth is a window with a tier beside it, which the documentation advises
// against what happens at a boundary: the tier lets a third pass at once.
func weirBoth(t *testing.T, q quota, bound int) take {
	cfg := weirPerIP(quota{n: q.n, per: q.per, burst: max(1, q.size()/3)})
	cfg.Windows.Enabled, cfg.Windows.Window, cfg.Windows.PerAddress = true, weir.Duration(q.per), q.n
	h := weirHandler(t, cfg)(served)
	return func(key string, _ int) answer {
		return answer{ok: send(h, request(key, "/")).Code == http.StatusOK, wait: untold}
	}
}

// weirRefund gives account tokens back from the handler, as for a caller that
// was not who it claimed to be.
func weirRefund(t *testing.T, q quota) refunding {
	cfg := weirBare()
	cfg.Tiers.PerAccount = weirTier(q)
	l := weirNew(t, cfg, weir.WithAccount(func(*http.Request) (string, bool) { return "a", true }))
	type ctxKey struct{}
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if grant, ok := r.Context().Value(ctxKey{}).(*context.Context); ok {
			*grant = r.Context()
		}
	}))
	return refunding{
		take: func() func() {
			var granted context.Context
			r := request(client, "/")
			if send(h, r.WithContext(context.WithValue(r.Context(), ctxKey{}, &granted))).Code != http.StatusOK {
				return nil
			}
			return func() { weir.Disown(granted) }
		},
		left: func() int {
			return admitted(h, 3*q.size(), func(int) *http.Request { return request(client, "/") })
		},
	}
}

func weirZero(tier weir.TierConfig) func(t *testing.T) (take, error) {
	return func(t *testing.T) (take, error) {
		cfg := weirBare()
		cfg.Tiers.Global = weir.TierConfig{Rate: 100, Burst: 100} // or nothing would be limited, which New refuses
		cfg.Tiers.PerIP = tier
		l, err := weir.New(cfg, weir.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = l.Close() })
		h := l.Handler(served)
		return func(key string, _ int) answer {
			return answer{ok: send(h, request(key, "/")).Code == http.StatusOK, wait: untold}
		}, nil
	}
}

// weirChain is a custom tier for /narrow within the tier of the address.
func weirChain(t *testing.T, wide, narrow quota) pair {
	cfg := weirPerIP(wide)
	cfg.Tiers.Custom = []weir.CustomTierConfig{{Name: "narrow", Rate: narrow.rate(), Burst: float64(narrow.size())}}
	return pair{"", weirHandler(t, cfg, weir.WithKey("narrow", func(r *http.Request) (string, bool) {
		return client, r.URL.Path == "/narrow"
	}))(served)}
}

func weirReload(t *testing.T, from, to quota) changing {
	l := weirNew(t, weirPerIP(from))
	h := l.Handler(served)
	return changing{
		take: func() bool { return send(h, request(client, "/")).Code == http.StatusOK },
		change: func() {
			if err := l.Reload(weirPerIP(to)); err != nil {
				t.Fatal(err)
			}
		},
	}
}

func weirShared(a, b string) func(t *testing.T, qa, qb quota) (takeA, takeB func() bool) {
	return func(t *testing.T, qa, qb quota) (takeA, takeB func() bool) {
		m := store.NewMemory()
		t.Cleanup(func() { _ = m.Close() })
		open := func(namespace string, q quota) func() bool {
			cfg := weirPerIP(q)
			cfg.Namespace = namespace
			h := weirHandler(t, cfg, weir.WithStore(m))(served)
			return func() bool { return send(h, request(client, "/")).Code == http.StatusOK }
		}
		return open(a, qa), open(b, qb)
	}
}

func weirRedis(t *testing.T, q quota, addr string) mounted {
	cfg := weirPerIP(q)
	cfg.Store.Backend = "redis"
	cfg.Store.KeySecret = "correct, for this run alone"
	cfg.Store.Redis.DSN = fmt.Sprintf("redis://%s/0", addr)
	return weirHandler(t, cfg)
}
