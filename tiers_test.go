package weir

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

func TestEachTierAloneCountsByItsOwnKey(t *testing.T) {
	same := func() *http.Request { return in4("192.0.2.1", "f1", "a1") }
	others := map[string]*http.Request{ // by what is different
		"address": in4("192.0.2.2", "f1", "a1"), "fleet": in4("192.0.2.1", "f2", "a1"), "account": in4("192.0.2.1", "f1", "a2"),
	}
	for _, tc := range []struct {
		tier  string
		apart string // which of them has a bucket of its own; "" for none
	}{
		{TierGlobal, ""}, {TierPerIP, "address"}, {"fleet", "fleet"}, {TierPerAccount, "account"},
	} {
		t.Run(tc.tier, func(t *testing.T) {
			cfg := noTiersBut(tc.tier)
			narrow(&cfg, tc.tier, 3)
			_, opts := fourTiers()
			h := newLimiter(t, cfg, opts...).Handler(served)
			left(t, h, 3, same)
			refusedBy(t, h, same(), tc.tier)
			for what, r := range others {
				if what == tc.apart {
					admitted(t, h, r)
				} else {
					refusedBy(t, h, r, tc.tier)
				}
			}
		})
	}
}

func TestRequestTakesATokenFromEveryTierThatApplies(t *testing.T) {
	one := []float64{99}
	for _, tc := range []struct {
		name                           string
		r                              *http.Request
		global, perIP, fleet, accounts []float64
		unkeyed                        float64
	}{
		{"all four", in4("192.0.2.1", "f1", "a1"), one, one, one, one, 0},
		{"without an account it falls back to the others", in4("192.0.2.1", "f1", ""), one, one, one, nil, 0},
		{"without a custom key that tier does not apply", in4("192.0.2.1", "", "a1"), one, one, nil, one, 1},
		{"with neither it falls back to the other two", from("192.0.2.1"), one, one, nil, nil, 1},
		{"without an address it still has one to count by", in4("", "f1", "a1"), one, one, one, one, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, opts := fourTiers()
				s, reg := newLedger(), prometheus.NewRegistry()
				h := newLimiter(t, cfg, append(opts, WithStore(s), WithRegisterer(reg))...).Handler(served)
				admitted(t, h, tc.r)
				for tier, want := range map[string][]float64{TierGlobal: tc.global, TierPerIP: tc.perIP, "fleet": tc.fleet, TierPerAccount: tc.accounts} {
					if got := s.in(tier); !slices.Equal(got, want) {
						t.Errorf("the buckets of %s hold %v, want %v", tier, got, want)
					}
				}
				if got := metric(t, reg, "weir_ratelimit_unkeyed_total", "tier", "fleet"); got != tc.unkeyed {
					t.Errorf("unkeyed is %v, want %v", got, tc.unkeyed)
				}
				if n := s.asked("admit"); n != 1 {
					t.Errorf("the store was asked %d times, want once for all tiers", n)
				}
			})
		})
	}
}

// A request that one tier refuses leaves every other bucket bit for bit as it
// was, whichever tier it is (requirement T3).
func TestRefusedRequestChangesNoBucket(t *testing.T) {
	acme := func(addr string) *http.Request {
		return withHeader(acmePost("/acme/new-order", addr, kidBody("https://ca.example/acme/acct/1")), "Fleet", "f1")
	}
	plain := func(addr string) *http.Request { return in4(addr, "f1", "a1") }
	for _, tier := range []string{TierGlobal, TierPerIP, "fleet", TierPerAccount} {
		for name, r := range map[string]func(string) *http.Request{"account by function": plain, "account by kid": acme} {
			t.Run(tier+" refuses, "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg, opts := fourTiers()
					cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
					narrow(&cfg, tier, 1)
					s := newLedger()
					h := newLimiter(t, cfg, append(opts, WithStore(s))...).Handler(served)
					// Odd amounts, so that a rounding error would show.
					for range 3 {
						time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
						send(h, r("192.0.2.1"))
					}
					before := s.tokens()
					for range 50 {
						refused(t, h, r("192.0.2.1"))
					}
					if after := s.tokens(); !maps.Equal(before, after) {
						t.Errorf("refused requests changed the buckets:\nbefore %v\nafter  %v", before, after)
					}
					if n := s.asked("refund"); n != 0 {
						t.Errorf("%d refunds: nothing was to be taken in the first place", n)
					}
				})
			})
		}
	}
}

