package weir

import (
	"maps"
	"slices"
	"time"
)

// Config is everything a file can say about a [Limiter]; what a file cannot
// hold comes as an [Option]. It decodes from JSON, YAML and TOML with the same
// names. The zero Config is disabled and costs nothing; decode a file over
// [DefaultConfig], strictly (yaml.Decoder.KnownFields, DisallowUnknownFields of
// encoding/json), or one without "enabled: true" runs bare. Every field may be
// changed by [Limiter.Reload] unless its doc says otherwise.
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
	// Endpoints gives requests a class. See [PKIEndpoints]. Default none. A YAML
	// file that has endpoints replaces the list. encoding/json decodes them into
	// the elements that are there: set a default list after it, not before.
	Endpoints []Endpoint `json:"endpoints" yaml:"endpoints" toml:"endpoints"`
	// DefaultClass is the class of a request that no pattern matches. Default
	// "": such a request is not limited, but denied if it is on the deny list, and
	// counted as an arrival by the process window.
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
	// Shadow lists tiers and windows that decide, count and log but let the request
	// pass; the word auth_lock stands for the auth lock. Guards have no shadow.
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
	// Accounts are written as requests name them: an ACME one by the path of its
	// URL, "/acme/acct/7", or the whole URL; an EST one by its HTTP Basic user, in
	// any case: users are told apart as the auth lock does (see [Credential]). One that is only claimed is spared by the
	// account tier alone.
	Accounts []string `json:"accounts" yaml:"accounts" toml:"accounts"`
	Classes  []Class  `json:"classes" yaml:"classes" toml:"classes"`
}

