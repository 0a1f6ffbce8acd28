package main

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"
	"github.com/weir-go/weir/internal/redistest"
)

// ulule is ulule/limiter, a counter whose window begins with the first request.
func ulule() *column {
	handler := func(options ...limiter.Option) func(*testing.T, quota) mounted {
		return func(_ *testing.T, q quota) mounted {
			return stdlib.NewMiddleware(limiter.New(ululeStore(), ululeRate(q), options...)).Handler
		}
	}
	direct := handler()
	return &column{
		name:    "ulule",
		hot:     quota{n: 200, per: 20 * time.Millisecond},
		windows: true,
		costs:   true,
		keyed: []kind{{open: func(_ *testing.T, q quota, _ int) take {
			return ululeTake(limiter.New(ululeStore(), ululeRate(q)))
		}}},
		direct: []mount{
			{"", direct},
			{"WithIPv6Mask(64)", handler(limiter.WithIPv6Mask(net.CIDRMask(64, 128)))},
		},
		proxied: []mount{
			{"TrustForwardHeader", handler(limiter.WithTrustForwardHeader(true))},
			{"ClientIPHeader X-Real-IP", handler(limiter.WithClientIPHeader("X-Real-IP"))},
		},
		refund: func(_ *testing.T, q quota) refunding {
			l := limiter.New(ululeStore(), ululeRate(q))
			return refunding{
				take: func() func() {
					if !ululeTake(l)(client, 1).ok {
						return nil
					}
					return func() { _, _ = l.Increment(context.Background(), client, -1) }
				},
				left: func() int { return taken(3*q.size(), func() bool { return ululeTake(l)(client, 1).ok }) },
			}
		},
		zeros: []zero{{"limit 0", func(*testing.T) (take, error) {
			return ululeTake(limiter.New(ululeStore(), limiter.Rate{Limit: 0, Period: time.Second})), nil
		}}},
		chain: func(t *testing.T, wide, narrow quota) pair {
			return pair{"", nested(direct(t, wide), direct(t, narrow))}
		},
		reload: func(_ *testing.T, from, to quota) changing {
			l := limiter.New(ululeStore(), ululeRate(from))
			return changing{"new limiter, same store", func() bool { return ululeTake(l)(client, 1).ok }, func() {
				l = limiter.New(l.Store, ululeRate(to))
			}}
		},
		shared: []sharing{{open: func(_ *testing.T, a, b quota) (takeA, takeB func() bool) {
			s := ululeStore()
			return ululeShared(s, s, a, b)
		}}, {as: "Redis, a Prefix each", wall: true, open: func(t *testing.T, a, b quota) (takeA, takeB func() bool) {
			c := redisClient(t, redistest.Start(t).Addr)
			sa, errA := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "a"})
			sb, errB := ululeredis.NewStoreWithOptions(c, limiter.StoreOptions{Prefix: "b"})
			if err := errors.Join(errA, errB); err != nil {
				t.Fatal(err)
			}
			return ululeShared(sa, sb, a, b)
		}}},
		redis: func(t *testing.T, q quota, addr string) mounted {
			s, err := ululeredis.NewStore(redisClient(t, addr))
			if err != nil {
				t.Fatal(err)
			}
			return stdlib.NewMiddleware(limiter.New(s, ululeRate(q))).Handler
		},
	}
}

// ululeStore is the memory store without its sweeper, whose goroutine ends with a
// finalizer only: a bubble would wait for it for ever.
func ululeStore() limiter.Store {
	return memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: limiter.DefaultPrefix})
}

func ululeRate(q quota) limiter.Rate { return limiter.Rate{Limit: int64(q.n), Period: q.per} }

func ululeShared(sa, sb limiter.Store, a, b quota) (takeA, takeB func() bool) {
	ta, tb := ululeTake(limiter.New(sa, ululeRate(a))), ululeTake(limiter.New(sb, ululeRate(b)))
	return func() bool { return ta(client, 1).ok }, func() bool { return tb(client, 1).ok }
}

func ululeTake(l *limiter.Limiter) take {
	return func(key string, cost int) answer {
		c, err := l.Increment(context.Background(), key, int64(cost))
		return answer{!c.Reached && err == nil, untold, err} // Reset is when the window ends, no promise
	}
}

// redisClient is a client that gives up at once, so that the run does not wait
// for its retries.
func redisClient(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
