package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/weir-go/weir/internal/redistest"
)

// throttleds is throttled/throttled, GCRA by compare-and-swap.
func throttleds() *column {
	vary := func(by *throttled.VaryBy) func(*testing.T, quota) mounted {
		return func(t *testing.T, q quota) mounted {
			return throttledHandler(t, throttledStore(t, 65536), q, by)
		}
	}
	direct := vary(&throttled.VaryBy{RemoteAddr: true})
	return &column{
		name:    "throttled",
		hot:     quota{n: 100_000, per: time.Second, burst: 1000},
		costs:   true,
		bounded: true,
		keyed: []kind{{open: func(t *testing.T, q quota, bound int) take {
			if bound == 0 {
				bound = 65536 // as in its documentation's example
			}
			return throttledTake(throttledLimiter(t, throttledStore(t, bound), q))
		}}},
		direct: []mount{{"", direct}},
		proxied: []mount{
			{"VaryBy X-Forwarded-For", vary(&throttled.VaryBy{Headers: []string{"X-Forwarded-For"}})},
			{"VaryBy X-Real-IP", vary(&throttled.VaryBy{Headers: []string{"X-Real-IP"}})},
		},
		refund: func(t *testing.T, q quota) refunding {
			l := throttledLimiter(t, throttledStore(t, 65536), q)
			return refunding{
				take: func() func() {
					if !throttledTake(l)(client, 1).ok {
						return nil
					}
					return func() { _, _, _ = l.RateLimitCtx(context.Background(), client, -1) }
				},
				left: func() int { return taken(3*q.size(), func() bool { return throttledTake(l)(client, 1).ok }) },
			}
		},
		zeros: []zero{
			{"PerSec(0)", func(t *testing.T) (take, error) {
				return throttledQuota(t, throttled.RateQuota{MaxRate: throttled.PerSec(0)})
			}},
			{"MaxBurst 0", func(t *testing.T) (take, error) {
				return throttledQuota(t, throttled.RateQuota{MaxRate: throttled.PerHour(1)})
			}},
		},
		chain: func(t *testing.T, wide, narrow quota) pair {
			return pair{"", nested(direct(t, wide), direct(t, narrow))}
		},
		reload: func(t *testing.T, from, to quota) changing {
			s := throttledStore(t, 65536)
			l := throttledLimiter(t, s, from)
			return changing{"new limiter, same store", func() bool { return throttledTake(l)(client, 1).ok }, func() {
				l = throttledLimiter(t, s, to)
			}}
		},
		shared: []sharing{{open: func(t *testing.T, a, b quota) (takeA, takeB func() bool) {
			s := throttledStore(t, 65536)
			return throttledShared(t, s, s, a, b)
		}}, {as: "Redis, a prefix each", wall: true, open: func(t *testing.T, a, b quota) (takeA, takeB func() bool) {
			c := redisClient(t, redistest.Start(t).Addr)
			sa, errA := goredisstore.NewCtx(c, "a:")
			sb, errB := goredisstore.NewCtx(c, "b:")
			if err := errors.Join(errA, errB); err != nil {
				t.Fatal(err)
			}
			return throttledShared(t, sa, sb, a, b)
		}}},
		redis: func(t *testing.T, q quota, addr string) mounted {
			s, err := goredisstore.NewCtx(redisClient(t, addr), "throttled:")
			if err != nil {
				t.Fatal(err)
			}
			return throttledHandler(t, s, q, &throttled.VaryBy{RemoteAddr: true})
		},
		clock: func(t *testing.T, q quota) func(time.Time) bool {
			s, err := memstore.New(65536)
			if err != nil {
				t.Fatal(err)
			}
			var now time.Time
			s.SetTimeNow(func() time.Time { return now })
			l := throttledTake(throttledLimiter(t, throttled.WrapStoreWithContext(s), q))
			return func(at time.Time) bool {
				now = at
				return l(client, 1).ok
			}
		},
	}
}

func throttledStore(t *testing.T, bound int) throttled.GCRAStoreCtx {
	t.Helper()
	s, err := memstore.NewCtx(bound)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func throttledLimiter(t *testing.T, s throttled.GCRAStoreCtx, q quota) *throttled.GCRARateLimiterCtx {
	t.Helper()
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(q.n, q.per), MaxBurst: q.size() - 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func throttledHandler(t *testing.T, s throttled.GCRAStoreCtx, q quota, by *throttled.VaryBy) mounted {
	t.Helper()
	l := throttled.HTTPRateLimiterCtx{RateLimiter: throttledLimiter(t, s, q), VaryBy: by}
	return l.RateLimit
}

func throttledTake(l *throttled.GCRARateLimiterCtx) take {
	return func(key string, cost int) answer {
		limited, r, err := l.RateLimitCtx(context.Background(), key, cost)
		wait := r.RetryAfter
		if limited && wait < 0 {
			wait = never // as documented: no time at which it would be permitted
		}
		return answer{!limited && err == nil, wait, err}
	}
}

func throttledShared(t *testing.T, sa, sb throttled.GCRAStoreCtx, a, b quota) (takeA, takeB func() bool) {
	ta, tb := throttledTake(throttledLimiter(t, sa, a)), throttledTake(throttledLimiter(t, sb, b))
	return func() bool { return ta(client, 1).ok }, func() bool { return tb(client, 1).ok }
}

func throttledQuota(t *testing.T, q throttled.RateQuota) (take, error) {
	l, err := throttled.NewGCRARateLimiterCtx(throttledStore(t, 100), q)
	if err != nil {
		return nil, fmt.Errorf("refused: %w", err)
	}
	return throttledTake(l), nil
}
