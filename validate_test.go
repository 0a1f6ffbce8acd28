package weir

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// fault is what a ConfigError must say. Its Fix must contain the word.
type fault struct {
	path   string
	reason Reason
	fix    string
}

// faultCase is a sound configuration with something wrong done to it.
type faultCase struct {
	name   string
	change func(*Config)
	want   []fault
}

// soundConfig has no fault: one class of its own, a default class, a guard and
// a custom tier.
func soundConfig() Config {
	cfg := DefaultConfig()
	cfg.Endpoints = []Endpoint{{Pattern: "POST /order", Class: "order", Guard: "hsm"}}
	cfg.DefaultClass = "other"
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 4}}
	cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 25, Burst: 50}}
	return cfg
}

// soundOptions are what soundConfig needs.
func soundOptions() []Option {
	return []Option{WithLogger(slog.New(slog.DiscardHandler)), WithKey("fleet", noKey)}
}

func noRenewal(context.Context, Renewal) bool { return false }

// lanes gives the guard of soundConfig lanes.
func lanes(list map[string]LaneConfig) func(*Config) {
	return func(c *Config) { c.Guards["hsm"] = GuardConfig{MaxInFlight: 4, Lanes: list} }
}

func noKey(*http.Request) (string, bool) { return "", false }

// gives claims that err holds exactly the faults, in that order.
func gives(t testing.TB, err error, want ...fault) {
	t.Helper()
	var got []fault
	i := 0
	for e := range ConfigErrors(err) {
		f := fault{e.Path, e.Reason, e.Fix}
		if i < len(want) && strings.Contains(e.Fix, want[i].fix) {
			f.fix = want[i].fix
		}
		got = append(got, f)
		i++
	}
	assert.Equal(t, want, got)
}

// set returns a change of a Config's field.
func set[T any](field func(*Config) *T, value T) func(*Config) {
	return func(c *Config) { *field(c) = value }
}

// tierFaults are the faults of rate and burst, wherever they stand.
func tierFaults(where, path string, put func(*Config, Limit)) []faultCase {
	row := func(name string, l Limit, want ...fault) faultCase {
		return faultCase{where + " with " + name, func(c *Config) { put(c, l) }, want}
	}
	return []faultCase{
		row("a positive rate and no burst", Limit{5, 0}, fault{path + ".burst", ReasonConflict, "set burst"}),
		row("a burst and no rate", Limit{0, 5}, fault{path + ".rate", ReasonConflict, "set rate"}),
		row("a negative burst", Limit{5, -1}, fault{path + ".burst", ReasonOutOfRange, "positive"}),
		row("a negative rate", Limit{-5, 5}, fault{path + ".rate", ReasonOutOfRange, "positive"}),
		row("both negative", Limit{-5, -5}, fault{path + ".rate", ReasonOutOfRange, "positive"}, fault{path + ".burst", ReasonOutOfRange, "positive"}),
		row("a rate that is no number", Limit{math.NaN(), 5}, fault{path + ".rate", ReasonInvalid, "finite"}),
		row("a burst that is no number", Limit{5, math.NaN()}, fault{path + ".burst", ReasonInvalid, "finite"}),
		row("an infinite rate", Limit{math.Inf(1), 5}, fault{path + ".rate", ReasonInvalid, "finite"}),
		row("an infinite burst", Limit{5, math.Inf(1)}, fault{path + ".burst", ReasonInvalid, "finite"}),
		row("a burst without a bottom", Limit{5, math.Inf(-1)}, fault{path + ".burst", ReasonInvalid, "finite"}),
	}
}