// saturate runs 64 callers for a simulated hour. Each sends a request, sleeps
// for a while of its own and goes on; all send a last one when the hour ends.
func saturate(h http.Handler, r func(caller int) *http.Request, onAdmit func(caller int)) {
	const callers, hour = 64, time.Hour
	start := time.Now()
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng, r := rand.New(rand.NewPCG(7, uint64(caller))), r(caller)
			for {
				if send(h, r).Header().Get("Served") != "" {
					onAdmit(caller)
				}
				left := hour - time.Since(start)
				if left == 0 {
					return
				}
				time.Sleep(min(left, time.Duration(1+rng.Int64N(int64(12*time.Second)))))
			}
		})
	}
	wg.Wait()
}

func TestSixtyFourCallersForAnHourGetExactlyWhatTheBucketAllows(t *testing.T) {
	for _, tier := range []string{TierGlobal, TierPerIP, TierPerAccount} {
		t.Run(tier, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				tc := TierConfig{Rate: 1.5, Burst: 10}
				switch tier {
				case TierGlobal:
					cfg.Tiers.Global = tc
				case TierPerIP:
					cfg.Tiers.PerIP = tc
				case TierPerAccount:
					cfg.Tiers.PerAccount = tc
				}
				h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(served)
				var n atomic.Int64
				saturate(h, func(int) *http.Request { return claiming("a1", "192.0.2.1") }, func(int) { n.Add(1) })
				if want := int64(10 + 1.5*3600); n.Load() != want {
					t.Errorf("%d requests were admitted within an hour, want exactly %d", n.Load(), want)
				}
			})
		})
	}
}

// Conservation: what was admitted and what is left make up what there was,
// for every bucket of every tier, whoever refused in between.
func TestSixtyFourCallersInThreeTiersSpendNoTokenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.Global = TierConfig{Rate: 3, Burst: 20}
		cfg.Tiers.PerIP = TierConfig{Rate: 0.5, Burst: 4000} // never full again once it was touched
		cfg.Tiers.PerAccount = TierConfig{Rate: 0.1, Burst: 4000}
		s := newLedger()
		l := newLimiter(t, cfg, WithStore(s), WithAccount(byHeader("Account")))
		var byIP [4]atomic.Int64
		var byAccount [16]atomic.Int64
		var all atomic.Int64
		saturate(l.Handler(served),
			func(c int) *http.Request {
				return claiming(fmt.Sprint("a", c%16), fmt.Sprint("192.0.2.", c%4))
			},
			func(c int) { byIP[c%4].Add(1); byAccount[c%16].Add(1); all.Add(1) })

		if got, want := all.Load(), int64(20+3*3600); got != want {
			t.Errorf("%d requests were admitted, want exactly the %d of the global bucket", got, want)
		}
		conserved := func(what string, admitted []int64, tokens []float64, supply float64) {
			// The most admitted has the least left: both lists in step.
			slices.Sort(admitted)
			slices.Reverse(admitted)
			for i := range admitted {
				// A bucket is full at the start only, so refill that is lost to the
				// brim is at most what came before its first request.
				if sum := float64(admitted[i]) + tokens[i]; sum > supply+1e-6 || sum < supply-8 {
					t.Errorf("%s bucket %d: %d admitted and %v left make %v, want %v", what, i, admitted[i], tokens[i], sum, supply)
				}
			}
		}
		conserved("address", loaded(byIP[:]), s.in(TierPerIP), 4000+1800)
		conserved("account", loaded(byAccount[:]), s.in(TierPerAccount), 4000+360)
		if c := classOf(t, l, "api"); c.Admitted != uint64(all.Load()) {
			t.Errorf("%d counted as admitted, want %d", c.Admitted, all.Load())
		}
	})
}

func loaded(list []atomic.Int64) []int64 {
	out := make([]int64, len(list))
	for i := range list {
		out[i] = list[i].Load()
	}
	return out
}

// For one client the chain decides as golang.org/x/time/rate would.
func TestChainDecidesAsTimeRateForOneClient(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("sequence ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				perSecond := []float64{0.4, 1.0 / 3, 7, 100.0 / 7, 1e3, math.Pi}[seed%6]
				burst := 3 + rng.IntN(20)
				cfg := noTiers()
				cfg.Tiers.PerIP = TierConfig{Rate: perSecond, Burst: float64(burst)}
				for cost := 1; cost <= 3; cost++ {
					cfg.Endpoints = append(cfg.Endpoints, Endpoint{
						Pattern: fmt.Sprintf("/cost/%d", cost), Class: Class(fmt.Sprint("cost", cost)), Cost: float64(cost)})
				}
				h := newLimiter(t, cfg).Handler(served)
				oracle := rate.NewLimiter(rate.Limit(perSecond), burst)
				for op := range 3000 {
					if rng.IntN(3) > 0 {
						time.Sleep(time.Duration(rng.Float64() * 2.5e9 / perSecond))
					}
					cost := 1 + rng.IntN(3)
					want := oracle.AllowN(time.Now(), cost)
					got := send(h, request("GET", fmt.Sprintf("/cost/%d", cost), "192.0.2.1", "")).Code == 200
					if got != want {
						t.Fatalf("op %d, cost %d of %v/s: admitted %v, x/time/rate says %v", op, cost, perSecond, got, want)
					}
				}
			})
		})
	}
}

