package weir

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/clientip"
	"github.com/weir-go/weir/store"
)

var (
	wordPattern      = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	namespacePattern = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)
	envPattern       = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
)

// Validate returns every fault of the Config at once, joined, in the order of
// its fields, or nil. A disabled Config has none: nothing in it is in force.
// Faults that concern options (a custom tier without its key function, a guard
// without a size) are found by [New].
func (c Config) Validate() error {
	if !c.Enabled {
		return nil
	}
	f := &faults{}
	c = c.withDefaults()
	c.validate(f)
	return f.err()
}

// withDefaults fills in the knobs for which 0 means the default, so that a
// Config written from scratch works like one that started from DefaultConfig.
// Rates and bursts are not among them: 0 is no limit.
func (c Config) withDefaults() Config {
	c = c.clone()
	d := DefaultConfig()
	orDefault(&c.Namespace, d.Namespace)
	orDefault(&c.ClientIP.Header, d.ClientIP.Header)
	orDefault(&c.ClientIP.IPv4Prefix, d.ClientIP.IPv4Prefix)
	orDefault(&c.ClientIP.IPv6Prefix, d.ClientIP.IPv6Prefix)
	orDefault(&c.Tiers.MaxKeys, d.Tiers.MaxKeys)
	orDefault(&c.Tiers.IdleTTL, d.Tiers.IdleTTL)
	orDefault(&c.Tiers.MaxWaiting, d.Tiers.MaxWaiting)
	orDefault(&c.Windows.Window, d.Windows.Window)
	c.AuthLock.defaults(d.AuthLock)
	orDefault(&c.Headers.RateLimit, d.Headers.RateLimit)
	orDefault(&c.Store.Backend, d.Store.Backend)
	orDefault(&c.Store.OnError, d.Store.OnError)
	orDefault(&c.Store.Replicas, d.Store.Replicas)
	orDefault(&c.Store.Redis.KeyPrefix, d.Store.Redis.KeyPrefix)
	orDefault(&c.Store.Redis.ConnectTimeout, d.Store.Redis.ConnectTimeout)
	orDefault(&c.Store.Redis.CommandTimeout, d.Store.Redis.CommandTimeout)
	c.guardDefaults()
	for i := range c.Endpoints {
		orDefault(&c.Endpoints[i].Kind, KindAPI)
		orDefault(&c.Endpoints[i].Mode, ModeWait)
		orDefault(&c.Endpoints[i].Cost, 1)
		orDefault(&c.Endpoints[i].Auth, c.Endpoints[i].Kind.auth())
	}
	return c
}

func orDefault[T comparable](p *T, def T) {
	if *p == *new(T) {
		*p = def
	}
}

// validate walks the fields in order. c has its defaults filled in.
func (c *Config) validate(f *faults) {
	if !namespacePattern.MatchString(c.Namespace) {
		f.add("namespace", c.Namespace, ReasonInvalid, "use letters, digits and _, not starting with a digit, at most 64")
	}
	c.validateClientIP(f)
	c.validateEndpoints(f)
	c.validateLists(f)
	c.validateTiers(f)
	if c.Windows.Enabled {
		c.validateWindows(f)
	}
	if c.AuthLock.Enabled {
		c.validateAuthLock(f)
	}
	c.validateGuards(f)
	if !slices.Contains([]string{"off", "rejected", "always"}, c.Headers.RateLimit) {
		f.add("headers.rate_limit", c.Headers.RateLimit, ReasonUnknown, "write off, rejected or always")
	}
	if !(c.RetryJitter >= 0 && c.RetryJitter <= 0.5) {
		f.add("retry_jitter", c.RetryJitter, ReasonOutOfRange, "write a fraction from 0 to 0.5")
	}
	c.validateStore(f)
	for i, name := range c.Shadow {
		if _, ok := c.tierLimit(name); !ok && !slices.Contains(windowNames, name) && name != StageAuthLock {
			f.add(fmt.Sprintf("shadow[%d]", i), name, ReasonUnknown, "name a tier or window, or %s: %s", StageAuthLock, strings.Join(append(c.tierNames(), windowNames...), ", "))
		}
	}
	if !c.active() {
		f.add("enabled", true, ReasonInert, "nothing is limited: give a tier a rate and a burst, name a guard in an endpoint, or set enabled to false")
	}
}