var faultCases = slices.Concat(
	tierFaults("the global tier", "tiers.global", func(c *Config, l Limit) { c.Tiers.Global = TierConfig{Rate: l.Rate, Burst: l.Burst} }),
	tierFaults("the address tier", "tiers.per_ip", func(c *Config, l Limit) { c.Tiers.PerIP = TierConfig{Rate: l.Rate, Burst: l.Burst} }),
	tierFaults("the account tier", "tiers.per_account", func(c *Config, l Limit) { c.Tiers.PerAccount = TierConfig{Rate: l.Rate, Burst: l.Burst} }),
	tierFaults("a custom tier", "tiers.custom[0]", func(c *Config, l Limit) { c.Tiers.Custom[0].Rate, c.Tiers.Custom[0].Burst = l.Rate, l.Burst }),
	tierFaults("an override of an account", "tiers.per_account.overrides.alice", func(c *Config, l Limit) { c.Tiers.PerAccount.Overrides = map[string]Limit{"alice": l} }),
	tierFaults("an override of an address", "tiers.per_ip.overrides.192.0.2.7", func(c *Config, l Limit) { c.Tiers.PerIP.Overrides = map[string]Limit{"192.0.2.7": l} }),
	tierFaults("an override of a custom key", "tiers.custom[0].overrides.f1", func(c *Config, l Limit) { c.Tiers.Custom[0].Overrides = map[string]Limit{"f1": l} }),
	tierFaults("a class of its own buckets", "endpoints[0].limits.per_ip", func(c *Config, l Limit) { c.Endpoints[0].Limits = map[string]Limit{"per_ip": l} }),
	[]faultCase{
		{"nothing in it", func(c *Config) { *c = Config{Enabled: true} }, []fault{
			{"enabled", ReasonInert, "give a tier a rate"}, {"endpoints", ReasonInert, "PKIEndpoints"}}},
		{"all tiers inert", func(c *Config) {
			c.Tiers, c.Guards, c.Endpoints[0].Guard = TiersConfig{}, nil, ""
		}, []fault{{"enabled", ReasonInert, "name a guard"}}},
		{"every class taken out of every tier", func(c *Config) {
			none := map[string]Limit{"global": {}, "per_ip": {}, "per_account": {}, "fleet": {}}
			c.DefaultClass, c.Guards = "", nil
			c.Endpoints = []Endpoint{{Pattern: "/", Class: "order", Limits: none}}
		}, []fault{{"enabled", ReasonInert, "nothing is limited"}}},
		{"every class exempt", func(c *Config) {
			c.Guards, c.Endpoints[0].Guard = nil, ""
			c.Exempt.Classes = []Class{"order", "other"}
		}, []fault{{"enabled", ReasonInert, "nothing is limited"}}},
		{"tiers but no class", func(c *Config) { c.Endpoints, c.DefaultClass = nil, "" }, []fault{{"endpoints", ReasonInert, "default_class"}}},
		{"tiers and a guard but no class", func(c *Config) { c.Endpoints, c.DefaultClass = []Endpoint{}, "" }, []fault{{"endpoints", ReasonInert, "default_class"}}},

		{"a namespace with a dash", set(namespaceOf, "my-ca"), []fault{{"namespace", ReasonInvalid, "letters, digits and _"}}},
		{"a namespace that begins with a digit", set(namespaceOf, "2ca"), []fault{{"namespace", ReasonInvalid, "digit"}}},
		{"a namespace of 65 letters", set(namespaceOf, strings.Repeat("a", 65)), []fault{{"namespace", ReasonInvalid, "at most 64"}}},

		{"a trusted network with a length that cannot be", trusting("10.0.0.0/33"), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "CIDR"}}},
		{"a trusted name", trusting("10.0.0.1", "proxy.example"), []fault{{"client_ip.trusted_proxies[1]", ReasonInvalid, "names are not looked up"}}},
		{"trusted entries joined by a comma", trusting("10.0.0.1, 10.0.0.2"), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "10.0.0.1 and 10.0.0.2"}}},
		{"a trusted address with a zone", trusting("fe80::1%eth0"), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "write fe80::1"}}},
		{"a trusted address with a port", trusting("192.0.2.1:443"), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "write 192.0.2.1"}}},
		{"an empty trusted entry", trusting(""), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "it is empty"}}},
		{"unix in another spelling", trusting("unix:"), []fault{{"client_ip.trusted_proxies[0]", ReasonInvalid, "write unix"}}},
		{"trust in everybody", trusting("10.0.0.0/8", "0.0.0.0/0", "::/0"), []fault{
			{"client_ip.trusted_proxies[1]", ReasonInvalid, "choose its own"}, {"client_ip.trusted_proxies[2]", ReasonInvalid, "choose its own"}}},
		{"a trusted header without a network (I6)", set(headerOf, "forwarded"), []fault{{"client_ip.trusted_proxies", ReasonMissing, "write the networks"}}},
		{"a CDN's header with an empty list (I6)", func(c *Config) {
			c.ClientIP.Header, c.ClientIP.TrustedProxies = "single:CF-Connecting-IP", []string{}
		}, []fault{{"client_ip.trusted_proxies", ReasonMissing, "no proxy is listed"}}},
		{"permission to trust anybody and nobody to trust (I6)", func(c *Config) { c.ClientIP.InsecureTrustAny = true },
			[]fault{{"client_ip.trusted_proxies", ReasonMissing, "no proxy is listed"}}},
		{"a header of another name", trustingHeader("x-client-ip"), []fault{{"client_ip.header", ReasonInvalid, "single:NAME"}}},
		{"two headers", trustingHeader("x-forwarded-for, forwarded"), []fault{{"client_ip.header", ReasonInvalid, "exactly one"}}},
		{"a single header that is a list", trustingHeader("single:X-Forwarded-For"), []fault{{"client_ip.header", ReasonInvalid, "write x-forwarded-for"}}},
		{"an IPv4 prefix that lumps everybody together", func(c *Config) { c.ClientIP.IPv4Prefix = 7 }, []fault{{"client_ip.ipv4_prefix", ReasonOutOfRange, "8 to 32"}}},
		{"an IPv4 prefix beyond the address", func(c *Config) { c.ClientIP.IPv4Prefix = 33 }, []fault{{"client_ip.ipv4_prefix", ReasonOutOfRange, "8 to 32"}}},
		{"an IPv6 prefix that lumps everybody together", func(c *Config) { c.ClientIP.IPv6Prefix = 15 }, []fault{{"client_ip.ipv6_prefix", ReasonOutOfRange, "16 to 128"}}},
		{"an IPv6 prefix beyond the address", func(c *Config) { c.ClientIP.IPv6Prefix = 129 }, []fault{{"client_ip.ipv6_prefix", ReasonOutOfRange, "16 to 128"}}},
		{"negative prefixes", func(c *Config) { c.ClientIP.IPv4Prefix, c.ClientIP.IPv6Prefix = -1, -1 }, []fault{
			{"client_ip.ipv4_prefix", ReasonOutOfRange, "8 to 32"}, {"client_ip.ipv6_prefix", ReasonOutOfRange, "16 to 128"}}},

		{"a pattern without a path", pattern("POST"), []fault{{"endpoints[0].pattern", ReasonInvalid, "POST /acme/new-order"}}},
		{"a pattern with an open brace", pattern("GET /crl/{name"), []fault{{"endpoints[0].pattern", ReasonInvalid, "bad wildcard"}}},
		{"a pattern with a wildcard inside a word", pattern("GET /crl/ca-{name}.crl"), []fault{{"endpoints[0].pattern", ReasonInvalid, "bad wildcard"}}},
		{"a pattern with a rest in the middle", pattern("GET /crl/{name...}/info"), []fault{{"endpoints[0].pattern", ReasonInvalid, "ServeMux cannot read it"}}},
		{"a pattern that is not clean", pattern("GET /acme//order"), []fault{{"endpoints[0].pattern", ReasonInvalid, "ServeMux cannot read it"}}},
		{"a method in small letters", pattern("post /order"), []fault{{"endpoints[0].pattern", ReasonInvalid, "write POST"}}},
		{"the same pattern twice", patterns("GET /crl", "GET /ocsp", "GET /crl"), []fault{{"endpoints[2].pattern", ReasonConflict, "endpoints[0] (GET /crl)"}}},
		{"patterns of which neither is the narrower", patterns("/{a}/x", "/y/{b}"), []fault{{"endpoints[1].pattern", ReasonConflict, "neither is the narrower"}}},
		{"a conflict behind a pattern that cannot be read", patterns("GET", "/a", "/a"), []fault{
			{"endpoints[0].pattern", ReasonInvalid, "cannot read"}, {"endpoints[2].pattern", ReasonConflict, "endpoints[1]"}}},
		{"an endpoint without a class", func(c *Config) { c.Endpoints[0].Class = "" }, []fault{{"endpoints[0].class", ReasonMissing, "one lower-case word"}}},
		{"a class with capitals", func(c *Config) { c.Endpoints[0].Class = "NewOrder" }, []fault{{"endpoints[0].class", ReasonInvalid, "lower-case"}}},
		{"a class of 65 letters", func(c *Config) { c.Endpoints[0].Class = Class(strings.Repeat("a", 65)) }, []fault{{"endpoints[0].class", ReasonInvalid, "at most 64"}}},
		{"a class by the name of what has none", func(c *Config) { c.Endpoints[0].Class = "unclassified" }, []fault{{"endpoints[0].class", ReasonConflict, "another word"}}},
		{"a class by the name of work outside HTTP", func(c *Config) { c.Endpoints[0].Class = "direct" }, []fault{{"endpoints[0].class", ReasonConflict, "another word"}}},
		{"a default class with a dash", func(c *Config) { c.DefaultClass = "any-thing" }, []fault{{"default_class", ReasonInvalid, "lower-case"}}},
		{"a class that two endpoints treat differently", func(c *Config) {
			c.Endpoints = append(c.Endpoints, Endpoint{Pattern: "PUT /order", Class: "order"}) // without the guard
		}, []fault{{"endpoints[1].class", ReasonConflict, "make them alike"}}},
		{"a class with two costs", alike(func(e *Endpoint) { e.Cost = 2 }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class of two kinds", alike(func(e *Endpoint) { e.Kind = KindACME }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class of two modes", alike(func(e *Endpoint) { e.Mode = ModeFail }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class that waits and does not", alike(func(e *Endpoint) { e.MaxWait = new(Duration) }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class with two limits", alike(func(e *Endpoint) { e.Limits = map[string]Limit{"per_ip": {1, 2}} }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class with two statuses", alike(func(e *Endpoint) { e.Status = 503 }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"a class with and without renewals", alike(func(e *Endpoint) { e.Renewals = true; e.Kind = KindACME }), []fault{{"endpoints[1].class", ReasonConflict, "endpoints[0]"}}},
		{"renewals of what is no order", func(c *Config) { c.Endpoints[0].Renewals = true }, []fault{{"endpoints[0].renewals", ReasonInert, "kind to acme"}}},
		{"renewals that cost more than their ceiling", func(c *Config) {
			c.Endpoints[0].Kind, c.Endpoints[0].Renewals, c.Endpoints[0].Cost, c.Tiers.Renewal = KindACME, true, 6, Limit{1, 5}
		}, []fault{{"endpoints[0].renewals", ReasonConflict, "burst of tiers.renewal (5)"}}},
		{"a ceiling of renewals with a rate only", func(c *Config) { c.Tiers.Renewal.Burst = 0 }, []fault{{"tiers.renewal.burst", ReasonConflict, ""}}},
		{"a custom tier by the name of that of renewals", func(c *Config) { c.Tiers.Custom[0].Name = "renewal" }, []fault{{"tiers.custom[0].name", ReasonConflict, "one of its own"}}},
		{"a status that no refusal has", func(c *Config) { c.Endpoints[0].Status = 403 }, []fault{{"endpoints[0].status", ReasonOutOfRange, "429 or 503"}}},
		{"a status that S3 clients do not read", func(c *Config) { c.Endpoints[0].Kind, c.Endpoints[0].Status = KindS3, 429 }, []fault{{"endpoints[0].status", ReasonConflict, "SlowDown"}}},
		{"a query without a value", queries("/scep", "", "operation"), []fault{{"endpoints[2].query", ReasonInvalid, "operation=GetCACaps"}}},
		{"a query with an escape", queries("/scep", "", "operation=Get%43ACaps"), []fault{{"endpoints[2].query", ReasonInvalid, "without escapes"}}},
		{"a query of two parameters", queries("/scep", "", "operation=GetCACaps&message=x"), []fault{{"endpoints[2].query", ReasonInvalid, "one parameter"}}},
		{"a query and no pattern", queries("", "operation=GetCACaps"), []fault{{"endpoints[1].query", ReasonInert, "drop the query"}}},
		{"a query of POST", queries("POST /scep", "", "operation=PKIOperation"), []fault{{"endpoints[2].query", ReasonInert, "GET and HEAD"}}},
		{"a query of POST behind a tab", queries("POST\t/scep", "", "operation=PKIOperation"), []fault{{"endpoints[2].query", ReasonInert, "GET and HEAD"}}},
		{"a query and nothing for what is not in it", queries("/scep", "operation=GetCACaps"), []fault{{"endpoints[1].query", ReasonMissing, "no query"}}},
		{"a query twice", queries("GET /scep", "", "operation=GetCACaps", "operation=GetCACaps"), []fault{{"endpoints[3].query", ReasonConflict, "endpoints[2]"}}},
		{"two parameters for one pattern", queries("/scep", "operation=GetCACaps", "", "op=GetCACaps"), []fault{{"endpoints[3].query", ReasonConflict, "parameter operation"}}},
		{"a pattern twice beside its queries", queries("/scep", "", "operation=GetCACaps", ""), []fault{{"endpoints[3].pattern", ReasonConflict, "endpoints[1] (/scep)"}}},
		{"a pattern with a query that cannot be read", queries("/scep/{", "", "operation=GetCACaps"), []fault{{"endpoints[1].pattern", ReasonInvalid, "cannot read"}}},
		{"a kind that is none", func(c *Config) { c.Endpoints[0].Kind = "acne" }, []fault{{"endpoints[0].kind", ReasonUnknown, "one of acme"}}},
		{"a mode that is none", func(c *Config) { c.Endpoints[0].Mode = "queue" }, []fault{{"endpoints[0].mode", ReasonUnknown, "wait or fail"}}},
		{"a guard that is none", func(c *Config) { c.Endpoints[0].Guard = "hsn" }, []fault{{"endpoints[0].guard", ReasonUnknown, "defined are: hsm"}}},
		{"a guard where there are none", func(c *Config) { c.Guards = nil }, []fault{{"endpoints[0].guard", ReasonUnknown, "defined are: none"}}},
		{"a class with a limit in a tier that is none", func(c *Config) { c.Endpoints[0].Limits = map[string]Limit{"per_address": {1, 2}} },
			[]fault{{"endpoints[0].limits.per_address", ReasonUnknown, "per_ip"}}},
		{"a class that is held for less than nothing", func(c *Config) { c.Endpoints[0].MaxWait = new(Duration(-1)) }, []fault{{"endpoints[0].max_wait", ReasonOutOfRange, "such as 2s"}}},

		{"a negative cost", cost(-1), []fault{{"endpoints[0].cost", ReasonOutOfRange, "above 0"}}},
		{"a cost that is no number", cost(math.NaN()), []fault{{"endpoints[0].cost", ReasonOutOfRange, "above 0"}}},
		{"an infinite cost", cost(math.Inf(1)), []fault{{"endpoints[0].cost", ReasonOutOfRange, "above 0"}}},
		{"a cost above a tier's burst", cost(41), []fault{{"endpoints[0].cost", ReasonConflict, "burst of tier per_ip (40), so it could never pass: raise the burst to 41"}}},
		{"a cost above several bursts", cost(100.5), []fault{
			{"endpoints[0].cost", ReasonConflict, "tier per_ip (40)"}, {"endpoints[0].cost", ReasonConflict, "tier fleet (50)"},
			{"endpoints[0].cost", ReasonConflict, "tier per_account (100), so it could never pass: raise the burst to 101"}}},
		{"a cost above the class's own burst", func(c *Config) {
			c.Endpoints[0].Cost, c.Endpoints[0].Limits = 7, map[string]Limit{"per_ip": {100, 6}}
		}, []fault{{"endpoints[0].cost", ReasonConflict, "tier per_ip (6)"}}},
		{"a cost above an override's burst", func(c *Config) {
			c.Endpoints[0].Cost, c.Tiers.PerAccount.Overrides = 7, map[string]Limit{"alice": {1, 7}, "bob": {1, 6}}
		}, []fault{{"endpoints[0].cost", ReasonConflict, "override in tier per_account (6)"}}},
		{"a burst below one request", func(c *Config) { c.Tiers.PerIP.Burst = 0.5 }, []fault{
			{"endpoints[0].cost", ReasonConflict, "raise the burst to 1"}, {"default_class", ReasonConflict, "a request costs 1"}}},

		{"exempt networks that are none", func(c *Config) { c.Exempt.Networks = []string{"192.0.2.0/24", "192.0.2.0/40", "intranet", ""} }, []fault{
			{"exempt.networks[1]", ReasonInvalid, "192.0.2.0/24"}, {"exempt.networks[2]", ReasonInvalid, "192.0.2.7"}, {"exempt.networks[3]", ReasonInvalid, "192.0.2.7"}}},
		{"denied networks that are none", func(c *Config) {
			c.Deny.Networks = []string{"fe80::1%eth0", "::ffff:10.0.0.0/80", "10.0.0.0/8,11.0.0.0/8"}
		}, []fault{
			{"deny.networks[0]", ReasonInvalid, "192.0.2.7"}, {"deny.networks[1]", ReasonInvalid, "192.0.2.7"}, {"deny.networks[2]", ReasonInvalid, "192.0.2.7"}}},
		{"an exempt class that is none", func(c *Config) { c.Exempt.Classes = []Class{"order", "other", "", "crl"} }, []fault{
			{"exempt.classes[2]", ReasonUnknown, "default_class"}, {"exempt.classes[3]", ReasonUnknown, "default_class"}}},
		{"empty accounts on the lists", func(c *Config) { c.Exempt.Accounts, c.Deny.Accounts = []string{"a", ""}, []string{""} }, []fault{
			{"exempt.accounts[1]", ReasonInvalid, "id of an account"}, {"deny.accounts[0]", ReasonInvalid, "id of an account"}}},

		{"overrides in the global tier", func(c *Config) { c.Tiers.Global.Overrides = map[string]Limit{"192.0.2.7": {1, 1}} },
			[]fault{{"tiers.global.overrides", ReasonInert, "per_ip or per_account"}}},
		{"overrides in tiers that nobody asks", func(c *Config) {
			c.Tiers.PerAccount = TierConfig{Overrides: map[string]Limit{"alice": {1, 2}}}
			c.Tiers.Custom[0] = CustomTierConfig{Name: "fleet", Overrides: map[string]Limit{"f1": {1, 2}}}
		}, []fault{{"tiers.per_account.overrides", ReasonInert, "set them"}, {"tiers.custom[0].overrides", ReasonInert, "set them"}}},
		{"an override of a name instead of an address", perIP("alice"), []fault{{"tiers.per_ip.overrides.alice", ReasonInvalid, "192.0.2.0/24"}}},
		{"an override of less than one client", perIP("2001:db8::/96"), []fault{{"tiers.per_ip.overrides.2001:db8::/96", ReasonConflict, "counted by /64"}}},
		{"an override of a part of what counts as one client", func(c *Config) {
			c.ClientIP.IPv4Prefix = 24
			perIP("192.0.2.0/25")(c)
		}, []fault{{"tiers.per_ip.overrides.192.0.2.0/25", ReasonConflict, "counted by /24"}}},
		{"an address overridden under two names", perIP("192.0.2.7", "192.0.2.7/32"), []fault{{"tiers.per_ip.overrides.192.0.2.7/32", ReasonConflict, "as 192.0.2.7:"}}},
		{"a network overridden under two names", perIP("10.0.0.0/8", "10.1.2.3/8"), []fault{{"tiers.per_ip.overrides.10.1.2.3/8", ReasonConflict, "(10.0.0.0/8)"}}},
		{"an address overridden in IPv6 clothes too", perIP("192.0.2.7", "::ffff:192.0.2.7"), []fault{{"tiers.per_ip.overrides.::ffff:192.0.2.7", ReasonConflict, "keep one"}}},
		{"two addresses of one client overridden", perIP("2001:db8::1", "2001:db8::2"), []fault{{"tiers.per_ip.overrides.2001:db8::2", ReasonConflict, "(2001:db8::/64)"}}},
		{"tiers that hold requests for less than nothing", func(c *Config) {
			c.Tiers.MaxWait, c.Tiers.Global.MaxWait, c.Tiers.Custom[0].MaxWait = -1, new(Duration(-2)), new(Duration(-3))
		}, []fault{
			{"tiers.global.max_wait", ReasonOutOfRange, "0s to hold none"}, {"tiers.custom[0].max_wait", ReasonOutOfRange, "0s to hold none"},
			{"tiers.max_wait", ReasonOutOfRange, "0s to hold none"}}},
		{"a negative bound on keys", func(c *Config) { c.Tiers.MaxKeys = -1 }, []fault{{"tiers.max_keys", ReasonOutOfRange, "0 means 100000"}}},
		{"a negative idle time", func(c *Config) { c.Tiers.IdleTTL = -1 }, []fault{{"tiers.idle_ttl", ReasonOutOfRange, "such as 10m"}}},
		{"a negative bound on held requests", func(c *Config) { c.Tiers.MaxWaiting = -1 }, []fault{{"tiers.max_waiting", ReasonOutOfRange, "0 means 256"}}},
		{"a custom tier without a name", func(c *Config) { c.Tiers.Custom[0].Name = "" }, []fault{{"tiers.custom[0].name", ReasonInvalid, "lower-case"}}},
		{"a custom tier with a slash in its name", func(c *Config) { c.Tiers.Custom[0].Name = "per_ip/order" }, []fault{{"tiers.custom[0].name", ReasonInvalid, "lower-case"}}},
		{"a custom tier by a built-in name", func(c *Config) { c.Tiers.Custom[0].Name = "per_ip" }, []fault{{"tiers.custom[0].name", ReasonConflict, "of its own"}}},
		{"two custom tiers of one name", func(c *Config) { c.Tiers.Custom = append(c.Tiers.Custom, c.Tiers.Custom[0]) }, []fault{{"tiers.custom[1].name", ReasonConflict, "of its own"}}},

		{"what this version does not have", func(c *Config) {
			c.Tiers.Custom[0].Audit, c.Tiers.Custom[0].Liveness = true, true
		}, []fault{
			{"tiers.custom[0].audit", ReasonUnsupported, "leave it false"}, {"tiers.custom[0].liveness", ReasonUnsupported, "leave it false"}}},

		{"windows of no use", func(c *Config) {
			c.Windows = WindowsConfig{Enabled: true, Window: Duration(time.Second - 1), PerSubject: -1, PerAddress: 0, Process: -1, Exclude: []string{"", "GET /a", "GET /a", "{"}}
		}, []fault{
			{"windows.window", ReasonOutOfRange, "at least 1s"}, {"windows.per_subject", ReasonOutOfRange, "0 not to count accounts"},
			{"windows.per_address", ReasonOutOfRange, "cannot be switched off"}, {"windows.process", ReasonOutOfRange, "0 for no ceiling"},
			{"windows.exclude[0]", ReasonMissing, "GET /healthz"}, {"windows.exclude[2]", ReasonConflict, "windows.exclude[1]"}, {"windows.exclude[3]", ReasonInvalid, "ServeMux cannot read it"}}},
		{"a negative count for each address", func(c *Config) { c.Windows.Enabled, c.Windows.PerAddress = true, -300 }, []fault{{"windows.per_address", ReasonOutOfRange, "cannot be switched off"}}},
		{"a ceiling below the keyed windows", func(c *Config) { c.Windows.Enabled, c.Windows.Process = true, 299 }, []fault{
			{"windows.process", ReasonConflict, "per_subject (600)"}, {"windows.process", ReasonConflict, "per_address (300)"}}},
		{"a custom tier by a window's name", func(c *Config) { c.Tiers.Custom[0].Name = WindowSubject }, []fault{{"tiers.custom[0].name", ReasonConflict, "of its own"}}},

		{"negative numbers in the auth lock", locked(func(a *AuthLockConfig) {
			a.Address.MaxFailures, a.Account.MaxFailures, a.MaxKeys = -1, -1, -1
			a.Address.Window, a.Address.Lockout, a.Account.Window, a.Account.Lockout, a.Account.Remember = -1, -1, -1, -1, -1
			a.Delay = DelayConfig{After: -1, First: -1, Max: -1, MaxSleeping: -1, MaxPerAddress: -1}
		}), []fault{
			{"auth_lock.address.max_failures", ReasonOutOfRange, "0 means 100"}, {"auth_lock.address.window", ReasonOutOfRange, "0 means 5m"},
			{"auth_lock.address.lockout", ReasonOutOfRange, "0 means 10m"},
			{"auth_lock.account.max_failures", ReasonOutOfRange, "0 means 10"}, {"auth_lock.account.window", ReasonOutOfRange, "0 means 1h"},
			{"auth_lock.account.lockout", ReasonOutOfRange, "0 means 1h"}, {"auth_lock.account.remember", ReasonOutOfRange, "0 means 720h"},
			{"auth_lock.delay.after", ReasonOutOfRange, "0 means 10"}, {"auth_lock.delay.first", ReasonOutOfRange, "0 means 200ms"},
			{"auth_lock.delay.max", ReasonOutOfRange, "0 means 5s"}, {"auth_lock.delay.max_sleeping", ReasonOutOfRange, "0 means 1024"},
			{"auth_lock.delay.max_per_address", ReasonOutOfRange, "0 means 8"}, {"auth_lock.max_keys", ReasonOutOfRange, "0 means 100000"}}},
		{"delays that shrink", locked(func(a *AuthLockConfig) { a.Delay.First, a.Delay.Max = Duration(2e9), Duration(1e9) }),
			[]fault{{"auth_lock.delay.max", ReasonConflict, "first delay (2s)"}}},
		{"bounds over credentials that are not counted apart", locked(func(a *AuthLockConfig) { a.Address.Ceiling, a.Address.MaxCredentials = 1000, 20 }),
			[]fault{{"auth_lock.address.ceiling", ReasonInert, "set per_credential"}, {"auth_lock.address.max_credentials", ReasonInert, "set per_credential"}}},
		{"negative bounds over credentials", locked(func(a *AuthLockConfig) {
			a.Address.PerCredential, a.Address.Ceiling, a.Address.MaxCredentials = true, -1, -1
		}), []fault{{"auth_lock.address.ceiling", ReasonOutOfRange, "0 for none"}, {"auth_lock.address.max_credentials", ReasonOutOfRange, "0 for none"}}},
		{"a ceiling below the limit of one credential", locked(func(a *AuthLockConfig) { a.Address.PerCredential, a.Address.Ceiling = true, 50 }),
			[]fault{{"auth_lock.address.ceiling", ReasonConflict, "max_failures (100)"}}},
		{"a credential in a place that is none", func(c *Config) { c.Endpoints[0].Auth = "cookie" }, []fault{{"endpoints[0].auth", ReasonUnknown, "sigv4"}}},

		{"a guard with capitals in its name", func(c *Config) { c.Guards["HSM"] = GuardConfig{MaxInFlight: 1} }, []fault{{"guards.HSM", ReasonInvalid, "lower-case"}}},
		{"negative numbers in a guard", func(c *Config) {
			c.Guards["hsm"] = GuardConfig{MaxInFlight: -1, MaxQueue: -1, AcquireTimeout: -1, BackendShare: -1}
		}, []fault{
			{"guards.hsm.max_in_flight", ReasonOutOfRange, "0 for the pool's size"}, {"guards.hsm.max_queue", ReasonOutOfRange, "mode: fail"},
			{"guards.hsm.acquire_timeout", ReasonOutOfRange, "mode: fail"}, {"guards.hsm.backend_share", ReasonOutOfRange, "1 to 100"}}},
		{"a backend that may hold more than all", func(c *Config) { c.Guards["hsm"] = GuardConfig{MaxInFlight: 4, BackendShare: 101} }, []fault{
			{"guards.hsm.backend_share", ReasonOutOfRange, "1 to 100"}}},
		{"a discipline that is none", func(c *Config) { c.Guards["hsm"] = GuardConfig{MaxInFlight: 4, Discipline: "lifo"} }, []fault{
			{"guards.hsm.discipline", ReasonUnknown, "controlled_delay, fair, newest_first"}}},
		{"lanes that make no sense by themselves", lanes(map[string]LaneConfig{
			"Fast": {Classes: []Class{"order"}}, "default": {Classes: []Class{"other"}}, "empty": {},
			"wild": {Classes: []Class{"nobody"}, Reserve: -1, MaxQueue: -1, MaxShare: 101, Discipline: "lifo"},
		}), []fault{
			{"guards.hsm.lanes.Fast", ReasonInvalid, "lower-case"}, {"guards.hsm.lanes.default", ReasonConflict, "another word"},
			{"guards.hsm.lanes.empty.classes", ReasonMissing, "list the classes"},
			{"guards.hsm.lanes.wild.classes[0]", ReasonUnknown, "name a class"}, {"guards.hsm.lanes.wild.reserve", ReasonOutOfRange, "keeps none"},
			{"guards.hsm.lanes.wild.max_queue", ReasonOutOfRange, "as many as in the guard"}, {"guards.hsm.lanes.wild.max_share", ReasonOutOfRange, "0 means 100"},
			{"guards.hsm.lanes.wild.discipline", ReasonUnknown, "controlled_delay, fair, newest_first"}}},
		{"a class in two lanes, and twice in one", lanes(map[string]LaneConfig{
			"a": {Classes: []Class{"order", "order"}}, "b": {Classes: []Class{"order"}},
		}), []fault{{"guards.hsm.lanes.a.classes[1]", ReasonConflict, "lane a already"}, {"guards.hsm.lanes.b.classes[0]", ReasonConflict, "lane a already"}}},
		{"reserves that leave nothing for the rest", lanes(map[string]LaneConfig{
			"a": {Classes: []Class{"order"}, Reserve: 2}, "b": {Classes: []Class{"other"}, Reserve: 2},
		}), []fault{{"guards.hsm.lanes", ReasonConflict, "4 of 4 slots are reserved"}}},
		{"a reserve above the lane's own share", lanes(map[string]LaneConfig{
			"a": {Classes: []Class{"order"}, Reserve: 3, MaxShare: 50},
		}), []fault{{"guards.hsm.lanes.a.reserve", ReasonConflict, "lets the lane hold 2"}}},

		{"rate-limit headers now and then", func(c *Config) { c.Headers.RateLimit = "sometimes" }, []fault{{"headers.rate_limit", ReasonUnknown, "off, rejected or always"}}},
		{"a negative jitter", func(c *Config) { c.RetryJitter = -0.1 }, []fault{{"retry_jitter", ReasonOutOfRange, "0 to 0.5"}}},
		{"a jitter in percent", func(c *Config) { c.RetryJitter = 10 }, []fault{{"retry_jitter", ReasonOutOfRange, "0 to 0.5"}}},
		{"a jitter that is no number", func(c *Config) { c.RetryJitter = math.NaN() }, []fault{{"retry_jitter", ReasonOutOfRange, "0 to 0.5"}}},

		{"a backend that is none", set(backendOf, "memcached"), []fault{{"store.backend", ReasonUnknown, "write memory"}, {"store.key_secret", ReasonMissing, "give all the same"}}},
		{"a backend that the program does not import", func(c *Config) { sharedConfig(c) }, []fault{{"store.backend", ReasonMissing, `import _ "github.com/weir-go/weir/store/redis"`}}},
		{"a shared store without a server", func(c *Config) { sharedConfig(c); c.Store.Redis.DSN = "" }, []fault{{"store.backend", ReasonMissing, ""}, {"store.redis.dsn", ReasonMissing, "redis://user:password@host:6379/0"}}},
		{"a server from a variable that is not set", func(c *Config) { sharedConfig(c); c.Store.Redis.DSN = "${WEIR_TEST_UNSET}" }, []fault{{"store.backend", ReasonMissing, ""}, {"store.redis.dsn", ReasonMissing, "no WEIR_TEST_UNSET"}}},
		{"a shared store with a secret for each process", func(c *Config) { sharedConfig(c); c.Store.KeySecret = "" }, []fault{{"store.backend", ReasonMissing, ""}, {"store.key_secret", ReasonMissing, "give all the same"}}},
		{"fewer replicas than none", func(c *Config) { c.Store.Replicas = -1 }, []fault{{"store.replicas", ReasonOutOfRange, "leave it out for 1"}}},
		{"no time to connect", func(c *Config) { sharedConfig(c); c.Store.Redis.ConnectTimeout = -1 }, []fault{{"store.backend", ReasonMissing, ""}, {"store.redis.connect_timeout", ReasonOutOfRange, "5s"}}},
		{"no time for a command", func(c *Config) { sharedConfig(c); c.Store.Redis.CommandTimeout = 1 }, []fault{{"store.backend", ReasonMissing, ""}, {"store.redis.command_timeout", ReasonOutOfRange, "100ms"}}},
		{"a DSN in the place of the backend", set(backendOf, "redis://user:"+password+"@host:6379"), []fault{{"store.backend", ReasonUnknown, "write memory"}, {"store.key_secret", ReasonMissing, "give all the same"}}},
		{"closing on a store that fails", func(c *Config) { c.Store.OnError = "deny" }, []fault{{"store.on_error", ReasonUnknown, "allow"}}},
		{"a secret of seven bytes", set(secretOf, password), []fault{{"store.key_secret", ReasonOutOfRange, "16 random bytes"}}},
		{"a secret from a variable that is not set", set(secretOf, "${WEIR_TEST_UNSET}"), []fault{{"store.key_secret", ReasonMissing, "no WEIR_TEST_UNSET"}}},
		{"a secret from a variable that is empty", set(secretOf, "${WEIR_TEST_EMPTY}"), []fault{{"store.key_secret", ReasonMissing, "no WEIR_TEST_EMPTY"}}},
		{"a secret of seven bytes from the environment", set(secretOf, "${WEIR_TEST_SHORT}"), []fault{{"store.key_secret", ReasonOutOfRange, "16 random bytes"}}},
		{"a secret with a name that no variable has", set(secretOf, "${WEIR-TEST-SECRET}"), []fault{{"store.key_secret", ReasonInvalid, "nothing around it"}}},
		{"a secret with a default as shells have", set(secretOf, "${WEIR_TEST_UNSET:-"+password+"}"), []fault{{"store.key_secret", ReasonInvalid, "nothing around it"}}},
		{"a secret with something around it", set(secretOf, "prefix-${WEIR_TEST_UNSET}"), []fault{{"store.key_secret", ReasonInvalid, "nothing around it"}}},
		{"a lease of a tier that is none", func(c *Config) { sharedConfig(c); c.Store.Leases = map[string]Duration{"globl": 1e8} }, []fault{{"store.backend", ReasonMissing, ""}, {"store.leases", ReasonUnknown, "global, per_ip"}}},
		{"a lease too short to be of use", func(c *Config) { sharedConfig(c); c.Store.Leases = map[string]Duration{TierGlobal: 1} }, []fault{{"store.backend", ReasonMissing, ""}, {"store.leases.global", ReasonOutOfRange, "100ms"}}},
		{"a lease for an hour", func(c *Config) {
			sharedConfig(c)
			c.Store.Leases = map[string]Duration{TierGlobal: Duration(time.Hour)}
		}, []fault{{"store.backend", ReasonMissing, ""}, {"store.leases.global", ReasonOutOfRange, "100ms"}}},
		{"a lease of what this process has anyway", func(c *Config) { c.Store.Leases = map[string]Duration{TierPerIP: 1e8} }, []fault{{"store.leases.per_ip", ReasonConflict, "drop the lease"}}},
		{"a DSN beside the memory store", func(c *Config) { c.Store.Redis.DSN = dsn }, []fault{{"store.redis.dsn", ReasonConflict, "drop the dsn"}}},

		{"a shadow of what is no tier", func(c *Config) { c.Shadow = []string{"per_ip", "guard", "windows"} }, []fault{
			{"shadow[1]", ReasonUnknown, "global, per_ip, fleet, per_account, process, subject, address"}, {"shadow[2]", ReasonUnknown, "name a tier"}}},

		{"many things wrong", func(c *Config) {
			c.Namespace = "9"
			c.ClientIP.TrustedProxies = []string{"10.0.0.0/8", "x", "y"}
			c.Endpoints = append(c.Endpoints, Endpoint{Pattern: "POST /order", Class: "B", Mode: "m"})
			c.Tiers.PerIP.Burst, c.Tiers.Custom[0].Rate = 0, -1
			c.Exempt.Networks = []string{"z"}
			c.Guards["hsm"], c.Guards["a"] = GuardConfig{MaxInFlight: 4, MaxQueue: -1}, GuardConfig{MaxInFlight: -4}
			c.RetryJitter, c.Store.OnError, c.Shadow = 1, "x", []string{"?"}
		}, []fault{
			{"namespace", ReasonInvalid, ""},
			{"client_ip.trusted_proxies[1]", ReasonInvalid, ""}, {"client_ip.trusted_proxies[2]", ReasonInvalid, ""},
			{"endpoints[1].pattern", ReasonConflict, "endpoints[0]"}, {"endpoints[1].class", ReasonInvalid, ""}, {"endpoints[1].mode", ReasonUnknown, ""},
			{"exempt.networks[0]", ReasonInvalid, ""},
			{"tiers.per_ip.burst", ReasonConflict, ""}, {"tiers.custom[0].rate", ReasonOutOfRange, ""},
			{"guards.a.max_in_flight", ReasonOutOfRange, ""}, {"guards.hsm.max_queue", ReasonOutOfRange, ""},
			{"retry_jitter", ReasonOutOfRange, ""}, {"store.on_error", ReasonUnknown, ""}, {"shadow[0]", ReasonUnknown, ""}}},
	},
)

func namespaceOf(c *Config) *string { return &c.Namespace }
func headerOf(c *Config) *string    { return &c.ClientIP.Header }
func backendOf(c *Config) *string   { return &c.Store.Backend }
func secretOf(c *Config) *string    { return &c.Store.KeySecret }

func trusting(proxies ...string) func(*Config) {
	return func(c *Config) { c.ClientIP.TrustedProxies = proxies }
}

func trustingHeader(header string) func(*Config) {
	return func(c *Config) { c.ClientIP.TrustedProxies, c.ClientIP.Header = []string{"10.0.0.0/8"}, header }
}

func pattern(p string) func(*Config) { return func(c *Config) { c.Endpoints[0].Pattern = p } }

func cost(n float64) func(*Config) { return func(c *Config) { c.Endpoints[0].Cost = n } }

// patterns gives each pattern an endpoint and a class of its own.
func patterns(list ...string) func(*Config) {
	return func(c *Config) {
		c.Endpoints = nil
		for i, p := range list {
			c.Endpoints = append(c.Endpoints, Endpoint{Pattern: p, Class: Class(fmt.Sprintf("class%d", i))})
		}
	}
}

// alike adds an endpoint of the same class that differs in one thing.
func alike(but func(*Endpoint)) func(*Config) {
	return func(c *Config) {
		e := c.Endpoints[0]
		e.Pattern = "PUT /order"
		but(&e)
		c.Endpoints = append(c.Endpoints, e)
	}
}

// queries adds endpoints of one pattern, one for each query.
func queries(pattern string, queries ...string) func(*Config) {
	return func(c *Config) {
		for i, q := range queries {
			c.Endpoints = append(c.Endpoints, Endpoint{Pattern: pattern, Query: q, Class: Class(fmt.Sprintf("class_%d", i))})
		}
	}
}

// perIP overrides the address tier for the keys.
func perIP(keys ...string) func(*Config) {
	return func(c *Config) {
		c.Tiers.PerIP.Overrides = map[string]Limit{}
		for _, key := range keys {
			c.Tiers.PerIP.Overrides[key] = Limit{5, 10}
		}
	}
}

// What must never stand in an error.
const (
	password = "hunter2"
	secret   = "correct horse battery staple"
	dsn      = "redis://weir:" + password + "@redis.example:6379/0"
)

// secretEnvironment sets what the rows take from the environment.
func secretEnvironment(t testing.TB) {
	t.Setenv("WEIR_TEST_EMPTY", "")
	t.Setenv("WEIR_TEST_SHORT", password)
	t.Setenv("WEIR_TEST_SECRET", secret+" with ${braces}")
}

func TestASoundConfigHasNoFault(t *testing.T) {
	secretEnvironment(t)
	for _, tt := range []struct {
		name   string
		change func(*Config)
	}{
		{"as it is", func(*Config) {}},
		{"the endpoints of a PKI", func(c *Config) { c.Endpoints = PKIEndpoints() }},
		{"a default class alone", func(c *Config) { c.Endpoints = nil }},
		{"an empty list of proxies", trusting()},
		{"the default header in capitals", set(headerOf, "X-Forwarded-For")},
		{"proxies of every sort", trusting("10.0.0.1", "10.0.0.0/8", "2001:db8::/32", "::1", "unix")},
		{"trust in everybody that is asked for", func(c *Config) {
			c.ClientIP.TrustedProxies, c.ClientIP.InsecureTrustAny = []string{"0.0.0.0/0"}, true
		}},
		{"a header of its own", trustingHeader("single:CF-Connecting-IP")},
		{"inert tiers beside one that is not", func(c *Config) { c.Tiers.Global, c.Tiers.PerAccount = TierConfig{}, TierConfig{} }},
		{"a guard and nothing else, for Acquire", func(c *Config) {
			c.Tiers, c.Endpoints, c.DefaultClass = TiersConfig{}, nil, ""
		}},
		{"a deny list and nothing else", func(c *Config) {
			c.Tiers, c.Guards, c.Endpoints[0].Guard = TiersConfig{}, nil, ""
			c.Deny.Networks = []string{"192.0.2.0/24"}
		}},
		{"buckets of its own for one class and none for the others", func(c *Config) {
			c.Tiers, c.Guards = TiersConfig{}, nil
			c.Endpoints[0] = Endpoint{Pattern: "/", Class: "order", Limits: map[string]Limit{"per_ip": {1, 2}}}
		}},
		{"a class without a pattern, for Protect", func(c *Config) { c.Endpoints[0].Pattern = "" }},
		{"two endpoints of one class that agree", alike(func(e *Endpoint) { e.Cost, e.Mode, e.Kind = 1, ModeWait, KindAPI })},
		{"two endpoints with equal limits", func(c *Config) {
			c.Endpoints[0].Limits, c.Endpoints[0].MaxWait = map[string]Limit{"per_ip": {1, 2}}, new(Duration(5))
			alike(func(e *Endpoint) { e.Limits, e.MaxWait = map[string]Limit{"per_ip": {1, 2}}, new(Duration(5)) })(c)
		}},
		{"patterns of which one is the narrower", patterns("/", "GET /", "GET /{a}", "POST /x", "GET /x/{rest...}", "ca.example/")},
		{"a method of WebDAV", pattern("PROPFIND /order")},
		{"a cost that takes the whole burst", cost(40)},
		{"a cost above a burst that is not asked", func(c *Config) {
			c.Endpoints[0].Cost, c.Endpoints[0].Limits = 41, map[string]Limit{"per_ip": {}}
		}},
		{"a cost above an override that does not hold there", func(c *Config) {
			c.Endpoints[0].Cost, c.Endpoints[0].Limits = 7, map[string]Limit{"per_account": {5, 7}}
			c.Tiers.PerAccount.Overrides = map[string]Limit{"alice": {1, 6}}
		}},
		{"an override with neither value", func(c *Config) { c.Tiers.PerAccount.Overrides = map[string]Limit{"alice": {}} }},
		{"overrides of networks inside one another", perIP("10.0.0.0/8", "10.0.0.0/16", "10.0.0.1", "2001:db8::1", "2001:db8::/32")},
		{"an override of one address where more count as one", func(c *Config) {
			c.ClientIP.IPv4Prefix = 24
			perIP("192.0.2.7", "198.51.100.0/24")(c)
		}},
		{"a rate below one a day", func(c *Config) { c.Tiers.PerAccount = TierConfig{Rate: 1e-6, Burst: 5} }},
		{"all tiers in shadow", func(c *Config) { c.Shadow = []string{"global", "per_ip", "fleet", "per_account"} }},
		{"knobs at 0, which means their defaults", func(c *Config) {
			c.Namespace, c.ClientIP.Header, c.Headers, c.Store = "", "", HeadersConfig{}, StoreConfig{}
			c.ClientIP.IPv4Prefix, c.ClientIP.IPv6Prefix = 0, 0
			c.Tiers.MaxKeys, c.Tiers.IdleTTL, c.Tiers.MaxWaiting = 0, 0, 0
		}},
		{"a secret in the file", set(secretOf, secret)},
		{"a secret from the environment", set(secretOf, "${WEIR_TEST_SECRET}")},
		{"a secret with a dollar in it", set(secretOf, "$NAME and more to be long")},
		{"the largest jitter", func(c *Config) { c.RetryJitter = 0.5 }},
		{"nothing right, but disabled", func(c *Config) { *c = Config{Namespace: "9", RetryJitter: 7, Shadow: []string{"?"}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := soundConfig()
			tt.change(&cfg)
			assert.NoError(t, cfg.Validate())
			_, err := New(cfg, soundOptions()...)
			assert.NoError(t, err)
		})
	}
}

func TestEveryFaultIsFoundWithItsPathAndItsCure(t *testing.T) {
	secretEnvironment(t)
	for _, tt := range faultCases {
		t.Run(tt.name, func(t *testing.T) {
			cfg := soundConfig()
			tt.change(&cfg)
			gives(t, cfg.Validate(), tt.want...)

			_, err := New(cfg, soundOptions()...)
			require.Error(t, err)
			for _, f := range tt.want { // New may find more, for want of an option
				assert.True(t, holds(err, f), "New does not report %v", f)
			}
		})
	}
}

// holds reports whether err holds the fault.
func holds(err error, f fault) bool {
	for e := range ConfigErrors(err) {
		if e.Path == f.path && e.Reason == f.reason && strings.Contains(e.Fix, f.fix) {
			return true
		}
	}
	return false
}

// optionCases are the faults that only New can find.
var optionCases = []struct {
	name   string
	change func(*Config)
	opts   []Option
	want   []fault
}{
	{"a custom tier without its key function", func(*Config) {}, nil, []fault{{"tiers.custom[0].name", ReasonMissing, `WithKey("fleet"`}}},
	{"a custom tier with a nil key function", func(*Config) {}, []Option{WithKey("fleet", nil)}, []fault{{"tiers.custom[0].name", ReasonMissing, `WithKey("fleet"`}}},
	{"a key function for another tier", func(*Config) {}, []Option{WithKey("flee", noKey)}, []fault{{"tiers.custom[0].name", ReasonMissing, `WithKey("fleet"`}}},
	{"a refusal for a kind that is none", func(*Config) {}, []Option{WithKey("fleet", noKey), WithRejection("acmee", problem.Plain)},
		[]fault{{"option.WithRejection", ReasonUnknown, "acme, ocsp"}}},
	{"a refusal by nobody", func(*Config) {}, []Option{WithKey("fleet", noKey), WithRejection(KindACME, nil)},
		[]fault{{"option.WithRejection", ReasonMissing, "give the Writer"}}},
	{"help that is no URL", func(*Config) {}, []Option{WithKey("fleet", noKey), WithHelp("ca.example/limits")},
		[]fault{{"option.WithHelp", ReasonInvalid, "https://ca.example/limits"}}},
	{"guards without a size", func(c *Config) { c.Guards = map[string]GuardConfig{"hsm": {}, "a": {}, "z": {}} },
		[]Option{WithKey("fleet", noKey)}, []fault{
			{"guards.a.max_in_flight", ReasonMissing, `WithPoolSize("a"`}, {"guards.hsm.max_in_flight", ReasonMissing, `WithPoolSize("hsm"`},
			{"guards.z.max_in_flight", ReasonMissing, "how many may be at work"}}},
	{"a pool of no size", func(c *Config) { c.Guards["hsm"] = GuardConfig{} },
		[]Option{WithKey("fleet", noKey), WithPoolSize("hsm", func() int { return 0 })}, []fault{{"guards.hsm.max_in_flight", ReasonOutOfRange, "at least 1"}}},
	{"a pool of less than no size", func(c *Config) { c.Guards["hsm"] = GuardConfig{} },
		[]Option{WithKey("fleet", noKey), WithPoolSize("hsm", func() int { return -3 })}, []fault{{"guards.hsm.max_in_flight", ReasonOutOfRange, "at least 1"}}},
	{"a hook for renewals that no endpoint asks", func(*Config) {}, append(soundOptions(), WithRenewal(noRenewal)), []fault{{"option.WithRenewal", ReasonInert, "set renewals"}}},
	{"a hook for renewals without a ceiling", func(c *Config) {
		c.Endpoints[0].Kind, c.Endpoints[0].Renewals, c.Tiers.Renewal = KindACME, true, Limit{}
	}, append(soundOptions(), WithRenewal(noRenewal)), []fault{{"tiers.renewal", ReasonMissing, "a rate and a burst"}}},
	{"faults of both sorts, in the order of the fields", func(c *Config) {
		c.Guards["hsm"], c.Guards["b"] = GuardConfig{}, GuardConfig{MaxInFlight: 1, MaxQueue: -1}
		c.Shadow, c.RetryJitter, c.Tiers.MaxKeys = []string{"?"}, 7, -1
	}, nil, []fault{
		{"tiers.custom[0].name", ReasonMissing, ""}, {"tiers.max_keys", ReasonOutOfRange, ""},
		{"guards.b.max_queue", ReasonOutOfRange, ""}, {"guards.hsm.max_in_flight", ReasonMissing, ""},
		{"retry_jitter", ReasonOutOfRange, ""}, {"shadow[0]", ReasonUnknown, ""}}},
}

func TestNewFindsWhatTheConfigNeedsFromTheOptions(t *testing.T) {
	for _, tt := range optionCases {
		t.Run(tt.name, func(t *testing.T) {
			cfg := soundConfig()
			tt.change(&cfg)
			l, err := New(cfg, tt.opts...)
			assert.Nil(t, l)
			gives(t, err, tt.want...)
		})
	}
}

// sharedConfig chooses the redis backend.
func sharedConfig(c *Config) {
	c.Store.Backend, c.Store.KeySecret, c.Store.Redis.DSN = "redis", secret, dsn
}

// reloadCases are what may not change at run time.
var reloadCases = []struct {
	name   string
	change func(*Config)
	want   []fault
}{
	{"another namespace", set(namespaceOf, "ca2"), []fault{{"namespace", ReasonConflict, `leave it "weir"`}}},
	{"another secret", set(secretOf, "another secret, as long as the first"), []fault{{"store.key_secret", ReasonConflict, "build a new Limiter"}}},
	{"no secret any more", set(secretOf, ""), []fault{{"store.key_secret", ReasonConflict, "leave it"}}},
	{"another backend", set(backendOf, "redis"), []fault{{"store.backend", ReasonMissing, "import"}, {"store.backend", ReasonConflict, `leave it "memory"`}, {"store.redis.dsn", ReasonMissing, "say where"}}},
	{"another number of replicas", func(c *Config) { c.Store.Replicas = 2 }, []fault{{"store.replicas", ReasonConflict, "build a new Limiter"}}},
	{"another server", func(c *Config) { c.Store.Redis.KeyPrefix = "ca:" }, []fault{{"store.redis", ReasonConflict, "build a new Limiter"}}},
	{"a wired class that is gone", func(c *Config) { c.Endpoints[0].Class = "ordered" }, []fault{{"endpoints", ReasonConflict, "wired with Protect"}}},
	{"a wired default class that is gone", func(c *Config) { c.DefaultClass = "" }, []fault{{"endpoints", ReasonConflict, "wired with Protect"}}},
	{"a wired guard that is gone", func(c *Config) { c.Endpoints[0].Guard, c.Guards = "", nil }, []fault{{"guards.hsm", ReasonConflict, "in use"}}},
	{"a custom tier by another name", func(c *Config) { c.Tiers.Custom[0].Name = "device" }, []fault{{"tiers.custom[0].name", ReasonMissing, `WithKey("device"`}}},
	{"a tier that is gone, with a class that names it", func(c *Config) {
		c.Tiers.Custom, c.Endpoints[0].Limits = nil, map[string]Limit{"fleet": {1, 2}}
	}, []fault{{"endpoints[0].limits.fleet", ReasonUnknown, "name a tier"}}},
	{"a tier that is gone, with a shadow that names it", func(c *Config) { c.Tiers.Custom, c.Shadow = nil, []string{"fleet"} },
		[]fault{{"shadow[0]", ReasonUnknown, "name a tier"}}},
	{"a guard that is gone, with a class that names it", func(c *Config) { c.Guards = nil },
		[]fault{{"endpoints[0].guard", ReasonUnknown, "define it"}, {"guards.hsm", ReasonConflict, "in use"}}},
	{"all of it, in the order of the fields", func(c *Config) {
		c.Namespace, c.Store.KeySecret, c.DefaultClass, c.Endpoints[0].Guard, c.Guards = "ca2", "", "", "", nil
	}, []fault{
		{"namespace", ReasonConflict, ""}, {"endpoints", ReasonConflict, ""}, {"guards.hsm", ReasonConflict, ""}, {"store.key_secret", ReasonConflict, ""}}},
}

// wiredLimiter has soundConfig in force, with its classes and its guard wired.
func wiredLimiter(t testing.TB) *Limiter {
	cfg := soundConfig()
	cfg.Store.KeySecret = secret
	l, err := New(cfg, soundOptions()...)
	require.NoError(t, err)
	l.Protect("order", served)
	l.Protect("other", served)
	l.Guard("hsm")
	return l
}

func TestReloadFindsWhatMayNotChange(t *testing.T) {
	for _, tt := range reloadCases {
		t.Run(tt.name, func(t *testing.T) {
			l := wiredLimiter(t)
			cfg := l.Config()
			tt.change(&cfg)
			gives(t, l.Reload(cfg), tt.want...)
		})
	}
}

func TestALimiterWhoseHandlerStandsBareCannotBeEnabled(t *testing.T) {
	l, err := New(Config{}, soundOptions()...)
	require.NoError(t, err)
	l.Handler(served)
	gives(t, l.Reload(soundConfig()), bareFault)
}

var bareFault = fault{"enabled", ReasonConflict, "build the Limiter and its handlers anew"}

// With a store of the program's own, store.backend says nothing.
func TestTheBackendIsNotLookedAtBesideWithStore(t *testing.T) {
	cfg := soundConfig()
	cfg.Store.Backend, cfg.Store.Redis.DSN = "elsewhere", dsn
	l, err := New(cfg, append(soundOptions(), WithStore(store.NewMemory()))...)
	require.NoError(t, err)
	cfg.Store.Backend = "memory"
	assert.NoError(t, l.Reload(cfg))
	assert.Equal(t, "memory", l.Config().Store.Backend)
}

// every error that the tables above give.
func everyFault(t testing.TB, plant func(*Config)) (all []*ConfigError) {
	secretEnvironment(t)
	note := func(err error) { all = slices.AppendSeq(all, ConfigErrors(err)) }
	for _, tt := range faultCases {
		cfg := soundConfig()
		plant(&cfg)
		tt.change(&cfg)
		note(cfg.Validate())
	}
	for _, tt := range optionCases {
		cfg := soundConfig()
		plant(&cfg)
		tt.change(&cfg)
		_, err := New(cfg, tt.opts...)
		note(err)
	}
	l := wiredLimiter(t)
	for _, tt := range reloadCases {
		cfg := l.Config()
		tt.change(&cfg)
		plant(&cfg)
		note(l.Reload(cfg))
	}
	bare, err := New(Config{}, soundOptions()...)
	require.NoError(t, err)
	bare.Handler(served)
	note(bare.Reload(soundConfig()))
	return all
}

func TestNoErrorEchoesASecret(t *testing.T) {
	for _, e := range everyFault(t, func(c *Config) {
		c.Store.Redis.DSN = dsn
		if c.Store.KeySecret == "" {
			c.Store.KeySecret = secret
		}
	}) {
		for _, text := range []string{e.Error(), fmt.Sprintf("%+v", *e)} {
			assert.NotContains(t, text, password)
			assert.NotContains(t, text, secret)
		}
	}
}

// A cure is an instruction, on one line, that says neither where in the source
// the fault was found nor what went on inside.
func TestEveryCureIsOneReadableLine(t *testing.T) {
	for _, e := range everyFault(t, func(*Config) {}) {
		text := e.Error()
		assert.NotContains(t, text, "\n")
		assert.NotContains(t, text, ".go:")
		assert.NotContains(t, text, "%!")
		assert.NotContains(t, text, ": weir:", "a prefix within a text")
		assert.NotEmpty(t, e.Fix)
		assert.Less(t, len(e.Fix), 260)
	}
}

// The tables above must give every fault that the source can. A call of f.add
// counts as shown where some error has its reason, its path and its text.
func TestEveryFaultInTheSourceIsInATable(t *testing.T) {
	shown := everyFault(t, func(*Config) {})
	sites := 0
	for _, site := range faultSites(t) {
		sites++
		assert.True(t, slices.ContainsFunc(shown, site.made), "no row gives the fault of %s: %s, %s, %s", site.pos, site.path, site.reason, site.fix)
	}
	assert.Greater(t, sites, 50, "calls of f.add found in the source")
}

// faultSite is one call of f.add. What is not literal in its path and text can
// be anything.
type faultSite struct {
	pos       token.Position
	reason    Reason
	path, fix *regexp.Regexp
}

func (s faultSite) made(e *ConfigError) bool {
	return e.Reason == s.reason && s.path.MatchString(e.Path) && s.fix.MatchString(e.Fix)
}

func faultSites(t testing.TB) (sites []faultSite) {
	reasons := map[string]Reason{
		"ReasonMissing": ReasonMissing, "ReasonInvalid": ReasonInvalid, "ReasonOutOfRange": ReasonOutOfRange, "ReasonUnknown": ReasonUnknown,
		"ReasonConflict": ReasonConflict, "ReasonInert": ReasonInert, "ReasonUnsupported": ReasonUnsupported,
	}
	fset := token.NewFileSet()
	for _, file := range sourceFiles(t, fset) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); !ok || sel.Sel.Name != "add" || len(call.Args) < 4 {
				return true
			}
			name, ok := call.Args[2].(*ast.Ident)
			if !ok || !strings.HasPrefix(name.Name, "Reason") {
				return true
			}
			reason, ok := reasons[name.Name]
			require.True(t, ok, "a new reason: %s", name.Name)
			sites = append(sites, faultSite{
				fset.Position(call.Pos()), reason, like(call.Args[0]), like(call.Args[3]),
			})
			return true
		})
	}
	return sites
}