func TestOverrides(t *testing.T) {
	limit := func(burst float64) Limit { return Limit{Rate: 1.0 / 3600, Burst: burst} }
	cfg, opts := fourTiers()
	cfg.Tiers.PerIP = TierConfig{Rate: 1.0 / 3600, Burst: 1, Overrides: map[string]Limit{
		"10.0.0.0/8": limit(2), "10.1.0.0/16": limit(3), "10.1.2.3": limit(4), "10.9.9.9": {}, // neither: the tier's own
		"2001:db8::/32": limit(2), "2001:db8:1::/48": limit(3), "2001:db8:2::7": limit(4),
	}}
	cfg.Tiers.PerAccount = TierConfig{Rate: 1.0 / 3600, Burst: 1, Overrides: map[string]Limit{"partner": limit(3)}}
	cfg.Tiers.Custom[0].Burst = 1
	cfg.Tiers.Custom[0].Overrides = map[string]Limit{"big": limit(5)}
	for _, tc := range []struct {
		name string
		r    func() *http.Request
		want int
	}{
		{"an address in no network has the tier's own", func() *http.Request { return from("192.0.2.1") }, 1},
		{"a network's limit holds for an address in it", func() *http.Request { return from("10.200.0.1") }, 2},
		{"each client of a network has a bucket of its own", func() *http.Request { return from("10.200.0.2") }, 2},
		{"the longer network wins", func() *http.Request { return from("10.1.0.1") }, 3},
		{"the address itself wins", func() *http.Request { return from("10.1.2.3") }, 4},
		{"an override without values leaves the tier's own", func() *http.Request { return from("10.9.9.9") }, 1},
		{"IPv4 in IPv6 clothes is looked up as IPv4", func() *http.Request { return from("::ffff:10.1.0.7") }, 3},
		{"IPv6 by network", func() *http.Request { return from("2001:db8:7::1") }, 2},
		{"IPv6, the longer network wins", func() *http.Request { return from("2001:db8:1:1::1") }, 3},
		{"a single IPv6 address stands for its /64", func() *http.Request { return from("2001:db8:2::1234") }, 4},
		{"no address has the tier's own", func() *http.Request { return from("") }, 1},
		{"an account", func() *http.Request { return claiming("partner", fmt.Sprint("198.51.100.", next())) }, 3},
		{"another account", func() *http.Request { return claiming("other", fmt.Sprint("198.51.100.", next())) }, 1},
		{"a custom key", func() *http.Request {
			return withHeader(from(fmt.Sprint("198.51.100.", next())), "Fleet", "big")
		}, 5},
		{"another custom key", func() *http.Request {
			return withHeader(from(fmt.Sprint("198.51.100.", next())), "Fleet", "small")
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			left(t, newLimiter(t, cfg, opts...).Handler(served), tc.want, tc.r)
		})
	}
	t.Run("the clients of one network do not share", func(t *testing.T) {
		h := newLimiter(t, cfg, opts...).Handler(served)
		left(t, h, 2, func() *http.Request { return from("10.200.0.1") })
		left(t, h, 2, func() *http.Request { return from("10.200.0.2") })
	})
}

// next counts up, for requests that must differ.
var nextNumber atomic.Int64

func next() int64 { return nextNumber.Add(1)%250 + 1 }

// An address that carries an IPv4 address (6to4, NAT64, Teredo) is counted
// under that one, so one bucket would have two limits if the override were
// looked up by the other form: the tight one could be had loosened, and the
// generous one clamped, by who can choose his clothes.
func TestOneBucketHasOneLimitInWhateverFormTheAddressComes(t *testing.T) {
	const sixToFour = "2002:c000:0207::1" // 192.0.2.7
	for _, burst := range []float64{2, 50} {
		synctest.Test(t, func(t *testing.T) {
			cfg := noTiers()
			cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 10, Overrides: map[string]Limit{"192.0.2.0/24": {Rate: 1, Burst: burst}}}
			h := newLimiter(t, cfg).Handler(served)
			left(t, h, int(burst), func() *http.Request { return from(sixToFour) })
			refusedBy(t, h, from("192.0.2.7"), TierPerIP)
			time.Sleep(time.Hour)
			send(h, from(sixToFour))
			left(t, h, int(burst)-1, func() *http.Request { return from("192.0.2.7") })
		})
	}
}

func TestCostIsTakenFromEveryTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, opts := fourTiers()
		cfg.Endpoints = []Endpoint{{Pattern: "/dear", Class: "dear", Cost: 2.5}, {Pattern: "/cheap", Class: "cheap", Cost: 0.25}}
		s := newLedger()
		h := newLimiter(t, cfg, append(opts, WithStore(s))...).Handler(served)
		for path, cost := range map[string]float64{"/dear": 2.5, "/cheap": 0.25} {
			before := s.tokens()
			r := in4("192.0.2.1", "f1", "a1")
			r.URL.Path = path
			admitted(t, h, r)
			for id, tokens := range s.tokens() {
				was, seen := before[id]
				if !seen {
					was = 100
				}
				if was-tokens != cost {
					t.Errorf("%s took %v from %s, want %v", path, was-tokens, id.scope, cost)
				}
			}
		}
	})
}

func TestClassMayHaveBucketsOfItsOwn(t *testing.T) {
	cfg, opts := fourTiers()
	cfg.Tiers.PerIP = TierConfig{Rate: 1.0 / 3600, Burst: 2, Overrides: map[string]Limit{"198.51.100.0/24": {Rate: 1.0 / 3600, Burst: 9}}}
	cfg.Tiers.PerAccount = perHour(1)
	cfg.Endpoints = []Endpoint{
		{Pattern: "/nonce", Class: "nonce", Limits: map[string]Limit{TierPerIP: {Rate: 1.0 / 3600, Burst: 5}, TierPerAccount: {}}},
		{Pattern: "/nonce2", Class: "nonce", Limits: map[string]Limit{TierPerIP: {Rate: 1.0 / 3600, Burst: 5}, TierPerAccount: {}}},
		{Pattern: "/free", Class: "free", Limits: map[string]Limit{TierPerIP: {}, TierGlobal: {}, TierPerAccount: {}, "fleet": {}}},
		{Pattern: "/order", Class: "order"},
	}
	at := func(path, addr, account string) *http.Request {
		return withHeader(request("GET", path, addr, ""), "Account", account)
	}
	l := newLimiter(t, cfg, opts...)
	h := l.Handler(served)

	admitted(t, h, at("/order", "192.0.2.1", "a1"))
	refusedBy(t, h, at("/order", "192.0.2.1", "a1"), TierPerAccount)
	admitted(t, h, at("/order", "192.0.2.1", "a2"))
	refusedBy(t, h, at("/order", "192.0.2.1", "a3"), TierPerIP)

	t.Run("they are not the common ones", func(t *testing.T) {
		for range 4 {
			admitted(t, h, at("/nonce", "192.0.2.1", "a1"))
		}
	})
	t.Run("endpoints of one class share them", func(t *testing.T) {
		admitted(t, h, at("/nonce2", "192.0.2.1", "a1"))
		refusedBy(t, h, at("/nonce", "192.0.2.1", "a1"), TierPerIP)
		refusedBy(t, h, at("/nonce2", "192.0.2.1", "a1"), TierPerIP)
	})
	t.Run("overrides are for the common ones", func(t *testing.T) {
		left(t, h, 5, func() *http.Request { return at("/nonce", "198.51.100.1", "") })
		left(t, h, 9, func() *http.Request { return at("/order", "198.51.100.1", "") })
	})
	t.Run("a zero limit takes the class out of the tier", func(t *testing.T) {
		for range 300 { // more than any bucket holds
			admitted(t, h, at("/free", "192.0.2.1", "a1"))
		}
		if got := classOf(t, l, "free").Admitted; got != 300 {
			t.Errorf("%d counted as admitted, want 300", got)
		}
	})
	t.Run("each has a table of its own", func(t *testing.T) {
		if got := tierOf(t, l, TierPerIP).Keys; got != 2 {
			t.Errorf("per_ip holds %d keys, want 2", got)
		}
		if got := tierOf(t, l, TierPerIP+"/nonce").Keys; got != 2 {
			t.Errorf("per_ip/nonce holds %d keys, want 2", got)
		}
	})
}

