package weir

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/gate"
	"github.com/weir-go/weir/internal/jws"
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
	local      *store.Memory    // counts while the store fails; the store itself if it is this one
	keyer      keyer
	counts     *counts
	lines      lines
	baskets    sync.Pool
	logs       logGates
	hub        *hub // nil: no registerer
	closed     chan struct{}

	policy atomic.Pointer[policy]

	mu           sync.Mutex // guards what follows, and Reload as a whole
	guards       map[string]*Guard
	wiredClasses map[Class]bool
	wiredGuards  map[string]bool
	bare         bool    // a handler was handed back bare
	fixed        *Config // what Reload may not change; nil until first enabled
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
		counts: newCounts(), closed: make(chan struct{}),
		guards: map[string]*Guard{}, wiredClasses: map[Class]bool{}, wiredGuards: map[string]bool{},
	}
	for _, o := range opts {
		o.apply(&l.opts)
	}
	if l.log = l.opts.logger; l.log == nil {
		l.log = slog.Default()
	}
	l.baskets.New = func() any { return new(basket) }
	l.local = store.NewMemory()
	if l.store = l.opts.store; l.store == nil {
		l.store = l.local
	}
	l.peeker, _ = l.store.(store.Peeker)
	l.configurer, _ = l.store.(store.Configurer)
	l.sizer, _ = l.store.(store.Sizer)
	if err := l.setSecret(cfg); err != nil {
		return nil, err
	}
	if err := l.Reload(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// setSecret keys the hashes of ids.
func (l *Limiter) setSecret(cfg Config) error {
	secret, err := expand(cfg.Store.KeySecret)
	if err != nil || secret == "" {
		_, _ = rand.Read(l.keyer.secret[:]) // never fails; Validate reports err
		return nil
	}
	l.keyer.secret = sha256.Sum256([]byte(secret))
	return nil
}

// Reload puts cfg in force for the requests that come from now on; those under
// way end as they began. Every bucket keeps its tokens and its last refill,
// refills at the new rate and is clamped to the new burst: nobody gets a reset
// (requirement T6). On error nothing has changed. Reload(Config()) changes
// nothing.
func (l *Limiter) Reload(cfg Config) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.compile(cfg)
	if err != nil {
		return err
	}
	if !p.on {
		l.policy.Store(p)
		return nil
	}
	if l.fixed == nil {
		if l.opts.registerer != nil {
			// A scrape may come at once.
			l.policy.Store(&policy{})
			if l.hub, err = joinHub(l.opts.registerer, p.cfg.Namespace, l); err != nil {
				return err
			}
		}
		l.fixed = &p.cfg
	}
	l.configure(p)
	for name, g := range p.guards {
		g.resize(p.guardSize[name], p.cfg.Guards[name].MaxQueue)
	}
	old := l.policy.Swap(p)
	l.dropScopes(old, p)
	for _, a := range cfg.Advise() {
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
// later starts with full buckets.
func (l *Limiter) dropScopes(old, p *policy) {
	if old == nil {
		return
	}
	kept := map[string]bool{}
	for _, s := range p.scopes {
		kept[s.name] = true
	}
	for _, s := range old.scopes {
		if !kept[s.name] {
			l.local.Drop(s.name)
			if l.configurer != nil && l.store != store.Store(l.local) {
				l.configurer.Drop(s.name)
			}
		}
	}
}

// Config returns a deep copy of what is in force, as it was given.
func (l *Limiter) Config() Config { return l.policy.Load().given.clone() }

// Close takes the metrics off the registerer and sends home whoever is held
// for tokens. It is for when the server has been shut down; requests that
// still come are limited as before but never held. Calling it again is
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

// Handler is the whole chain in front of next: client address, class, tiers,
// guard. A request whose path no endpoint matches passes (see
// Config.DefaultClass). On a disabled Limiter it returns next itself.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return &chain{l: l, next: next}
}

// Protect is the same chain for a handler whose class is known. It panics if
// the class is not defined by an endpoint or as the default class: that is a
// mistake in the program, found when it starts.
func (l *Limiter) Protect(class Class, next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.policy.Load(); p.on && p.classes[class] == nil {
		panic(fmt.Sprintf("weir: Protect: no endpoint has class %q; defined are: %s", class, names(p.classes)))
	}
	l.wiredClasses[class] = true
	return &chain{l: l, next: next, class: class}
}

// ClientIP is the first stage alone: it finds the client's address and the
// class, so that what comes between it and [Limiter.Tiers] can read [Info] and
// call [SetAccount].
func (l *Limiter) ClientIP(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, r = l.visit(r)
		next.ServeHTTP(w, r)
	})
}

