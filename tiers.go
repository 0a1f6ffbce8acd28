package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/clientip"
	"github.com/weir-go/weir/store"
)

// The built-in tiers (requirement T1).
const (
	TierGlobal     = "global"      // one bucket for all
	TierPerIP      = "per_ip"      // one for each client address
	TierPerAccount = "per_account" // one for each account
)

// tierNames returns the names of all tiers in the order they are asked.
func (c *Config) tierNames() []string {
	list := []string{TierGlobal, TierPerIP}
	for _, t := range c.Tiers.Custom {
		list = append(list, t.Name)
	}
	return append(list, TierPerAccount)
}

// tierConfig returns a tier by name. Custom tiers look like built-in ones.
func (c *Config) tierConfig(name string) (TierConfig, bool) {
	switch name {
	case TierGlobal:
		return c.Tiers.Global, true
	case TierPerIP:
		return c.Tiers.PerIP, true
	case TierPerAccount:
		return c.Tiers.PerAccount, true
	}
	i := slices.IndexFunc(c.Tiers.Custom, func(t CustomTierConfig) bool { return t.Name == name })
	if i < 0 {
		return TierConfig{}, false
	}
	t := c.Tiers.Custom[i]
	return TierConfig{t.Rate, t.Burst, t.Overrides, t.MaxWait}, true
}

func (c *Config) tierLimit(name string) (Limit, bool) {
	t, ok := c.tierConfig(name)
	return Limit{t.Rate, t.Burst}, ok
}

func (c *Config) overridesOf(name string) map[string]Limit {
	t, _ := c.tierConfig(name)
	return t.Overrides
}

func (c *Config) tierPath(name string) string {
	if i := slices.IndexFunc(c.Tiers.Custom, func(t CustomTierConfig) bool { return t.Name == name }); i >= 0 {
		return fmt.Sprintf("tiers.custom[%d]", i)
	}
	return "tiers." + name
}

// source says where a tier's key comes from.
type source uint8

const (
	fromNothing source = iota // one bucket
	fromAddress
	fromAccount
	fromFunc
)

// tier is one tier, compiled.
type tier struct {
	name      string
	source    source
	overrides map[store.Key]store.Limit // by account or custom key
	networks  networkLimits             // by address
	key       func(*http.Request) (string, bool)
	unkeyed   *counter // requests it did not apply to for want of a key
}

// networkLimits finds the limit of the longest network around an address: one
// map look-up for each prefix length in use.
type networkLimits struct {
	bits  []int // longest first
	limit map[netip.Prefix]store.Limit
}

func (n *networkLimits) add(p netip.Prefix, l store.Limit) {
	if n.limit == nil {
		n.limit = map[netip.Prefix]store.Limit{}
	}
	n.limit[p] = l
	if !slices.Contains(n.bits, p.Bits()) {
		n.bits = append(n.bits, p.Bits())
		slices.Sort(n.bits)
		slices.Reverse(n.bits)
	}
}

func (n *networkLimits) of(a netip.Addr) (store.Limit, bool) {
	for _, bits := range n.bits {
		if p, err := a.Prefix(bits); err == nil {
			if l, ok := n.limit[p]; ok {
				return l, true
			}
		}
	}
	return store.Limit{}, false
}

// keyer turns ids into store keys: the first 128 bits of SHA-256 over a
// 32-byte secret and the length-prefixed parts. No part can be mistaken for
// another (requirement S12), no id leaves the request in clear, and cutting
// the hash in half leaves nothing to extend. HMAC would be the textbook
// choice; on an input that is prefix-free and an output that is cut it adds
// nothing but two more rounds of hashing to every request.
type keyer struct{ secret [32]byte }

func (k *keyer) key(domain, id string) (key store.Key) {
	var array [256]byte
	b := append(array[:0], k.secret[:]...)
	b = append(b, byte(len(domain)))
	b = append(b, domain...)
	b = append(b, id...)
	sum := sha256.Sum256(b)
	copy(key[:], sum[:])
	return key
}

// fingerprint stands for the secret, for replicas to compare.
func (k *keyer) fingerprint() string {
	key := k.key("store/fingerprint", "")
	return hex.EncodeToString(key[:])
}

// Keys that stand for the callers without an address. No client has such an
// address: ff00::/8 is multicast, which is never taken for a peer.
var (
	keyUnknown = store.Key{0xff, 0xff, 'n', 'o', 'n', 'e'}
	keyUnix    = store.Key{0xff, 0xff, 'u', 'n', 'i', 'x'}
)