// active reports whether anything would ever be refused. That no request has a
// class is a fault of its own, so there the common tiers are looked at.
func (c *Config) active() bool {
	if len(c.Guards) > 0 || len(c.Deny.Networks) > 0 || len(c.Deny.Accounts) > 0 || c.Windows.Enabled || c.AuthLock.Enabled {
		return true
	}
	classes := c.Endpoints
	if c.DefaultClass != "" || len(classes) == 0 {
		classes = append(slices.Clip(classes), Endpoint{Class: c.DefaultClass})
	}
	return slices.ContainsFunc(classes, func(e Endpoint) bool {
		return !slices.Contains(c.Exempt.Classes, e.Class) && slices.ContainsFunc(c.tierNames(), func(tier string) bool {
			return c.limitFor(e, tier).active()
		})
	})
}

// limitFor is what a class may spend from a tier: its own buckets' limit, or
// the tier's.
func (c *Config) limitFor(e Endpoint, tier string) Limit {
	if own, ok := e.Limits[tier]; ok {
		return own
	}
	l, _ := c.tierLimit(tier)
	return l
}

func (l Limit) active() bool { return l.Rate > 0 && l.Burst > 0 }

func (c *Config) validateClientIP(f *faults) {
	_, errs, _ := c.ClientIP.resolver()
	for _, e := range errs {
		path := "client_ip." + e.Field
		if e.Index < 0 && e.Value == "" {
			f.add(path, nil, ReasonMissing, "%s: write %s", e.Message, e.Fix)
			continue
		}
		if e.Index >= 0 {
			path = fmt.Sprintf("%s[%d]", path, e.Index)
		}
		f.add(path, e.Value, ReasonInvalid, "it %s: write %s", e.Message, e.Fix)
	}
	if p := c.ClientIP.IPv4Prefix; p < 8 || p > 32 {
		f.add("client_ip.ipv4_prefix", p, ReasonOutOfRange, "write 8 to 32; 32 counts each address, 24 a carrier's block")
	}
	if p := c.ClientIP.IPv6Prefix; p < 16 || p > 128 {
		f.add("client_ip.ipv6_prefix", p, ReasonOutOfRange, "write 16 to 128; 64 is what one client usually holds")
	}
}

func (c ClientIPConfig) resolver() (*clientip.Resolver, []clientip.Fault, []clientip.Fault) {
	return clientip.New(clientip.Config{
		Trusted: c.TrustedProxies, Header: c.Header, XRealIP: c.XRealIP, AllowAny: c.InsecureTrustAny,
		// Any header but the default was chosen by somebody who means to trust it
		// (requirement I6). An empty list was not: it is how a file says "none".
		TrustRequired: !strings.EqualFold(c.Header, "x-forwarded-for") || c.InsecureTrustAny,
	})
}

