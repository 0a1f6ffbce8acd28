package weir

import (
	"context"
	"time"

	"github.com/weir-go/weir/store"
)

// TierRenewal is the tier that an exempt renewal spends from in the place of
// its account's.
const TierRenewal = "renewal"

// Renewal is an order that says which certificate it replaces (RFC 9773,
// section 5), as whoever sent it says: no signature has been checked.
type Renewal struct {
	Account string // as Info.Account
	CertID  string // AKI.serial in base64url (RFC 9773, section 4.1), in its one spelling
}

// WithRenewal exempts renewals from the account tier, and from nothing else, if
// f vouches for them (requirement T16): that the certificate exists, belongs to
// the account, is due, and has not been replaced yet. A renewal that f returns
// true for spends from TiersConfig.Renewal instead; any other order, and those
// above that ceiling, from the account tier as ever. It is for classes whose
// endpoint has Renewals, as new-order of [PKIEndpoints].
//
// f is asked before the signature is checked, and serial numbers are no
// secret. What a stranger spends in an account's name comes back as from the
// account tier (see [Endpoint].Disown), and f may look into a database without
// becoming a way to flood it: it is not asked where an address, a global or a
// custom tier already refuses, nor above the ceiling; an address that f has
// returned false for 20 times is asked about once a second only; and at most
// 64 calls run at once. ctx ends with the request, and after a second at the
// latest. A call that takes longer, or panics, counts as false; it is logged.
func WithRenewal(f func(ctx context.Context, r Renewal) bool) Option {
	return optionFunc(func(o *options) { o.renewal = f })
}

const (
	renewalTimeout = time.Second
	maxRenewing    = 64 // calls of the hook at once
)

// unverified bounds what the hook is asked for one address in vain.
var unverified = store.Limit{Rate: 1, Burst: 20}

// The outcomes of a renewal, as words in metrics.
const (
	renewalExempt     = iota // the hook vouches for it
	renewalUnverified        // the hook does not
	renewalUnasked           // the ceiling is reached, or the hook has been asked too much
	renewalFailed            // the hook panicked, or took too long
)

var renewalOutcomes = [...]string{"exempt", "unverified", "unasked", "failed"}

// renews reports whether the request is a renewal that spends from the
// renewal tier and not from that of its account.
func (l *Limiter) renews(t *transit, account store.Key) bool {
	if t.c.renewal == nil || t.replaces == "" {
		return false
	}
	outcome := l.askRenewal(t, account)
	t.c.count.renewals[outcome].add(1)
	return outcome == renewalExempt
}

// askRenewal asks the hook where there is room for that. What it may be asked
// in vain is counted in this process: it is this process that asks.
func (l *Limiter) askRenewal(t *transit, account store.Key) int {
	ctx := t.r.Context()
	u := t.c.renewal
	ceiling := basket{}
	ceiling.add(u, account, u.limit)
	if v, ok := l.peek(ctx, t.p, &ceiling); ok && !v.Admitted() {
		return renewalUnasked
	}
	vain := []store.Check{{Scope: u.scope + "/unverified", Key: t.who.key, Limit: unverified, Cost: 1}}
	if v, _, err := l.local.Admit(ctx, vain, nil); err != nil || !v.Admitted() {
		return renewalUnasked
	}
	select {
	case l.renewing <- struct{}{}:
	default:
		_ = l.local.Refund(ctx, vain)
		return renewalUnasked
	}
	outcome := l.callRenewal(ctx, Renewal{Account: t.account, CertID: t.replaces})
	if outcome == renewalExempt {
		_ = l.local.Refund(ctx, vain)
	}
	return outcome
}

// callRenewal runs the hook beside the request, so that one that hangs costs
// the request a second and not its life. It gives back the place among those
// that run when it returns, however late.
func (l *Limiter) callRenewal(ctx context.Context, r Renewal) int {
	ctx, cancel := context.WithTimeout(ctx, renewalTimeout)
	defer cancel()
	answer := make(chan int, 1)
	go func() {
		outcome := renewalFailed
		defer func() {
			<-l.renewing
			answer <- outcome
		}()
		outcome = l.runRenewal(ctx, r)
	}()
	select {
	case outcome := <-answer:
		return outcome
	case <-ctx.Done():
	}
	if ctx.Err() == context.DeadlineExceeded {
		if n, due := l.logs.open("renewal", "timeout"); due {
			l.log.Error("weir: the hook of WithRenewal took too long; such orders spend from the account tier", "limit", renewalTimeout, "times", n)
		}
	}
	return renewalFailed
}

func (l *Limiter) runRenewal(ctx context.Context, r Renewal) (outcome int) {
	outcome = renewalFailed
	ok := true
	defer l.contain("renewal", &ok)
	if l.opts.renewal(ctx, r) {
		return renewalExempt
	}
	return renewalUnverified
}

// compileRenewal resolves what renewals of a class spend from; nothing where
// there is no hook, or no account tier to be exempted from.
func (p *policy) compileRenewal(l *Limiter, c *classPolicy, e Endpoint) {
	limit := p.cfg.Tiers.Renewal
	if !e.Renewals || l.opts.renewal == nil || !limit.active() || len(c.uses) == c.network {
		return
	}
	u := &tierUse{tier: &tier{name: TierRenewal, source: fromAccount}, limit: store.Limit(limit), cost: e.Cost}
	u.scope = p.cfg.Namespace + "/" + TierRenewal
	p.count(l, c, u)
	p.addScope(TierRenewal, u)
	c.renewal = u
	c.count.renewing.Store(true)
}

// validateRenewals finds what is wrong with an endpoint's renewals.
func (c *Config) validateRenewals(f *faults, path string, e Endpoint) {
	switch limit := c.Tiers.Renewal; {
	case !e.Renewals:
	case e.Kind != KindACME:
		f.add(path, true, ReasonInert, "only an ACME order says what it replaces: set kind to acme, or drop it")
	case limit.active() && e.Cost > limit.Burst:
		f.add(path, true, ReasonConflict, "an order costs %v, more than the burst of tiers.renewal (%v), so none would be exempt: raise the burst or lower the cost", e.Cost, limit.Burst)
	}
}