func TestExemptAreNeverAsked(t *testing.T) {
	one := func() (Config, []Option) {
		cfg, opts := fourTiers()
		for _, tier := range []string{TierGlobal, TierPerIP, "fleet", TierPerAccount} {
			narrow(&cfg, tier, 1)
		}
		cfg.Endpoints = []Endpoint{{Pattern: "/crl", Class: "crl", Kind: KindCRL}, {Pattern: "/est", Class: "est", Kind: KindEST}}
		cfg.Exempt = ExemptConfig{
			Networks: []string{"198.51.100.0/24", "2001:db8::/32", "::ffff:203.0.113.0/120"},
			Accounts: []string{"monitor"}, Classes: []Class{"crl"},
		}
		return cfg, opts
	}
	for _, tc := range []struct {
		name string
		r    func() *http.Request
	}{
		{"a network", func() *http.Request { return in4("198.51.100.7", "f1", "a1") }},
		{"an IPv6 network", func() *http.Request { return in4("2001:db8:1::1", "f1", "a1") }},
		{"a network written in IPv6 clothes", func() *http.Request { return in4("203.0.113.9", "f1", "a1") }},
		{"an address in IPv6 clothes", func() *http.Request { return in4("::ffff:198.51.100.7", "f1", "a1") }},
		{"a verified account", func() *http.Request { return in4("192.0.2.1", "f1", "monitor") }},
		{"a class", func() *http.Request { return request("GET", "/crl", "192.0.2.1", "") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, opts := one()
			s, reg := newLedger(), prometheus.NewRegistry()
			l := newLimiter(t, cfg, append(opts, WithStore(s), WithRegisterer(reg))...)
			h := l.Handler(served)
			for range 10 {
				admitted(t, h, tc.r())
			}
			if n := s.asked("admit"); n != 0 {
				t.Errorf("the store was asked %d times, want not at all", n)
			}
			class := "api"
			if tc.r().URL.Path == "/crl" {
				class = "crl"
			}
			if got := metric(t, reg, "weir_ratelimit_exempt_total", "endpoint", class); got != 10 {
				t.Errorf("%v counted as exempt, want 10", got)
			}
			if got := classOf(t, l, Class(class)).Admitted; got != 0 {
				t.Errorf("%v counted as admitted by tiers that were not asked", got)
			}
		})
	}

	t.Run("a mere claim to be exempt spares the account tier only", func(t *testing.T) {
		cfg, opts := one()
		s := newLedger()
		h := newLimiter(t, cfg, append(opts, WithStore(s))...).Handler(served)
		claim := func(addr string) *http.Request {
			r := request("GET", "/est", addr, "")
			r.SetBasicAuth("monitor", "guess")
			return r
		}
		admitted(t, h, claim("192.0.2.1"))
		refused(t, h, claim("192.0.2.1"))
		if got := s.in(TierPerAccount); len(got) != 0 {
			t.Errorf("the account tier was asked: %v", got)
		}
	})
	t.Run("an address near the network is not exempt", func(t *testing.T) {
		cfg, opts := one()
		left(t, newLimiter(t, cfg, opts...).Handler(served), 1, func() *http.Request { return from("198.51.101.0") })
	})
	t.Run("an IPv6 address that carries an exempt IPv4 address is not exempt", func(t *testing.T) {
		cfg, opts := one()
		left(t, newLimiter(t, cfg, opts...).Handler(served), 1, func() *http.Request { return from("2002:c633:6407::1") })
	})
}

func TestDeniedAreAlwaysRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		r      func() *http.Request
	}{
		{"a network", nil, func() *http.Request { return from("203.0.113.5") }},
		{"a network, in IPv6 clothes", nil, func() *http.Request { return from("::ffff:203.0.113.5") }},
		{"an account", nil, func() *http.Request { return claiming("thief", "192.0.2.1") }},
		{"an account that is only claimed", nil, func() *http.Request {
			r := request("GET", "/est", "192.0.2.1", "")
			r.SetBasicAuth("thief", "")
			return r
		}},
		{"a network that is exempt as well", func(c *Config) { c.Exempt.Networks = []string{"203.0.113.0/24"} },
			func() *http.Request { return from("203.0.113.5") }},
		{"a network, in an exempt class", func(c *Config) { c.Exempt.Classes = []Class{"api"} },
			func() *http.Request { return from("203.0.113.5") }},
		{"an account, from an exempt network", func(c *Config) { c.Exempt.Networks = []string{"192.0.2.0/24"} },
			func() *http.Request { return claiming("thief", "192.0.2.1") }},
		{"an account, in an exempt class", func(c *Config) { c.Exempt.Classes = []Class{"api"} },
			func() *http.Request { return claiming("thief", "192.0.2.1") }},
		{"an account that is exempt as well", func(c *Config) { c.Exempt.Accounts = []string{"thief"} },
			func() *http.Request { return claiming("thief", "192.0.2.1") }},
		{"an account, where no tier asks for one", func(c *Config) { c.Tiers.PerAccount = TierConfig{} },
			func() *http.Request { return claiming("thief", "192.0.2.1") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, opts := fourTiers()
			cfg.Endpoints = []Endpoint{{Pattern: "/est", Class: "api", Kind: KindEST}}
			cfg.Deny = DenyConfig{Networks: []string{"203.0.113.0/24"}, Accounts: []string{"thief"}}
			if tc.change != nil {
				tc.change(&cfg)
			}
			s, reg := newLedger(), prometheus.NewRegistry()
			logged, log := withLog()
			l := newLimiter(t, cfg, append(opts, WithStore(s), WithRegisterer(reg), log)...)
			h := l.Handler(served)
			for range 5 {
				denied(t, h, tc.r())
			}
			if n := s.asked("admit"); n != 0 {
				t.Errorf("the store was asked %d times, want nothing spent", n)
			}
			if got := metric(t, reg, "weir_ratelimit_denied_total", "endpoint", "api"); got != 5 {
				t.Errorf("%v counted as denied, want 5", got)
			}
			if c := classOf(t, l, "api"); c.Admitted != 0 || c.Exempt != 0 || len(c.Throttled) > 0 && sum(c.Throttled) != 0 {
				t.Errorf("counted as something else too: %+v", c)
			}
			if n := len(logged.with("refusing requests", "by=deny")); n != 1 {
				t.Errorf("%d log lines, want one", n)
			}
			admitted(t, h, in4("192.0.2.200", "f9", "honest"))
		})
	}
}

func sum(m map[string]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func TestShadowTierLetsPassWhatItWouldRefuse(t *testing.T) {
	tiers := []string{TierGlobal, TierPerIP, "fleet", TierPerAccount}
	for _, tier := range tiers {
		t.Run(tier, func(t *testing.T) {
			cfg, opts := fourTiers()
			narrow(&cfg, tier, 2)
			cfg.Shadow = []string{tier}
			reg := prometheus.NewRegistry()
			logged, log := withLog()
			l := newLimiter(t, cfg, append(opts, WithRegisterer(reg), log)...)
			h := l.Handler(served)
			bare := send(served, in4("192.0.2.1", "f1", "a1")).Result()
			for i := range 100 { // as many as the other tiers hold
				w := admitted(t, h, in4("192.0.2.1", "f1", "a1"))
				if got := w.Result(); got.StatusCode != bare.StatusCode || !maps.EqualFunc(got.Header, bare.Header, slices.Equal[[]string]) || w.Body.String() != "the resource\n" {
					t.Fatalf("request %d: the response is not the handler's own: %d %v", i, got.StatusCode, got.Header)
				}
			}
			if got := metric(t, reg, "weir_ratelimit_shadowed_total", "endpoint", "api", "tier", tier); got != 98 {
				t.Errorf("%v counted as shadowed, want 98", got)
			}
			if got := metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "api", "tier", tier); got != 0 {
				t.Errorf("%v counted as throttled, want none", got)
			}
			if n := len(logged.with("refusing requests", "by=shadow", "name="+tier)); n != 1 {
				t.Errorf("%d log lines, want one", n)
			}
			// The others still enforce, and what they refuse is theirs.
			refused(t, h, in4("192.0.2.1", "f1", "a1"))
			if got := classOf(t, l, "api").Throttled[tier]; got != 0 {
				t.Errorf("the shadow tier is blamed %d times", got)
			}
		})
	}
	t.Run("all of them", func(t *testing.T) {
		cfg, opts := fourTiers()
		cfg.Shadow = tiers
		h := newLimiter(t, cfg, opts...).Handler(served)
		for range 300 {
			admitted(t, h, in4("192.0.2.1", "f1", "a1"))
		}
	})
}

