package weir

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// maxBody is how much of an ACME request is read to find its account.
const maxBody = 64 << 10

// pass asks the lists, tiers and windows, as far as t.stages names them. It
// reports whether the request may go on; if not, it has been answered.
func (l *Limiter) pass(t *transit) bool {
	if t.c == nil {
		return l.passOther(t)
	}
	if t.p.deny.hasAddr(&t.who) {
		return l.denied(t)
	}
	t.exempt = t.c.exempt || t.p.exempt.hasAddr(&t.who)
	if t.exempt && t.p.deny.accounts == nil {
		return l.exempted(t)
	}
	b := l.baskets.Get().(*basket)
	b.reset()
	ok := l.judge(t, b)
	l.baskets.Put(b)
	return ok
}

// passOther takes a request without a class through what holds for all: the
// deny list, and the process ceiling, which counts it (requirement W3). No
// stage is done with, for a Protect behind may still give it a class.
func (l *Limiter) passOther(t *transit) bool {
	if t.p.endpoints.other == nil || t.arrived { // before, by another handler
		return true
	}
	t.c = t.p.endpoints.other
	defer func() { t.c, t.passed, t.exempt = nil, 0, false }()
	if t.stages &= stageWindows; t.c.windows.process == nil {
		t.stages = 0
	}
	if t.p.deny.hasAddr(&t.who) {
		return l.denied(t)
	}
	if t.stages == 0 && t.p.deny.accounts == nil {
		return true
	}
	t.exempt = t.p.exempt.hasAddr(&t.who)
	b := l.baskets.Get().(*basket)
	b.reset()
	ok := l.judge(t, b)
	l.baskets.Put(b)
	return ok
}

// judge gathers what the request spends from, and decides.
func (l *Limiter) judge(t *transit, b *basket) bool {
	c, p := t.c, t.p
	b.who = t.who.key
	tiers, windows := t.stages&stageTiers != 0, t.stages&stageWindows != 0
	if u := c.windows.process; u != nil && windows && !t.arrived {
		b.add(u, store.Key{}, u.limit)
	}
	if tiers && !t.exempt {
		b.addNetwork(l, c, t.r, &t.who)
	}
	lists := p.deny.accounts != nil || p.exempt.accounts != nil
	claims := lists || tiers && len(c.uses) > c.network
	if claims || windows && c.windows.address != nil { // per_subject 0 asks too: an account is not counted for its address
		l.findVouched(t)
	}
	if windows && !t.exempt {
		b.addWindow(l, t)
	}
	account, renewal := -1, false
	var key store.Key
	if claims {
		if (t.account == "" || tiers && c.renewal != nil) && !l.findClaim(t, b) {
			return false // refused before the body was read
		}
		if t.account != "" {
			key = l.keyer.key(TierPerAccount, t.account)
			if p.deny.accounts[key] {
				return l.denied(t)
			}
			exempt := p.exempt.accounts[key]
			if exempt && t.sure {
				return l.exempted(t)
			}
			if !exempt && !t.exempt && tiers { // a mere claim to be exempt spares the account tier only
				account = len(b.checks)
				if !t.sure {
					b.claimant = t.who.key
				}
				if renewal = l.renews(t, key); renewal {
					b.add(c.renewal, key, c.renewal.limit)
				} else {
					b.addAccount(c, key)
				}
			}
		}
	}
	if t.exempt { // and its account, if it has one, is not denied
		return l.exempted(t)
	}
	if b.hidden && tiers {
		// Whatever account a server may find in it: a request whose account is
		// hidden must not cost less than one that shows it. The address has a
		// bucket for all of them.
		account = len(b.checks)
		b.addAccount(c, l.keyer.key("hidden", string(t.who.key[:])))
	}
	if len(b.checks) == 0 {
		return t.through(&c.count.admitted)
	}
	b.early = l.foresee(t)
	v := l.decide(t.w, t.r, p, c, b)
	if renewal && !v.Admitted() && b.uses[v.Refused] == c.renewal { // others were quicker: an order like any other
		b.checks, b.uses = b.checks[:account], b.uses[:account]
		b.addAccount(c, key)
		v = l.decide(t.w, t.r, p, c, b)
	}
	t.early, b.early = b.early, nil
	l.countShadows(c, b)
	if !v.Admitted() {
		l.throttled(t, b, v)
		return false
	}
	t.arrived = t.arrived || c.windows.process != nil && windows
	if account >= 0 {
		t.spent = b.charge(account)
	}
	t.tell(b, t.tighten(b), false)
	return t.through(&c.count.admitted)
}

// through notes that the request has been through its stages, and counts it:
// once, also where a program puts the stages together by hand.
func (t *transit) through(n *counter) bool {
	if t.passed == 0 && t.stages != 0 {
		n.add(1)
	}
	t.passed |= t.stages
	return true
}

// exempted lets a request pass that is on the exempt list.
func (l *Limiter) exempted(t *transit) bool {
	l.arrive(t)
	return t.through(&t.c.count.exempt)
}

// tighten finds the tier or window with the fewest requests left, in requests
// like this one; -1 if it met none. Those in shadow are not there for a client.
func (t *transit) tighten(b *basket) (at int) {
	at = -1
	for i, s := range b.states {
		if u := b.uses[i]; !u.shadow && (at < 0 || s.Tokens/u.cost < b.states[at].Tokens/b.uses[at].cost) {
			at = i
		}
	}
	if at >= 0 && (t.tightest == nil || b.states[at].Tokens/b.uses[at].cost < t.tokens/t.tightest.cost) {
		t.tightest, t.tokens, t.burst = b.uses[at], b.states[at].Tokens, b.checks[at].Limit.Burst
	}
	return at
}

