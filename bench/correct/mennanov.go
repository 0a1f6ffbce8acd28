package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mennanov/limiters"
)

// mennanov is mennanov/limiters: several algorithms, a Registry for keys, and no
// middleware.
func mennanov() *column {
	return &column{
		name:  "mennanov",
		hot:   quota{n: 100_000, per: time.Second, burst: 1000},
		costs: true,
		keyed: []kind{
			{as: "token bucket", open: func(_ *testing.T, q quota, _ int) take {
				reg, clock := limiters.NewRegistry(), limiters.NewSystemClock()
				return func(key string, cost int) answer {
					b := reg.GetOrCreate(key, func() any { return mennanovBucket(q, limiters.NewTokenBucketInMemory(), clock) }, 24*time.Hour, clock.Now())
					wait, err := b.(*limiters.TokenBucket).Take(context.Background(), int64(cost))
					return mennanovAnswer(wait, err)
				}
			}},
			{as: "fixed window", open: func(_ *testing.T, q quota, _ int) take {
				w := limiters.NewFixedWindow(int64(q.n), q.per, limiters.NewFixedWindowInMemory(), limiters.NewSystemClock())
				return func(string, int) answer { return mennanovAnswer(w.Limit(context.Background())) }
			}},
			{as: "sliding window", open: func(_ *testing.T, q quota, _ int) take {
				w := limiters.NewSlidingWindow(int64(q.n), q.per, limiters.NewSlidingWindowInMemory(), limiters.NewSystemClock(), 1e-9)
				return func(string, int) answer { return mennanovAnswer(w.Limit(context.Background())) }
			}},
		},
		refund: func(_ *testing.T, q quota) refunding {
			b := mennanovBucket(q, limiters.NewTokenBucketInMemory(), limiters.NewSystemClock())
			pass := func() bool { _, err := b.Take(context.Background(), 1); return err == nil }
			return refunding{
				take: func() func() {
					if !pass() {
						return nil
					}
					return func() { _, _ = b.Take(context.Background(), -1) }
				},
				left: func() int { return taken(3*q.size(), pass) },
			}
		},
		zeros: []zero{
			{"capacity 0", func(*testing.T) (take, error) {
				b := mennanovBucket(quota{n: 0, per: time.Hour, burst: 0}, limiters.NewTokenBucketInMemory(), limiters.NewSystemClock())
				return func(string, int) answer { return mennanovAnswer(b.Limit(context.Background())) }, nil
			}},
			{"refill interval 0", func(*testing.T) (take, error) {
				b := limiters.NewTokenBucket(5, 0, limiters.NewLockNoop(), limiters.NewTokenBucketInMemory(), limiters.NewSystemClock(), limiters.NewStdLogger())
				return func(string, int) answer { return mennanovAnswer(b.Limit(context.Background())) }, nil
			}},
		},
		reload: func(_ *testing.T, from, to quota) changing {
			state := limiters.NewTokenBucketInMemory()
			b := mennanovBucket(from, state, limiters.NewSystemClock())
			return changing{"new limiter, same backend", func() bool { _, err := b.Limit(context.Background()); return err == nil }, func() {
				b = mennanovBucket(to, state, limiters.NewSystemClock())
			}}
		},
		clock: func(_ *testing.T, q quota) func(time.Time) bool {
			clock := new(told)
			b := mennanovBucket(q, limiters.NewTokenBucketInMemory(), clock)
			return func(at time.Time) bool {
				clock.now = at
				_, err := b.Limit(context.Background())
				return err == nil
			}
		},
	}
}

// told is a clock that says what it was told.
type told struct{ now time.Time }

func (t *told) Now() time.Time { return t.now }

func mennanovBucket(q quota, state limiters.TokenBucketStateBackend, clock limiters.Clock) *limiters.TokenBucket {
	refill := time.Hour
	if q.n > 0 {
		refill = q.per / time.Duration(q.n)
	}
	return limiters.NewTokenBucket(int64(q.size()), refill, limiters.NewLockNoop(), state, clock, limiters.NewStdLogger())
}

func mennanovAnswer(wait time.Duration, err error) answer {
	if errors.Is(err, limiters.ErrLimitExhausted) {
		return answer{wait: wait}
	}
	return answer{ok: err == nil, err: err}
}
