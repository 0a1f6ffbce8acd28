package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// richConfig uses every part of a Config that can be in force.
func richConfig() Config {
	cfg := behindProxy()
	cfg.Namespace = "ca"
	cfg.Endpoints = []Endpoint{
		{Pattern: "POST /order", Class: "order", Kind: KindACME, Cost: 2, Guard: "hsm", Mode: ModeFail, MaxWait: new(Duration(0))},
		{Pattern: "GET /crl", Class: "crl", Kind: KindCRL, Limits: map[string]Limit{"per_ip": {1.0 / 3600, 30}, "per_account": {}}},
	}
	cfg.Exempt = ExemptConfig{Networks: []string{"198.51.100.0/24"}, Accounts: []string{"monitoring"}, Classes: []Class{"other"}}
	cfg.Deny = DenyConfig{Networks: []string{"203.0.113.0/24"}, Accounts: []string{"thief"}}
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(100), perHour(12), perHour(8)
	cfg.Tiers.PerIP.MaxWait = new(Duration(0))
	cfg.Tiers.PerIP.Overrides = map[string]Limit{"192.0.2.9": {1.0 / 3600, 4}}
	cfg.Tiers.PerAccount.Overrides = map[string]Limit{"small": {1.0 / 3600, 2}}
	cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 1.0 / 3600, Burst: 6, Overrides: map[string]Limit{"f2": {1.0 / 3600, 2}}, MaxWait: new(Duration(0))}}
	cfg.Shadow = []string{"fleet"}
	cfg.Store.KeySecret = secret
	return cfg
}

func richOptions(extra ...Option) []Option {
	return append(extra, WithAccount(byHeader("Account")), WithKey("fleet", byHeader("Fleet")))
}

// orderOf is a request to the first endpoint of richConfig.
func orderOf(addr, account, fleet string) *http.Request {
	return withHeader(withHeader(request("POST", "/order", addr, ""), "Account", account), "Fleet", fleet)
}

// useSome spends in every tier of richConfig, and drains some clients.
func useSome(h http.Handler) {
	for i := range 5 {
		send(h, orderOf("192.0.2.1", "alice", "f1"))
		send(h, orderOf("192.0.2.9", "small", "f2"))
		send(h, request("GET", "/crl", fmt.Sprintf("192.0.2.%d", i), ""))
	}
	send(h, orderOf("203.0.113.7", "alice", "f1"))
	send(h, orderOf("198.51.100.7", "alice", "f1"))
}

// picture is all that can be seen of a Limiter at an instant.
type picture struct {
	config   Config
	snapshot Snapshot
	metrics  string
	buckets  map[bucketID]float64 // to the bit
}

func pictureOf(t testing.TB, l *Limiter, reg prometheus.Gatherer, s *ledger) picture {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var metrics strings.Builder
	for _, f := range families {
		fmt.Fprintln(&metrics, f)
	}
	return picture{l.Config(), l.Snapshot(), metrics.String(), s.tokens()}
}

func TestAReloadWithAFaultChangesNothing(t *testing.T) {
	secretEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		reg, s := prometheus.NewRegistry(), newLedger()
		cfg := richConfig()
		cfg.Guards["spare"] = GuardConfig{MaxInFlight: 1}
		l := newLimiter(t, cfg, richOptions(WithRegisterer(reg), WithStore(s))...)
		h := l.Handler(served)
		l.Protect("order", served)
		l.Protect("other", served)
		l.Guard("hsm")
		useSome(h)
		before := pictureOf(t, l, reg, s)

		reload := func(name string, change func(*Config)) {
			bad := l.Config()
			change(&bad)
			if err := l.Reload(bad); err == nil {
				t.Errorf("%s: Reload found no fault", name)
			}
			assert.Equal(t, before, pictureOf(t, l, reg, s), name)
		}
		for _, tt := range faultCases {
			// With a store of the program's own these are not looked at.
			if p := tt.want[0].path; p != "store.backend" && p != "store.redis.dsn" && p != "store.leases.per_ip" {
				reload(tt.name, func(c *Config) {
					*c = soundConfig()
					c.Namespace, c.Store.KeySecret = "ca", secret
					tt.change(c)
				})
			}
		}
		reload("another namespace", set(namespaceOf, "ca2"))
		reload("another secret", set(secretOf, "another secret, as long as the first"))
		reload("a guard without a size", func(c *Config) { c.Guards["spare"] = GuardConfig{} })
		reload("a custom tier without a key function", func(c *Config) { c.Tiers.Custom[0].Name = "device" })
		reload("a wired guard that is gone", func(c *Config) { c.Endpoints[0].Guard, c.Guards = "", nil })

		refused(t, h, orderOf("192.0.2.9", "small", "f2"))
		left(t, h, 2, func() *http.Request { return orderOf("192.0.2.1", "bob", "f1") }) // 12 − 4×2, at 2 each
	})
}

func TestReloadOfTheConfigInForceChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, s := prometheus.NewRegistry(), newLedger()
		l := newLimiter(t, richConfig(), richOptions(WithRegisterer(reg), WithStore(s))...)
		h, guard := l.Handler(served), l.Guard("hsm")
		release, err := guard.Acquire(t.Context())
		require.NoError(t, err)
		useSome(h)

		before := pictureOf(t, l, reg, s)
		for range 3 {
			require.NoError(t, l.Reload(l.Config()))
			require.Equal(t, before, pictureOf(t, l, reg, s))
		}
		assert.Same(t, guard, l.Guard("hsm"))
		refused(t, h, orderOf("192.0.2.9", "small", "f2"))
		left(t, h, 2, func() *http.Request { return orderOf("192.0.2.1", "bob", "f1") })

		time.Sleep(2 * time.Hour) // two tokens for each
		require.NoError(t, l.Reload(l.Config()))
		left(t, h, 1, func() *http.Request { return orderOf("192.0.2.9", "small", "f2") })
		release()
		assert.Zero(t, l.Snapshot().Guards[0].InFlight)
	})
}

func TestNothingThatTheCallerKeepsReachesTheLimiter(t *testing.T) {
	for _, tt := range []struct {
		name string
		give func(*testing.T, Config) (*Limiter, *ledger)
	}{
		{"after New", func(t *testing.T, cfg Config) (*Limiter, *ledger) {
			s := newLedger()
			return newLimiter(t, cfg, richOptions(WithStore(s))...), s
		}},
		{"after Reload", func(t *testing.T, cfg Config) (*Limiter, *ledger) {
			s := newLedger()
			first := cfg.clone()
			first.Exempt, first.Deny, first.Shadow, first.Endpoints = ExemptConfig{}, DenyConfig{}, nil, cfg.Endpoints[:1]
			l := newLimiter(t, first, richOptions(WithStore(s))...)
			require.NoError(t, l.Reload(cfg))
			return l, s
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := richConfig()
				l, s := tt.give(t, cfg)
				useSome(l.Handler(served))
				want := s.tokens()

				other, otherStore := tt.give(t, richConfig())
				scribble(&cfg)
				taken := other.Config()
				scribble(&taken)
				useSome(other.Handler(served))
				assert.Equal(t, len(want), len(otherStore.tokens()))

				equalConfigs(t, richConfig(), l.Config())
				equalConfigs(t, richConfig(), other.Config())
				require.NoError(t, l.Reload(l.Config()))
				assert.Equal(t, want, s.tokens())
				refused(t, l.Handler(served), orderOf("192.0.2.9", "small", "f2"))
				denied(t, l.Handler(served), orderOf("203.0.113.7", "alice", "f1"))
				admitted(t, l.Handler(served), orderOf("198.51.100.7", "alice", "f1"))
			})
		})
	}
}