func TestClientAddressDecidesTheBucket(t *testing.T) {
	xff := func(peer, list string) *http.Request { return withHeader(from(peer), "X-Forwarded-For", list) }
	for _, tc := range []struct {
		name    string
		trusted []string
		a, b    *http.Request
		same    bool
	}{
		{"two peers are two clients", nil, from("192.0.2.1"), from("192.0.2.2"), false},
		{"two ports of a peer are one client", nil, from("192.0.2.1:1"), from("192.0.2.1:2"), true},
		{"a /64 of IPv6 is one client", nil, from("2001:db8:1:1::1"), from("2001:db8:1:1:ffff:ffff:ffff:ffff"), true},
		{"two /64 of IPv6 are two clients", nil, from("2001:db8:1:1::1"), from("2001:db8:1:2::1"), false},
		{"a zone makes no other client", nil, from("[fe80::1%eth0]:1"), from("[fe80::1%eth1]:1"), true},
		{"::ffff: is an alias", nil, from("192.0.2.1"), from("::ffff:192.0.2.1"), true},
		{"the loopback addresses are two clients", nil, from("127.0.0.1"), from("::1"), false},
		{"headers of an untrusted peer are ignored", nil, xff("192.0.2.1", "203.0.113.1"), xff("192.0.2.1", "203.0.113.2"), true},
		{"headers of a peer that is not on the list are ignored", []string{"10.0.0.0/8"}, xff("192.0.2.1", "203.0.113.1"), xff("192.0.2.1", "203.0.113.2"), true},
		{"behind a trusted proxy the header decides", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.1", "203.0.113.2"), false},
		{"which trusted proxy does not matter", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.2", "203.0.113.1"), true},
		{"a forged entry to the left does not move the key", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.1", "6.6.6.6, 203.0.113.1"), true},
		{"a forged trusted entry to the left neither", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.1", "6.6.6.6, 10.0.0.9, 203.0.113.1, 10.0.0.2"), true},
		{"junk to the left neither", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.1", "'; drop table, 203.0.113.1"), true},
		{"a malformed entry that the walk reaches is the peer's", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1, junk"), xff("10.0.0.1", "203.0.113.2, junk"), true},
		{"an alias in the header is the client", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1"), xff("10.0.0.1", "::ffff:203.0.113.1"), true},
		{"a port in the header makes no other client", []string{"10.0.0.0/8"}, xff("10.0.0.1", "203.0.113.1:1"), xff("10.0.0.1", "203.0.113.1:2"), true},
		{"unknown peers are one client", nil, from(""), from("nobody"), true},
		{"unknown peers are no address", nil, from(""), from("::"), true}, // :: is no host, so it is unknown
		{"unknown peers are not the zero address of IPv4", nil, from(""), from("0.0.0.0"), true},
		{"unknown peers are no IPv6 client", nil, from(""), from("::2"), false},
		{"unix peers are one client", nil, from("@"), from("@"), true},
		{"unix peers are not the unknown", nil, from("@"), from(""), false},
		{"an address of the unknown key's bytes is unknown itself", nil, from("192.0.2.1"), from("ffff:6e6f:6e65::"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := noTiers()
			cfg.ClientIP.TrustedProxies = tc.trusted
			cfg.Tiers.PerIP = perHour(1)
			h := newLimiter(t, cfg).Handler(served)
			admitted(t, h, tc.a)
			if tc.same {
				refusedBy(t, h, tc.b, TierPerIP)
			} else {
				admitted(t, h, tc.b)
			}
		})
	}
}

func TestIPv6RotationIsOneBucket(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(5)
	l := newLimiter(t, cfg)
	h := l.Handler(served)
	n := 0
	base := netip.MustParseAddr("2001:db8:1:1::").As16()
	for range 5000 {
		a := base
		for i := 8; i < 16; i++ {
			a[i] = byte(rand.IntN(256))
		}
		n += admits(h, 1, func() *http.Request { return from(netip.AddrFrom16(a).String()) })
	}
	if n != 5 {
		t.Errorf("%d requests of one /64 were admitted, want 5", n)
	}
	if keys := tierOf(t, l, TierPerIP).Keys; keys != 1 {
		t.Errorf("%d keys, want one", keys)
	}
}

func TestDoubtfulAddressesAreCountedAndLogged(t *testing.T) {
	for _, tc := range []struct {
		reason string
		r      func() *http.Request
		source string
	}{
		{"all_trusted", func() *http.Request { return withHeader(from("10.0.0.1"), "X-Forwarded-For", "10.0.0.7, 10.0.0.8") }, "leftmost"},
		{"malformed", func() *http.Request { return withHeader(from("10.0.0.1"), "X-Forwarded-For", "junk") }, "peer"},
		{"no_header", func() *http.Request { return from("10.0.0.1") }, "peer"},
		{"no_peer", func() *http.Request { return from("") }, "peer"},
		{"conflict", func() *http.Request {
			return withHeader(withHeader(from("10.0.0.1"), "X-Real-Ip", "203.0.113.1"), "X-Real-Ip", "203.0.113.2")
		}, "peer"},
		{"too_long", func() *http.Request {
			return withHeader(from("10.0.0.1"), "X-Forwarded-For", string(slices.Repeat([]byte(","), 1<<20)))
		}, "peer"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.ClientIP.TrustedProxies = []string{"10.0.0.0/8"}
				cfg.Tiers.PerIP = perHour(10)
				reg := prometheus.NewRegistry()
				logged, log := withLog()
				var info Info
				h := newLimiter(t, cfg, WithRegisterer(reg), log).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					info, _ = FromContext(r.Context())
					served(w, r)
				}))
				for range 4 {
					admitted(t, h, tc.r())
				}
				if info.Source != tc.source {
					t.Errorf("the source is %q, want %q", info.Source, tc.source)
				}
				if got := metric(t, reg, "weir_clientip_doubtful_total", "reason", tc.reason); got != 4 {
					t.Errorf("%v counted, want 4", got)
				}
				if n := len(logged.with("reason=" + tc.reason)); n != 1 {
					t.Errorf("%d log lines, want one", n)
				}
			})
		})
	}
	t.Run("what nobody trusts is no doubt", func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(10)
		reg := prometheus.NewRegistry()
		h := newLimiter(t, cfg, WithRegisterer(reg)).Handler(served)
		admitted(t, h, withHeader(from("192.0.2.1"), "X-Forwarded-For", "junk"))
		for _, reason := range []string{"malformed", "all_trusted", "too_long", "conflict", "no_header"} {
			if got := metric(t, reg, "weir_clientip_doubtful_total", "reason", reason); got != 0 {
				t.Errorf("%s is counted %v times", reason, got)
			}
		}
	})
}

