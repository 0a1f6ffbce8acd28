package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
)

// httprates is go-chi/httprate, a sliding counter. Its documentation has chi
// find the client; the functions that do it alone are deprecated, and in use.
func httprates() *column {
	resolved := func(find mounted) func(*testing.T, quota) mounted {
		return func(_ *testing.T, q quota) mounted {
			limit := httprate.LimitBy(q.n, q.per, func(r *http.Request) (string, error) {
				return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
			})
			return func(next http.Handler) http.Handler { return find(limit(next)) }
		}
	}
	direct := resolved(middleware.ClientIPFromRemoteAddr)
	return &column{
		name:    "httprate",
		hot:     quota{n: 200, per: 20 * time.Millisecond},
		windows: true,
		costs:   true,
		keyed: []kind{{open: func(_ *testing.T, q quota, _ int) take {
			l := httprate.NewRateLimiter(q.n, q.per)
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			return func(key string, cost int) answer {
				w := httptest.NewRecorder()
				ok := !l.OnLimit(w, r.WithContext(httprate.WithIncrement(r.Context(), cost)), key)
				return answer{ok: ok, wait: waitTold(w.Header().Get("Retry-After"))}
			}
		}}},
		direct: []mount{{"", direct}},
		proxied: []mount{
			{"chi's ClientIPFromXFF", resolved(middleware.ClientIPFromXFF(proxy + "/32"))},
			//lint:ignore SA1019 that is what its label says
			{"LimitByRealIP (deprecated)", func(_ *testing.T, q quota) mounted { return httprate.LimitByRealIP(q.n, q.per) }},
		},
		zeros: []zero{{"limit 0", func(*testing.T) (take, error) {
			h := httprate.LimitBy(0, time.Second, httprate.Key("*"))(served)
			return func(string, int) answer {
				return answer{ok: send(h, request(client, "/")).Code == http.StatusOK, wait: untold}
			}, nil
		}}},
		chain: func(t *testing.T, wide, narrow quota) pair {
			return pair{"", nested(direct(t, wide), direct(t, narrow))}
		},
		reload: func(t *testing.T, from, to quota) changing {
			h, q := direct(t, from)(served), from
			return changing{"WithRequestLimit", func() bool {
				r := request(client, "/")
				return send(h, r.WithContext(httprate.WithRequestLimit(r.Context(), q.n))).Code == http.StatusOK
			}, func() { q = to }}
		},
		shared: []sharing{{as: "one LimitCounter", open: func(_ *testing.T, a, b quota) (takeA, takeB func() bool) {
			counter := httprate.NewLocalLimitCounter(a.per)
			open := func(q quota) func() bool {
				h := httprate.LimitBy(q.n, q.per, httprate.Key(client), httprate.WithLimitCounter(counter))(served)
				return func() bool { return send(h, request(client, "/")).Code == http.StatusOK }
			}
			return open(a), open(b)
		}}},
	}
}
