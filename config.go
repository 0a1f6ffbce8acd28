package weir

import (
	"maps"
	"slices"
	"time"
)

// Config is everything a file can say about a [Limiter]; what a file cannot
// hold comes as an [Option]. It decodes from JSON, YAML and TOML with the same
// names. The zero Config is disabled and costs nothing; start from
// [DefaultConfig]. Every field may be changed by [Limiter.Reload] unless its
// doc says otherwise.
//
// A Config is plain data: New and Reload copy it, so later changes to it have
// no effect.
type Config struct {
	_ [0]func() // no ==, no unkeyed literals

	// Enabled switches the whole Limiter on. While it is false nothing else in
	// the Config is looked at. A Limiter that wired a handler while disabled
	// handed that handler back bare; Reload cannot reach it any more and says so.
	Enabled bool `json:"enabled" yaml:"enabled" toml:"enabled"`
	// Namespace is the first part of every metric's name and of every key in a
	// store. Default "weir". Letters, digits and _. Reload cannot change it.
	Namespace string `json:"namespace" yaml:"namespace" toml:"namespace"`
	// ClientIP says whose word to take for a client's address.
	ClientIP ClientIPConfig `json:"client_ip" yaml:"client_ip" toml:"client_ip"`
	// Endpoints gives requests a class. See [PKIEndpoints].
	Endpoints []Endpoint `json:"endpoints" yaml:"endpoints" toml:"endpoints"`
	// DefaultClass is the class of a request that no pattern matches. Default
	// "": such a request is not limited.
	DefaultClass Class `json:"default_class" yaml:"default_class" toml:"default_class"`
	// Exempt lists who is never limited.
	Exempt ExemptConfig `json:"exempt" yaml:"exempt" toml:"exempt"`
	// Deny lists who is always refused.
	Deny DenyConfig `json:"deny" yaml:"deny" toml:"deny"`
	// Tiers are the token buckets.
	Tiers TiersConfig `json:"tiers" yaml:"tiers" toml:"tiers"`
	// Windows are the fixed-window counters.
	Windows WindowsConfig `json:"windows" yaml:"windows" toml:"windows"`
	// AuthLock is the lockout after failed sign-ins.
	AuthLock AuthLockConfig `json:"auth_lock" yaml:"auth_lock" toml:"auth_lock"`
	// Guards are the in-flight guards, by name. An endpoint names its own.
	Guards map[string]GuardConfig `json:"guards" yaml:"guards" toml:"guards"`
	// Headers says which rate-limit headers responses carry.
	Headers HeadersConfig `json:"headers" yaml:"headers" toml:"headers"`
	// RetryJitter is the fraction, 0 to 0.5, of a wait that is added at random
	// to Retry-After, so that clients refused together do not return together.
	// It is never taken away. Default 0.
	RetryJitter float64 `json:"retry_jitter" yaml:"retry_jitter" toml:"retry_jitter"`
	// Store says where counts are kept. Reload cannot change its backend.
	Store StoreConfig `json:"store" yaml:"store" toml:"store"`
	// Shadow lists tiers that decide, count and log but let the request pass.
	Shadow []string `json:"shadow" yaml:"shadow" toml:"shadow"`
}

// ClientIPConfig says how a client's address is found (requirements I1–I8).
type ClientIPConfig struct {
	// TrustedProxies are the proxies whose headers are believed: addresses,
	// CIDR networks, and the word "unix" for a unix-socket peer. Default none:
	// headers are never read and the peer is the client.
	TrustedProxies []string `json:"trusted_proxies" yaml:"trusted_proxies" toml:"trusted_proxies"`
	// Header is what trusted proxies write: "x-forwarded-for" (default),
	// "forwarded" (RFC 7239), or "single:NAME" for a CDN's one-address header.
	// There is no fallback from one to another. Any but the default needs
	// TrustedProxies (requirement I6).
	Header string `json:"header" yaml:"header" toml:"header"`
	// XRealIP takes X-Real-IP from a trusted proxy that sends no
	// X-Forwarded-For. Default true.
	XRealIP bool `json:"x_real_ip" yaml:"x_real_ip" toml:"x_real_ip"`
	// InsecureTrustAny permits a trusted network of /0, with which anyone can
	// claim any address. Default false.
	InsecureTrustAny bool `json:"insecure_trust_any" yaml:"insecure_trust_any" toml:"insecure_trust_any"`
	// IPv4Prefix and IPv6Prefix are the network sizes that count as one client
	// (requirement T13). Defaults 32 and 64; ranges 8–32 and 16–128.
	IPv4Prefix int `json:"ipv4_prefix" yaml:"ipv4_prefix" toml:"ipv4_prefix"`
	IPv6Prefix int `json:"ipv6_prefix" yaml:"ipv6_prefix" toml:"ipv6_prefix"`
}