// DenyConfig lists who is always refused (requirement T12), with 403 and a
// Retry-After of an hour, so that clients do not hammer.
type DenyConfig struct {
	Networks []string `json:"networks" yaml:"networks" toml:"networks"` // addresses and CIDR networks
	Accounts []string `json:"accounts" yaml:"accounts" toml:"accounts"` // as in ExemptConfig; a claim is enough
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
	// PerAccount is a bucket for each account. Default 50/s, burst 100. An ACME
	// request that another tier refuses before its body is read has no account
	// yet: its Retry-After leaves this tier out, which may refuse it then.
	PerAccount TierConfig `json:"per_account" yaml:"per_account" toml:"per_account"`
	// Renewal is a bucket for each account that the renewals spend from which
	// [WithRenewal] exempts from PerAccount. Default 10/s, burst 100. Without
	// that option it does nothing; with it, it must have both values.
	Renewal Limit `json:"renewal" yaml:"renewal" toml:"renewal"`
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
	// names them: accounts as in [ExemptConfig], those of a custom tier as its
	// [WithKey] returns them. Both values, or neither, in a tier that has a limit
	// itself. Not for the global tier.
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

// WindowsConfig is the fixed-window counters (requirements W1–W5): how many
// requests in each window of time, all back at its boundary. Every request of
// a class is counted once, for its account if somebody vouches for that
// ([WithAccount], [SetAccount]), else for its address. One that is refused, by
// whatever tier or window, is not counted, except as an arrival.
type WindowsConfig struct {
	Enabled bool `json:"enabled" yaml:"enabled" toml:"enabled"`
	// Window is the length; windows are aligned to the Unix epoch. At least 1s.
	// 0 means the default, 1m.
	Window Duration `json:"window" yaml:"window" toml:"window"`
	// PerSubject is how many requests a verified account may make in a window.
	// Default 600. 0 does not count accounts at all.
	PerSubject int `json:"per_subject" yaml:"per_subject" toml:"per_subject"`
	// PerAddress is how many requests an address may make in a window, where
	// nobody vouches for an account. Default 300. It has no off.
	PerAddress int `json:"per_address" yaml:"per_address" toml:"per_address"`
	// Process is how many requests may arrive in a window, from everybody
	// together: refused ones, excluded ones and those without a class
	// included. Default 0: no ceiling. The most dangerous of the numbers: size
	// it by what the server can do.
	Process int `json:"process" yaml:"process" toml:"process"`
	// Exclude lists net/http.ServeMux patterns that are outside PerSubject and
	// PerAddress. Default: health, liveness, readiness, metrics, favicon and
	// robots.txt. Add the paths of your assets and API description.
	Exclude []string `json:"exclude" yaml:"exclude" toml:"exclude"`
}

// AuthLockConfig is the lockout after failed attempts to authenticate
// (requirements L1–L12). It holds for the classes whose endpoint has an Auth
// and where the program calls [Limiter.Attempt]. While a lock holds, attempts
// are refused unchecked, the right credential too; they neither count nor
// extend it. Those on the exempt list are not spared: that is about rates.
type AuthLockConfig struct {
	Enabled bool `json:"enabled" yaml:"enabled" toml:"enabled"` // default false
	// Address counts failures for each address.
	Address AddressLockConfig `json:"address" yaml:"address" toml:"address"`
	// Account counts failures for each account, over all addresses.
	Account AccountLockConfig `json:"account" yaml:"account" toml:"account"`
	// Delay slows the answers to failures down.
	Delay DelayConfig `json:"delay" yaml:"delay" toml:"delay"`
	// ReserveAlways lets no more attempts of an address, or at an account, be
	// checked at once than failures are left, from the first attempt on.
	// Without it (the default) that holds once there is a failure in the
	// window; until then a crowd is checked, though no more outcomes are told
	// than may fail. Set it where a check is dear, as that of a password hash,
	// and honest clients do not make many at once.
	ReserveAlways bool `json:"reserve_always" yaml:"reserve_always" toml:"reserve_always"`
	// MaxKeys bounds the counters of each kind, and the remembered addresses.
	// At the bound those with the fewest failures go first and locks last.
	// Default 100 000. Redis has no such bound: there each counter goes when it has
	// ended, and what the process counts while it is away is bounded.
	MaxKeys int `json:"max_keys" yaml:"max_keys" toml:"max_keys"`
}

// AddressLockConfig counts failures for each address (requirements L1, L12). A
// success does not clear the count: it proves one credential, and the failures
// may have been at others.
type AddressLockConfig struct {
	// MaxFailures in a Window lock the address for Lockout. The Window begins
	// with the first failure. Defaults 100, 5m and 10m; 0 means the default.
	MaxFailures int      `json:"max_failures" yaml:"max_failures" toml:"max_failures"`
	Window      Duration `json:"window" yaml:"window" toml:"window"`
	Lockout     Duration `json:"lockout" yaml:"lockout" toml:"lockout"`
	// PerCredential counts each credential id at an address by itself, so that
	// one client with a wrong key does not lock out its neighbours behind the
	// same address. Default false. It alone stops nobody who tries many ids:
	// set Ceiling or MaxCredentials too.
	PerCredential bool `json:"per_credential" yaml:"per_credential" toml:"per_credential"`
	// Ceiling is how many failures of all ids together lock the address, under
	// PerCredential. Default 0: none. At least MaxFailures.
	Ceiling int `json:"ceiling" yaml:"ceiling" toml:"ceiling"`
	// MaxCredentials is how many distinct ids with a failure lock the address,
	// under PerCredential. Default 0: none.
	MaxCredentials int `json:"max_credentials" yaml:"max_credentials" toml:"max_credentials"`
}

// AccountLockConfig counts failures for each account over all addresses
// (requirements L2–L4). A success clears the count, but lifts no lock.
type AccountLockConfig struct {
	// MaxFailures in a Window lock the account for Lockout. Defaults 10, 1h and
	// 1h; 0 means the default.
	MaxFailures int      `json:"max_failures" yaml:"max_failures" toml:"max_failures"`
	Window      Duration `json:"window" yaml:"window" toml:"window"`
	Lockout     Duration `json:"lockout" yaml:"lockout" toml:"lockout"`
	// Remember is how long an address that signed in to an account is admitted
	// to it although it is locked, so that an attacker cannot lock the owner
	// out; its failures are then counted apart, under the same limit. Default
	// 720h (30 days); 0 means the default. The newest 64 addresses of an
	// account are remembered.
	Remember Duration `json:"remember" yaml:"remember" toml:"remember"`
	// AdmitLoopback admits a request from this machine itself in the same way:
	// its peer is a loopback address and it has no forwarding header. Default
	// false. A proxy on this machine that adds no header makes everybody look
	// like that.
	AdmitLoopback bool `json:"admit_loopback" yaml:"admit_loopback" toml:"admit_loopback"`
	// ClearSameAddress has a success take back only what its own address has
	// failed, so that a client of the owner that signs in every few minutes
	// does not give a guesser new attempts each time. Default false.
	ClearSameAddress bool `json:"clear_same_address" yaml:"clear_same_address" toml:"clear_same_address"`
}

// DelayConfig keeps the answers to failures back (requirements L6, L9): none
// for the first After failures of an address, then First, doubled with each
// further one up to Max. A success is never delayed. What counts is the answer
// only: the attempt is counted and the guard's slot free before it sleeps.
type DelayConfig struct {
	// After is the number of failures without a delay. Default 10; 0 means the
	// default. At MaxFailures or above there is none.
	After int `json:"after" yaml:"after" toml:"after"`
	// First and Max are the first and the longest delay. Defaults 200ms and
	// 5s; 0 means the default.
	First Duration `json:"first" yaml:"first" toml:"first"`
	Max   Duration `json:"max" yaml:"max" toml:"max"`
	// MaxSleeping bounds the answers kept back at once, each of which holds a
	// connection; MaxPerAddress those of one address. What is above is sent at
	// once. Defaults 1024 and 8; 0 means the default.
	MaxSleeping   int `json:"max_sleeping" yaml:"max_sleeping" toml:"max_sleeping"`
	MaxPerAddress int `json:"max_per_address" yaml:"max_per_address" toml:"max_per_address"`
}

// GuardConfig is one in-flight guard (requirements G1–G9).
type GuardConfig struct {
	// MaxInFlight is how many hold a slot at once. 0 takes the size of the
	// protected pool from [WithPoolSize].
	MaxInFlight int `json:"max_in_flight" yaml:"max_in_flight" toml:"max_in_flight"`
	// MaxQueue is how many more may wait in each lane. 0 means the default, 64; a
	// class that is not to wait says so with its Mode.
	MaxQueue int `json:"max_queue" yaml:"max_queue" toml:"max_queue"`
	// AcquireTimeout is how long one waits at most. 0 means the default, 5s. A
	// request that would wait for longer, as far as can be told from how quickly
	// the queue moves, is shed when it comes. A client that leaves is noticed at
	// once if its body is no longer than 64 KiB, over HTTP/1.1; else when the wait
	// is over. The server's ReadTimeout goes on meanwhile: of a longer body, or one
	// of a kind that is not read before (api, page, s3, crl), the handler cannot read
	// the rest when it is over.
	AcquireTimeout Duration `json:"acquire_timeout" yaml:"acquire_timeout" toml:"acquire_timeout"`
	// BackendShare is the percentage of slots that one backend may hold, rounded
	// down, at least one slot; a request above it is shed at once (requirement
	// G5). [Endpoint].Backend and [Guard.AcquireFor] say which backend work is
	// for; work that names none is not counted. 1 to 100. 0 means 75 if endpoints
	// name more than one backend behind the guard, else 100, which is no bound.
	BackendShare int `json:"backend_share" yaml:"backend_share" toml:"backend_share"`
	// Discipline says who is served when a slot comes free. "fair" (default):
	// clients take turns, each in the order of its requests; when the queue is
	// full, a client with two waiting requests less takes the place of the newest
	// of the one that has most. A client is a counted network; of an IPv6 /48 those
	// above four wait as one. "newest_first": who came last, and when the queue
	// is full the oldest goes; under overload few wait long and many in vain.
	// "controlled_delay": fair, until the queue has not been empty for a while;
	// then newest first, and waiting for no longer than work usually takes.
	Discipline string `json:"discipline,omitempty" yaml:"discipline,omitempty" toml:"discipline,omitempty"`
	// Lanes give groups of classes a queue of their own and slots that others
	// cannot take (requirement G9), by name. Classes in no lane share one that is
	// called default, as does work without a class. Default none. A lane that
	// holds less than its reserve is served first; what is not reserved goes to
	// the lane that holds least.
	Lanes map[string]LaneConfig `json:"lanes,omitempty" yaml:"lanes,omitempty" toml:"lanes,omitempty"`
}

// LaneConfig is a part of a guard for some classes.
type LaneConfig struct {
	// Classes are those of the lane. A class is in one lane at most.
	Classes []Class `json:"classes" yaml:"classes" toml:"classes"`
	// Reserve is how many slots only this lane may take. Default 0. All reserves
	// of a guard together must leave one slot. If the pool of [WithPoolSize] has
	// no room for them they are cut, which is logged.
	Reserve int `json:"reserve,omitempty" yaml:"reserve,omitempty" toml:"reserve,omitempty"`
	// MaxQueue is how many may wait in the lane. 0 means the guard's MaxQueue.
	MaxQueue int `json:"max_queue,omitempty" yaml:"max_queue,omitempty" toml:"max_queue,omitempty"`
	// MaxShare is the percentage of slots that the lane may hold, rounded down, at
	// least one slot. 0 means 100.
	MaxShare int `json:"max_share,omitempty" yaml:"max_share,omitempty" toml:"max_share,omitempty"`
	// Discipline replaces the guard's. "" means the guard's.
	Discipline string `json:"discipline,omitempty" yaml:"discipline,omitempty" toml:"discipline,omitempty"`
}

// HeadersConfig says which rate-limit headers responses carry (requirement
// W4). They tell of the tier or window with the fewest requests left or, on a
// refusal, of the one that refused. Admitted OCSP and CRL answers, which a
// shared cache may keep, never carry them. They are set before the guard, so with
// "always" a guard's 503 has those of the tiers.
type HeadersConfig struct {
	// RateLimit says where X-RateLimit-Limit, -Remaining and -Reset (Unix
	// seconds) are sent: "off", "rejected" (default) or "always".
	RateLimit string `json:"rate_limit" yaml:"rate_limit" toml:"rate_limit"`
	// IETF adds RateLimit and RateLimit-Policy in the same places, as
	// draft-ietf-httpapi-ratelimit-headers-11 has them. Default false.
	IETF bool `json:"ietf" yaml:"ietf" toml:"ietf"`
}

// StoreConfig says where counts are kept.
type StoreConfig struct {
	// Backend is "memory" (default) or the name of one that an import provides:
	// "redis", with import _ "github.com/weir-go/weir/store/redis". It is dialled
	// when a Config that is enabled is first put in force, and must answer then.
	Backend string `json:"backend" yaml:"backend" toml:"backend"`
	// OnError is what happens to a request while the store fails: "local"
	// (default) counts it in this process, "allow" lets it pass uncounted. Both hold
	// for attempts of the auth lock as well: with "allow" an outage is a time in
	// which guesses at passwords are neither counted nor refused.
	OnError string `json:"on_error" yaml:"on_error" toml:"on_error"`
	// KeySecret keys the hashes that stand for account and other ids. Default
	// "": random for each process. Replicas that share a store must share it; any
	// backend but memory needs one.
	// "${NAME}" takes it from the environment. At least 16 bytes. Reload
	// cannot change it.
	KeySecret string `json:"key_secret" yaml:"key_secret" toml:"key_secret"`
	// Replicas is how many processes share the store. While it is away, each
	// counts with that part of every rate and burst, so that all of them
	// together admit no more than before. Default 1, which lets each have all; 0
	// means the default. Reload cannot change it.
	Replicas int `json:"replicas" yaml:"replicas" toml:"replicas"`
	// Leases has each process take tokens of a tier's busy buckets in advance, and
	// hold them for so long, so that most requests need no round trip for that tier.
	// Default none. In any time T a bucket then admits at most
	//
	//	burst + rate·(T + lease)
	//
	// whatever the number of replicas; what a process holds and does not use, or
	// dies with, is not admitted anywhere. It is for buckets that many requests
	// share: 100ms for "global", say. A bucket that a process asks less than four
	// times in that time, or that is nearly used up, is not leased. From 1ms to
	// 1m. Windows, tiers in shadow and the memory backend have no leases. Reload
	// ends those whose rate, burst or time it changes.
	Leases map[string]Duration `json:"leases" yaml:"leases" toml:"leases"`
	// Redis is for the redis backend.
	Redis RedisConfig `json:"redis" yaml:"redis" toml:"redis"`
}

// RedisConfig is for the redis backend; package store/redis describes DSNs, rights
// and keys. Reload cannot change it.
type RedisConfig struct {
	DSN            string   `json:"dsn" yaml:"dsn" toml:"dsn"`                                     // may be "${NAME}"
	KeyPrefix      string   `json:"key_prefix" yaml:"key_prefix" toml:"key_prefix"`                // default "weir:"
	ConnectTimeout Duration `json:"connect_timeout" yaml:"connect_timeout" toml:"connect_timeout"` // default 5s
	// CommandTimeout is the longest that a request waits for the server. Default
	// 100ms, 1ms or more. Once one has waited a quarter of it, or eight times what all
	// but a hundredth of the answers take if that is longer, the next one finds the
	// server to hang: the process counts for itself, and nobody waits any more. Raise
	// it for a server that is far away or busy, or it is taken for one that hangs.
	CommandTimeout Duration `json:"command_timeout" yaml:"command_timeout" toml:"command_timeout"`
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
			Renewal:    Limit{Rate: 10, Burst: 100},
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
			Delay:   DelayConfig{After: 10, First: Duration(200 * time.Millisecond), Max: Duration(5 * time.Second), MaxSleeping: 1024, MaxPerAddress: 8},
			MaxKeys: 100_000,
		},
		Headers: HeadersConfig{RateLimit: "rejected"},
		Store: StoreConfig{
			Backend: "memory", OnError: "local", Replicas: 1,
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
	for name, g := range c.Guards {
		g.Lanes = maps.Clone(g.Lanes)
		for name, lane := range g.Lanes {
			lane.Classes = slices.Clone(lane.Classes)
			g.Lanes[name] = lane
		}
		c.Guards[name] = g
	}
	c.Shadow = slices.Clone(c.Shadow)
	c.Store.Leases = maps.Clone(c.Store.Leases)
	return c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}