// Tiers is the admission stage alone. Without [Limiter.ClientIP] before it, it
// does that stage's work too.
func (l *Limiter) Tiers(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return &chain{l: l, next: next, unguarded: true}
}

// Guard returns the guard of that name. It panics if Config.Guards has none:
// that is a mistake in the program, found when it starts. On a disabled
// Limiter it returns a guard that lets everything pass.
func (l *Limiter) Guard(name string) *Guard {
	if l.isBare() {
		return &Guard{name: name, l: l}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.policy.Load()
	g := p.guards[name]
	if !p.on {
		g = l.guards[name]
	}
	if g == nil {
		panic(fmt.Sprintf("weir: Guard: no guard %q; defined are: %s", name, names(p.guards)))
	}
	l.wiredGuards[name] = true
	return g
}

// isBare reports whether handlers are to be handed back as they are: the
// Limiter has never been enabled. It then never can be.
func (l *Limiter) isBare() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fixed == nil {
		l.bare = true
	}
	return l.bare
}

// guardNamed returns the one Guard of that name, making it if need be. l.mu is
// held.
func (l *Limiter) guardNamed(name string) *Guard {
	g := l.guards[name]
	if g == nil {
		g = &Guard{name: name, l: l, gate: gate.New(1, 0)}
		l.guards[name] = g
	}
	return g
}

func (g *Guard) resize(slots, queue int) { g.gate.Resize(slots, queue) }

// chain is the stages of one Limiter in front of one handler.
type chain struct {
	l         *Limiter
	next      http.Handler
	class     Class // "": by endpoint patterns
	unguarded bool  // the tiers alone
}

// ServeHTTP runs the stages in order. The visit is made only once the request
// is admitted: a refusal allocates nothing for it.
func (h *chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := h.l
	v := visitFrom(r.Context())
	if v != nil && v.l != l {
		v = nil
	}
	var p *policy
	var who asker
	var c *classPolicy
	if v != nil {
		p, who, c = v.p, v.who, v.c
	} else {
		if p = l.policy.Load(); !p.on {
			h.next.ServeHTTP(w, r)
			return
		}
		who = l.ask(p, r)
		if h.class == "" {
			c = p.endpoints.of(r)
		}
	}
	if h.class != "" {
		c = p.classes[h.class]
	}
	t := transit{w: w, r: r, p: p, c: c, who: who}
	if c != nil && !v.passedTiers(&t) && !l.pass(&t) {
		return
	}
	if v == nil {
		v = &visit{Context: r.Context(), l: l, p: p, c: c, who: who, tiers: true, account: t.account, outcome: t.outcome}
		r = r.WithContext(v)
	} else {
		v.settle(&t)
	}
	if c != nil && c.guard != nil && !h.unguarded {
		c.guard.serve(w, r, v, h.next)
		return
	}
	h.next.ServeHTTP(w, r)
}

// transit is one request on its way through the tiers.
type transit struct {
	w       http.ResponseWriter
	r       *http.Request
	p       *policy
	c       *classPolicy
	who     asker
	account string
	sure    bool // the account is verified, not only claimed
	outcome
}

// passedTiers reports whether the request has been through the tiers already,
// and takes over the account that SetAccount gave. v may be nil.
func (v *visit) passedTiers(t *transit) bool {
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	t.account, t.sure = v.account, v.account != ""
	return v.tiers
}

// settle records in an existing visit what the tiers found.
func (v *visit) settle(t *transit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.tiers {
		return
	}
	v.tiers, v.c, v.account, v.outcome = true, t.c, t.account, t.outcome
}

// maxBody is how much of an ACME request is read to find its account.
const maxBody = 64 << 10

// pass asks the tiers. It reports whether the request may go on; if not, it
// has been answered.
func (l *Limiter) pass(t *transit) bool {
	c, p := t.c, t.p
	if p.deny.hasAddr(&t.who) {
		return l.denied(t)
	}
	if c.exempt || p.exempt.hasAddr(&t.who) {
		c.count.exempt.add(1)
		return true
	}
	b := l.baskets.Get().(*basket)
	b.reset()
	ok := l.passTiers(t, b)
	l.baskets.Put(b)
	return ok
}

