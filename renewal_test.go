package weir

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oldCert is the certificate that renewals in these tests replace.
const oldCert = "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"

const kid1 = "https://ca.example/acme/acct/1"

// renewalOrder is an order of an account that says what it replaces.
func renewalOrder(kid, addr, certID string) *http.Request {
	payload, err := json.Marshal(map[string]string{"replaces": certID})
	if err != nil {
		panic(err)
	}
	return acmePost("/acme/new-order", addr, signed(map[string]any{"alg": "ES256", "kid": kid, "nonce": "bm9uY2U", "url": "https://ca.example/acme/new-order"}, string(payload)))
}

// renewing is acmeConfig with renewals.
func renewing(account, renewal float64) Config {
	cfg := acmeConfig(account)
	cfg.Endpoints[0].Renewals = true
	cfg.Tiers.Renewal = Limit{1.0 / 3600, renewal}
	return cfg
}

// hook is a hook that counts its calls.
type hook struct {
	calls atomic.Int64
	last  atomic.Pointer[Renewal]
	say   func(context.Context) bool
}

func vouching(say bool) *hook { return &hook{say: func(context.Context) bool { return say }} }

func (h *hook) option() Option {
	return WithRenewal(func(ctx context.Context, r Renewal) bool {
		h.calls.Add(1)
		h.last.Store(&r)
		return h.say(ctx)
	})
}

func TestRenewalsSpendFromATierOfTheirOwn(t *testing.T) {
	k := vouching(true)
	reg := prometheus.NewRegistry()
	h := newLimiter(t, renewing(1, 2), k.option(), WithRegisterer(reg)).Handler(served)
	admitted(t, h, acmePost("/acme/new-order", addr1, kidBody(kid1)))
	refused(t, h, acmePost("/acme/new-order", addr1, kidBody(kid1)))
	for range 2 {
		admitted(t, h, renewalOrder(kid1, addr1, oldCert))
	}
	assert.Equal(t, &Renewal{Account: "/acme/acct/1", CertID: oldCert}, k.last.Load())
	refused(t, h, renewalOrder(kid1, addr1, oldCert))
	assert.EqualValues(t, 2, k.calls.Load(), "the hook is not asked above the ceiling")
	admitted(t, h, renewalOrder("https://ca.example/acme/acct/2", addr1, oldCert))
	assert.EqualValues(t, 3, metric(t, reg, "weir_ratelimit_renewals_total", "endpoint", "order", "outcome", "exempt"))
	assert.EqualValues(t, 1, metric(t, reg, "weir_ratelimit_renewals_total", "endpoint", "order", "outcome", "unasked"))
}

func TestRenewalsAboveTheirCeilingAreOrdersLikeOthers(t *testing.T) {
	h := newLimiter(t, renewing(2, 1), vouching(true).option()).Handler(served)
	left(t, h, 3, func() *http.Request { return renewalOrder(kid1, addr1, oldCert) })
}

func TestRenewalsAreExemptFromTheAccountTierOnly(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		opts   []Option
	}{
		{"an address's", func(c *Config) { c.Tiers.PerIP = perHour(2) }, nil},
		{"the global one", func(c *Config) { c.Tiers.Global = perHour(2) }, nil},
		{"a custom one", func(c *Config) {
			c.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 1.0 / 3600, Burst: 2}}
		}, []Option{WithKey("fleet", func(*http.Request) (string, bool) { return "f", true })}},
		{"an address's window", func(c *Config) {
			c.Windows = DefaultConfig().Windows
			c.Windows.Enabled, c.Windows.Window, c.Windows.PerAddress = true, Duration(24*time.Hour), 2
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no window ends meanwhile
				k := vouching(true)
				cfg := renewing(1, 100)
				tc.change(&cfg)
				h := newLimiter(t, cfg, append(tc.opts, k.option())...).Handler(served)
				left(t, h, 2, func() *http.Request { return renewalOrder(kid1, addr1, oldCert) })
				assert.EqualValues(t, 2, k.calls.Load(), "the hook is not asked about what is refused anyway")
			})
		})
	}
}

