//go:build e2e

package e2e

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/problem"
)

// limits says how a Limiter treats one class of ACME request, under the usual
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

// config is the usual treatment of Pebble's paths, with one class under l.
func (l limits) config() weir.Config {
	treatment := map[weir.Class]weir.Endpoint{}
	for _, e := range weir.PKIEndpoints() {
		treatment[e.Class] = e
	}
	cfg := weir.DefaultConfig()
	for _, at := range pebblePaths {
		e := treatment[at.class]
		e.Pattern = at.path
		if at.path == l.path() {
			l.narrow(&e)
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	return cfg
}

var pebblePaths = []struct {
	path  string
	class weir.Class
}{
	{acmeserver.PathNewOrder, weir.ClassACMENewOrder},
	{acmeserver.PathDirectory, weir.ClassACMEDirectory},
	{acmeserver.PathNewNonce, weir.ClassACMENewNonce},
	{acmeserver.PathNewAccount, weir.ClassACMENewAccount},
	{acmeserver.PathAccount, weir.ClassACMEAccount},
	{acmeserver.PathOrder, weir.ClassACMEOrder},
	{acmeserver.PathFinalize, weir.ClassACMEFinalize},
	{acmeserver.PathAuthz, weir.ClassACMEAuthz},
	{acmeserver.PathChallenge, weir.ClassACMEChallenge},
	{acmeserver.PathCertificate, weir.ClassACMECertificate},
	{acmeserver.PathRenewalInfo, weir.ClassACMERenewalInfo},
}

// path is the path of the class, of which all requests begin with it.
func (l limits) path() string {
	for _, at := range pebblePaths {
		if at.class == l.class {
			return at.path
		}
	}
	return acmeserver.PathNewOrder
}

// drained puts whoever takes the tokens in front of h, the handler of limiter,
// for the requests that narrowed says are limited. The token goes in the same
// instant in which the client's request comes, so that no slow start of a
// client gives it time to be there again.
func (l limits) drained(limiter *weir.Limiter, h http.Handler, narrowed func(*http.Request) bool) http.Handler {
	if l.drain == never {
		return h
	}
	takes := limiter.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var seen atomic.Bool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !narrowed(r) {
			h.ServeHTTP(w, r)
			return
		}
		first := !seen.Swap(true)
		if first || l.drain == always {
			other := httptest.NewRequestWithContext(r.Context(), http.MethodPost, r.URL.RequestURI(), http.NoBody)
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