// Configurations come and go a thousand times while one client floods. It gets
// what the most generous of them allows by itself, and not a request more.
func TestAThousandReloadsAdmitNoMoreThanOneConfiguration(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(i int, c *Config)
		least  int // of 50 + 100/s × 1 s
	}{
		{"all the same", func(int, *Config) {}, 149},
		{"that differ in what does not concern the client", func(i int, c *Config) {
			c.RetryJitter, c.Tiers.MaxWaiting = float64(i%5)/10, 1+i
			c.Tiers.MaxKeys = 100_000 - i%2*50_000
			c.Tiers.PerIP.Overrides = map[string]Limit{fmt.Sprintf("203.0.113.%d", i%256): {1, 1}}
		}, 149},
		{"with a stricter one in between", func(i int, c *Config) {
			if c.Tiers.PerIP = (TierConfig{Rate: 100, Burst: 50}); i%2 == 1 {
				c.Tiers.PerIP = TierConfig{Rate: 20, Burst: 10}
			}
		}, 29},
		{"with a pause in shadow in between", func(i int, c *Config) {
			c.Tiers.PerIP.Rate = 100
			if c.Shadow = nil; i < 500 {
				c.Shadow = []string{TierGlobal}
			}
		}, 149},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.PerIP = TierConfig{Rate: 100, Burst: 50}
				l := newLimiter(t, cfg)
				h := l.Handler(served)
				var wg sync.WaitGroup
				var got atomic.Int64
				for range 4 {
					wg.Go(func() {
						for range 1000 {
							time.Sleep(time.Millisecond)
							got.Add(int64(admits(h, 1, func() *http.Request { return from("192.0.2.1") })))
						}
					})
				}
				wg.Go(func() {
					for i := range 1000 {
						time.Sleep(time.Millisecond)
						next := l.Config()
						tt.change(i, &next)
						if err := l.Reload(next); err != nil {
							t.Error(err)
						}
					}
				})
				wg.Wait()
				assert.LessOrEqual(t, int(got.Load()), 150)
				assert.GreaterOrEqual(t, int(got.Load()), tt.least)
			})
		})
	}
}

func TestBucketsKeepTheirTokensThroughAReload(t *testing.T) {
	perIPOf := func(rate, burst float64) func(*Config) {
		return func(c *Config) { c.Tiers.PerIP = TierConfig{Rate: rate, Burst: burst} }
	}
	const slow = 1.0 / 3600
	for _, tt := range []struct {
		name          string
		before        func(*Config)
		spend         int
		wait          time.Duration
		after         []func(*Config) // reloaded one after the other
		left          int             // what the client then has
		leftToAnother int
	}{
		{"a lower burst clamps what was saved", perIPOf(slow, 20), 5, 0, []func(*Config){perIPOf(slow, 10)}, 10, 10},
		{"a lower burst leaves less than itself alone", perIPOf(slow, 20), 15, 0, []func(*Config){perIPOf(slow, 10)}, 5, 10},
		{"a higher burst gives nothing to who is drained", perIPOf(slow, 20), 20, 0, []func(*Config){perIPOf(slow, 100)}, 0, 100},
		{"a higher burst is there to save up to", perIPOf(2, 20), 20, time.Minute, []func(*Config){perIPOf(2, 100)}, 100, 100},
		{"a higher rate refills", perIPOf(1, 20), 20, 2 * time.Second, []func(*Config){perIPOf(5, 20)}, 10, 20},
		{"a lower rate refills less", perIPOf(5, 20), 20, 2 * time.Second, []func(*Config){perIPOf(1, 20)}, 2, 20},
		{"a burst that shrinks and grows between two requests takes nothing", perIPOf(slow, 20), 5, 0, []func(*Config){perIPOf(slow, 3), perIPOf(slow, 20)}, 15, 20},
		{"an override holds for a client that was there before", perIPOf(slow, 20), 5, 0, []func(*Config){func(c *Config) {
			c.Tiers.PerIP.Overrides = map[string]Limit{"192.0.2.1": {slow, 9}}
		}}, 9, 20},
		{"an override is no reset", perIPOf(slow, 20), 20, 0, []func(*Config){func(c *Config) {
			c.Tiers.PerIP.Overrides = map[string]Limit{"192.0.2.0/24": {slow, 40}}
		}}, 0, 40},
		{"an override that goes is no reset", func(c *Config) {
			c.Tiers.PerIP = perHour(20)
			c.Tiers.PerIP.Overrides = map[string]Limit{"192.0.2.1": {slow, 2}}
		}, 2, 0, []func(*Config){perIPOf(slow, 20)}, 0, 20},
		{"fewer keys to keep is no reset while they fit", perIPOf(slow, 20), 20, 0, []func(*Config){func(c *Config) { c.Tiers.MaxKeys = 10 }}, 0, 20},
		{"a shorter idle time drops no bucket that is not full", perIPOf(slow, 20), 20, time.Minute, []func(*Config){func(c *Config) { c.Tiers.IdleTTL = 1 }}, 0, 20},
		{"a tier that leaves shadow has counted meanwhile", func(c *Config) {
			c.Tiers.PerIP, c.Shadow = perHour(20), []string{TierPerIP}
		}, 20, 0, []func(*Config){func(c *Config) { c.Shadow = nil }}, 0, 20},
		{"another cost is taken from the same bucket", perIPOf(slow, 20), 10, 0, []func(*Config){func(c *Config) {
			c.Endpoints = []Endpoint{{Pattern: "/", Class: "api", Cost: 5}}
		}}, 2, 4},
		{"a tier that is new starts full", func(c *Config) { c.Tiers.Global = perHour(1000) }, 5, 0, []func(*Config){perIPOf(slow, 20)}, 20, 20},
		{"a tier that went and comes back starts full", perIPOf(slow, 20), 20, 0, []func(*Config){
			func(c *Config) { c.Tiers.PerIP, c.Tiers.Global = TierConfig{}, perHour(1000) }, perIPOf(slow, 20)}, 20, 20},
		{"a pause of the whole Limiter is no reset", perIPOf(slow, 20), 15, 0, []func(*Config){
			func(c *Config) { c.Enabled = false }, func(c *Config) { c.Enabled = true }}, 5, 20},
		{"a pause counts as time", perIPOf(1, 20), 20, 7 * time.Second, []func(*Config){
			func(c *Config) { c.Enabled = false }, func(c *Config) { c.Enabled = true }}, 7, 20},
		{"a tier that went during a pause and comes back starts full", perIPOf(slow, 20), 20, 0, []func(*Config){
			func(c *Config) { c.Enabled = false },
			func(c *Config) { c.Enabled, c.Tiers.PerIP, c.Tiers.Global = true, TierConfig{}, perHour(1000) },
			perIPOf(slow, 20)}, 20, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				tt.before(&cfg)
				l := newLimiter(t, cfg)
				h := l.Handler(served)
				client := func() *http.Request { return from("192.0.2.1") }
				another := func() *http.Request { return from("192.0.2.2") }
				require.Equal(t, tt.spend, admits(h, tt.spend, client))
				time.Sleep(tt.wait)
				for _, change := range tt.after {
					next := l.Config()
					change(&next)
					require.NoError(t, l.Reload(next))
				}
				left(t, h, tt.left, client)
				left(t, h, tt.leftToAnother, another)
			})
		})
	}
}

