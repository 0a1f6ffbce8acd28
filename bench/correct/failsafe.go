package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

// failsafes is failsafe-go: one limiter for all, without keys, and a bulkhead.
func failsafes() *column {
	bursty := func(q quota) ratelimiter.RateLimiter[*http.Response] {
		return ratelimiter.NewBursty[*http.Response](uint(q.n), q.per)
	}
	return &column{
		name:    "failsafe-go",
		hot:     quota{n: 200, per: 20 * time.Millisecond},
		windows: true,
		costs:   true,
		keyed: []kind{
			{as: "bursty", open: func(_ *testing.T, q quota, _ int) take { return failsafeTake(bursty(q)) }},
			{as: "smooth", open: func(_ *testing.T, q quota, _ int) take {
				return failsafeTake(ratelimiter.NewSmooth[*http.Response](uint(q.n), q.per))
			}},
		},
		direct: []mount{{"no key", func(_ *testing.T, q quota) mounted {
			l := bursty(q)
			return func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, l) }
		}}},
		zeros: []zero{
			{"NewBursty(0)", func(*testing.T) (take, error) {
				return failsafeTake(ratelimiter.NewBursty[*http.Response](0, time.Hour)), nil
			}},
			{"NewSmooth(0)", func(*testing.T) (take, error) {
				return failsafeTake(ratelimiter.NewSmooth[*http.Response](0, time.Hour)), nil
			}},
		},
		chain: func(t *testing.T, wide, narrow quota) pair {
			lw, ln := bursty(wide), bursty(narrow)
			return pair{"", nested(
				func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, lw) },
				func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, ln) },
			)}
		},
		guards: []guard{{"bulkhead", func(_ *testing.T, slots int) mounted {
			b := bulkhead.New[*http.Response](uint(slots))
			return func(next http.Handler) http.Handler { return failsafehttp.NewHandler(next, b) }
		}}},
	}
}

func failsafeTake(l ratelimiter.RateLimiter[*http.Response]) take {
	return func(_ string, cost int) answer {
		if l.TryAcquirePermits(uint(cost)) {
			return answer{ok: true}
		}
		return answer{wait: untold}
	}
}