func (l *Limiter) passTiers(t *transit, b *basket) bool {
	c, p := t.c, t.p
	b.addNetwork(l, c, t.r, &t.who)
	account := -1
	if len(c.uses) > c.network || p.deny.accounts != nil || p.exempt.accounts != nil {
		if !l.findAccount(t, b) {
			return false // refused before the body was read
		}
		if t.account != "" {
			key := l.keyer.key(TierPerAccount, t.account)
			if p.deny.accounts[key] {
				return l.denied(t)
			}
			exempt := p.exempt.accounts[key]
			if exempt && t.sure {
				c.count.exempt.add(1)
				return true
			}
			if !exempt { // a mere claim to be exempt spares the account tier only
				account = len(b.checks)
				b.addAccount(c, key)
			}
		}
	}
	if len(b.checks) == 0 {
		c.count.admitted.add(1)
		return true
	}
	v := l.decide(t.r.Context(), p, c, b)
	l.countShadows(c, b)
	if !v.Admitted() {
		l.throttled(t, b, v)
		return false
	}
	c.count.admitted.add(1)
	if account >= 0 && account < len(b.checks) && !b.checks[account].Shadow {
		t.spent = charge{b.uses[account], b.checks[account].Key}
	}
	t.tighten(b)
	return true
}

// tighten finds the tier with the least left in proportion.
func (t *transit) tighten(b *basket) {
	least := 2.0
	for i, s := range b.states {
		if share := s.Tokens / b.checks[i].Limit.Burst; share < least {
			least = share
			t.tightest, t.tokens, t.burst = b.uses[i].tier, s.Tokens, b.checks[i].Limit.Burst
		}
	}
}

// findAccount finds out whose account the request is, from the surest source
// to the least. Where that takes reading the body, what needs no body is asked
// first: a request that it refuses keeps its body unread (requirement R6).
func (l *Limiter) findAccount(t *transit, b *basket) bool {
	if t.account != "" {
		return true
	}
	if id, ok := l.callAccount(t.r); ok {
		t.account, t.sure = id, true
		return true
	}
	switch t.c.kind {
	case KindEST:
		if user, _, ok := t.r.BasicAuth(); ok {
			t.account = user
		}
	case KindACME:
		if t.r.Method != http.MethodPost || t.r.Body == nil || t.r.Body == http.NoBody {
			return true
		}
		if v, ok := l.peek(t.r.Context(), b); ok && !v.Admitted() && b.uses[v.Refused].maxWait < v.RetryAfter {
			l.throttled(t, b, v)
			return false
		}
		t.account, _ = jws.Account(t.r, maxBody)
	}
	return true
}

// peek asks without spending. ok is false if the store cannot tell.
func (l *Limiter) peek(ctx context.Context, b *basket) (v store.Verdict, ok bool) {
	if l.peeker == nil || len(b.checks) == 0 {
		return v, false
	}
	v, states, err := l.peeker.Peek(ctx, b.checks, b.states[:0])
	if err != nil {
		return v, false // Admit is about to say the same
	}
	b.states = states
	return v, true
}

// admit asks the store, or who stands in for it while it fails: no failure of
// a store refuses a request.
func (l *Limiter) admit(ctx context.Context, p *policy, b *basket) store.Verdict {
	v, states, err := l.store.Admit(ctx, b.checks, b.states[:0])
	if err == nil {
		b.states = states
		return v
	}
	b.states = b.states[:0]
	l.storeFailed("admit", err)
	if p.cfg.Store.OnError == "allow" {
		return store.Verdict{Refused: -1}
	}
	if v, b.states, err = l.local.Admit(ctx, b.checks, b.states); err != nil {
		return store.Verdict{Refused: -1}
	}
	return v
}

func (l *Limiter) countShadows(c *classPolicy, b *basket) {
	for i, s := range b.states {
		if b.checks[i].Shadow && s.Wait > 0 {
			l.refused(b.uses[i].refusals, c.name, "shadow", b.uses[i].tier.name, problem.ReasonRate)
		}
	}
}

// throttled answers a request that a tier refused.
func (l *Limiter) throttled(t *transit, b *basket, v store.Verdict) {
	u := b.uses[v.Refused]
	l.refused(u.refusals, t.c.name, "tier", u.tier.name, problem.ReasonRate)
	l.refuse(t.w, t.r, t.p, t.c.kind, problem.Rejection{
		Status: http.StatusTooManyRequests, Reason: problem.ReasonRate,
		Class: string(t.c.name), Tier: u.tier.name, RetryAfter: v.RetryAfter,
	})
}

// denied answers a request on the deny list.
func (l *Limiter) denied(t *transit) bool {
	l.refused(&t.c.count.denied, t.c.name, "deny", "", problem.ReasonDenied)
	l.refuse(t.w, t.r, t.p, t.c.kind, problem.Rejection{
		Status: http.StatusForbidden, Reason: problem.ReasonDenied, Class: string(t.c.name), RetryAfter: time.Hour,
	})
	return false
}
