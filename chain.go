package weir

import (
	"fmt"
	"net/http"
)

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
	v := l.visitOf(r.Context())
	var p *policy
	var who asker
	var c *classPolicy
	if v != nil {
		p, who, c = v.p, v.who, v.class()
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
	if v == nil {
		if c != nil && !l.pass(&t) {
			return
		}
		// Without a class nothing was asked, so a Protect behind still has to.
		v = &visit{Context: r.Context(), l: l, p: p, c: c, who: who, tiers: c != nil, account: t.account, outcome: t.outcome}
		r = r.WithContext(v)
	} else if c != nil && !v.pass(&t) {
		return
	}
	if c != nil && c.guard != nil && !h.unguarded {
		c.guard.serve(w, r, v, c, h.next)
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

// pass takes a request that has a visit already through the tiers, unless it
// has been through them: once, even if a program sends it through several
// handlers at the same time. An account that SetAccount gave is the one asked.
func (v *visit) pass(t *transit) bool {
	v.passing.Lock()
	defer v.passing.Unlock()
	v.mu.Lock()
	passed := v.tiers
	t.account, t.sure = v.account, v.account != ""
	v.mu.Unlock()
	if passed {
		return true
	}
	if !v.l.pass(t) {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tiers, v.c, v.account, v.outcome = true, t.c, t.account, t.outcome
	return true
}