// sourceFiles parses the package's files, tests excepted.
func sourceFiles(t testing.TB, fset *token.FileSet) (files []*ast.File) {
	t.Helper()
	pkg, err := build.ImportDir(".", 0)
	require.NoError(t, err)
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(pkg.Dir, name), nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
	}
	return files
}

var verbs = regexp.MustCompile(`%[a-z]`)

// like turns an expression for a text into what such a text looks like.
func like(e ast.Expr) *regexp.Regexp {
	var expr func(ast.Expr) string
	expr = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, _ := strconv.Unquote(e.Value)
			return verbs.ReplaceAllLiteralString(regexp.QuoteMeta(text), ".*")
		case *ast.BinaryExpr:
			return expr(e.X) + expr(e.Y)
		case *ast.CallExpr: // of fmt.Sprintf
			return expr(e.Args[0])
		}
		return ".*"
	}
	return regexp.MustCompile("^" + expr(e) + "$")
}

func TestParseNetwork(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"192.0.2.7", "192.0.2.7/32"},
		{"192.0.2.7/24", "192.0.2.0/24"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"2001:db8::1", "2001:db8::1/128"},
		{"2001:db8::1/32", "2001:db8::/32"},
		{"::ffff:192.0.2.7", "192.0.2.7/32"},
		{"::ffff:192.0.2.7/120", "192.0.2.0/24"},
		{"::ffff:0:0/96", "0.0.0.0/0"},
		{"::ffff:192.0.2.7/95", ""},
		{"fe80::1%eth0", ""},
		{"fe80::1%eth0/64", ""},
		{"192.0.2.7/33", ""},
		{"192.0.2", ""},
		{"192.0.2.07", ""},
		{" 192.0.2.7", ""},
		{"", ""},
	} {
		p, err := parseNetwork(tt.text)
		if tt.want == "" {
			assert.Error(t, err, tt.text)
			continue
		}
		require.NoError(t, err, tt.text)
		assert.Equal(t, tt.want, p.String(), tt.text)
	}
}

