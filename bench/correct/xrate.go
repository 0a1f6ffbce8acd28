package main

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// xrate is golang.org/x/time/rate. What it has not, its users write by hand: a
// Limiter for each peer address, in an LRU so that memory has a bound.
func xrate() *column {
	return &column{
		name:    "x/time/rate",
		hot:     quota{n: 100_000, per: time.Second, burst: 1000},
		costs:   true,
		bounded: true,
		keyed: []kind{{open: func(_ *testing.T, q quota, bound int) take {
			l := newByAddress(q, bound)
			return func(key string, cost int) answer {
				return answer{ok: l.get(key).AllowN(time.Now(), cost), wait: untold}
			}
		}}, {as: "Reserve, Cancel", open: func(_ *testing.T, q quota, bound int) take {
			l := newByAddress(q, bound)
			return func(key string, cost int) answer {
				// For callers who need the wait: reserve, and cancel what is not wanted.
				r := l.get(key).ReserveN(time.Now(), cost)
				if !r.OK() {
					return answer{wait: never}
				}
				if d := r.Delay(); d > 0 {
					r.Cancel()
					return answer{wait: d}
				}
				return answer{ok: true}
			}
		}}},
		direct: []mount{{"by hand", func(_ *testing.T, q quota) mounted {
			l := newByAddress(q, 0)
			return l.handler(peerOf)
		}}},
		refund: func(_ *testing.T, q quota) refunding {
			l := rate.NewLimiter(rate.Limit(q.rate()), q.size())
			return refunding{
				take: func() func() {
					r := l.Reserve()
					if !r.OK() || r.Delay() > 0 {
						return nil
					}
					return r.Cancel
				},
				left: func() int { return taken(3*q.size(), l.Allow) },
			}
		},
		zeros: []zero{
			{"rate 0, burst 5", func(*testing.T) (take, error) { return oneLimiter(rate.NewLimiter(0, 5)), nil }},
			{"rate 5, burst 0", func(*testing.T) (take, error) { return oneLimiter(rate.NewLimiter(5, 0)), nil }},
		},
		chain: func(_ *testing.T, wide, narrow quota) pair {
			return pair{"by hand", nested(newByAddress(wide, 0).handler(peerOf), newByAddress(narrow, 0).handler(peerOf))}
		},
		reload: func(_ *testing.T, from, to quota) changing {
			l := rate.NewLimiter(rate.Limit(from.rate()), from.size())
			return changing{"set on each", l.Allow, func() {
				l.SetLimit(rate.Limit(to.rate()))
				l.SetBurst(to.size())
			}}
		},
		clock: func(_ *testing.T, q quota) func(time.Time) bool {
			l := rate.NewLimiter(rate.Limit(q.rate()), q.size())
			return func(at time.Time) bool { return l.AllowN(at, 1) }
		},
	}
}

func oneLimiter(l *rate.Limiter) take {
	return func(string, int) answer { return answer{ok: l.Allow(), wait: untold} }
}

// byAddress keeps a rate.Limiter for each address.
type byAddress struct {
	q    quota
	mu   sync.Mutex
	keys *lru.Cache[string, *rate.Limiter]
}

func newByAddress(q quota, bound int) *byAddress {
	if bound == 0 {
		bound = 100_000
	}
	keys, err := lru.New[string, *rate.Limiter](bound)
	if err != nil {
		panic(err)
	}
	return &byAddress{q: q, keys: keys}
}

func (b *byAddress) get(key string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.keys.Get(key)
	if !ok {
		l = rate.NewLimiter(rate.Limit(b.q.rate()), b.q.size())
		b.keys.Add(key, l)
	}
	return l
}

func (b *byAddress) handler(key func(*http.Request) string) mounted {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !b.get(key(r)).Allow() {
				http.Error(w, http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func peerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// nested mounts a narrow limit on the path /narrow, behind a wide one on all.
func nested(wide, narrow mounted) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", served)
	mux.Handle("/narrow", narrow(served))
	return wide(mux)
}
