package weir

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// Option gives a [Limiter] what a configuration file cannot hold. Options are
// fixed for the life of the Limiter.
type Option interface{ apply(*options) }

type options struct {
	registerer prometheus.Registerer
	logger     *slog.Logger
	store      store.Store
	account    func(*http.Request) (string, bool)
	keys       map[string]func(*http.Request) (string, bool)
	poolSizes  map[string]func() int
	writers    map[Kind]problem.Writer
	nonce      func(*http.Request) string
	credential func(*http.Request) (Credential, bool)
	audit      func(AuditEvent)
	help       string
	renewal    func(context.Context, Renewal) bool
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithRegisterer exports the metrics there. Without it they are still counted
// (see [Limiter.Snapshot]) but not exported. Several Limiters may share a
// registerer; those that share a namespace as well add up.
func WithRegisterer(r prometheus.Registerer) Option {
	return optionFunc(func(o *options) { o.registerer = r })
}

// WithLogger sets the logger; the default is slog.Default(). A flood of
// refusals is logged as one line for each class and tier every ten seconds.
func WithLogger(log *slog.Logger) Option { return optionFunc(func(o *options) { o.logger = log }) }

// WithStore keeps the counts in a store of the embedder's own. The Limiter
// does not close it, and Config.Store.Backend is not looked at. While it fails,
// Config.Store.OnError holds. A store that has a Ping (see store.Pinger) is taken
// to be one that can go away: it is then not asked until it is back. One that is a
// store.Locker counts the failures of the auth lock too, for all that share it; else
// this process does.
func WithStore(s store.Store) Option { return optionFunc(func(o *options) { o.store = s }) }

// WithAccount finds the account of a request, for any class, before the
// built-in ways (the kid of an ACME request, the HTTP Basic user of an EST
// one) are tried. It vouches for what it returns: exempt accounts are then spared
// by all tiers, and windows count the account instead of the address. What a
// client only claims is not for it. It must not read the body. ok false or an
// empty id means that this function knows of none. A panic in it counts as that
// and is logged.
func WithAccount(f func(*http.Request) (id string, ok bool)) Option {
	return optionFunc(func(o *options) { o.account = f })
}

// WithKey finds the key of a request in the custom tier of that name, as its
// Overrides spell it. ok false or an empty key means that the tier does not apply
// to the request, which is counted. The function must not read the body. A panic
// in it counts as no key and is logged.
func WithKey(tier string, f func(*http.Request) (key string, ok bool)) Option {
	return optionFunc(func(o *options) { o.keys[tier] = f })
}

// WithPoolSize gives the size of the pool behind a guard, for a guard whose
// MaxInFlight is 0. It is asked in New and at each Reload; less than 1 is a
// fault there, and a panic in it is the caller's.
func WithPoolSize(guard string, f func() int) Option {
	return optionFunc(func(o *options) { o.poolSizes[guard] = f })
}

// WithRejection writes the refusals of one kind of endpoint. Retry-After and
// Cache-Control are set before it is called. It replaces a built-in Writer of
// package problem. A panic in it is not contained: it ends the request as one in
// a handler would.
func WithRejection(kind Kind, w problem.Writer) Option {
	return optionFunc(func(o *options) { o.writers[kind] = w })
}

// WithCredential finds the credential of a request for the auth lock, before the
// way that its endpoint names. ok false means that this function knows of none;
// only a credential that is going to be checked is one (requirement L5). It
// must not read the body. A panic in it counts as none and is logged.
func WithCredential(f func(*http.Request) (c Credential, ok bool)) Option {
	return optionFunc(func(o *options) { o.credential = f })
}

// WithAudit reports what a security log wants to keep: each lock that starts,
// never each request that it refuses (requirement M4). It is called while the
// request waits, from many goroutines, so it must be quick. A panic in it is
// logged.
func WithAudit(f func(AuditEvent)) Option {
	return optionFunc(func(o *options) { o.audit = f })
}

// WithNonce gives the Replay-Nonce of a refused ACME POST (RFC 8555, section
// 6.5.1), which saves the client a request for a new one. "" means none. A
// panic in it counts as none and is logged.
func WithNonce(f func(*http.Request) string) Option {
	return optionFunc(func(o *options) { o.nonce = f })
}

// WithHelp gives the URL of a page that explains the limits to people. ACME,
// JSON and HTML refusals link to it.
func WithHelp(url string) Option { return optionFunc(func(o *options) { o.help = url }) }