func TestTheHookIsAskedAboutRenewalsOnly(t *testing.T) {
	exempt := renewing(5, 5)
	exempt.Exempt.Accounts = []string{kid1}
	network := renewing(5, 5)
	network.Exempt.Networks = []string{addr1}
	off := renewing(5, 5)
	off.Endpoints[1].Renewals, off.Endpoints[0].Renewals = true, false
	untiered := renewing(0, 5)
	untiered.Tiers.PerAccount, untiered.Tiers.PerIP = TierConfig{}, perHour(5)
	for _, tc := range []struct {
		name  string
		cfg   Config
		r     *http.Request
		asked int64
	}{
		{"a renewal", renewing(5, 5), renewalOrder(kid1, addr1, oldCert), 1},
		{"an order that replaces nothing", renewing(5, 5), acmePost("/acme/new-order", addr1, kidBody(kid1)), 0},
		{"an order that replaces what is no identifier", renewing(5, 5), renewalOrder(kid1, addr1, "x"), 0},
		{"an identifier in another spelling", renewing(5, 5), renewalOrder(kid1, addr1, oldCert+"="), 0},
		{"an exempt account", exempt, renewalOrder(kid1, addr1, oldCert), 0},
		{"an exempt address", network, renewalOrder(kid1, addr1, oldCert), 0},
		{"a class that does not ask", off, renewalOrder(kid1, addr1, oldCert), 0},
		{"a class without an account tier", untiered, renewalOrder(kid1, addr1, oldCert), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := vouching(true)
			admitted(t, newLimiter(t, tc.cfg, k.option()).Handler(served), tc.r)
			assert.Equal(t, tc.asked, k.calls.Load())
		})
	}
}

// Somebody who has used up an account's tokens, and whose requests therefore
// spend nothing, does not get a look into the database for each.
func TestTheHookIsNotAWayToFloodADatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := vouching(false)
		h := newLimiter(t, renewing(1, 100), k.option()).Handler(served)
		for range 1000 {
			send(h, renewalOrder(kid1, addr1, oldCert))
		}
		assert.EqualValues(t, 20, k.calls.Load())
		time.Sleep(10 * time.Second)
		for range 1000 {
			send(h, renewalOrder("https://ca.example/acme/acct/2", addr1, oldCert))
		}
		assert.EqualValues(t, 30, k.calls.Load())

		k.say = func(context.Context) bool { return true }
		admitted(t, h, renewalOrder(kid1, "198.51.100.9", oldCert)) // another address is asked about
		assert.EqualValues(t, 31, k.calls.Load())
		for range 50 { // what is verified costs an address none of that
			admitted(t, h, renewalOrder(kid1, "198.51.100.9", oldCert))
		}
	})
}

// A hook that fails makes a renewal an order like others, and nothing else.
func TestAFailingHookIsNoOutage(t *testing.T) {
	for _, tc := range []struct {
		name string
		say  func(context.Context) bool
		took time.Duration
	}{
		{"one that panics", func(context.Context) bool { panic("no database") }, 0},
		{"one that hangs until its context ends", func(ctx context.Context) bool { <-ctx.Done(); return true }, renewalTimeout},
		{"one that hangs", func(context.Context) bool { time.Sleep(time.Hour); return true }, renewalTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &hook{say: tc.say}
				reg := prometheus.NewRegistry()
				logs, withLogs := withLog()
				h := newLimiter(t, renewing(1, 100), k.option(), WithRegisterer(reg), withLogs).Handler(served)
				start := time.Now()
				admitted(t, h, renewalOrder(kid1, addr1, oldCert))
				assert.Equal(t, tc.took, time.Since(start))
				refused(t, h, renewalOrder(kid1, addr1, oldCert))
				assert.EqualValues(t, 2, metric(t, reg, "weir_ratelimit_renewals_total", "endpoint", "order", "outcome", "failed"))
				assert.Len(t, logs.with("ERROR"), 1)
				time.Sleep(2 * time.Hour) // until the last call has returned
			})
		})
	}
}

func TestHangingHooksAreNotManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		k := &hook{say: func(context.Context) bool { <-release; return true }}
		l := newLimiter(t, renewing(1000, 1000), k.option())
		h := l.Handler(served)
		for i := range 100 {
			go send(h, renewalOrder(kid1, "192.0.2."+string(rune('0'+i%10)), oldCert))
		}
		synctest.Wait()
		assert.EqualValues(t, maxRenewing, k.calls.Load())
		assert.Len(t, l.renewing, maxRenewing)
		close(release)
		synctest.Wait()
		assert.Empty(t, l.renewing)
	})
}

