package weir

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/clientip"
	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/internal/quota"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// policy is a Config compiled: immutable, loaded once for each request.
type policy struct {
	on        bool
	cfg       Config // with its defaults filled in
	given     Config // as it was given
	resolver  *clientip.Resolver
	endpoints endpoints
	classes   map[Class]*classPolicy
	scopes    []scope
	exempt    identities
	deny      identities
	headers   quota.Headers
	lock      *lockPolicy // nil: no auth lock
	exclude   exclusions  // outside the keyed windows
	guards    map[string]*Guard
	leases    map[string]time.Duration // by scope
	writers   map[Kind]problem.Writer

	guardPolicies map[string]*guardPolicy
	advice        []Advice // about what only the options say
}

// scope is one table of buckets in the store.
type scope struct {
	name  string // in the store
	label string // in metrics
	store.Scope
}

// identities are networks and accounts on a list.
type identities struct {
	networks clientip.Networks
	accounts map[store.Key]bool
}

func (id *identities) hasAddr(who *asker) bool {
	return who.addr.IsValid() && id.networks.Contains(who.addr)
}

// compile turns a Config into a policy, or reports every fault in it.
func (l *Limiter) compile(given Config) (*policy, error) {
	p := &policy{given: given.clone(), guards: map[string]*Guard{}, guardPolicies: map[string]*guardPolicy{}, leases: map[string]time.Duration{}}
	if !given.Enabled {
		return p, nil
	}
	p.on, p.cfg = true, given.withDefaults()
	if l.opts.store != nil {
		p.cfg.Store.Backend = "" // not looked at: see WithStore
	}
	f := &faults{}
	p.cfg.validate(f)
	sizes := l.validateOptions(&p.cfg, f)
	l.validateReload(&p.cfg, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	p.resolver, _, _ = p.cfg.ClientIP.resolver()
	p.exempt = l.identities(p.cfg.Exempt.Networks, p.cfg.Exempt.Accounts)
	p.deny = l.identities(p.cfg.Deny.Networks, p.cfg.Deny.Accounts)
	p.writers = writers(l.opts.writers)
	p.headers.Mode, _ = quota.ParseMode(p.cfg.Headers.RateLimit)
	p.headers.IETF = p.cfg.Headers.IETF
	p.lock = compileLock(&p.cfg)
	if w := &p.cfg.Windows; w.Enabled {
		p.exclude = newExclusions(w.Exclude)
	}
	for name, g := range p.cfg.Guards {
		p.compileGuard(l.guardNamed(name), g, sizes[name])
	}
	p.compileClasses(l)
	return p, nil
}

// validateOptions finds what the Config needs from the options. It returns the
// sizes of the pools, each asked once: a second answer might be another.
func (l *Limiter) validateOptions(c *Config, f *faults) map[string]int {
	for i, t := range c.Tiers.Custom {
		if l.opts.keys[t.Name] == nil {
			f.add(fmt.Sprintf("tiers.custom[%d].name", i), t.Name, ReasonMissing, "the tier has no key function: pass WithKey(%q, …) to New", t.Name)
		}
	}
	if l.opts.renewal != nil {
		if !slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Renewals }) {
			f.add("option.WithRenewal", nil, ReasonInert, "no endpoint asks it: set renewals on that of new-order, or leave the option out")
		}
		if !c.Tiers.Renewal.active() {
			f.add("tiers.renewal", nil, ReasonMissing, "what WithRenewal exempts needs a ceiling of its own: write a rate and a burst")
		}
	}
	sizes := map[string]int{}
	for name, g := range c.Guards {
		if g.MaxInFlight != 0 {
			continue
		}
		path := "guards." + name + ".max_in_flight"
		if size := l.opts.poolSizes[name]; size == nil {
			f.add(path, nil, ReasonMissing, "write how many may be at work at once, or pass WithPoolSize(%q, …) to New", name)
		} else if sizes[name] = size(); sizes[name] < 1 {
			f.add(path, sizes[name], ReasonOutOfRange, "the function of WithPoolSize(%q, …) must return at least 1", name)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(l.opts.writers)) {
		if !slices.Contains(kinds, kind) {
			f.add("option.WithRejection", string(kind), ReasonUnknown, "name a kind of endpoint: %s", kindNames())
		} else if l.opts.writers[kind] == nil {
			f.add("option.WithRejection", string(kind), ReasonMissing, "give the Writer of that kind, or leave the option out")
		}
	}
	if help := l.opts.help; help != "" && !problem.ValidHelp(help) {
		f.add("option.WithHelp", help, ReasonInvalid, "write an absolute URL such as https://ca.example/limits, of printable ASCII without blanks, quotes or angle brackets")
	}
	return sizes
}