func (c *Config) validateEndpoints(f *faults) {
	first := map[Class]int{}
	mux, patterns := http.NewServeMux(), make([]string, len(c.Endpoints))
	for i, e := range c.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		if e.Query == "" { // else the pattern is looked at where it stands alone
			patterns[i] = e.Pattern
		}
		if patterns[i] != "" {
			validatePattern(f, mux, patterns, i, func(i int) (path, name string) {
				return fmt.Sprintf("endpoints[%d].pattern", i), fmt.Sprintf("endpoints[%d]", i)
			})
		}
		c.validateClass(f, path+".class", e.Class)
		if e.Query != "" {
			c.validateQuery(f, path+".query", i)
		}
		if !slices.Contains(kinds, e.Kind) {
			f.add(path+".kind", string(e.Kind), ReasonUnknown, "write one of %s", kindNames())
		}
		if !(e.Cost > 0 && e.Cost <= math.MaxInt32) {
			f.add(path+".cost", e.Cost, ReasonOutOfRange, "write a number of tokens above 0; leave it out for 1")
		} else {
			c.validateCost(f, path+".cost", e.Cost, e)
		}
		if _, ok := c.Guards[e.Guard]; !ok && e.Guard != "" {
			f.add(path+".guard", e.Guard, ReasonUnknown, "define it under guards, or leave it empty; defined are: %s", names(c.Guards))
		}
		if e.Mode != ModeWait && e.Mode != ModeFail {
			f.add(path+".mode", string(e.Mode), ReasonUnknown, "write wait or fail")
		}
		validateWait(f, path+".max_wait", e.MaxWait)
		c.validateAuth(f, path, e)
		e.validateStatus(f, path+".status")
		c.validateRenewals(f, path+".renewals", e)
		for _, tier := range slices.Sorted(maps.Keys(e.Limits)) {
			p := path + ".limits." + tier
			if _, ok := c.tierLimit(tier); !ok {
				f.add(p, nil, ReasonUnknown, "name a tier: %s", strings.Join(c.tierNames(), ", "))
			}
			validateLimit(f, p, e.Limits[tier])
		}
		if j, ok := first[e.Class]; ok && !e.sameBut(c.Endpoints[j]) {
			f.add(path+".class", string(e.Class), ReasonConflict, "endpoints[%d] has the same class with other settings: make them alike, or give this one a class of its own", j)
		} else if !ok {
			first[e.Class] = i
		}
	}
	if c.DefaultClass != "" {
		c.validateClass(f, "default_class", c.DefaultClass)
		if _, ok := first[c.DefaultClass]; !ok {
			c.validateCost(f, "default_class", string(c.DefaultClass), Endpoint{Cost: 1})
		}
	}
	// A guard alone may be all that is wanted, for the program to acquire.
	if len(c.Endpoints) == 0 && c.DefaultClass == "" && (len(c.Guards) == 0 && !c.AuthLock.Enabled || c.limitsAny()) {
		f.add("endpoints", nil, ReasonInert, "no request would have a class, so none would be limited: set endpoints (see PKIEndpoints) or default_class")
	}
}

// limitsAny reports whether any tier has a limit.
func (c *Config) limitsAny() bool {
	return slices.ContainsFunc(c.tierNames(), func(tier string) bool { l, _ := c.tierLimit(tier); return l.active() })
}

// validatePattern asks ServeMux about pattern i of a list: alone, and beside
// those before it, which mux has. place names a list element: its path, and what to call it.
func validatePattern(f *faults, mux *http.ServeMux, patterns []string, i int, place func(int) (path, name string)) {
	pattern := patterns[i]
	path, _ := place(i)
	if err := register(http.NewServeMux(), pattern); err != nil {
		_, why, _ := strings.Cut(err.Error(), ": ")
		f.add(path, pattern, ReasonInvalid, "ServeMux cannot read it (%s): write a method, a blank and a path, such as POST /acme/new-order, or the path alone", why)
		return
	}
	if end := strings.IndexAny(pattern, " \t"); end > 0 && pattern[:end] != strings.ToUpper(pattern[:end]) {
		f.add(path, pattern, ReasonInvalid, "no client sends that method: write %s", strings.ToUpper(pattern[:end]))
	}
	if register(mux, pattern) == nil {
		return
	}
	for j, other := range patterns[:i] { // which of them is it?
		pair := http.NewServeMux()
		if other != "" && register(pair, other) == nil && register(pair, pattern) != nil {
			_, name := place(j)
			f.add(path, pattern, ReasonConflict, "it and that of %s (%s) match some of the same requests, and neither is the narrower: change one of the two, or drop it", name, other)
			return
		}
	}
}

