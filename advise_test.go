package weir

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// suspicion is an advice: its path, and a word of its text.
type suspicion struct{ path, text string }

var noProxies = suspicion{"client_ip.trusted_proxies", "every client counts as that one address"}

// advises claims that cfg, which must be valid, gives exactly these.
func advises(t testing.TB, cfg Config, want ...suspicion) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	var got []suspicion
	for i, a := range cfg.Advise() {
		s := suspicion{a.Path, a.Text}
		if i < len(want) && strings.Contains(a.Text, want[i].text) {
			s.text = want[i].text
		}
		got = append(got, s)
		assert.Equal(t, a.Path+": "+a.Text, a.String())
		assert.NotContains(t, a.Text, "%!")
	}
	assert.Equal(t, want, got)
}

// behindProxy is soundConfig with its one advice heeded.
func behindProxy() Config {
	cfg := soundConfig()
	cfg.ClientIP.TrustedProxies = []string{"10.0.0.0/8"}
	return cfg
}

func TestASaneConfigGivesNoAdviceButToListTheProxies(t *testing.T) {
	pki := DefaultConfig()
	pki.Endpoints = PKIEndpoints()
	advises(t, pki, noProxies)
	advises(t, soundConfig(), noProxies)
	advises(t, behindProxy())
}

func TestWhatIsLegalButSuspiciousIsAdvisedUpon(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Config)
		want   []suspicion
	}{
		{"no proxy, and clients counted by address (I8)", trusting(), []suspicion{noProxies}},
		{"an auth lock that an outage turns off", func(c *Config) {
			c.AuthLock.Enabled, c.Store.OnError = true, "allow"
		}, []suspicion{{"auth_lock", "no endpoint has an auth"}, {"store.on_error", "turns the auth lock off"}}},
		{"no proxy, and addresses counted in buckets of a class only", func(c *Config) {
			c.ClientIP.TrustedProxies, c.Tiers.PerIP = nil, TierConfig{}
			c.Endpoints[0].Limits = map[string]Limit{"per_ip": {1, 2}}
		}, []suspicion{noProxies}},
		{"no proxy, and addresses not counted at all", func(c *Config) { c.ClientIP.TrustedProxies, c.Tiers.PerIP = nil, TierConfig{} }, nil},
		{"a trusted network with bits beyond its length", trusting("10.1.2.3/8"), []suspicion{{"client_ip.trusted_proxies[0]", `"10.1.2.3/8"`}}},
		{"a trusted network that covers much", trusting("10.0.0.1", "10.0.0.0/7"), []suspicion{{"client_ip.trusted_proxies[1]", "covers much of the address space"}}},
		{"trust in everybody", func(c *Config) {
			c.ClientIP.TrustedProxies, c.ClientIP.InsecureTrustAny = []string{"0.0.0.0/0"}, true
		}, []suspicion{{"client_ip.trusted_proxies[0]", "/8"}, {"client_ip.insecure_trust_any", "chooses the address"}}},
		{"permission to trust everybody, unused", func(c *Config) { c.ClientIP.InsecureTrustAny = true }, []suspicion{{"client_ip.insecure_trust_any", "/0"}}},
		{"a host where a path was meant", pattern("POST acme/new-order"), []suspicion{{"endpoints[0].pattern", "acme is taken for a host"}}},
		{"a host where a path was meant, for any method", pattern("acme/new-order"), []suspicion{{"endpoints[0].pattern", "acme is taken for a host"}}},
		{"a class whose burst is below a second", func(c *Config) { c.Endpoints[0].Limits = map[string]Limit{"per_ip": {10, 9}} },
			[]suspicion{{"endpoints[0].limits.per_ip.burst", "9 is below one second of the rate (10)"}}},
		{"an IPv4 world that is exempt", func(c *Config) { c.Exempt.Networks = []string{"192.0.2.0/24", "0.0.0.0/0"} },
			[]suspicion{{"exempt.networks[1]", "nobody is ever limited"}}},
		{"an IPv6 world that is denied", func(c *Config) { c.Deny.Networks = []string{"::/0"} }, []suspicion{{"deny.networks[0]", "everybody is refused"}}},
		{"bursts below a second, in every tier", func(c *Config) {
			c.Tiers.Global.Burst, c.Tiers.PerIP.Burst, c.Tiers.Custom[0].Burst, c.Tiers.PerAccount.Burst = 199, 19, 24, 49
		}, []suspicion{
			{"tiers.global.burst", "199"}, {"tiers.per_ip.burst", "19"}, {"tiers.custom[0].burst", "24"}, {"tiers.per_account.burst", "49"}}},
		{"an override with neither value", func(c *Config) {
			c.Tiers.PerAccount.Overrides = map[string]Limit{"alice": {}, "bob": {}}
			c.Tiers.Custom[0].Overrides = map[string]Limit{"f1": {}}
		}, []suspicion{{"tiers.custom[0].overrides", "use exempt"}, {"tiers.per_account.overrides", "use exempt"}}},
		{"no global limit", func(c *Config) { c.Tiers.Global = TierConfig{} }, []suspicion{{"tiers.global", "overload"}}},
		{"backends that may each hold every slot", func(c *Config) {
			c.Endpoints[0].Backend = "left"
			c.Endpoints = append(c.Endpoints, Endpoint{Class: "right", Guard: "hsm", Backend: "right"})
			c.Guards["hsm"] = GuardConfig{MaxInFlight: 4, BackendShare: 100}
		}, []suspicion{{"guards.hsm.backend_share", "each of 2 backends"}}},
		{"a lane for a class that does not come to the guard", func(c *Config) {
			c.Guards["hsm"] = GuardConfig{MaxInFlight: 4, Lanes: map[string]LaneConfig{"a": {Classes: []Class{"order", "other"}}}}
		}, []suspicion{{"guards.hsm.lanes.a.classes[1]", "no endpoint of class other"}}},
		{"a reserve that the share of its one backend has no room for", func(c *Config) {
			c.Endpoints[0].Backend = "left"
			c.Endpoints = append(c.Endpoints, Endpoint{Class: "right", Guard: "hsm", Backend: "right"}, Endpoint{Class: "any", Guard: "hsm"})
			c.Guards["hsm"] = GuardConfig{MaxInFlight: 8, BackendShare: 25, Lanes: map[string]LaneConfig{
				"a": {Classes: []Class{"order"}, Reserve: 3}, "b": {Classes: []Class{"right", "any"}, Reserve: 3}}}
		}, []suspicion{{"guards.hsm.lanes.a.reserve", "its one backend left may hold 2"}}},
		{"a guard that no endpoint names", func(c *Config) { c.Endpoints[0].Guard = "" }, []suspicion{{"guards", "no endpoint names a guard"}}},
		{"tiers in shadow", func(c *Config) { c.Shadow = []string{"fleet", "global"} }, []suspicion{
			{"shadow[0]", "tier fleet only counts"}, {"shadow[1]", "tier global only counts"}}},
		{"patterns with hosts, as they should be", patterns("ca.example/", "GET localhost/x", "GET\tca.example/y", "/z"), nil},
		{"a burst of a second", func(c *Config) { c.Tiers.PerIP = TierConfig{Rate: 20, Burst: 20} }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := behindProxy()
			tt.change(&cfg)
			if len(cfg.Endpoints) > 1 {
				cfg.Endpoints[0].Guard = "hsm"
			}
			advises(t, cfg, tt.want...)
			cfg.Enabled = false
			assert.Empty(t, cfg.Advise(), "a disabled Config is not in force")
		})
	}
}