// validateReload finds what may not change any more.
func (l *Limiter) validateReload(c *Config, f *faults) {
	if l.bare {
		f.add("enabled", true, ReasonConflict, "a handler was wired while the Limiter was disabled, so it stands bare: build the Limiter and its handlers anew")
	}
	was := l.fixed
	if was == nil {
		return
	}
	if c.Namespace != was.Namespace {
		f.add("namespace", c.Namespace, ReasonConflict, "it names metrics and store keys and cannot change at run time: leave it %q, or build a new Limiter", was.Namespace)
	}
	if c.Store.Backend != was.Store.Backend {
		f.add("store.backend", c.Store.Backend, ReasonConflict, "it cannot change at run time: leave it %q, or build a new Limiter", was.Store.Backend)
	}
	if c.Store.Replicas != was.Store.Replicas {
		f.add("store.replicas", c.Store.Replicas, ReasonConflict, "it cannot change at run time: leave it %d, or build a new Limiter", was.Store.Replicas)
	}
	if c.Store.Redis != was.Store.Redis {
		f.add("store.redis", nil, ReasonConflict, "it cannot change at run time: leave it, or build a new Limiter")
	}
	if c.Store.KeySecret != was.Store.KeySecret {
		f.add("store.key_secret", nil, ReasonConflict, "it cannot change at run time, for every account's count would start anew: leave it, or build a new Limiter")
	}
	for _, class := range slices.Sorted(maps.Keys(l.wiredClasses)) {
		if !c.hasClass(class) {
			f.add("endpoints", string(class), ReasonConflict, "the class is wired with Protect and must stay defined")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.wiredGuards)) {
		if _, ok := c.Guards[name]; !ok {
			f.add("guards."+name, nil, ReasonConflict, "the guard is in use and must stay defined")
		}
	}
}

func (l *Limiter) identities(networks, accounts []string) identities {
	var id identities
	prefixes := make([]netip.Prefix, 0, len(networks))
	for _, n := range networks {
		if p, err := parseNetwork(n); err == nil {
			prefixes = append(prefixes, p)
		}
	}
	id.networks = clientip.NewNetworks(prefixes)
	for _, a := range accounts {
		if id.accounts == nil {
			id.accounts = map[store.Key]bool{}
		}
		for _, name := range spellings(a) {
			id.accounts[l.keyer.key(TierPerAccount, name)] = true
		}
	}
	return id
}

// spellings returns the names by which requests may know an account that a
// configuration names: an ACME one is known by the path of its URL, whatever
// the host, and its operator is likely to write the whole; an EST one by the
// one spelling of all that the auth lock takes for one.
func spellings(account string) []string {
	list := []string{account}
	if path := jws.AccountPath(account); path != account {
		list = append(list, path)
	}
	if user, ok := folded(account, true); ok && user != account && !strings.Contains(account, "/") {
		list = append(list, user)
	}
	return list
}

func (p *policy) compileClasses(l *Limiter) {
	cfg := &p.cfg
	tiers := map[string]*tier{}
	for _, name := range cfg.tierNames() {
		tiers[name] = l.compileTier(cfg, name)
	}
	p.classes = map[Class]*classPolicy{}
	var patterns []string
	var routes []*route
	for _, e := range cfg.Endpoints {
		c := p.classes[e.Class]
		if c == nil {
			c = p.compileClass(l, tiers, e)
		}
		if e.Pattern == "" {
			continue
		}
		i := slices.Index(patterns, e.Pattern)
		if i < 0 {
			i, patterns, routes = len(patterns), append(patterns, e.Pattern), append(routes, &route{})
		}
		if name, value, ok := splitQuery(e.Query); ok {
			routes[i].param, routes[i].values = name, append(routes[i].values, narrowing{value, c})
		} else {
			routes[i].class = c
		}
	}
	p.endpoints = newEndpoints(patterns, routes)
	if d := cfg.DefaultClass; d != "" {
		if p.classes[d] == nil {
			p.compileClass(l, tiers, Endpoint{Class: d, Kind: KindAPI, Mode: ModeWait, Cost: 1, Auth: AuthNone})
		}
		p.endpoints.fallback = p.classes[d]
	}
	if p.cfg.Windows.Enabled && p.cfg.Windows.Process > 0 || len(p.cfg.Deny.Networks) > 0 || len(p.cfg.Deny.Accounts) > 0 {
		p.endpoints.other = &classPolicy{name: classOther, kind: KindAPI, status: http.StatusTooManyRequests, count: l.counts.class(classOther)}
		p.compileWindows(l, p.endpoints.other)
	}
	slices.SortFunc(p.scopes, func(a, b scope) int { return strings.Compare(a.name, b.name) })
}

