//go:build e2e

package e2e

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/problem"
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

// options has refusals answered with the status of l.
func (l limits) options() []weir.Option {
	if l.status == 0 {
		return nil
	}
	write := func(w problem.Writer) problem.Writer {
		return func(rw http.ResponseWriter, r *http.Request, rej problem.Rejection) {
			rej.Status = l.status
			w(rw, r, rej)
		}
	}
	return []weir.Option{
		weir.WithRejection(weir.KindACME, write(problem.ACME)),
		weir.WithRejection(weir.KindOCSP, write(problem.OCSP)),
		weir.WithRejection(weir.KindEST, write(problem.EST)),
		weir.WithRejection(weir.KindSCEP, write(problem.SCEP)),
		weir.WithRejection(weir.KindCRL, write(problem.Plain)),
	}
}

// narrow gives an endpoint's class one bucket for each address, and no other.
func (l limits) narrow(e *weir.Endpoint) {
	wait := weir.Duration(l.maxWait)
	e.MaxWait = &wait
	e.Disown = false
	e.Limits = map[string]weir.Limit{
		weir.TierGlobal:     {},
		weir.TierPerAccount: {},
		weir.TierPerIP:      {Rate: 1 / l.every.Seconds(), Burst: 1},
	}
}

// drained puts whoever takes the tokens in front of h, for the requests that
// narrowed says are limited. takes is a handler of the limiter before nothing,
// to spend them by. The token goes in the same instant in which the client's
// request comes, so that no slow start of a client gives it time to be there
// again.
func (l limits) drained(limiter *weir.Limiter, takes, h http.Handler, narrowed func(*http.Request) bool) http.Handler {
	if l.drain == never {
		return h
	}
	var seen atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !narrowed(r) {
			h.ServeHTTP(w, r)
			return
		}
		first := !seen.Swap(true)
		if first || l.drain == always {
			other := httptest.NewRequestWithContext(r.Context(), http.MethodPost, r.URL.Path, http.NoBody)
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
	})
}

// nothing is what stands behind a Limiter where only its tokens are wanted.
var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