// The client has gone: nobody waits for the hook, nor is it blamed.
func TestTheHookIsNotBlamedForAClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logs, withLogs := withLog()
		k := &hook{say: func(context.Context) bool { time.Sleep(500 * time.Millisecond); return true }}
		h := newLimiter(t, renewing(1, 100), k.option(), withLogs).Handler(served)
		start := time.Now()
		r := renewalOrder(kid1, addr1, oldCert)
		leaving, leave := context.WithCancel(r.Context())
		time.AfterFunc(100*time.Millisecond, leave)
		send(h, r.WithContext(leaving))
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		assert.Empty(t, logs.with("ERROR"))
		time.Sleep(time.Second)
	})
}

// What a stranger spends of a victim's ceiling comes back, as with its account.
func TestTheCeilingOfADisownedRenewalComesBack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		handler http.Handler
		left    int
	}{
		{"the handler disowns it", later(Disown), 3},
		{"the answer shows that the account was not proved", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}), 3},
		{"it was another account's", later(func(ctx context.Context) { SetAccount(ctx, "/acme/acct/9") }), 3},
		{"it was that account's", later(func(ctx context.Context) { SetAccount(ctx, kid1) }), 2},
		{"nobody says anything", served, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := renewing(100, 3)
			cfg.Endpoints[0].Disown = true
			s := newLedger()
			l := newLimiter(t, cfg, vouching(true).option(), WithStore(s))
			send(l.Handler(tc.handler), renewalOrder(kid1, addr1, oldCert))
			assert.InDelta(t, tc.left, s.in(TierRenewal)[0], 0.01)
		})
	}
}

// That somebody else vouches for the account does not hide what it replaces.
func TestARenewalOfAVouchedAccount(t *testing.T) {
	k := vouching(true)
	h := newLimiter(t, renewing(1, 5), k.option(), WithAccount(func(*http.Request) (string, bool) { return "a1", true })).Handler(served)
	for range 5 {
		admitted(t, h, renewalOrder(kid1, addr1, oldCert))
	}
	assert.Equal(t, &Renewal{Account: "a1", CertID: oldCert}, k.last.Load())
}

// A renewal may be held for its address's tokens like any order, and is asked
// about once.
func TestARenewalIsHeldLikeAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := vouching(true)
		cfg := renewing(1, 100)
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
		cfg.Tiers.MaxWait = Duration(10 * time.Second)
		s := newLedger()
		h := newLimiter(t, cfg, k.option(), WithStore(s)).Handler(served)
		var passed atomic.Int64
		start := time.Now()
		together(4, func(int) {
			if send(h, renewalOrder(kid1, addr1, oldCert)).Header().Get("Served") != "" {
				passed.Add(1)
			}
		})
		assert.EqualValues(t, 4, passed.Load())
		assert.Equal(t, 3*time.Second, time.Since(start).Round(time.Second))
		assert.EqualValues(t, 4, k.calls.Load())
		assert.InDelta(t, 96, s.in(TierRenewal)[0], 0.01)
	})
}

// The ceiling is of use only as it is when the tokens are taken.
func TestRenewalsThatComeAtOnceDoNotExceedTheirCeiling(t *testing.T) {
	cfg := renewing(10, 20)
	h := newLimiter(t, cfg, vouching(true).option()).Handler(served)
	var passed atomic.Int64
	together(100, func(i int) {
		if send(h, renewalOrder(kid1, "198.51.100."+string(rune('0'+i%10)), oldCert)).Header().Get("Served") != "" {
			passed.Add(1)
		}
	})
	assert.EqualValues(t, 30, passed.Load(), "the ceiling, then the account's own")
}

func TestTheCeilingFollowsAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := renewing(1, 1)
		l := newLimiter(t, cfg, vouching(true).option())
		h := l.Handler(served)
		left(t, h, 2, func() *http.Request { return renewalOrder(kid1, addr1, oldCert) })
		cfg.Tiers.Renewal = Limit{1, 5}
		require.NoError(t, l.Reload(cfg))
		time.Sleep(3 * time.Second)
		left(t, h, 3, func() *http.Request { return renewalOrder(kid1, addr1, oldCert) })
	})
}
