package bench

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/didip/tollbooth/v8"
	tollboothlimiter "github.com/didip/tollbooth/v8/limiter"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/realclientip/realclientip-go"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weir-go/weir"
)

// Middleware is a limiter of requests by their client's address, in front of
// one handler.
type Middleware struct {
	Name string
	// Single says that there is one bucket for all clients.
	Single bool
	Wrap   func(s Setup, next http.Handler) http.Handler
}

// Setup is what a middleware is set to.
type Setup struct {
	Quota Quota
	Bound int  // keys to have room for
	Proxy bool // the peers are proxies; Trusted ones are believed
}

// Trusted are the proxies of the runs.
const Trusted = "10.0.0.0/8"

// Middlewares are all of them, ours first: with the header fields on refusals,
// as by default, and with them on every response, as most peers have them.
func Middlewares() []Middleware {
	return []Middleware{
		{"weir", false, wrapWeir("rejected")},
		{"weir_headers", false, wrapWeir("always")},
		{"by_hand", false, wrapByHand},
		{"httprate", false, wrapHTTPRate},
		{"ulule", false, wrapUlule},
		{"throttled", false, wrapThrottled},
		{"tollbooth", false, wrapTollbooth},
		{"go-limiter", false, wrapGoLimiter},
		{"failsafe", true, wrapFailsafe},
	}
}

// Path is where all requests go.
const Path = "/.well-known/est/simpleenroll"

// Bare is weir with nothing switched on.
func Bare(s Setup) weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = []weir.Endpoint{{Pattern: "POST " + Path, Class: "est"}}
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = weir.TierConfig{}, weir.TierConfig{}, weir.TierConfig{}
	cfg.Tiers.MaxKeys = s.Bound
	if s.Proxy {
		cfg.ClientIP.TrustedProxies = []string{Trusted}
	}
	return cfg
}

// TierOf is a tier of weir with a quota for each key.
func TierOf(q Quota) weir.TierConfig { return weir.TierConfig{Rate: q.perSecond(), Burst: float64(q)} }

// Full is weir with all that a PKI would switch on: three tiers, three windows,
// the auth lock, a guard.
func Full(s Setup) weir.Config {
	cfg := Bare(s)
	cfg.Endpoints = []weir.Endpoint{{Pattern: "POST " + Path, Class: "est", Kind: weir.KindEST, Guard: "hsm"}}
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = TierOf(Roomy), TierOf(s.Quota), TierOf(Roomy)
	cfg.Windows.Enabled = true
	cfg.Windows.PerSubject, cfg.Windows.PerAddress, cfg.Windows.Process = int(Roomy), int(Roomy), int(Roomy)
	cfg.AuthLock.Enabled = true
	cfg.AuthLock.MaxKeys = s.Bound
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 1024, MaxQueue: 1024, AcquireTimeout: weir.Duration(5 * time.Second)}}
	return cfg
}

// NewWeir makes a quiet limiter.
func NewWeir(cfg weir.Config, opts ...weir.Option) *weir.Limiter {
	return must(weir.New(cfg, append([]weir.Option{weir.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...))
}

func wrapWeir(headers string) func(Setup, http.Handler) http.Handler {
	return func(s Setup, next http.Handler) http.Handler {
		cfg := Bare(s)
		cfg.Tiers.PerIP = TierOf(s.Quota)
		cfg.Headers.RateLimit = headers
		return NewWeir(cfg).Handler(next)
	}
}

// WrapFull is the whole chain with its metrics.
func WrapFull(s Setup, next http.Handler) http.Handler {
	return NewWeir(Full(s), weir.WithRegisterer(prometheus.NewRegistry())).Handler(next)
}

// WrapTiers is three tiers alone; the account is the user of HTTP Basic, as in
// the whole chain.
func WrapTiers(s Setup, next http.Handler) http.Handler {
	cfg := Bare(s)
	cfg.Endpoints[0].Kind = weir.KindEST
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = TierOf(Roomy), TierOf(s.Quota), TierOf(Roomy)
	return NewWeir(cfg).Handler(next)
}

// proxied finds the client's address behind the trusted proxies, for peers that
// leave that to the user.
func proxied() func(*http.Request) string {
	trusted := must(realclientip.AddressesAndRangesToIPNets(Trusted))
	strategy := must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", trusted))
	return func(r *http.Request) string { return strategy.ClientIP(r.Header, r.RemoteAddr) }
}

// wrapByHand is what a program writes with what there is: x/time/rate in
// golang-lru by the address. It sends no header field, and no Retry-After.
func wrapByHand(s Setup, next http.Handler) http.Handler {
	cache := must(lru.New[netip.Addr, *rate.Limiter](s.Bound))
	client := proxied()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a netip.Addr
		if s.Proxy {
			a, _ = netip.ParseAddr(client(r))
		} else {
			ap, _ := netip.ParseAddrPort(r.RemoteAddr)
			a = ap.Addr()
		}
		l, ok := cache.Get(a)
		if !ok {
			l = newRate(s.Quota)
			if was, ok, _ := cache.PeekOrAdd(a, l); ok {
				l = was
			}
		}
		if !l.Allow() {
			http.Error(w, "Too Many Requests", http.StatusTooManyRequests)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// wrapHTTPRate is the README's pair: a ClientIPFrom of chi, and a key function
// that reads what it found.
func wrapHTTPRate(s Setup, next http.Handler) http.Handler {
	limit := httprate.LimitBy(int(s.Quota), day, func(r *http.Request) (string, error) {
		return httprate.CanonicalizeIP(middleware.GetClientIP(r.Context())), nil
	})
	if s.Proxy {
		return middleware.ClientIPFromXFF(Trusted)(limit(next))
	}
	return middleware.ClientIPFromRemoteAddr(limit(next))
}

func wrapUlule(s Setup, next http.Handler) http.Handler {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: day, Limit: int64(s.Quota)})
	if s.Proxy {
		return stdlib.NewMiddleware(l, stdlib.WithKeyGetter(proxied())).Handler(next)
	}
	return stdlib.NewMiddleware(l).Handler(next)
}

func wrapThrottled(s Setup, next http.Handler) http.Handler {
	vary := &throttled.VaryBy{RemoteAddr: true}
	if s.Proxy {
		vary = &throttled.VaryBy{Custom: proxied()}
	}
	l := throttled.HTTPRateLimiterCtx{RateLimiter: newThrottled(s.Bound, s.Quota), VaryBy: vary}
	return l.RateLimit(next)
}

func wrapTollbooth(s Setup, next http.Handler) http.Handler {
	l := tollbooth.NewLimiter(s.Quota.perSecond(), nil).SetBurst(int(s.Quota))
	l.SetIPLookup(pick(s.Proxy, tollboothlimiter.IPLookup{Name: "X-Forwarded-For", IndexFromRight: 1}, tollboothlimiter.IPLookup{Name: "RemoteAddr"}))
	return tollbooth.LimitHandler(l, next)
}

func wrapGoLimiter(s Setup, next http.Handler) http.Handler {
	st := must(memorystore.New(&memorystore.Config{Tokens: uint64(s.Quota), Interval: day}))
	key := httplimit.IPKeyFunc()
	if s.Proxy {
		client := proxied()
		key = func(r *http.Request) (string, error) { return client(r), nil }
	}
	return must(httplimit.NewMiddleware(st, key)).Handle(next)
}

func wrapFailsafe(s Setup, next http.Handler) http.Handler {
	return failsafehttp.NewHandler(next, ratelimiter.NewBursty[*http.Response](uint(s.Quota), day))
}