// ExemptConfig lists who is never limited by tiers or windows (requirement
// T12). The guard, which protects capacity, still holds for them.
type ExemptConfig struct {
	Networks []string `json:"networks" yaml:"networks" toml:"networks"` // addresses and CIDR networks
	Accounts []string `json:"accounts" yaml:"accounts" toml:"accounts"`
	Classes  []Class  `json:"classes" yaml:"classes" toml:"classes"`
}

// DenyConfig lists who is always refused (requirement T12).
type DenyConfig struct {
	Networks []string `json:"networks" yaml:"networks" toml:"networks"` // addresses and CIDR networks
	Accounts []string `json:"accounts" yaml:"accounts" toml:"accounts"`
}

// Limit is a token bucket's policy. Both values positive, or both zero, which
// is no limit at all (requirement T2).
type Limit struct {
	Rate  float64 `json:"rate" yaml:"rate" toml:"rate"`    // tokens a second; fractions are allowed
	Burst float64 `json:"burst" yaml:"burst" toml:"burst"` // capacity in tokens
}

// TiersConfig is the token buckets a request spends from: all that apply, or
// none (requirements T1–T7).
type TiersConfig struct {
	// Global is one bucket for all. Default 200/s, burst 400.
	Global TierConfig `json:"global" yaml:"global" toml:"global"`
	// PerIP is a bucket for each client address. Default 20/s, burst 40.
	// Overrides name an address or a network; in a network each client has a
	// bucket of that size, and the longest network wins.
	PerIP TierConfig `json:"per_ip" yaml:"per_ip" toml:"per_ip"`
	// PerAccount is a bucket for each account. Default 50/s, burst 100.
	PerAccount TierConfig `json:"per_account" yaml:"per_account" toml:"per_account"`
	// Custom are keyed tiers of your own; each needs [WithKey].
	Custom []CustomTierConfig `json:"custom" yaml:"custom" toml:"custom"`
	// MaxKeys bounds the buckets of each keyed tier. At the bound nobody is
	// refused for it: the bucket worth least goes. Default 100 000.
	MaxKeys int `json:"max_keys" yaml:"max_keys" toml:"max_keys"`
	// IdleTTL is how long an unused bucket is kept once it is full again.
	// Default 10m. However short, a bucket that is not full stays.
	IdleTTL Duration `json:"idle_ttl" yaml:"idle_ttl" toml:"idle_ttl"`
	// MaxWait is how long a request that lacks tokens is held for them before
	// it is refused (requirement T15). Default 0: not at all. A tier's own
	// MaxWait goes before it, and an endpoint's before both.
	MaxWait Duration `json:"max_wait" yaml:"max_wait" toml:"max_wait"`
	// MaxWaiting bounds how many requests are held at once. Default 256.
	MaxWaiting int `json:"max_waiting" yaml:"max_waiting" toml:"max_waiting"`
}

// TierConfig is one token-bucket tier.
type TierConfig struct {
	Rate  float64 `json:"rate" yaml:"rate" toml:"rate"`    // tokens a second
	Burst float64 `json:"burst" yaml:"burst" toml:"burst"` // capacity in tokens
	// Overrides replace Rate and Burst for single keys, named as the request
	// names them. Both values, or neither, in a tier that has a limit itself. Not
	// for the global tier.
	Overrides map[string]Limit `json:"overrides,omitempty" yaml:"overrides,omitempty" toml:"overrides,omitempty"`
	// MaxWait replaces TiersConfig.MaxWait for this tier; nil inherits it.
	MaxWait *Duration `json:"max_wait,omitempty" yaml:"max_wait,omitempty" toml:"max_wait,omitempty"`
}

// CustomTierConfig is a keyed tier of the embedder's own, such as a fleet or a
// (fleet, device) pair (requirement T5).
type CustomTierConfig struct {
	// Name is the tier's word in metrics and in [WithKey]: lower-case letters,
	// digits and _.
	Name      string           `json:"name" yaml:"name" toml:"name"`
	Rate      float64          `json:"rate" yaml:"rate" toml:"rate"`
	Burst     float64          `json:"burst" yaml:"burst" toml:"burst"`
	Overrides map[string]Limit `json:"overrides,omitempty" yaml:"overrides,omitempty" toml:"overrides,omitempty"`
	MaxWait   *Duration        `json:"max_wait,omitempty" yaml:"max_wait,omitempty" toml:"max_wait,omitempty"`
	// Audit reports each refusal by this tier to the audit sink. Not available
	// in this version.
	Audit bool `json:"audit" yaml:"audit" toml:"audit"`
	// Liveness exports how many keys were seen and are live. Not available in
	// this version.
	Liveness bool `json:"liveness" yaml:"liveness" toml:"liveness"`
}