// register adds a pattern, turning ServeMux's panic into an error.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

func (c *Config) validateClass(f *faults, path string, class Class) {
	switch {
	case class == "":
		f.add(path, nil, ReasonMissing, "give a class, one lower-case word such as acme_new_order")
	case !wordPattern.MatchString(string(class)):
		f.add(path, string(class), ReasonInvalid, "use lower-case letters, digits and _, starting with a letter, at most 64")
	case class == classDirect:
		f.add(path, string(class), ReasonConflict, "in metrics it stands for work that did not come through HTTP: choose another word")
	case class == classOther:
		f.add(path, string(class), ReasonConflict, "in metrics it stands for requests without a class: choose another word")
	}
}

// validateCost finds the requests that could never pass: their cost is above
// the burst of a tier they spend from. value is what stands at the path.
func (c *Config) validateCost(f *faults, path string, value any, e Endpoint) {
	for _, name := range c.tierNames() {
		if l := c.limitFor(e, name); l.active() && e.Cost > l.Burst {
			f.add(path, value, ReasonConflict, "a request costs %v, more than the burst of tier %s (%v), so it could never pass: raise the burst to %v or lower the cost", e.Cost, name, l.Burst, math.Ceil(e.Cost))
		}
		if _, own := e.Limits[name]; own {
			continue // overrides do not apply to a class's own buckets
		}
		over := c.overridesOf(name)
		for _, key := range slices.Sorted(maps.Keys(over)) {
			if o := over[key]; o.active() && e.Cost > o.Burst {
				f.add(path, value, ReasonConflict, "a request costs %v, more than the burst of an override in tier %s (%v), so it could never pass: raise that burst to %v or lower the cost", e.Cost, name, o.Burst, math.Ceil(e.Cost))
				break
			}
		}
	}
}

func (c *Config) validateLists(f *faults) {
	for i, n := range c.Exempt.Networks {
		validateNetwork(f, fmt.Sprintf("exempt.networks[%d]", i), n)
	}
	validateAccounts(f, "exempt.accounts", c.Exempt.Accounts)
	for i, class := range c.Exempt.Classes {
		if !c.hasClass(class) {
			f.add(fmt.Sprintf("exempt.classes[%d]", i), string(class), ReasonUnknown, "name a class of an endpoint, or default_class")
		}
	}
	for i, n := range c.Deny.Networks {
		validateNetwork(f, fmt.Sprintf("deny.networks[%d]", i), n)
	}
	validateAccounts(f, "deny.accounts", c.Deny.Accounts)
}

// validateAccounts finds entries that are no account's: a request without an
// account is on no list.
func validateAccounts(f *faults, path string, accounts []string) {
	for i, a := range accounts {
		if a == "" {
			f.add(fmt.Sprintf("%s[%d]", path, i), a, ReasonInvalid, "write the id of an account, or drop the entry")
		}
	}
}

func (c *Config) hasClass(class Class) bool {
	return class != "" && class == c.DefaultClass ||
		slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Class == class })
}

func validateNetwork(f *faults, path, text string) {
	if _, err := parseNetwork(text); err != nil {
		f.add(path, text, ReasonInvalid, "write an address such as 192.0.2.7 or a network such as 192.0.2.0/24")
	}
}

