//go:build e2e

package e2e

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
)

// limits says how a Limiter treats one class of request, under the usual
// treatment of all others.
type limits struct {
	class   weir.Class    // default acme_new_order
	every   time.Duration // one request, and then another after so long
	maxWait time.Duration // held so long for it before it is refused
	status  int           // of a refusal; 0 is the default, 429
	drain   drain
}

// drain says who has taken the tokens when a client comes. A bucket of one
// token and a client that asks once would never meet.
type drain int

const (
	never  drain = iota
	once         // somebody else just before the first request
	always       // somebody else just before every request
	lifted       // as once, and when the first request was refused the limit is lifted
)

// narrowed is the class that l is for.
func (l limits) narrowed() weir.Class { return cmp.Or(l.class, weir.ClassACMENewOrder) }

// on is a Config of these endpoints, with one class under l.
func (l limits) on(endpoints []weir.Endpoint) weir.Config {
	cfg := weir.DefaultConfig()
	for _, e := range endpoints {
		if e.Class == l.narrowed() {
			l.narrow(&e)
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	return cfg
}

// narrow gives an endpoint's class one bucket for each address, and no other.
func (l limits) narrow(e *weir.Endpoint) {
	wait := weir.Duration(l.maxWait)
	e.MaxWait = &wait
	e.Disown = false
	e.Status = l.status
	e.Limits = map[string]weir.Limit{
		weir.TierGlobal:     {},
		weir.TierPerAccount: {},
		weir.TierPerIP:      {Rate: 1 / l.every.Seconds(), Burst: 1},
	}
}

// protected puts the limiter before h, and before that whoever takes the tokens
// of the class. A token goes in the same instant in which the client's request
// comes, so that no slow start of a client gives it time to be there again.
func (l limits) protected(limiter *weir.Limiter, h http.Handler) http.Handler {
	h, takes := limiter.Handler(h), limiter.Handler(nothing)
	if l.drain == never {
		return h
	}
	var seen atomic.Bool
	return limiter.ClientIP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, _ := weir.FromContext(r.Context()); info.Class != l.narrowed() {
			h.ServeHTTP(w, r)
			return
		}
		first := !seen.Swap(true)
		if first || l.drain == always {
			other := httptest.NewRequest(r.Method, r.URL.RequestURI(), http.NoBody) // in a context of its own
			other.RemoteAddr = r.RemoteAddr
			takes.ServeHTTP(httptest.NewRecorder(), other)
		}
		h.ServeHTTP(w, r)
		if first && l.drain == lifted {
			free := limiter.Config()
			free.Exempt.Networks = append(free.Exempt.Networks, "127.0.0.1")
			if err := limiter.Reload(free); err != nil {
				panic(err) // a Config in force, and an address
			}
		}
	}))
}

// nothing is what stands behind a Limiter where only its tokens are wanted.
var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