func FuzzParseNetwork(f *testing.F) {
	for _, text := range []string{"192.0.2.7", "192.0.2.7/24", "::ffff:192.0.2.7/120", "2001:db8::/32", "fe80::1%eth0", "::/0", "/", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parseNetwork(text)
		if err != nil {
			assert.Equal(t, netip.Prefix{}, p)
			return
		}
		require.True(t, p.IsValid())
		assert.Equal(t, p.Masked(), p)
		assert.False(t, p.Addr().Is4In6() || p.Addr().Zone() != "", "%q became %v", text, p)
		again, err := parseNetwork(p.String())
		require.NoError(t, err)
		assert.Equal(t, p, again)
	})
}

// Whatever a file holds, Validate and New agree on it, and neither panics.
// Where Validate finds nothing, New may still miss an option.
func FuzzConfig(f *testing.F) {
	for _, tt := range faultCases {
		cfg := soundConfig()
		tt.change(&cfg)
		if text, err := json.Marshal(cfg); err == nil { // NaN has no JSON
			f.Add(text)
		}
	}
	f.Add([]byte(`{"enabled": true, "default_class": "x", "tiers": {"per_ip": {"rate": 1, "burst": 1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg := soundConfig()
		if formats[0].decode(text, &cfg) != nil {
			return
		}
		invalid := cfg.Validate()
		cfg.Advise()
		opts := soundOptions()
		for name := range cfg.Guards {
			opts = append(opts, WithPoolSize(name, func() int { return 1 }))
		}
		for _, tier := range cfg.Tiers.Custom {
			opts = append(opts, WithKey(tier.Name, noKey))
		}
		l, err := New(cfg, opts...)
		if invalid != nil {
			assert.EqualError(t, err, invalid.Error())
			return
		}
		require.NoError(t, err)
		require.NoError(t, l.Reload(l.Config()))
		equalConfigs(t, cfg, l.Config())
	})
}

// What Validate passes around is a copy.
func TestValidateAndAdviseChangeNothing(t *testing.T) {
	cfg, reference := filledConfig(), filledConfig()
	assert.Error(t, cfg.Validate())
	cfg.Advise()
	assert.Equal(t, reference, cfg)
}