// What the table above says in examples, against the plain model: one number
// for each client, refilled at the rate in force and cut to the burst in force
// whenever it is looked at. Rates and times are such that floats are exact.
func TestReloadsAgreeWithAPlainBucket(t *testing.T) {
	limits := []Limit{{1, 8}, {2, 8}, {0.5, 4}, {4, 32}, {0.25, 1}, {8, 64}}
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 17))
			cfg := noTiers()
			limit := limits[0]
			cfg.Tiers.PerIP = TierConfig{Rate: limit.Rate, Burst: limit.Burst}
			l := newLimiter(t, cfg)
			h := l.Handler(served)

			type model struct {
				tokens float64
				last   time.Time
			}
			clients := map[string]*model{}
			for step := range 300 {
				switch addr := fmt.Sprintf("192.0.2.%d", rng.IntN(3)); rng.IntN(4) {
				case 0:
					time.Sleep(time.Duration(rng.IntN(24)) * 250 * time.Millisecond)
				case 1:
					limit = limits[rng.IntN(len(limits))]
					next := l.Config()
					next.Tiers.PerIP.Rate, next.Tiers.PerIP.Burst = limit.Rate, limit.Burst
					require.NoError(t, l.Reload(next))
				default:
					m := clients[addr]
					if m == nil {
						m = &model{limit.Burst, time.Now()}
						clients[addr] = m
					}
					n, want := 1+rng.IntN(6), 0
					for range n {
						tokens := min(limit.Burst, m.tokens+time.Since(m.last).Seconds()*limit.Rate)
						if tokens < 1 {
							continue // a refusal leaves the bucket as it was
						}
						*m, want = model{tokens - 1, time.Now()}, want+1
					}
					require.Equal(t, want, admits(h, n, func() *http.Request { return from(addr) }), "seed %d, step %d, %s under %v", seed, step, addr, limit)
				}
			}
		})
	}
}

