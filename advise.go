package weir

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Advise returns what is legal in the Config but suspicious (requirement C3).
// It assumes that the Config is valid. [New] and [Limiter.Reload] log each
// advice once, at warning level.
func (c Config) Advise() []Advice {
	if !c.Enabled {
		return nil
	}
	c = c.withDefaults()
	var list []Advice
	add := func(path, text string, args ...any) {
		list = append(list, Advice{path, fmt.Sprintf(text, args...)})
	}
	perIP := c.usesTier(TierPerIP)
	if len(c.ClientIP.TrustedProxies) == 0 && (perIP || c.AuthLock.Enabled) {
		add("client_ip.trusted_proxies", "no proxy is trusted: behind a proxy every client counts as that one address; list the proxies if there are any")
	}
	_, _, warnings := c.ClientIP.resolver()
	for _, w := range warnings {
		path := "client_ip." + w.Field
		if w.Index >= 0 {
			path = fmt.Sprintf("%s[%d]", path, w.Index)
		}
		add(path, "%q: %s: %s", w.Value, w.Message, w.Fix)
	}
	if c.ClientIP.InsecureTrustAny {
		add("client_ip.insecure_trust_any", "a network of /0 may be trusted: whoever reaches this server then chooses the address it is counted by")
	}
	for i, e := range c.Endpoints {
		if host := hostOf(e.Pattern); host != "" && host != "localhost" && !strings.Contains(host, ".") {
			add(fmt.Sprintf("endpoints[%d].pattern", i), "%s is taken for a host, so requests for any other are not matched; begin the path with / if that is not meant", host)
		}
		for _, tier := range slices.Sorted(maps.Keys(e.Limits)) {
			if l := e.Limits[tier]; l.active() && l.Burst < l.Rate {
				add(fmt.Sprintf("endpoints[%d].limits.%s.burst", i, tier), "%v is below one second of the rate (%v): clients that come in bursts are refused although their average is low", l.Burst, l.Rate)
			}
		}
	}
	for _, list := range []struct {
		path, effect string
		networks     []string
	}{
		{"exempt.networks", "nobody is ever limited", c.Exempt.Networks},
		{"deny.networks", "everybody is refused", c.Deny.Networks},
	} {
		for i, n := range list.networks {
			if p, err := parseNetwork(n); err == nil && p.Bits() == 0 {
				add(fmt.Sprintf("%s[%d]", list.path, i), "%s covers every address of its family: %s", n, list.effect)
			}
		}
	}
	for _, name := range c.tierNames() {
		l, _ := c.tierLimit(name)
		if l.active() && l.Burst < l.Rate {
			add(c.tierPath(name)+".burst", "%v is below one second of the rate (%v): clients that come in bursts are refused although their average is low", l.Burst, l.Rate)
		}
		over := c.overridesOf(name)
		for _, key := range slices.Sorted(maps.Keys(over)) {
			if over[key] == (Limit{}) {
				add(c.tierPath(name)+".overrides", "one override has neither rate nor burst, so the tier's own limit holds for it; to lift the limit for somebody, use exempt")
				break
			}
		}
	}
	if !c.usesTier(TierGlobal) {
		add("tiers.global", "there is no global limit: many addresses together can still overload the server")
	}
	c.adviseAuthLock(add)
	c.adviseGuards(add)
	for i, name := range c.Shadow {
		if name == StageAuthLock {
			add(fmt.Sprintf("shadow[%d]", i), "the auth lock only counts and logs what it would refuse, and delays nobody")
			continue
		}
		add(fmt.Sprintf("shadow[%d]", i), "tier %s only counts and logs what it would refuse", name)
	}
	return list
}

// hostOf returns the host of a ServeMux pattern: "[METHOD ][HOST]/[PATH]".
func hostOf(pattern string) string {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		pattern = strings.TrimLeft(pattern[i:], " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	return host
}

// usesTier reports whether a tier limits any class.
func (c *Config) usesTier(name string) bool {
	l, _ := c.tierLimit(name)
	return l.active() || slices.ContainsFunc(c.Endpoints, func(e Endpoint) bool { return e.Limits[name].active() })
}
