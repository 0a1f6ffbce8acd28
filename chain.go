package weir

import (
	"fmt"
	"net/http"
)

// Handler is the whole chain in front of next: client address, class, tiers and
// windows, auth lock, guard. Inside [Limiter.ClientIP] the first two are not done
// again. A request that no endpoint's pattern matches passes (see
// Config.DefaultClass). On a disabled Limiter it returns next itself.
func (l *Limiter) Handler(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	l.adviseTimeout(next)
	return &chain{l: l, next: next, stages: allStages}
}

// Protect is the same chain for a handler whose class is known. Inside a
// [Limiter.Handler] it does what is not done yet: lists, tiers and windows that
// the request went through as the class of a pattern are not asked again, and
// [Info] still has that class; a guard, and the auth lock unless the request is
// inside it, are those of class. A request that had no class has this one from
// there on. It panics if
// the class is not defined by an endpoint or as the default class: that is a
// mistake in the program, found when it starts.
func (l *Limiter) Protect(class Class, next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	l.adviseTimeout(next)
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.policy.Load(); p.on && p.classes[class] == nil {
		panic(fmt.Sprintf("weir: Protect: no endpoint has class %q; defined are: %s", class, names(p.classes)))
	}
	l.wiredClasses[class] = true
	return &chain{l: l, next: next, class: class, stages: allStages}
}

// ClientIP is the first stage alone: it finds the client's address and the
// class, so that what stands between it and [Limiter.Handler] can read [Info] and
// call [SetAccount]. By itself it limits nothing.
func (l *Limiter) ClientIP(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, r = l.visit(r)
		next.ServeHTTP(w, r)
	})
}

// Tiers is the stage of lists and tiers alone, for a partial mount: windows, auth
// lock and guards of the Config are then not enforced. Without [Limiter.ClientIP]
// before it, it does that stage's work too.
func (l *Limiter) Tiers(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return &chain{l: l, next: next, stages: stageTiers}
}

// Windows is the stage of the fixed windows alone. Without [Limiter.ClientIP]
// before it, it does that stage's work too. Where both are wanted,
// [Limiter.Handler] asks tiers and windows in one step, so that what one
// refuses spends nothing of the other; by hand the windows belong behind the
// tiers. As an arrival it counts what reaches it.
func (l *Limiter) Windows(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	return &chain{l: l, next: next, stages: stageWindows}
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
	l      *Limiter
	next   http.Handler
	class  Class // "": by endpoint patterns
	stages stages
}

// stages is a set of them. A request goes through each once, however often the
// Limiter is mounted.
type stages uint8

const (
	stageTiers stages = 1 << iota
	stageWindows
	stageAuth
	stageGuard

	allStages = stageTiers | stageWindows | stageAuth | stageGuard
)

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
	if c == ambiguous {
		l.misleading(w, r, p)
		return
	}
	t := transit{w: w, r: r, p: p, c: c, who: who, stages: h.stages &^ (stageAuth | stageGuard)}
	// What follows wraps the ResponseWriter, and so only where it has to.
	signs := c != nil && p.lock != nil && c.auth != AuthNone && h.stages&stageAuth != 0
	t.signs = signs && (v == nil || v.signIn() == nil)
	if v == nil {
		if !l.pass(&t) {
			return
		}
		v = &visit{Context: r.Context(), l: l, p: p, c: c, who: who, account: t.account, outcome: t.outcome}
		r = r.WithContext(v)
	} else if !v.pass(&t) {
		return
	}
	if c == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	if signs {
		l.signIn(w, r, v, c, c.auth, h, t.early)
		return
	}
	h.serve(w, r, v, c)
}

// serve is what stands behind the auth lock: the guard, and the handler.
func (h *chain) serve(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy) {
	if c != nil && c.disown && h.stages&stageTiers != 0 {
		if account, ok := v.charged(); ok {
			watched := &watch{ResponseWriter: w, acme: c.kind == KindACME}
			answered := false
			defer func() { watched.disown(v, account, answered && (watched.status != 0 || r.Context().Err() == nil)) }()
			h.guarded(writerFor(watched), r, v, c)
			answered = true
			return
		}
	}
	h.guarded(w, r, v, c)
}

func (h *chain) guarded(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy) {
	if c != nil && c.guard != nil && h.stages&stageGuard != 0 {
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
	stages  stages // to go through
	account string
	// replaces is the certificate that the request says it replaces.
	replaces string
	signs    bool   // the auth lock's stage comes next
	early    *early // its attempt, if the tiers were asked along with it
	outcome
}

// pass takes a request that has a visit already through the tiers, unless it
// has been through them: once, even if a program sends it through several
// handlers at the same time. An account that SetAccount gave is the one asked.
func (v *visit) pass(t *transit) bool {
	v.passing.Lock()
	defer v.passing.Unlock()
	v.mu.Lock()
	t.account, t.outcome = v.account, v.outcome
	v.mu.Unlock()
	if t.stages &^= t.passed; t.stages == 0 {
		return true
	}
	ok := v.l.pass(t)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !ok {
		v.arrived = t.arrived // and stays it, should the program send it again
		return false
	}
	v.c, v.account, v.outcome = t.c, t.account, t.outcome
	return true
}
