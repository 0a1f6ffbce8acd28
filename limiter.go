package weir

import (
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// Limiter admits, holds, throttles and sheds requests. It is safe for
// concurrent use and must not be copied; make one with [New].
type Limiter struct {
	opts       options
	log        *slog.Logger
	store      store.Store
	peeker     store.Peeker     // nil: the store cannot look without spending
	configurer store.Configurer // nil: the store needs no bounds
	sizer      store.Sizer      // nil: the store does not know its size
	locker     store.Locker     // counts failures; local if the store cannot
	shared     *takeover.Store  // the store, if it is one that can go away; else nil
	recall     *recall          // what locker has told, if it is not local
	local      *store.Memory    // counts while the store fails; the store itself if it is this one
	keyer      keyer
	counts     *counts
	lines      lines
	bodies     bodies // in which an account is looked for
	before     bodies // that are read before their request is held
	baskets    sync.Pool
	logs       logGates
	hub        *hub // nil: no registerer
	closed     chan struct{}
	renewing   chan struct{} // a place for each call of the hook of WithRenewal
	stoodIn    atomic.Bool   // local has counted failures in the place of locker

	attempts store.AttemptAdmitter // locker, if it can begin an attempt in the call that admits; else nil

	policy atomic.Pointer[policy]

	mu           sync.Mutex // guards what follows, and Reload as a whole
	guards       map[string]*Guard
	wiredClasses map[Class]bool
	wiredGuards  map[string]bool
	bare         bool    // a handler was handed back bare
	fixed        *Config // what Reload may not change; nil until first enabled
	scopes       []scope // that the stores have tables for
}

// New returns a Limiter for cfg. It reports every fault of cfg at once; see
// [ConfigErrors]. A disabled Config costs nothing: handlers are handed back as
// they are.
func New(cfg Config, opts ...Option) (*Limiter, error) {
	l := &Limiter{
		opts: options{
			keys:      map[string]func(*http.Request) (string, bool){},
			poolSizes: map[string]func() int{},
			writers:   map[Kind]problem.Writer{},
		},
		counts: newCounts(), closed: make(chan struct{}), renewing: make(chan struct{}, maxRenewing), bodies: bodies{patience: patience},
		guards: map[string]*Guard{}, wiredClasses: map[Class]bool{}, wiredGuards: map[string]bool{},
	}
	for _, o := range opts {
		o.apply(&l.opts)
	}
	if l.log = l.opts.logger; l.log == nil {
		l.log = slog.Default()
	}
	l.baskets.New = func() any { return new(basket) }
	l.local, l.recall = store.NewMemory(), newRecall()
	if l.store = l.opts.store; l.store == nil {
		l.store = l.local
	}
	l.peeker, _ = l.store.(store.Peeker)
	l.configurer, _ = l.store.(store.Configurer)
	l.sizer, _ = l.store.(store.Sizer)
	l.locker = lockerOf(l.store, l.local)
	if _, ok := l.opts.store.(store.Pinger); ok {
		l.share(l.opts.store, takeover.Options{Timeout: storeTimeout, Stall: storeStall, Replicas: cfg.withDefaults().Store.Replicas})
	} else if l.opts.store != nil {
		l.store = foreign{l.store}
		if l.peeker != nil {
			l.peeker = foreignPeeker{l.peeker}
		}
	}
	if err := l.Reload(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// setSecret keys the hashes of ids. No request has used them yet.
func (l *Limiter) setSecret(cfg Config) {
	secret, err := expand(cfg.Store.KeySecret)
	if err != nil || secret == "" {
		_, _ = rand.Read(l.keyer.secret[:]) // never fails; Validate reports err
		return
	}
	l.keyer.secret = sha256.Sum256([]byte(secret))
}

// Reload puts cfg in force for the requests that come from now on; those under
// way end as they began. Every bucket keeps its tokens and its last refill,
// refills at the new rate and is clamped to the new burst: nobody gets a reset
// (requirement T6). On error nothing has changed. Reload(Config()) changes
// nothing.
func (l *Limiter) Reload(cfg Config) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fixed == nil {
		l.setSecret(cfg)
	}
	p, err := l.compile(cfg)
	if err != nil {
		return err
	}
	if !p.on {
		l.policy.Store(p)
		return nil
	}
	if l.fixed == nil {
		if err := l.openBackend(&p.cfg); err != nil {
			return err
		}
		if l.opts.registerer != nil && !l.isClosed() {
			// A scrape may come at once, in New before there is any policy.
			l.policy.CompareAndSwap(nil, &policy{})
			if l.hub, err = joinHub(l.opts.registerer, p.cfg.Namespace, l); err != nil {
				if l.opts.store == nil && l.shared != nil {
					l.unshare()
				}
				return err
			}
		}
		l.fixed = &p.cfg
		l.adviseOnStore()
	}
	l.configure(p)
	l.configureLocks(p)
	for name, g := range p.guards {
		g.gate.Configure(p.guardPolicies[name].size)
	}
	if l.shared != nil {
		l.shared.SetPass(p.cfg.Store.OnError == "allow")
		l.shared.SetLeases(p.leases)
	}
	l.policy.Store(p)
	l.dropScopes(p)
	for _, a := range append(cfg.Advise(), p.advice...) {
		l.log.Warn("weir: advice", "field", a.Path, "advice", a.Text)
	}
	return nil
}

// configure tells the stores how to keep each scope.
func (l *Limiter) configure(p *policy) {
	for _, s := range p.scopes {
		l.local.Configure(s.Scope)
		if l.configurer != nil && l.store != store.Store(l.local) {
			l.configurer.Configure(s.Scope)
		}
	}
}

// dropScopes forgets the tables of tiers that are gone. One that comes back
// later starts with full buckets. l.mu is held.
func (l *Limiter) dropScopes(p *policy) {
	kept := map[string]bool{}
	for _, s := range p.scopes {
		kept[s.name] = true
	}
	for _, s := range l.scopes {
		if !kept[s.name] {
			l.local.Drop(s.name)
			if l.configurer != nil && l.store != store.Store(l.local) {
				l.configurer.Drop(s.name)
			}
		}
	}
	l.scopes = p.scopes
}

// Config returns a deep copy of what is in force, as it was given.
func (l *Limiter) Config() Config { return l.policy.Load().given.clone() }

// Close takes the metrics off the registerer, sends home whoever is held for
// tokens, and lets go the failed answers that the auth lock keeps back. It ends
// what runs for a shared store, and closes one that the Config names; one of
// [WithStore] stays open. It is for when the server has been shut down: requests
// that still come are limited as before but never held, and by the process alone
// where the store is closed. Where held requests are not to delay the shutdown,
// call it from a function of http.Server.RegisterOnShutdown. Calling it again is
// harmless. It always returns nil.
func (l *Limiter) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed() {
		return nil
	}
	close(l.closed)
	if l.hub != nil {
		l.hub.leave(l.opts.registerer, l)
	}
	if l.shared != nil {
		_ = l.shared.Retire(l.opts.store == nil) // its connections were broken anyway, if it errs
	}
	return nil
}

func (l *Limiter) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