func TestADisabledLimiterThatWiredNothingCanBeEnabled(t *testing.T) {
	l := newLimiter(t, Config{Namespace: "ca"})
	equalConfigs(t, Config{Namespace: "ca"}, l.Config())
	require.NoError(t, l.Reload(Config{Namespace: "other"}), "nothing is in force, so anything may change")
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(2)
	require.NoError(t, l.Reload(cfg))
	left(t, l.Handler(served), 2, func() *http.Request { return from("192.0.2.1") })
}

func TestADisabledLimiterThatWiredAHandlerStaysAsItIs(t *testing.T) {
	for _, tt := range []struct {
		name string
		wire func(*Limiter)
	}{
		{"the whole chain", func(l *Limiter) { l.Handler(served) }},
		{"a class of its own", func(l *Limiter) { l.Protect("order", served) }},
		{"the address stage", func(l *Limiter) { l.ClientIP(served) }},
		{"the tiers stage", func(l *Limiter) { l.Tiers(served) }},
		{"a guard", func(l *Limiter) { l.Guard("hsm") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLimiter(t, Config{Namespace: "ca"})
			tt.wire(l)
			gives(t, l.Reload(noLimitIn("2x")), bareFault, fault{"namespace", ReasonInvalid, ""})
			gives(t, l.Reload(noLimitIn("ca")), bareFault)
			equalConfigs(t, Config{Namespace: "ca"}, l.Config())
			assert.NoError(t, l.Reload(Config{Namespace: "still off"}))
		})
	}
}

func noLimitIn(namespace string) Config {
	cfg := noTiers()
	cfg.Namespace, cfg.Tiers.PerIP = namespace, perHour(1)
	return cfg
}

// A handler that was wired while the Limiter was enabled stays within its
// reach, and so does one that is wired during a pause.
func TestAPauseLetsEverythingPassAndCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg, s := prometheus.NewRegistry(), newLedger()
		l := newLimiter(t, richConfig(), richOptions(WithRegisterer(reg), WithStore(s))...)
		h, guard := l.Handler(served), l.Guard("hsm")
		useSome(h)
		before := pictureOf(t, l, reg, s)

		off := l.Config()
		off.Enabled = false
		require.NoError(t, l.Reload(off))
		equalConfigs(t, off, l.Config())
		calls := s.asked("admit")
		wiredNow := l.Handler(served)
		for range 50 {
			admitted(t, h, orderOf("192.0.2.9", "small", "f2"))
			admitted(t, wiredNow, orderOf("203.0.113.7", "thief", "f2"))
			admitted(t, l.Protect("order", served), orderOf("192.0.2.9", "small", "f2"))
			_, err := guard.Acquire(t.Context())
			require.NoError(t, err)
		}
		assert.Equal(t, calls, s.asked("admit"))

		off.Enabled = true
		require.NoError(t, l.Reload(off))
		assert.Equal(t, before, pictureOf(t, l, reg, s))
		refused(t, h, orderOf("192.0.2.9", "small", "f2"))
		denied(t, wiredNow, orderOf("203.0.113.7", "thief", "f2"))
	})
}

// The address was found under one policy; the tiers judge by the same, though
// another is in force by then.
func TestARequestUnderWayEndsUnderThePolicyItBeganWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(5)
		l := newLimiter(t, cfg)
		reloadTo := func(change func(*Config)) http.Handler {
			return l.ClientIP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next := l.Config()
				change(&next)
				require.NoError(t, l.Reload(next))
				l.Tiers(served).ServeHTTP(w, r)
			}))
		}
		deny := func(c *Config) { c.Deny.Networks = []string{"192.0.2.0/24"} }
		allow := func(c *Config) { c.Deny.Networks = nil }

		admitted(t, reloadTo(deny), from("192.0.2.1"))
		denied(t, reloadTo(allow), from("192.0.2.1"))
		admitted(t, reloadTo(func(c *Config) { c.Enabled = false }), from("192.0.2.1"))
		admitted(t, reloadTo(func(c *Config) { c.Enabled = true }), from("192.0.2.1")) // began while nothing was in force
		left(t, l.Handler(served), 3-1, func() *http.Request { return from("192.0.2.1") })
	})
}

