package weir

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// maxBody is how much of an ACME request is read to find its account.
const maxBody = 64 << 10

// pass asks the tiers. It reports whether the request may go on; if not, it
// has been answered.
func (l *Limiter) pass(t *transit) bool {
	c, p := t.c, t.p
	if p.deny.hasAddr(&t.who) {
		return l.denied(t)
	}
	t.exempt = c.exempt || p.exempt.hasAddr(&t.who)
	if t.exempt && p.deny.accounts == nil {
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
	if !t.exempt {
		b.addNetwork(l, c, t.r, &t.who)
	}
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
			if !exempt && !t.exempt { // a mere claim to be exempt spares the account tier only
				account = len(b.checks)
				b.addAccount(c, key)
			}
		}
	}
	if t.exempt { // and its account, if it has one, is not denied
		c.count.exempt.add(1)
		return true
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
	if account >= 0 {
		t.spent = b.charge(account)
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
		if v, ok := l.peek(t.r.Context(), t.p, b); ok && !v.Admitted() {
			if v, ok = l.hopeless(t.p, b, v); ok {
				l.throttled(t, b, v)
				return false
			}
		}
		t.account, _ = jws.Account(t.r, maxBody)
	}
	return true
}

// peek asks without spending. ok is false if the store cannot tell.
func (l *Limiter) peek(ctx context.Context, p *policy, b *basket) (v store.Verdict, ok bool) {
	if l.peeker == nil || len(b.checks) == 0 {
		return v, false
	}
	v, states, err := l.peeker.Peek(ctx, b.checks, b.states[:0])
	if err != nil && p.cfg.Store.OnError != "allow" { // Admit is about to count and log it
		v, states, err = l.local.Peek(ctx, b.checks, b.states[:0])
	}
	if err != nil {
		return v, false
	}
	b.states = states
	return v, true
}

// hopeless reports whether a request that peek refuses would not be held for
// its tokens either, and with what answer: it would have to wait too long,
// those in line before it included, or too many are held.
func (l *Limiter) hopeless(p *policy, b *basket, v store.Verdict) (store.Verdict, bool) {
	if b.uses[v.Refused].maxWait == 0 {
		return v, true
	}
	ls := &l.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ok := int(ls.n.Load()) >= p.cfg.Tiers.MaxWaiting
	for i, s := range b.states {
		u, wait := b.uses[i], s.Wait
		if wait == 0 || u.shadow {
			continue
		}
		if u.maxWait > 0 {
			wait = ls.wait(&b.checks[i], wait, s.Tokens)
		}
		ok = ok || wait > u.maxWait
		if wait > v.RetryAfter {
			v = store.Verdict{Refused: i, RetryAfter: wait}
		}
	}
	return v, ok
}

// storeTimeout is how long a store may take over one call. The contract says
// within the context's deadline, but most requests have none: a store that
// hangs must not hang them.
const storeTimeout = time.Second

// foreign is a store that the program brought, kept from taking requests down
// with it: a call that hangs ends at storeTimeout, and a panic is an error like
// any other.
type foreign struct{ store.Store }

func (f foreign) Admit(ctx context.Context, checks []store.Check, dst []store.State) (v store.Verdict, states []store.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Store.Admit(ctx, checks, dst)
}

func (f foreign) Refund(ctx context.Context, checks []store.Check) (err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Store.Refund(ctx, checks)
}

type foreignPeeker struct{ store.Peeker }

func (f foreignPeeker) Peek(ctx context.Context, checks []store.Check, dst []store.State) (v store.Verdict, states []store.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	defer panicAsError(&err)
	return f.Peeker.Peek(ctx, checks, dst)
}

// panicAsError must be called directly by defer, for recover to see the panic.
func panicAsError(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("panic: %v", v)
	}
}

// admit asks the store, or who stands in for it while it fails: no failure of
// a store refuses a request.
func (l *Limiter) admit(ctx context.Context, p *policy, b *basket) store.Verdict {
	v, states, err := l.store.Admit(ctx, b.checks, b.states[:0])
	if err == nil {
		b.states, b.by = states, l.store
		return v
	}
	b.states, b.by = b.states[:0], nil
	if ctx.Err() != context.Canceled { // a client that left is no failure of the store
		l.storeFailed("admit", err)
	}
	if p.cfg.Store.OnError == "allow" {
		return store.Verdict{Refused: -1}
	}
	if v, b.states, err = l.local.Admit(ctx, b.checks, b.states); err != nil {
		return store.Verdict{Refused: -1}
	}
	b.by = l.local
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