// parseNetwork reads an address or a CIDR network, unmapped and masked.
func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("mapped network shorter than /96")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func (c *Config) validateTiers(f *faults) {
	t := &c.Tiers
	for _, one := range []struct {
		path string
		tier *TierConfig
	}{{"tiers.global", &t.Global}, {"tiers.per_ip", &t.PerIP}, {"tiers.per_account", &t.PerAccount}} {
		validateLimit(f, one.path, Limit{one.tier.Rate, one.tier.Burst})
		validateOverrides(f, one.path, Limit{one.tier.Rate, one.tier.Burst}, one.tier.Overrides)
		validateWait(f, one.path+".max_wait", one.tier.MaxWait)
	}
	validateLimit(f, "tiers.renewal", t.Renewal)
	if len(t.Global.Overrides) > 0 {
		f.add("tiers.global.overrides", nil, ReasonInert, "the global tier has no keys: use per_ip or per_account")
	}
	c.validateNetworkOverrides(f)
	seen := map[string]bool{TierGlobal: true, TierPerIP: true, TierPerAccount: true, TierRenewal: true, tierUnfinished: true, WindowProcess: true, WindowSubject: true, WindowAddress: true}
	for i, tier := range t.Custom {
		path := fmt.Sprintf("tiers.custom[%d]", i)
		switch {
		case !wordPattern.MatchString(tier.Name):
			f.add(path+".name", tier.Name, ReasonInvalid, "use lower-case letters, digits and _, starting with a letter, at most 64")
		case seen[tier.Name]:
			f.add(path+".name", tier.Name, ReasonConflict, "another tier or a window has this name: choose one of its own")
		}
		seen[tier.Name] = true
		validateLimit(f, path, Limit{tier.Rate, tier.Burst})
		validateOverrides(f, path, Limit{tier.Rate, tier.Burst}, tier.Overrides)
		validateWait(f, path+".max_wait", tier.MaxWait)
		if tier.Audit {
			f.add(path+".audit", true, ReasonUnsupported, "this version reports to the audit sink locks only, not what a tier refuses: leave it false")
		}
		if tier.Liveness {
			f.add(path+".liveness", true, ReasonUnsupported, "this version has no liveness yet: leave it false")
		}
	}
	if t.MaxKeys < 1 {
		f.add("tiers.max_keys", t.MaxKeys, ReasonOutOfRange, "write how many keys to keep at most; 0 means 100000")
	}
	if t.IdleTTL < 0 {
		f.add("tiers.idle_ttl", t.IdleTTL, ReasonOutOfRange, "write a duration such as 10m; 0 means 10m")
	}
	validateWait(f, "tiers.max_wait", &t.MaxWait)
	if t.MaxWaiting < 1 {
		f.add("tiers.max_waiting", t.MaxWaiting, ReasonOutOfRange, "write how many requests may be held at once; 0 means 256")
	}
}

// validateNetworkOverrides looks at the keys of the per_ip overrides. Two that
// stand for the same clients are a fault: which one would hold is not said.
func (c *Config) validateNetworkOverrides(f *faults) {
	const path = "tiers.per_ip.overrides."
	first := map[netip.Prefix]string{}
	for _, key := range slices.Sorted(maps.Keys(c.Tiers.PerIP.Overrides)) {
		p, err := parseNetwork(key)
		if err != nil {
			f.add(path+key, nil, ReasonInvalid, "write an address such as 192.0.2.7 or a network such as 192.0.2.0/24")
			continue
		}
		bits := c.clientBits(p.Addr())
		if p.Bits() > bits && !p.IsSingleIP() {
			f.add(path+key, nil, ReasonConflict, "clients are counted by /%d here: write a network of at most that length", bits)
			continue
		}
		p, _ = p.Addr().Prefix(min(p.Bits(), bits))
		if other, ok := first[p]; ok {
			f.add(path+key, nil, ReasonConflict, "it stands for the same clients (%v) as %s: keep one of the two", p, other)
			continue
		}
		first[p] = key
	}
}

func (c *Config) clientBits(a netip.Addr) int {
	if a.Is4() {
		return c.ClientIP.IPv4Prefix
	}
	return c.ClientIP.IPv6Prefix
}