// A setting that weakens protection is named Insecure and never goes unsaid.
func TestEveryInsecureSettingIsAdvisedUpon(t *testing.T) {
	found := 0
	var walk func(path string, index []int, typ reflect.Type)
	walk = func(path string, index []int, typ reflect.Type) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !field.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at, inner := path+name, append(index[:len(index):len(index)], i)
			if field.Type.Kind() == reflect.Struct {
				walk(at+".", inner, field.Type)
			}
			if !strings.HasPrefix(field.Name, "Insecure") {
				continue
			}
			found++
			cfg := behindProxy()
			reflect.ValueOf(&cfg).Elem().FieldByIndex(inner).SetBool(true)
			assert.True(t, hasAdvice(cfg, at), "%s is set and nothing is said of it", at)
		}
	}
	walk("", nil, reflect.TypeFor[Config]())
	assert.Positive(t, found)
}

func hasAdvice(cfg Config, path string) bool {
	for _, a := range cfg.Advise() {
		if a.Path == path {
			return true
		}
	}
	return false
}

func TestNewAndReloadLogEachAdviceOnce(t *testing.T) {
	cfg := soundConfig()
	cfg.Tiers.Global = TierConfig{}
	cfg.Shadow = []string{"per_ip", "fleet"}
	advice := cfg.Advise()
	require.Len(t, advice, 4)

	log, toLog := withLog()
	l := newLimiter(t, cfg, toLog, WithKey("fleet", noKey))
	require.NoError(t, l.Reload(cfg))
	bad := cfg
	bad.Namespace = "9"
	require.Error(t, l.Reload(bad))
	for _, a := range advice {
		assert.Len(t, log.with("WARN", "field="+a.Path+" ", a.Text), 2, "once by New, once by Reload")
	}
	assert.Len(t, log.with(""), 2*len(advice), "nothing else is logged")
}

func TestNoAdviceEchoesASecret(t *testing.T) {
	for _, tt := range faultCases {
		cfg := soundConfig()
		cfg.Store.KeySecret, cfg.Store.Redis.DSN = secret, dsn
		tt.change(&cfg)
		text := fmt.Sprint(cfg.Advise())
		assert.NotContains(t, text, secret)
		assert.NotContains(t, text, password)
	}
}