func TestAHeldRequestWaitsAsItWasPromised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP, cfg.Tiers.MaxWait = TierConfig{Rate: 1, Burst: 1}, Duration(10*time.Second)
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		admitted(t, h, from("192.0.2.1"))
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			admitted(t, h, from("192.0.2.1"))
		}()
		synctest.Wait()
		next := l.Config()
		next.Tiers.PerIP, next.Tiers.MaxWait = perHour(1), 0
		require.NoError(t, l.Reload(next))
		refused(t, h, from("192.0.2.1")) // a newcomer has the new policy
		<-done
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A token goes back to the bucket that it came from, or nowhere.
func TestATokenTakenBeforeAReloadGoesBackToItsOwnBucket(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during func(*Config) // while the handler runs
		after  func(*Config) // before the client comes again
		left   int
	}{
		{"the tier stays", func(*Config) {}, func(*Config) {}, 4},
		{"its burst shrinks", func(c *Config) { c.Tiers.PerAccount.Burst = 2 }, func(*Config) {}, 2},
		{"the tier goes and comes back", func(c *Config) { c.Tiers.PerAccount = TierConfig{} }, func(c *Config) { c.Tiers.PerAccount = perHour(4) }, 4},
		{"the Limiter is disabled meanwhile", func(c *Config) { c.Enabled = false }, func(c *Config) { c.Enabled = true }, 4},
		{"the class gets buckets of its own", func(c *Config) {
			c.Endpoints = []Endpoint{{Pattern: "/", Class: "api", Limits: map[string]Limit{TierPerAccount: perHourLimit(3)}}}
		}, func(c *Config) { c.Endpoints = nil }, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.Global, cfg.Tiers.PerAccount = perHour(1000), perHour(4)
				s := newLedger()
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithStore(s))
				change := func(f func(*Config)) {
					next := l.Config()
					f(&next)
					require.NoError(t, l.Reload(next))
				}
				l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					change(tt.during)
					Disown(r.Context())
					Disown(r.Context())
				})).ServeHTTP(nil, claiming("alice", "192.0.2.1"))
				change(tt.after)
				assert.Equal(t, []float64{999}, s.in(TierGlobal), "a token of the account went to the global bucket")
				left(t, l.Handler(served), tt.left, func() *http.Request { return claiming("alice", "192.0.2.1") })
			})
		})
	}
}

func perHourLimit(burst float64) Limit { return Limit{1.0 / 3600, burst} }

func TestAGuardIsResizedUnderThoseWhoHoldIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, soundConfig(), soundOptions()...) // 4 slots
		guard := l.Guard("hsm")
		size := func(n int) {
			next := l.Config()
			next.Guards["hsm"] = GuardConfig{MaxInFlight: n}
			require.NoError(t, l.Reload(next))
		}
		acquire := func() func() {
			release, err := guard.Acquire(t.Context())
			require.NoError(t, err)
			return release
		}
		held := []func(){acquire(), acquire(), acquire(), acquire()}
		size(2)
		entered := make(chan func(), 1)
		go func() { entered <- acquire() }()
		synctest.Wait()
		held[0]()
		held[1]()
		synctest.Wait()
		assert.Empty(t, entered, "let in while the smaller guard was still full")
		held[2]()
		release := <-entered
		size(3)
		also := acquire()
		for _, give := range []func(){held[3], release, also} {
			give()
		}
		assert.Zero(t, l.Snapshot().Guards[0].InFlight)
	})
}

func TestAGuardThatGoesWhileASlotIsHeldComesBackWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := soundConfig()
		cfg.Guards["hsm"] = GuardConfig{MaxInFlight: 1}
		l := newLimiter(t, cfg, soundOptions()...)
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			without := l.Config()
			without.Endpoints[0].Guard, without.Guards = "", nil
			require.NoError(t, l.Reload(without))
			served(w, r)
		}))
		admitted(t, h, request("POST", "/order", "192.0.2.1", ""))
		assert.Empty(t, l.Snapshot().Guards)
		require.NoError(t, l.Reload(cfg))
		admitted(t, l.Handler(served), request("POST", "/order", "192.0.2.1", ""))
		assert.Equal(t, []GuardSnapshot{{Guard: "hsm", Slots: 1, Queue: 64}}, l.Snapshot().Guards)
	})
}