func validateLimit(f *faults, path string, l Limit) {
	finite := true
	for _, one := range []struct {
		field string
		value float64
	}{{".rate", l.Rate}, {".burst", l.Burst}} {
		if math.IsNaN(one.value) || math.IsInf(one.value, 0) {
			f.add(path+one.field, one.value, ReasonInvalid, "write a finite number; rate: 0 and burst: 0 are no limit")
			finite = false
		} else if one.value < 0 {
			f.add(path+one.field, one.value, ReasonOutOfRange, "write a positive number; rate: 0 and burst: 0 are no limit")
			finite = false
		}
	}
	switch {
	case !finite:
	case l.Rate > 0 && l.Burst == 0:
		f.add(path+".burst", l.Burst, ReasonConflict, "the rate is positive, but a bucket that holds nothing never admits anybody: set burst, at least the cost of one request")
	case l.Burst > 0 && l.Rate == 0:
		f.add(path+".rate", l.Rate, ReasonConflict, "the burst is positive, but a bucket that never refills is soon shut for good: set rate, in tokens a second, or burst: 0 too for no limit")
	}
}

func validateOverrides(f *faults, path string, tier Limit, over map[string]Limit) {
	for _, key := range slices.Sorted(maps.Keys(over)) {
		// Keys are ids; they may stand in an error that a person reads at start.
		validateLimit(f, path+".overrides."+key, over[key])
	}
	if tier == (Limit{}) && len(over) > 0 {
		f.add(path+".overrides", nil, ReasonInert, "the tier has no rate and burst of its own, so no request asks it: set them, generous ones if need be")
	}
}

func validateWait(f *faults, path string, d *Duration) {
	if d != nil && *d < 0 {
		f.add(path, *d, ReasonOutOfRange, "write how long to hold a request, such as 2s, or 0s to hold none")
	}
}

func (c *Config) validateWindows(f *faults) {
	w := &c.Windows
	if w.Window < Duration(time.Second) {
		f.add("windows.window", w.Window, ReasonOutOfRange, "write a duration of at least 1s, such as 1m, or leave it out for that")
	}
	if w.PerSubject < 0 {
		f.add("windows.per_subject", w.PerSubject, ReasonOutOfRange, "write how many requests an account may make in a window, or 0 not to count accounts")
	}
	if w.PerAddress <= 0 {
		f.add("windows.per_address", w.PerAddress, ReasonOutOfRange, "write how many requests an address may make in a window; it cannot be switched off, for it is the only count that callers nobody vouches for run into")
	}
	if w.Process < 0 {
		f.add("windows.process", w.Process, ReasonOutOfRange, "write how many requests may arrive in a window from everybody together, or 0 for no ceiling")
	}
	if w.Process > 0 && w.Process < w.PerSubject {
		f.add("windows.process", w.Process, ReasonConflict, "below per_subject (%d), which then never takes effect: raise the one or lower the other", w.PerSubject)
	}
	if w.Process > 0 && w.Process < w.PerAddress {
		f.add("windows.process", w.Process, ReasonConflict, "below per_address (%d), which then never takes effect: raise the one or lower the other", w.PerAddress)
	}
	mux := http.NewServeMux()
	for i, pattern := range w.Exclude {
		if pattern == "" {
			f.add(fmt.Sprintf("windows.exclude[%d]", i), nil, ReasonMissing, "write a ServeMux pattern such as GET /healthz, or drop the entry")
			continue
		}
		validatePattern(f, mux, w.Exclude, i, func(i int) (path, name string) {
			path = fmt.Sprintf("windows.exclude[%d]", i)
			return path, path
		})
	}
}

