package main

import (
	"context"
	"testing"
	"time"

	golimit "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
)

// golimiter is sethvargo/go-limiter: tokens for each interval. It reads the clock
// past package time, so its seconds are real ones.
func golimiter() *column {
	keyedBy := func(headers ...string) func(*testing.T, quota) mounted {
		return func(t *testing.T, q quota) mounted {
			m, err := httplimit.NewMiddleware(goStore(t, q), httplimit.IPKeyFunc(headers...))
			if err != nil {
				t.Fatal(err)
			}
			return m.Handle
		}
	}
	direct := keyedBy()
	return &column{
		name:    "go-limiter",
		wall:    true,
		hot:     quota{n: 200, per: 20 * time.Millisecond},
		windows: true,
		keyed: []kind{{open: func(t *testing.T, q quota, _ int) take {
			return goTake(goStore(t, q))
		}}},
		direct: []mount{{"", direct}},
		proxied: []mount{
			{"IPKeyFunc(X-Forwarded-For)", keyedBy("X-Forwarded-For")},
			{"IPKeyFunc(X-Real-IP)", keyedBy("X-Real-IP")},
		},
		refund: func(t *testing.T, q quota) refunding {
			s := goStore(t, q)
			return refunding{
				take: func() func() {
					if !goTake(s)(client, 1).ok {
						return nil
					}
					return func() { _ = s.Burst(context.Background(), client, 1) }
				},
				left: func() int { return taken(3*q.size(), func() bool { return goTake(s)(client, 1).ok }) },
			}
		},
		zeros: []zero{{"Tokens 0 (documented: 1)", func(t *testing.T) (take, error) {
			return goTake(goStore(t, quota{n: 0, per: time.Hour})), nil
		}}},
		chain: func(t *testing.T, wide, narrow quota) pair {
			return pair{"", nested(direct(t, wide), direct(t, narrow))}
		},
		reload: func(t *testing.T, from, to quota) changing {
			s := goStore(t, from)
			return changing{"Set on each", func() bool { return goTake(s)(client, 1).ok }, func() {
				_ = s.Set(context.Background(), client, uint64(to.n), to.per)
			}}
		},
	}
}

func goStore(t *testing.T, q quota) golimit.Store {
	t.Helper()
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.n), Interval: q.per})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func goTake(s golimit.Store) take {
	return func(key string, _ int) answer {
		_, _, reset, ok, err := s.Take(context.Background(), key)
		return answer{ok, time.Until(time.Unix(0, int64(reset))), err}
	}
}