// asker is who sent a request, as far as its connection and headers tell.
type asker struct {
	addr   netip.Addr // whole; invalid if there is none
	key    store.Key  // what is counted
	source clientip.Source
	direct bool // from this machine itself; found only where it matters
}

// counted is the first address of the network that counts as this client;
// invalid for one without an address.
func (a *asker) counted() netip.Addr {
	if !a.addr.IsValid() {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a.key).Unmap()
}

// ask finds out who sent r, and counts the headers that could not be believed.
func (l *Limiter) ask(p *policy, r *http.Request) asker {
	res := p.resolver.Resolve(r)
	if doubtful(res.Reason) {
		l.counts.address[res.Reason].add(1)
		l.logDoubt(res.Reason)
	}
	a := asker{addr: res.Addr, source: res.Source, direct: p.lock != nil && p.lock.direct && clientip.DirectLoopback(r)}
	switch {
	case res.Addr.IsValid():
		a.key = p.prefixOf(res.Addr).Addr().As16()
	case res.Unix:
		a.key = keyUnix
	default:
		a.key = keyUnknown
	}
	return a
}

// prefixOf returns the network that counts as one client, invalid for an
// invalid address.
func (p *policy) prefixOf(a netip.Addr) netip.Prefix {
	return clientip.Prefix(a, p.cfg.ClientIP.IPv4Prefix, p.cfg.ClientIP.IPv6Prefix)
}

// doubtful reports whether a reason is worth counting: a proxy that is trusted
// sent something that is no answer.
func doubtful(r clientip.Reason) bool {
	switch r {
	case clientip.None, clientip.NoTrust, clientip.UntrustedPeer:
		return false
	}
	return true
}

// basket is the scratch space of one decision. It is pooled: a store retains
// nothing it is given, so nothing of it outlives the decision.
type basket struct {
	checks []store.Check
	uses   []*tierUse // beside checks
	states []store.State
	by     store.Store // who decided; nil if nobody could
	early  *early      // the attempt that begins with it, or nil

	who         store.Key     // the address that asks
	bodyRead    bool          // nobody has to read it to notice that the client left
	hidden      bool          // its account, if it has one
	claimant    store.Key     // who claims the account, if nobody vouches for it
	hasArrived  bool          // counted as an arrival, see arrived
	arrivalWait time.Duration // that the process ceiling then had for it
}

func (b *basket) reset() {
	*b = basket{checks: b.checks[:0], uses: b.uses[:0], states: b.states[:0]}
}

// charge is what check i of an admitted request has taken: nothing where
// nobody could decide, or where a tier in shadow mode lacked the tokens.
func (b *basket) charge(i int) charge {
	if i >= len(b.states) || b.states[i].Wait > 0 {
		return charge{}
	}
	return charge{b.by, b.uses[i], b.checks[i].Key}
}

func (b *basket) add(u *tierUse, key store.Key, l store.Limit) {
	b.checks = append(b.checks, store.Check{
		Scope: u.scope, Key: key, Limit: l, Cost: u.cost, Shadow: u.shadow, Window: u.window, Always: u.always,
	})
	b.uses = append(b.uses, u)
}

// addNetwork adds the checks that need no identity.
func (b *basket) addNetwork(l *Limiter, c *classPolicy, r *http.Request, who *asker) {
	for i := range c.uses[:c.network] {
		u := &c.uses[i]
		limit, key := u.limit, store.Key{}
		switch u.tier.source {
		case fromAddress:
			key = who.key
			if u.overrides && len(u.tier.networks.bits) > 0 {
				// By the address that is counted: one that carries an IPv4
				// address is in that one's bucket, which has one limit.
				if o, ok := u.tier.networks.of(who.counted()); ok {
					limit = o
				}
			}
		case fromFunc:
			id, ok := l.callKey(u.tier, r)
			if !ok {
				u.tier.unkeyed.add(1)
				continue
			}
			key = l.keyer.key(u.tier.name, id)
			limit = u.limitOf(key)
		}
		b.add(u, key, limit)
	}
}

// addAccount adds the checks of the account.
func (b *basket) addAccount(c *classPolicy, account store.Key) {
	for i := range c.uses[c.network:] {
		u := &c.uses[c.network+i]
		b.add(u, account, u.limitOf(account))
	}
}

func (u *tierUse) limitOf(key store.Key) store.Limit {
	if u.overrides {
		if o, ok := u.tier.overrides[key]; ok {
			return o
		}
	}
	return u.limit
}