// WindowsConfig is the fixed-window counters (requirements W1–W5). Not
// available in this version: Enabled must be false.
type WindowsConfig struct {
	Enabled    bool     `json:"enabled" yaml:"enabled" toml:"enabled"`
	Window     Duration `json:"window" yaml:"window" toml:"window"`                // default 1m
	PerSubject int      `json:"per_subject" yaml:"per_subject" toml:"per_subject"` // requests a window; default 600
	PerAddress int      `json:"per_address" yaml:"per_address" toml:"per_address"` // requests a window; default 300
	Process    int      `json:"process" yaml:"process" toml:"process"`             // arrivals a window; default 0 = off
	Exclude    []string `json:"exclude" yaml:"exclude" toml:"exclude"`             // ServeMux patterns
}

// AuthLockConfig is the lockout after failed sign-ins (requirements L1–L12).
// Not available in this version: Enabled must be false.
type AuthLockConfig struct {
	Enabled bool              `json:"enabled" yaml:"enabled" toml:"enabled"`
	Address AddressLockConfig `json:"address" yaml:"address" toml:"address"`
	Account AccountLockConfig `json:"account" yaml:"account" toml:"account"`
	Delay   DelayConfig       `json:"delay" yaml:"delay" toml:"delay"`
	MaxKeys int               `json:"max_keys" yaml:"max_keys" toml:"max_keys"` // default 100 000
}

// AddressLockConfig counts failures for each address.
type AddressLockConfig struct {
	MaxFailures   int      `json:"max_failures" yaml:"max_failures" toml:"max_failures"`       // default 100
	Window        Duration `json:"window" yaml:"window" toml:"window"`                         // default 5m
	Lockout       Duration `json:"lockout" yaml:"lockout" toml:"lockout"`                      // default 10m
	PerCredential bool     `json:"per_credential" yaml:"per_credential" toml:"per_credential"` // default false
	Ceiling       int      `json:"ceiling" yaml:"ceiling" toml:"ceiling"`                      // default 0 = none
}

// AccountLockConfig counts failures for each account over all addresses.
type AccountLockConfig struct {
	MaxFailures   int      `json:"max_failures" yaml:"max_failures" toml:"max_failures"`       // default 10
	Window        Duration `json:"window" yaml:"window" toml:"window"`                         // default 1h
	Lockout       Duration `json:"lockout" yaml:"lockout" toml:"lockout"`                      // default 1h
	Remember      Duration `json:"remember" yaml:"remember" toml:"remember"`                   // default 720h
	AdmitLoopback bool     `json:"admit_loopback" yaml:"admit_loopback" toml:"admit_loopback"` // default false
}

// DelayConfig slows the answers to failed sign-ins.
type DelayConfig struct {
	After       int      `json:"after" yaml:"after" toml:"after"`                      // default 10
	First       Duration `json:"first" yaml:"first" toml:"first"`                      // default 200ms
	Max         Duration `json:"max" yaml:"max" toml:"max"`                            // default 5s
	MaxSleeping int      `json:"max_sleeping" yaml:"max_sleeping" toml:"max_sleeping"` // default 1024
}

// GuardConfig is one in-flight guard (requirements G1–G4).
type GuardConfig struct {
	// MaxInFlight is how many hold a slot at once. 0 takes the size of the
	// protected pool from [WithPoolSize].
	MaxInFlight int `json:"max_in_flight" yaml:"max_in_flight" toml:"max_in_flight"`
	// MaxQueue is how many more may wait, first come first served. 0 means the
	// default, 64; a class that is not to wait says so with its Mode.
	MaxQueue int `json:"max_queue" yaml:"max_queue" toml:"max_queue"`
	// AcquireTimeout is how long one waits at most. 0 means the default, 5s.
	AcquireTimeout Duration `json:"acquire_timeout" yaml:"acquire_timeout" toml:"acquire_timeout"`
	// BackendShare is the percentage of slots that one backend may hold. Not
	// available in this version: must be 0.
	BackendShare int `json:"backend_share" yaml:"backend_share" toml:"backend_share"`
}

// HeadersConfig says which rate-limit headers responses carry. Not available in
// this version, in which no response carries any: leave it as it is, or "off".
type HeadersConfig struct {
	RateLimit string `json:"rate_limit" yaml:"rate_limit" toml:"rate_limit"` // "off", "rejected" (default) or "always"
	IETF      bool   `json:"ietf" yaml:"ietf" toml:"ietf"`                   // also RateLimit and RateLimit-Policy; default false
}

