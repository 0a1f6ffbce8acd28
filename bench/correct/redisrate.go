package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/weir-go/weir/internal/redistest"
)

// redisrate is go-redis/redis_rate: GCRA in a script, on the server's clock. It
// has no middleware; where one is asked for, an error becomes a 500 by hand.
func redisrate() *column {
	open := func(t *testing.T) *redis_rate.Limiter {
		return redis_rate.NewLimiter(redisClient(t, redistest.Start(t).Addr))
	}
	return &column{
		name:  "redis_rate",
		wall:  true,
		hot:   serverHot,
		costs: true,
		keyed: []kind{{open: func(t *testing.T, q quota, _ int) take { return redisTake(open(t), redisLimit(q)) }}},
		refund: func(t *testing.T, q quota) refunding {
			pass := redisTake(open(t), redisLimit(q))
			return refunding{
				take: func() func() {
					if !pass(client, 1).ok {
						return nil
					}
					return func() { pass(client, -1) }
				},
				left: func() int { return taken(3*q.size(), func() bool { return pass(client, 1).ok }) },
			}
		},
		zeros: []zero{
			{"rate 0, burst 5", func(t *testing.T) (take, error) {
				return redisTake(open(t), redis_rate.Limit{Rate: 0, Burst: 5, Period: time.Second}), nil
			}},
			{"rate 5, burst 0", func(t *testing.T) (take, error) {
				return redisTake(open(t), redis_rate.Limit{Rate: 5, Burst: 0, Period: time.Second}), nil
			}},
		},
		reload: func(t *testing.T, from, to quota) changing {
			l, q := open(t), from
			return changing{"", func() bool { return redisTake(l, redisLimit(q))(client, 1).ok }, func() { q = to }}
		},
		shared: []sharing{{wall: true, open: redisShared("", "")}, {as: "keys apart by hand", wall: true, open: redisShared("a:", "b:")}},
		redis: func(t *testing.T, q quota, addr string) mounted {
			pass := redisTake(redis_rate.NewLimiter(redisClient(t, addr)), redisLimit(q))
			return func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch a := pass(peerOf(r), 1); {
					case a.err != nil:
						w.WriteHeader(http.StatusInternalServerError)
					case !a.ok:
						w.WriteHeader(http.StatusTooManyRequests)
					default:
						next.ServeHTTP(w, r)
					}
				})
			}
		},
	}
}

func redisShared(a, b string) func(t *testing.T, qa, qb quota) (takeA, takeB func() bool) {
	return func(t *testing.T, qa, qb quota) (takeA, takeB func() bool) {
		l := redis_rate.NewLimiter(redisClient(t, redistest.Start(t).Addr))
		ta, tb := redisTake(l, redisLimit(qa)), redisTake(l, redisLimit(qb))
		return func() bool { return ta(a+client, 1).ok }, func() bool { return tb(b+client, 1).ok }
	}
}

func redisLimit(q quota) redis_rate.Limit {
	return redis_rate.Limit{Rate: q.n, Burst: q.size(), Period: q.per}
}

func redisTake(l *redis_rate.Limiter, limit redis_rate.Limit) take {
	return func(key string, cost int) answer {
		r, err := l.AllowN(context.Background(), key, limit, cost)
		if err != nil {
			return answer{wait: untold, err: err}
		}
		return answer{ok: r.Allowed != 0, wait: r.RetryAfter}
	}
}