// findVouched finds the account that somebody vouches for: SetAccount, or the
// program's own function.
func (l *Limiter) findVouched(t *transit) {
	if t.account != "" {
		return
	}
	if id, ok := l.callAccount(t.r); ok {
		t.account, t.sure = id, true
	}
}

// findClaim finds the account that the request claims, and the certificate that
// it says it replaces where that matters. Where that takes reading
// the body, what needs no body is asked first: a request that it refuses keeps
// its body unread (requirement R6), and false is returned.
func (l *Limiter) findClaim(t *transit, b *basket) bool {
	switch t.c.kind {
	case KindEST:
		if t.account == "" {
			t.account, b.hidden = userOf(t.r)
		}
	case KindACME:
		if !jws.Announced(t.r) {
			return true
		}
		if v, ok := l.peek(t.r.Context(), t.p, b); ok && !v.Admitted() {
			if v, ok = l.hopeless(t.p, b, v); ok {
				l.countShadows(t.c, b)
				l.throttled(t, b, v)
				return false
			}
		}
		claim, ok := l.readClaim(t)
		if !ok {
			return false
		}
		b.bodyRead, t.replaces = claim.Read, claim.Replaces
		if t.account == "" {
			t.account, b.hidden = claim.Account, claim.Hidden
		}
	}
	return true
}

// userOf returns the HTTP Basic user of an EST request, as the auth lock has it:
// spellings that a directory takes for one user are one account. hidden says that
// there is none who can be read, but one whom the server may find: what could be
// no user's name, two fields of which it may take either, a field that net/http
// does not read and others do (RFC 7617 has one blank, standard base64 and its
// padding), and Digest, which RFC 7030 (section 3.2.3) allows too.
func userOf(r *http.Request) (account string, hidden bool) {
	fields := r.Header["Authorization"]
	if len(fields) != 1 {
		return "", len(fields) > 1
	}
	user, ok := basicUser(r)
	if ok && user == "" { // a password alone names nobody
		return "", false
	}
	if account, ok = folded(user, ok); ok {
		return account, false
	}
	field := strings.TrimSpace(fields[0])
	if at := strings.IndexAny(field, " \t"); at >= 0 {
		field = field[:at]
	}
	return "", strings.EqualFold(field, "Basic") || strings.EqualFold(field, "Digest")
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
	ok := false
	for i, s := range b.states {
		u, wait := b.uses[i], s.Wait
		if wait == 0 || u.shadow {
			continue
		}
		if u.maxWait > 0 {
			wait = ls.wait(b, i, wait, s.Tokens)
		}
		ok = ok || wait > u.maxWait || ls.full(b, i, p.cfg.Tiers.MaxWaiting, false)
		if wait > v.RetryAfter {
			v = store.Verdict{Refused: i, RetryAfter: wait}
		}
	}
	return v, ok
}

// admit asks the store, or who stands in for it while it fails: no failure of
// a store refuses a request.
func (l *Limiter) admit(ctx context.Context, p *policy, b *basket) store.Verdict {
	v, states, err := l.spend(ctx, b)
	if err == nil {
		b.states, b.by = states, l.store
		b.arrived()
		return v
	}
	b.states, b.by = b.states[:0], nil
	l.storeFailed("admit", err)
	if p.cfg.Store.OnError == "allow" {
		return store.Verdict{Refused: -1}
	}
	if v, b.states, err = l.local.Admit(ctx, b.checks, b.states); err != nil {
		return store.Verdict{Refused: -1}
	}
	b.by = l.local
	b.arrived()
	return v
}

func (l *Limiter) countShadows(c *classPolicy, b *basket) {
	for i, s := range b.states {
		if b.uses[i].always && b.hasArrived {
			s.Wait = b.arrivalWait
		}
		if b.uses[i].shadow && s.Wait > 0 {
			l.refused(b.uses[i].refusals, c.name, "shadow", b.uses[i].tier.name, problem.ReasonRate)
		}
	}
}

// throttled answers a request that a tier or window refused.
func (l *Limiter) throttled(t *transit, b *basket, v store.Verdict) {
	u := b.uses[v.Refused]
	t.arrived = t.arrived || b.hasArrived
	l.arrive(t)
	rej := problem.Rejection{
		Status: t.c.status, Reason: problem.ReasonRate,
		Class: string(t.c.name), Tier: u.tier.name, RetryAfter: v.RetryAfter,
	}
	if t.p.headers.IETF {
		rej.SetHeaders(t.w.Header()) // Retry-After, which RateLimit must not outlast
	}
	t.tell(b, v.Refused, true)
	l.refused(u.refusals, t.c.name, "tier", u.tier.name, problem.ReasonRate)
	l.refuse(t.w, t.r, t.p, t.c.kind, rej)
}

// denied answers a request on the deny list.
func (l *Limiter) denied(t *transit) bool {
	l.arrive(t)
	l.refused(&t.c.count.denied, t.c.name, "deny", "", problem.ReasonDenied)
	l.refuse(t.w, t.r, t.p, t.c.kind, problem.Rejection{
		Status: http.StatusForbidden, Reason: problem.ReasonDenied, Class: string(t.c.name), RetryAfter: time.Hour,
	})
	return false
}

// misleading answers a request whose path could be read in two ways. What it
// would have cost is not known, so it costs nothing; nor does it do anything.
func (l *Limiter) misleading(w http.ResponseWriter, r *http.Request, p *policy) {
	l.refused(&l.counts.class(classOther).denied, classOther, "path", "", problem.ReasonDenied)
	l.refuse(w, r, p, KindAPI, problem.Rejection{
		Status: http.StatusBadRequest, Reason: problem.ReasonDenied, Class: string(classOther), RetryAfter: time.Hour,
	})
}
