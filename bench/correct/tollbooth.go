package main

import (
	"testing"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
)

// tollbooths is didip/tollbooth, an embedded x/time/rate for each key. The path
// is part of the key unless SetIgnoreURL says otherwise, which it does here.
func tollbooths() *column {
	lookup := func(name string, index int) func(*testing.T, quota) mounted {
		return func(_ *testing.T, q quota) mounted {
			return tollbooth.HTTPMiddleware(tollboothLimiter(q).SetIPLookup(limiter.IPLookup{Name: name, IndexFromRight: index}))
		}
	}
	direct := lookup("RemoteAddr", 0)
	return &column{
		name: "tollbooth",
		hot:  quota{n: 100_000, per: time.Second, burst: 1000},
		keyed: []kind{{open: func(_ *testing.T, q quota, _ int) take {
			return tollboothTake(tollboothLimiter(q))
		}}},
		direct: []mount{{"", direct}},
		proxied: []mount{
			{"X-Forwarded-For, index 0", lookup("X-Forwarded-For", 0)},
			{"X-Real-IP", lookup("X-Real-IP", 0)},
		},
		zeros: []zero{{"max 0", func(*testing.T) (take, error) { return tollboothTake(tollbooth.NewLimiter(0, nil)), nil }}},
		chain: func(t *testing.T, wide, narrow quota) pair {
			return pair{"", nested(direct(t, wide), direct(t, narrow))}
		},
		reload: func(_ *testing.T, from, to quota) changing {
			l := tollboothLimiter(from)
			return changing{"SetMax, SetBurst", func() bool { return tollboothTake(l)(client, 1).ok }, func() {
				l.SetMax(to.rate()).SetBurst(to.size())
			}}
		},
	}
}

func tollboothLimiter(q quota) *limiter.Limiter {
	return tollbooth.NewLimiter(q.rate(), nil).SetBurst(q.size()).SetIgnoreURL(true)
}

func tollboothTake(l *limiter.Limiter) take {
	return func(key string, _ int) answer {
		return answer{ok: tollbooth.LimitByKeys(l, []string{key}) == nil, wait: untold}
	}
}