// The word of the source and the whole address reach the handler; only the
// prefix is counted.
func TestInfoTellsWhoIsAsking(t *testing.T) {
	for _, tc := range []struct {
		name, header    string
		r               *http.Request
		addr, prefix, s string
	}{
		{"the peer", "x-forwarded-for", from("192.0.2.1"), "192.0.2.1", "192.0.2.1/32", "peer"},
		{"IPv6", "x-forwarded-for", from("2001:db8::7"), "2001:db8::7", "2001:db8::/64", "peer"},
		{"an alias, unmapped", "x-forwarded-for", from("::ffff:192.0.2.1"), "192.0.2.1", "192.0.2.1/32", "peer"},
		{"X-Forwarded-For", "x-forwarded-for", withHeader(from("10.0.0.1"), "X-Forwarded-For", "203.0.113.1"), "203.0.113.1", "203.0.113.1/32", "xff"},
		{"X-Real-IP", "x-forwarded-for", withHeader(from("10.0.0.1"), "X-Real-Ip", "203.0.113.1"), "203.0.113.1", "203.0.113.1/32", "xrealip"},
		{"Forwarded", "forwarded", withHeader(from("10.0.0.1"), "Forwarded", `for="[2001:db8::1]:47011"`), "2001:db8::1", "2001:db8::/64", "forwarded"},
		{"a CDN's header", "single:CF-Connecting-IP", withHeader(from("10.0.0.1"), "Cf-Connecting-Ip", "203.0.113.1"), "203.0.113.1", "203.0.113.1/32", "single"},
		{"a header that is not the one", "forwarded", withHeader(from("10.0.0.1"), "X-Forwarded-For", "203.0.113.1"), "10.0.0.1", "10.0.0.1/32", "peer"},
		{"nobody", "x-forwarded-for", from(""), "invalid IP", "invalid Prefix", "peer"},
		{"a unix peer", "x-forwarded-for", from("@"), "invalid IP", "invalid Prefix", "peer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := noTiers()
			cfg.ClientIP.TrustedProxies = []string{"10.0.0.0/8"}
			cfg.ClientIP.Header = tc.header
			cfg.Tiers.PerIP = perHour(4)
			var info Info
			var ok bool
			h := newLimiter(t, cfg).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { info, ok = FromContext(r.Context()) }))
			h.ServeHTTP(httptest.NewRecorder(), tc.r)
			if !ok || info.Addr.String() != tc.addr || info.Prefix.String() != tc.prefix || info.Source != tc.s {
				t.Errorf("got %v, %v from %q, want %s, %s from %q", info.Addr, info.Prefix, info.Source, tc.addr, tc.prefix, tc.s)
			}
			if info.Class != "api" || info.Tier != TierPerIP || info.Burst != 4 || info.Remaining < 3 || info.Remaining > 3.01 {
				t.Errorf("got class %q, tier %q with %v of %v left", info.Class, info.Tier, info.Remaining, info.Burst)
			}
		})
	}
}