func (c *Config) validateStore(f *faults) {
	s := &c.Store
	known := slices.Contains(store.Backends(), s.Backend)
	if s.Backend == "redis" && !known {
		f.add("store.backend", s.Backend, ReasonMissing, `the program was built without it: add import _ "github.com/weir-go/weir/store/redis", or write memory`)
	} else if s.Backend != "memory" && s.Backend != "" && !known { // "": a store was given by WithStore
		var value any
		if wordPattern.MatchString(s.Backend) {
			value = s.Backend // else it may be a DSN that came to the wrong place, password and all
		}
		f.add("store.backend", value, ReasonUnknown, "write memory or redis, or pass a store of your own with WithStore")
	}
	if s.OnError != "local" && s.OnError != "allow" {
		f.add("store.on_error", s.OnError, ReasonUnknown, "write local to count in this process meanwhile, or allow to let requests pass uncounted")
	}
	if strings.Contains(s.KeySecret, "${") && !envPattern.MatchString(s.KeySecret) {
		f.add("store.key_secret", nil, ReasonInvalid, "write ${NAME} with nothing around it, NAME being letters, digits and _; as it stands, this text would itself be the secret")
	} else if secret, err := expand(s.KeySecret); err != nil {
		f.add("store.key_secret", nil, ReasonMissing, "%v", err)
	} else if secret != "" && len(secret) < 16 {
		f.add("store.key_secret", nil, ReasonOutOfRange, "give at least 16 random bytes, or leave it empty for a secret that is random for each process")
	} else if secret == "" && s.Backend != "memory" && s.Backend != "" {
		f.add("store.key_secret", nil, ReasonMissing, "without it each replica hashes ids in its own way, and none finds what another has counted: give all the same 16 random bytes or more")
	}
	if s.Replicas < 1 {
		f.add("store.replicas", s.Replicas, ReasonOutOfRange, "write how many processes share the store; leave it out for 1")
	}
	for _, tier := range slices.Sorted(maps.Keys(s.Leases)) {
		path, lease := "store.leases."+tier, s.Leases[tier]
		if _, ok := c.tierConfig(tier); !ok {
			f.add("store.leases", tier, ReasonUnknown, "there is no such tier; name one of: %s", strings.Join(c.tierNames(), ", "))
		} else if lease < Duration(time.Millisecond) || lease > Duration(time.Minute) {
			f.add(path, lease, ReasonOutOfRange, "write how long tokens are held, from 1ms to 1m, such as 100ms; leave the tier out for no leases")
		} else if s.Backend == "memory" {
			f.add(path, lease, ReasonConflict, "the backend is memory, which needs no round trip: set store.backend to redis or drop the lease")
		}
	}
	if s.Redis.DSN != "" && s.Backend == "memory" {
		f.add("store.redis.dsn", nil, ReasonConflict, "the backend is memory, so it would not be used: set store.backend to redis or drop the dsn")
	}
	if s.Backend == "redis" {
		if _, err := expand(s.Redis.DSN); s.Redis.DSN == "" {
			f.add("store.redis.dsn", nil, ReasonMissing, "say where the server is, such as redis://user:password@host:6379/0")
		} else if err != nil {
			f.add("store.redis.dsn", nil, ReasonMissing, "%v", err)
		}
		if s.Redis.ConnectTimeout < 0 {
			f.add("store.redis.connect_timeout", s.Redis.ConnectTimeout, ReasonOutOfRange, "write how long to try at start, such as 5s")
		}
		if t := time.Duration(s.Redis.CommandTimeout); t < time.Millisecond {
			f.add("store.redis.command_timeout", s.Redis.CommandTimeout, ReasonOutOfRange, "write 1ms or more, such as 100ms")
		}
	}
}

// expand resolves "${NAME}" from the environment (requirement C4).
func expand(text string) (string, error) {
	m := envPattern.FindStringSubmatch(text)
	if m == nil {
		return text, nil
	}
	v, ok := os.LookupEnv(m[1])
	if !ok || v == "" {
		return "", fmt.Errorf("the environment has no %s: set it, or write the value in its place", m[1])
	}
	return v, nil
}

func names[K ~string, V any](m map[K]V) string {
	if len(m) == 0 {
		return "none"
	}
	list := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, string(k))
	}
	return strings.Join(list, ", ")
}