// StoreConfig says where counts are kept.
type StoreConfig struct {
	// Backend is "memory" (default) or the name of one that an import provides.
	Backend string `json:"backend" yaml:"backend" toml:"backend"`
	// OnError is what happens to a request while the store fails: "local"
	// (default) counts it in this process, "allow" lets it pass uncounted.
	OnError string `json:"on_error" yaml:"on_error" toml:"on_error"`
	// KeySecret keys the hashes that stand for account and other ids. Default
	// "": random for each process. Replicas that share a store must share it.
	// "${NAME}" takes it from the environment. At least 16 bytes. Reload
	// cannot change it.
	KeySecret string `json:"key_secret" yaml:"key_secret" toml:"key_secret"`
	// Redis is for the redis backend.
	Redis RedisConfig `json:"redis" yaml:"redis" toml:"redis"`
}

// RedisConfig is for the redis backend.
type RedisConfig struct {
	DSN            string   `json:"dsn" yaml:"dsn" toml:"dsn"`                                     // may be "${NAME}"
	KeyPrefix      string   `json:"key_prefix" yaml:"key_prefix" toml:"key_prefix"`                // default "weir:"
	ConnectTimeout Duration `json:"connect_timeout" yaml:"connect_timeout" toml:"connect_timeout"` // default 5s
	CommandTimeout Duration `json:"command_timeout" yaml:"command_timeout" toml:"command_timeout"` // default 100ms
}

// DefaultConfig returns the documented defaults, enabled. It says what a
// client may do but not yet where: set Endpoints (see [PKIEndpoints]) or
// DefaultClass before it is used.
func DefaultConfig() Config {
	return Config{
		Enabled:   true,
		Namespace: "weir",
		ClientIP: ClientIPConfig{
			Header: "x-forwarded-for", XRealIP: true,
			IPv4Prefix: 32, IPv6Prefix: 64,
		},
		Tiers: TiersConfig{
			Global:     TierConfig{Rate: 200, Burst: 400},
			PerIP:      TierConfig{Rate: 20, Burst: 40},
			PerAccount: TierConfig{Rate: 50, Burst: 100},
			MaxKeys:    100_000, IdleTTL: Duration(10 * time.Minute),
			MaxWaiting: 256,
		},
		Windows: WindowsConfig{
			Window: Duration(time.Minute), PerSubject: 600, PerAddress: 300,
			Exclude: []string{
				"GET /healthz", "GET /livez", "GET /readyz", "GET /metrics",
				"GET /favicon.ico", "GET /robots.txt",
			},
		},
		AuthLock: AuthLockConfig{
			Address: AddressLockConfig{MaxFailures: 100, Window: Duration(5 * time.Minute), Lockout: Duration(10 * time.Minute)},
			Account: AccountLockConfig{MaxFailures: 10, Window: Duration(time.Hour), Lockout: Duration(time.Hour), Remember: Duration(720 * time.Hour)},
			Delay:   DelayConfig{After: 10, First: Duration(200 * time.Millisecond), Max: Duration(5 * time.Second), MaxSleeping: 1024},
			MaxKeys: 100_000,
		},
		Headers: HeadersConfig{RateLimit: "rejected"},
		Store: StoreConfig{
			Backend: "memory", OnError: "local",
			Redis: RedisConfig{KeyPrefix: "weir:", ConnectTimeout: Duration(5 * time.Second), CommandTimeout: Duration(100 * time.Millisecond)},
		},
	}
}

// clone returns a deep copy.
func (c Config) clone() Config {
	c.ClientIP.TrustedProxies = slices.Clone(c.ClientIP.TrustedProxies)
	c.Endpoints = slices.Clone(c.Endpoints)
	for i := range c.Endpoints {
		c.Endpoints[i].MaxWait = clonePtr(c.Endpoints[i].MaxWait)
		c.Endpoints[i].Limits = maps.Clone(c.Endpoints[i].Limits)
	}
	c.Exempt.Networks = slices.Clone(c.Exempt.Networks)
	c.Exempt.Accounts = slices.Clone(c.Exempt.Accounts)
	c.Exempt.Classes = slices.Clone(c.Exempt.Classes)
	c.Deny.Networks = slices.Clone(c.Deny.Networks)
	c.Deny.Accounts = slices.Clone(c.Deny.Accounts)
	for _, t := range []*TierConfig{&c.Tiers.Global, &c.Tiers.PerIP, &c.Tiers.PerAccount} {
		t.Overrides = maps.Clone(t.Overrides)
		t.MaxWait = clonePtr(t.MaxWait)
	}
	c.Tiers.Custom = slices.Clone(c.Tiers.Custom)
	for i := range c.Tiers.Custom {
		c.Tiers.Custom[i].Overrides = maps.Clone(c.Tiers.Custom[i].Overrides)
		c.Tiers.Custom[i].MaxWait = clonePtr(c.Tiers.Custom[i].MaxWait)
	}
	c.Windows.Exclude = slices.Clone(c.Windows.Exclude)
	c.Guards = maps.Clone(c.Guards)
	c.Shadow = slices.Clone(c.Shadow)
	return c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
