package weir

import (
	"context"
	"net/http"
	"net/netip"
	"sync"

	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/store"
)

// visit is what is known of one request, and the context that carries it: one
// allocation instead of a value inside a context.WithValue. It is never
// pooled, for handlers may outlive their request.
type visit struct {
	context.Context
	l   *Limiter
	p   *policy // in force when the request came
	who asker

	passing sync.Mutex // held on the way through the tiers, before mu

	mu      sync.Mutex   // guards what follows
	c       *classPolicy // nil: no class
	account string       // as claimed, or as set by SetAccount
	sign    *signIn      // the answer inside the auth lock's stage; nil outside
	slots   []slot       // of guards
	first   [1]slot      // room for slots: most requests meet one guard
	outcome
}

// outcome is what tiers and windows left behind.
type outcome struct {
	passed        stages   // been through
	sure          bool     // somebody vouches for the account
	verified      bool     // the program did, for this very request
	arrived       bool     // counted as an arrival
	exempt        bool     // by network or class: whoever it is pays nothing
	spent         charge   // the account's token
	tightest      *tierUse // the one with the fewest requests left, or nil
	tokens, burst float64  // of it
}

// charge is a token taken from an account. The zero charge is none.
type charge struct {
	from store.Store // the one that lent it
	use  *tierUse
	key  store.Key
}

type visitKey struct{}

// Value answers the one key of this package and leaves the rest to the parent.
func (v *visit) Value(key any) any {
	if key == (visitKey{}) {
		return v
	}
	return v.Context.Value(key)
}

func visitFrom(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// visitOf returns the visit that a stage of this Limiter has made, also where
// one of another Limiter lies over it, or nil.
func (l *Limiter) visitOf(ctx context.Context) *visit {
	v := visitFrom(ctx)
	for v != nil && v.l != l {
		v = visitFrom(v.Context)
	}
	return v
}

func (v *visit) class() *classPolicy {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.c
}

// visit returns the request's visit and the request that carries it, making
// both where no stage of this Limiter has. Under a disabled policy the visit is
// nil.
func (l *Limiter) visit(r *http.Request) (*visit, *http.Request) {
	if v := l.visitOf(r.Context()); v != nil {
		return v, r
	}
	p := l.policy.Load()
	if !p.on {
		return nil, r
	}
	v := &visit{Context: r.Context(), l: l, p: p, who: l.ask(p, r), c: p.endpoints.of(r)}
	return v, r.WithContext(v)
}

// Info is what a [Limiter] knows of a request. It is a copy: it stays valid
// when the request has ended.
type Info struct {
	Addr    netip.Addr   // the client, unmapped; invalid for a unix peer or where there is none
	Prefix  netip.Prefix // what is counted as one client; invalid where Addr is
	Source  string       // where Addr comes from: peer, xff, xrealip, forwarded, leftmost, single
	Class   Class        // "" if the request has none
	Account string       // as claimed, or as set by SetAccount; "" if none
	Backend string       // of the class, as its Endpoint says; "" if none
	// Tier is the tier or window with the fewest requests left when the
	// request was admitted; "" if it met none. Remaining is what was then left
	// in it, of Burst.
	Tier             string
	Remaining, Burst float64
}

// FromContext returns what is known of the request that ctx belongs to. ok is
// false outside a Limiter's handlers.
func FromContext(ctx context.Context) (info Info, ok bool) {
	v := visitFrom(ctx)
	if v == nil {
		return Info{}, false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	info = Info{
		Addr: v.who.addr, Prefix: v.p.prefixOf(v.who.addr), Source: v.who.source.String(),
		Account: v.account, Remaining: v.tokens, Burst: v.burst,
	}
	if v.tightest != nil {
		info.Tier = v.tightest.tier.name
	}
	if v.c != nil {
		info.Class, info.Backend = v.c.name, v.c.backend
	}
	return info, true
}

// SetAccount says who the request is from, once the program has verified it
// (requirement T8). Between [Limiter.ClientIP] and [Limiter.Handler] it decides
// whose account tier and window are asked. Later, in a handler, it moves the
// charge: a token taken from another account, which the request only claimed,
// goes back, and the verified one pays if it still can; the request itself is
// not refused any more. Where Limiters are nested it holds for each of them.
// Outside a Limiter's handlers it does nothing.
func SetAccount(ctx context.Context, id string) {
	for v := visitFrom(ctx); v != nil; v = visitFrom(v.Context) {
		v.setAccount(id)
	}
}

func (v *visit) setAccount(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sure, v.verified = id != "", id != ""
	if v.account == id || id != "" && v.claimsLocked(id) {
		return
	}
	v.account = id
	if v.passed&stageTiers == 0 || v.c == nil {
		return
	}
	v.refundLocked()
	key := v.l.keyer.key(TierPerAccount, id)
	if id == "" || v.exempt || v.p.exempt.accounts[key] {
		return
	}
	var b basket
	b.addAccount(v.classNowLocked(), key)
	// The parent's context: a store that looks at this one for the request's
	// Info would wait for v.mu.
	if len(b.checks) > 0 && v.l.admit(context.WithoutCancel(v.Context), v.p, &b).Admitted() {
		v.spent = b.charge(0)
	}
}

// claimsLocked reports whether the request claims to come from that account,
// in another spelling: the kid itself, where it is known by its path, or a user
// in another case. v.mu is held.
func (v *visit) claimsLocked(id string) bool {
	if v.account == jws.AccountPath(id) {
		return true
	}
	user, ok := folded(id, true)
	return ok && v.c != nil && v.c.kind == KindEST && v.account == user
}

// classNowLocked is the request's class as the policy now in force has it: to
// touch a bucket with the burst it had would cut off what a Reload has added.
// v.mu is held.
func (v *visit) classNowLocked() *classPolicy {
	if c := v.l.policy.Load().classes[v.c.name]; c != nil {
		return c
	}
	return v.c
}

// Disown says that the caller is not who it claimed to be: the token that the
// request took from that account goes back, once (requirement T9). What it
// took from its address and from all stays spent. Where Limiters are nested it
// holds for each of them. Outside a Limiter's handlers, or for a request
// without an account, it does nothing.
func Disown(ctx context.Context) {
	for v := visitFrom(ctx); v != nil; v = visitFrom(v.Context) {
		v.disown()
	}
}

func (v *visit) disown() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.refundLocked()
	v.account, v.sure, v.verified = "", false, false
}

// refundLocked gives the account's token back. v.mu is held.
func (v *visit) refundLocked() {
	spent := v.spent
	if spent.from == nil {
		return
	}
	v.spent = charge{}
	limit := spent.use.limitOf(spent.key)
	c := v.classNowLocked()
	for _, u := range c.uses {
		if u.scope == spent.use.scope {
			limit = u.limitOf(spent.key)
		}
	}
	if u := c.renewal; u != nil && u.scope == spent.use.scope {
		limit = u.limit
	}
	var b basket
	b.add(spent.use, spent.key, limit)
	// The caller may have gone; its token is due all the same.
	if err := spent.from.Refund(context.WithoutCancel(v.Context), b.checks); err != nil {
		v.l.storeFailed("refund", err)
	}
}