// The size is asked once for each New and Reload: to ask again after it was
// found good could get an answer that no guard can have.
func TestThePoolIsAskedOnceForItsSize(t *testing.T) {
	answers, asked := []int{3, 0, 5}, 0
	cfg := soundConfig()
	cfg.Guards["hsm"] = GuardConfig{}
	l := newLimiter(t, cfg, WithKey("fleet", noKey), WithPoolSize("hsm", func() int { asked++; return answers[asked-1] }))
	assert.Equal(t, 3, l.Snapshot().Guards[0].Slots)
	gives(t, l.Reload(cfg), fault{"guards.hsm.max_in_flight", ReasonOutOfRange, "at least 1"})
	assert.Equal(t, 3, l.Snapshot().Guards[0].Slots)
	require.NoError(t, l.Reload(cfg))
	assert.Equal(t, 5, l.Snapshot().Guards[0].Slots)
	assert.Equal(t, 3, asked)
}

// Two Limiters with one store and one secret count an account together. That
// one of them began disabled makes no difference.
func TestASecretThatComesWithTheFirstEnabledConfigHolds(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerAccount = perHour(3)
	cfg.Store.KeySecret = secret
	s := newLedger()
	opts := []Option{WithStore(s), WithAccount(byHeader("Account"))}
	a, b := newLimiter(t, cfg, opts...), newLimiter(t, Config{}, opts...)
	require.NoError(t, b.Reload(cfg))
	alice := func() *http.Request { return claiming("alice", "192.0.2.1") }
	require.Equal(t, 2, admits(a.Handler(served), 2, alice))
	left(t, b.Handler(served), 1, alice)
	refused(t, a.Handler(served), alice())
}

// refusingRegisterer takes no metrics.
type refusingRegisterer struct{ prometheus.Registerer }

func (refusingRegisterer) Register(prometheus.Collector) error { return errors.New("no room") }

func TestMetricsThatCannotBeRegisteredLeaveTheConfigAsItWas(t *testing.T) {
	opt := WithRegisterer(refusingRegisterer{})
	_, err := New(noLimitIn("ca"), opt)
	assert.ErrorContains(t, err, "no room")

	l := newLimiter(t, Config{Namespace: "ca"}, opt)
	assert.ErrorContains(t, l.Reload(noLimitIn("ca")), "no room")
	equalConfigs(t, Config{Namespace: "ca"}, l.Config())
	admitted(t, l.Handler(served), from("192.0.2.1"))
}

// Reloads, requests and readers at once: exactly the burst is admitted,
// whatever the order, since no second goes by.
func TestReloadsAndRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		cfg := soundConfig()
		cfg.Tiers.Global, cfg.Tiers.PerAccount = perHour(1000), TierConfig{}
		cfg.Tiers.PerIP = perHour(100)
		cfg.Guards["hsm"] = GuardConfig{MaxInFlight: 3, MaxQueue: 1000}
		l := newLimiter(t, cfg, WithRegisterer(reg), WithKey("fleet", byHeader("Fleet")), WithLogger(slog.New(slog.DiscardHandler)))
		h, guard := l.Handler(served), l.Guard("hsm")
		var wg sync.WaitGroup
		var got atomic.Int64
		for i := range 8 {
			wg.Go(func() {
				for j := range 40 {
					r := withHeader(request("POST", "/order", "192.0.2.1", ""), "Fleet", fmt.Sprint(i, j))
					if send(h, r).Header().Get("Served") != "" {
						got.Add(1)
					}
				}
			})
			wg.Go(func() {
				for j := range 20 {
					next := l.Config()
					next.RetryJitter = float64(j%5) / 10
					next.Tiers.MaxKeys = 1000 + (i+j)%2
					next.Tiers.Custom = cfg.Tiers.Custom[:(i+j)%2]
					next.Guards["hsm"] = GuardConfig{MaxInFlight: 1 + j%4, MaxQueue: 1000}
					if err := l.Reload(next); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Go(func() {
			for range 20 {
				l.Snapshot()
				_, _ = reg.Gather()
				if release, err := guard.Acquire(context.Background()); err == nil {
					release()
				}
			}
		})
		wg.Wait()
		assert.EqualValues(t, 100, got.Load())
		assert.EqualValues(t, 100, classOf(t, l, "order").Admitted)
		assert.Zero(t, l.Snapshot().Guards[0].InFlight)
	})
}