// compileTier resolves a tier's overrides and key function.
func (l *Limiter) compileTier(cfg *Config, name string) *tier {
	t := &tier{name: name}
	switch name {
	case TierGlobal:
		t.source = fromNothing
	case TierPerIP:
		t.source = fromAddress
	case TierPerAccount:
		t.source = fromAccount
	default:
		t.source, t.key, t.unkeyed = fromFunc, l.opts.keys[name], countIn(l.counts, l.counts.unkeyed, name)
	}
	over := cfg.overridesOf(name)
	for _, id := range slices.Sorted(maps.Keys(over)) {
		o := over[id]
		if !o.active() { // neither value: the tier's own limit, inside a wider network too
			o, _ = cfg.tierLimit(name)
		}
		if t.source == fromAddress {
			if p, err := parseNetwork(id); err == nil {
				bits := min(p.Bits(), cfg.clientBits(p.Addr()))
				p, _ = p.Addr().Prefix(bits)
				t.networks.add(p, store.Limit(o))
			}
			continue
		}
		if t.overrides == nil {
			t.overrides = map[store.Key]store.Limit{}
		}
		t.overrides[l.keyer.key(name, id)] = store.Limit(o)
		if t.source != fromAccount {
			continue
		}
		for _, other := range spellings(id)[1:] { // unless that is written too
			if _, own := over[other]; !own {
				t.overrides[l.keyer.key(name, other)] = store.Limit(o)
			}
		}
	}
	return t
}

// compileClass resolves what a class spends from. Tiers that are inert leave
// no trace (requirements T2 and T7).
func (p *policy) compileClass(l *Limiter, tiers map[string]*tier, e Endpoint) *classPolicy {
	cfg := &p.cfg
	c := &classPolicy{name: e.Class, kind: e.Kind, mode: e.Mode, count: l.counts.class(e.Class)}
	c.guard, c.backend = p.guards[e.Guard], e.Backend
	c.auth, c.disown, c.status = e.Auth, e.Disown, cmp.Or(e.Status, http.StatusTooManyRequests)
	if gp := p.guardPolicies[e.Guard]; gp != nil {
		c.work, c.acquireWait = gp.kindOf(e.Class), gp.waitOf(c)
	}
	c.exempt = slices.Contains(cfg.Exempt.Classes, e.Class)
	if c.kind == KindACME {
		c.unfinished = countIn(l.counts, c.count.throttled, tierUnfinished)
	}
	for _, name := range cfg.tierNames() {
		tc, _ := cfg.tierConfig(name)
		limit, own := e.Limits[name]
		if !own {
			limit = Limit{tc.Rate, tc.Burst}
		}
		if !limit.active() {
			continue
		}
		u := tierUse{
			tier: tiers[name], limit: store.Limit(limit), cost: e.Cost, overrides: !own,
			maxWait: time.Duration(cfg.Tiers.MaxWait),
		}
		p.count(l, c, &u)
		for _, d := range []*Duration{tc.MaxWait, e.MaxWait} {
			if d != nil {
				u.maxWait = time.Duration(*d)
			}
		}
		label := name
		if own {
			label = name + "/" + string(e.Class)
		}
		u.scope = cfg.Namespace + "/" + label
		if lease := cfg.Store.Leases[name]; lease > 0 {
			p.leases[u.scope] = time.Duration(lease)
		}
		p.addScope(label, &u)
		c.uses = append(c.uses, u)
		if name != TierPerAccount {
			c.network = len(c.uses)
		}
	}
	p.compileRenewal(l, c, e)
	p.compileWindows(l, c)
	p.classes[e.Class] = c
	return c
}

// count gives a use its counter, and tells whether it is in shadow mode.
func (p *policy) count(l *Limiter, c *classPolicy, u *tierUse) {
	by := c.count.throttled
	if u.shadow = slices.Contains(p.cfg.Shadow, u.tier.name); u.shadow {
		by = c.count.shadowed
	}
	u.refusals = countIn(l.counts, by, u.tier.name)
}

// addScope notes the table that a use spends from, so that the store can be
// told how to keep it. The global tier has a single bucket and no table.
func (p *policy) addScope(label string, u *tierUse) {
	if u.tier.source == fromNothing || slices.ContainsFunc(p.scopes, func(s scope) bool { return s.name == u.scope }) {
		return
	}
	sc := store.Scope{Name: u.scope, MaxKeys: p.cfg.Tiers.MaxKeys, IdleTTL: time.Duration(p.cfg.Tiers.IdleTTL), Limit: u.limit, Window: u.window}
	if u.overrides && (len(u.tier.overrides) > 0 || len(u.tier.networks.bits) > 0) {
		use := *u
		sc.LimitOf = func(key store.Key) store.Limit { return use.limitOfKey(key) }
	}
	p.scopes = append(p.scopes, scope{name: u.scope, label: label, Scope: sc})
}

// limitOfKey is the limit in force for a key as the store holds it.
func (u *tierUse) limitOfKey(key store.Key) store.Limit {
	if u.tier.source == fromAddress {
		if o, ok := u.tier.networks.of(netip.AddrFrom16(key).Unmap()); ok {
			return o
		}
	}
	return u.limitOf(key)
}
