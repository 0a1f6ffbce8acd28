package weir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/store"
)

// Each test here is a wrong answer that another limiter gives, or gave, or that
// its users ran into: the name says what should happen, the comment whose
// mistake it was.

// ---- Tokens that get lost, or come from nowhere.

// golang.org/x/time/rate: Reservation.Cancel gives nothing back once a
// nanosecond has passed (golang/go#56924, golang/go#69419).
func TestPeerRefundIsWholeAtAnyTime(t *testing.T) {
	for _, later1 := range []time.Duration{0, 1, time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cfg := noTiers()
			cfg.Tiers.PerAccount = perHour(10)
			l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
			for range 1000 {
				admitted(t, l.Handler(later(func(ctx context.Context) {
					time.Sleep(later1)
					Disown(ctx)
				})), claiming("a1", addr1))
			}
			left(t, l.Handler(served), 10, func() *http.Request { return claiming("a1", addr1) })
		})
	}
}

// golang.org/x/time/rate: a reservation cannot be given back whole after others
// were made on the same bucket.
func TestPeerRefundIsWholeAfterOthersHaveSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = perHour(10)
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		admitted(t, l.Handler(later(func(ctx context.Context) {
			for range 4 {
				admitted(t, l.Handler(served), claiming("a1", addr1))
			}
			Disown(ctx)
		})), claiming("a1", addr1))
		left(t, l.Handler(served), 6, func() *http.Request { return claiming("a1", addr1) })
	})
}

// ulule/limiter, throttled: a refund fills a bucket above its burst. Settled
// twice, it pays twice.
func TestPeerRefundNeverOverfills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = TierConfig{Rate: 1, Burst: 10}
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		admitted(t, l.Handler(later(func(ctx context.Context) {
			defer Disown(ctx)
			time.Sleep(time.Minute)
			Disown(ctx)
		})), claiming("a1", addr1))
		left(t, l.Handler(served), 10, func() *http.Request { return claiming("a1", addr1) })
	})
}

// governor#117, octo-server#285, pubky-homeserver#548: a client that one limit
// refuses eats up the others.
func TestPeerRefusedRequestsSpendNoOtherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.Global, cfg.Tiers.PerIP = perHour(100), perHour(1)
		h := newLimiter(t, cfg).Handler(served)
		left(t, h, 1, func() *http.Request { return from(addr1) })
		if got := admits(h, 50, func() *http.Request { return from(addr1) }); got != 0 {
			t.Errorf("%d were admitted", got)
		}
		for i := range 99 {
			admitted(t, h, from(fmt.Sprint("198.51.100.", i)))
		}
		refusedBy(t, h, from("203.0.113.1"), TierGlobal)
	})
}

// httprate: 238 of 200 with 64 callers. boulder#7780, #7886: read, then write.
func TestPeerManyCallersGetNotOneTooMany(t *testing.T) {
	for _, burst := range []int{1, 200} {
		synctest.Test(t, func(t *testing.T) {
			cfg := noTiers()
			cfg.Tiers.Global, cfg.Tiers.PerIP = perHour(1000), perHour(float64(burst))
			s := newLedger()
			h := newLimiter(t, cfg, WithStore(s)).Handler(served)
			var n atomic.Int64
			together(64, func(int) {
				n.Add(int64(admits(h, 10, func() *http.Request { return from(addr1) })))
			})
			if n.Load() != int64(burst) || !slices.Equal(s.in(TierGlobal), []float64{1000 - float64(burst)}) {
				t.Errorf("%d were admitted and global holds %v, want %d and %d", n.Load(), s.in(TierGlobal), burst, 1000-burst)
			}
		})
	}
}

// A token that is reserved for a request which another limit is about to refuse
// is missing to somebody else meanwhile: the flaw of every limiter that
// reserves first and gives back afterwards.
func TestPeerDoomedRequestTakesNoTokenFromAnotherEvenForAMoment(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.Global, cfg.Tiers.PerIP = perHour(1), perHour(1)
	for round := range 1000 {
		s := newLedger()
		h := newLimiter(t, cfg, WithStore(s)).Handler(served)
		s.drain(t, "weir/per_ip", from(addr1))
		var honest atomic.Bool
		together(2, func(i int) {
			if i == 0 {
				send(h, from(addr1))
			} else if send(h, from("192.0.2.2")).Code == http.StatusOK {
				honest.Store(true)
			}
		})
		if !honest.Load() {
			t.Fatalf("round %d: the honest client was refused for a token that a refused one held", round)
		}
	}
}

// drain empties the bucket of a client in a tier keyed by address.
func (s *ledger) drain(t *testing.T, scope string, r *http.Request) {
	t.Helper()
	cfg := noTiersBut(TierPerIP)
	l := newLimiter(t, cfg)
	who := l.ask(l.policy.Load(), r)
	v, _, err := s.Memory.Admit(t.Context(), []store.Check{{Scope: scope, Key: who.key, Limit: store.Limit{Rate: 1.0 / 3600, Burst: 1}, Cost: 1}}, nil)
	if err != nil || !v.Admitted() {
		t.Fatalf("draining: %+v, %v", v, err)
	}
}

// boulder#3117: one more than the limit, or one less.
func TestPeerExactlyAsManyAsTheLimitSays(t *testing.T) {
	for _, n := range []int{1, 2, 1000} {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(float64(n))
		left(t, newLimiter(t, cfg).Handler(served), n, func() *http.Request { return from(addr1) })
	}
}

// Vault rounds 0.4 a second to nothing, and takes a default of the library.
func TestPeerFractionalRateIsNotRounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 0.4, Burst: 1}
		h := newLimiter(t, cfg).Handler(served)
		n, r := 0, from(addr1)
		for range 1001 { // every 100 ms from 0 to 100 s
			n += admits(h, 1, func() *http.Request { return r })
			time.Sleep(100 * time.Millisecond)
		}
		if n != 41 {
			t.Errorf("%d were admitted, want 41: one, and 40 of 0.4 a second", n)
		}
	})
}

// sethvargo/go-limiter: 10 000 in 50 ms becomes 5000.
func TestPeerHighRateIsNotRounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 200_000, Burst: 10_000}
		h := newLimiter(t, cfg).Handler(served)
		r := from(addr1)
		for range 3 {
			left(t, h, 10_000, func() *http.Request { return r })
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// sethvargo/go-limiter: 5 an hour admits 30 within a second where idle buckets
// are swept often.
func TestPeerShortIdleTTLFreesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 5.0 / 3600, Burst: 5}
		cfg.Tiers.IdleTTL = 1
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		n := 0
		for i := range 60 {
			n += admits(h, 1, func() *http.Request { return from(addr1) })
			send(h, from(fmt.Sprint("198.51.100.", i))) // others, so that there is sweeping
			l.Snapshot()
			time.Sleep(500 * time.Millisecond)
		}
		if n != 5 {
			t.Errorf("%d were admitted within half a minute, want 5", n)
		}
	})
}

// sethvargo/go-limiter#59: a clock that jumps overflows. Here 200 years pass.
func TestPeerLongTimeFillsABucketToItsBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 1e6, Burst: 3}
		h := newLimiter(t, cfg).Handler(served)
		left(t, h, 3, func() *http.Request { return from(addr1) })
		time.Sleep(200 * 365 * 24 * time.Hour)
		left(t, h, 3, func() *http.Request { return from(addr1) })
	})
}

// throttled: contention on a hot key comes out as an error, so as a 500.
func TestPeerContentionIsNoError(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.Global, cfg.Tiers.PerIP = perHour(1e6), perHour(500)
	h := newLimiter(t, cfg).Handler(served)
	var ok, refusals, others atomic.Int64
	together(1000, func(int) {
		switch send(h, from(addr1)).Code {
		case http.StatusOK:
			ok.Add(1)
		case http.StatusTooManyRequests:
			refusals.Add(1)
		default:
			others.Add(1)
		}
	})
	if ok.Load() != 500 || refusals.Load() != 500 || others.Load() != 0 {
		t.Errorf("%d admitted, %d refused, %d otherwise; want 500, 500, 0", ok.Load(), refusals.Load(), others.Load())
	}
}

// ---- Keys.

// throttled, nginx: whoever sprays keys past the bound frees a drained one.
func TestPeerSprayFreesNoDrainedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(10)
		cfg.Tiers.MaxKeys = 1000
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		left(t, h, 10, func() *http.Request { return from(addr1) })
		for i := range 10 * cfg.Tiers.MaxKeys {
			admitted(t, h, from(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)))
		}
		refusedBy(t, h, from(addr1), TierPerIP)
		if s := tierOf(t, l, TierPerIP); s.Keys > 1000 || s.Evicted == 0 {
			t.Errorf("%+v, want at most 1000 keys and some evicted", s)
		}
	})
}

// telcoin-network#956: with the table full of drained keys, newcomers go
// untracked, or are refused.
func TestPeerFullTableNeitherBlocksNorForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(1)
		cfg.Tiers.MaxKeys = 100
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		for i := range 500 {
			admitted(t, h, from(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)))
			refusedBy(t, h, from(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), TierPerIP)
			if n := tierOf(t, l, TierPerIP).Keys; n > 100 {
				t.Fatalf("%d keys after %d clients", n, i+1)
			}
		}
	})
}

// ulule/limiter, and four of six: a /64 has as many budgets as it has
// addresses (traefik#9721, governor#171).
func TestPeerNetworkOfIPv6IsOneClient(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	n := 0
	for i := range 1 << 16 {
		if i%37 == 0 { // a sample of the 65 536
			n += admits(h, 1, func() *http.Request { return from(fmt.Sprintf("2001:db8::%x", i+1)) })
		}
	}
	if n != 1 {
		t.Errorf("%d of one /64 were admitted, want 1", n)
	}
}

// tollbooth: every IPv4 address in IPv6 clothes is the one key "::". Others
// give such a client two budgets.
func TestPeerMappedAddressesAreTheirOwnSelves(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(2)
	h := newLimiter(t, cfg).Handler(served)
	left(t, h, 2, func() *http.Request { return from("::ffff:192.0.2.1") })
	left(t, h, 0, func() *http.Request { return from("192.0.2.1") })
	left(t, h, 2, func() *http.Request { return from("::ffff:192.0.2.2") })
}

// ulule/limiter: all unix peers and all without an address share the key
// "<nil>".
func TestPeerUnixPeersHaveABucketOfTheirOwn(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(2)
	h := newLimiter(t, cfg).Handler(served)
	left(t, h, 2, func() *http.Request { return from("@") })
	left(t, h, 2, func() *http.Request { return from("") })
	left(t, h, 2, func() *http.Request { return from(addr1) })
}

// ulule/limiter: the leftmost entry of X-Forwarded-For is the key, which the
// client itself writes.
func TestPeerForgedHeaderMovesNoKey(t *testing.T) {
	for name, trusted := range map[string][]string{"without a proxy": nil, "behind one": {"10.0.0.0/8"}} {
		t.Run(name, func(t *testing.T) {
			cfg := noTiers()
			cfg.ClientIP.TrustedProxies = trusted
			cfg.Tiers.PerIP = perHour(3)
			h := newLimiter(t, cfg).Handler(served)
			peer := addr1
			if trusted != nil {
				peer = "10.0.0.1"
			}
			i := 0
			left(t, h, 3, func() *http.Request {
				i++
				r := from(peer)
				r.Header["X-Forwarded-For"] = []string{fmt.Sprintf("6.6.6.%d", i), "203.0.113.9"} // the proxy adds a line
				for _, other := range []string{"X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X_forwarded_for"} {
					r.Header.Set(other, fmt.Sprintf("6.6.7.%d", i))
				}
				return r
			})
		})
	}
}

// tollbooth and nginx let pass whoever does not send the header that is the
// key; traefik#8052 makes one client of them all.
func TestPeerMissingKeySkipsThatTierOnly(t *testing.T) {
	cfg, opts := fourTiers()
	narrow(&cfg, TierPerIP, 4)
	narrow(&cfg, "fleet", 2)
	reg := prometheus.NewRegistry()
	h := newLimiter(t, cfg, append(opts, WithRegisterer(reg))...).Handler(served)
	left(t, h, 2, func() *http.Request { return in4("192.0.2.1", "f1", "a1") })
	left(t, h, 4, func() *http.Request { return from("192.0.2.2") })
	left(t, h, 4, func() *http.Request { return from("192.0.2.3") })
	if got := metric(t, reg, "weir_ratelimit_unkeyed_total", "tier", "fleet"); got != 14 {
		t.Errorf("%v requests without a key counted, want 14", got)
	}
}

// tollbooth: another path is another budget.
func TestPeerVaryingThePathEvadesNothing(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(3)
	cfg.Endpoints = []Endpoint{{Pattern: "/a/", Class: "a"}, {Pattern: "/b/", Class: "b"}}
	h := newLimiter(t, cfg).Handler(served)
	i := 0
	left(t, h, 3, func() *http.Request {
		i++
		r := request([]string{"GET", "POST", "HEAD"}[i%3], fmt.Sprintf("/%s/%d?x=%d", []string{"a", "b", "c"}[i%3], i, i), addr1, "")
		r.Host = fmt.Sprintf("host%d.example", i)
		r.Header.Set("User-Agent", fmt.Sprint("agent", i))
		return r
	})
}

// envoy joins the parts of a key with "_", tollbooth with "|".
func TestPeerPartsOfAKeyAreNotMixedUp(t *testing.T) {
	k := keyer{secret: [32]byte{1}}
	seen := map[store.Key]string{}
	for _, p := range [][2]string{
		{"a_b", "c"}, {"a", "b_c"}, {"a|b", "c"}, {"a", "b|c"}, {"a", "b\x00c"}, {"a\x00b", "c"}, {"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"a", "b\nc"}, {"a\nb", "c"},
	} {
		key := k.key(p[0], p[1])
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key", fmt.Sprint(p), other)
		}
		seen[key] = fmt.Sprint(p)
	}
	t.Run("an id is one thing in every tier it is used in", func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = perHour(2)
		cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 1.0 / 3600, Burst: 3}}
		h := newLimiter(t, cfg, WithAccount(byHeader("Id")), WithKey("fleet", byHeader("Id"))).Handler(served)
		left(t, h, 2, func() *http.Request { return withHeader(from(addr1), "Id", "x") })
	})
}

// ulule/limiter, traefik#11753: two limiters on one store share their keys,
// and the shorter period wipes out the longer.
func TestPeerTwoLimitersOnOneStoreDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLedger()
		limiter := func(namespace string, rate float64) http.Handler {
			cfg := noTiers()
			cfg.Namespace = namespace
			cfg.Tiers.PerIP = TierConfig{Rate: rate, Burst: 3}
			cfg.Tiers.IdleTTL = Duration(time.Second)
			return newLimiter(t, cfg, WithStore(s)).Handler(served)
		}
		fast, slow := limiter("fast", 3), limiter("slow", 3.0/3600)
		r := from(addr1)
		for second := range 20 {
			if got := admits(slow, 4, func() *http.Request { return r }); got != map[bool]int{true: 3}[second == 0] {
				t.Fatalf("second %d: the hourly limiter admits %d", second, got)
			}
			if got := admits(fast, 4, func() *http.Request { return r }); got != 3 {
				t.Fatalf("second %d: the other admits %d of 3 a second", second, got)
			}
			time.Sleep(time.Second)
		}
	})
}

// httprate: one lock held over the store's round trip, so a store of 2 ms
// serves 208 requests a second, whoever asks.
func TestPeerSlowStoreDelaysNobodyButItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, opts := fourTiers()
		s := newBrokenStore(func(context.Context) error { time.Sleep(2 * time.Millisecond); return nil })
		h := newLimiter(t, cfg, append(opts, WithStore(s))...).Handler(served)
		start := time.Now()
		together(50, func(i int) { send(h, in4(fmt.Sprint("192.0.2.", i), fmt.Sprint(i), fmt.Sprint(i))) })
		if took := time.Since(start); took != 2*time.Millisecond {
			t.Errorf("50 requests took %v together, want 2ms", took)
		}
	})
}

// ---- Limits that change, and limits that mean what they say.

// hookaido#239, haproxy#1216: a reload hands out fresh budgets. APIcast#667,
// supabase/auth#2358: it does not reach the keys that are there.
func TestPeerReloadReachesTheKeysAndResetsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 10}
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		r := func() *http.Request { return from(addr1) }
		reload := func(rate, burst float64) {
			t.Helper()
			cfg.Tiers.PerIP = TierConfig{Rate: rate, Burst: burst}
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		left(t, h, 10, r)
		reload(2, 100)
		left(t, h, 0, r) // not a fresh budget
		time.Sleep(5 * time.Second)
		left(t, h, 10, r) // at the new rate
		reload(1, 100)
		time.Sleep(40 * time.Second)
		reload(1, 5)
		left(t, h, 5, r) // clamped to the new burst
	})
}

// httprate: -3 remaining after a lowered limit.
func TestPeerRemainingIsNeverNegative(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = perHour(10)
		l := newLimiter(t, cfg)
		look := l.Handler(later(func(ctx context.Context) {
			if info, _ := FromContext(ctx); info.Remaining < 0 || info.Remaining > info.Burst {
				t.Errorf("%v of %v remain", info.Remaining, info.Burst)
			}
		}))
		for range 8 {
			admitted(t, look, from(addr1))
		}
		cfg.Tiers.PerIP = perHour(5)
		if err := l.Reload(cfg); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			admitted(t, look, from(addr1))
		}
		refused(t, look, from(addr1))
	})
}

// caddy-ratelimit and throttled panic at a rate of 0, redis_rate fails in Lua,
// go-limiter admits one, traefik#13512 and boulder#7803 take it for no limit
// or for none at all. Here both zero is no limit, and one zero is a fault.
func TestPeerZeroMeansWhatItSays(t *testing.T) {
	for _, tc := range []struct {
		limit Limit
		fault bool
	}{{Limit{}, false}, {Limit{Rate: 1}, true}, {Limit{Burst: 1}, true}, {Limit{Rate: -1, Burst: 1}, true}} {
		cfg := noTiers()
		cfg.Tiers.Global = perHour(1000)
		cfg.Tiers.PerIP = TierConfig{Rate: tc.limit.Rate, Burst: tc.limit.Burst}
		l, err := New(cfg)
		if (err != nil) != tc.fault {
			t.Errorf("%+v: %v", tc.limit, err)
		}
		if err == nil {
			if got := admits(l.Handler(served), 100, func() *http.Request { return from(addr1) }); got != 100 {
				t.Errorf("%+v admits %d of 100", tc.limit, got)
			}
		}
	}
}

// redis_rate tells a request that costs more than the burst to come back in
// 100 ms, for ever (throttled#81).
func TestPeerCostThatCanNeverPassIsAFault(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(5)
	cfg.Endpoints = []Endpoint{{Pattern: "/dear", Class: "dear", Cost: 6}}
	_, err := New(cfg)
	for e := range ConfigErrors(err) {
		if e.Path == "endpoints[0].cost" {
			return
		}
	}
	t.Errorf("New says %v, want the cost named", err)
}

// ---- What a refused client is told.

// boulder#8674: of a limit that refuses for an hour and one that admits but
// has its next token in a week, the one that refuses is told.
func TestPeerWaitIsOfALimitThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.Global = TierConfig{Rate: 1.0 / (7 * 24 * 3600), Burst: 10}
		cfg.Tiers.PerIP = perHour(1)
		h := newLimiter(t, cfg).Handler(served)
		admitted(t, h, from(addr1))
		if got := retryAfter(t, refusedBy(t, h, from(addr1), TierPerIP)); got != 3600 {
			t.Errorf("Retry-After is %d, want 3600", got)
		}
	})
}

// flask-limiter#62, koajs/ratelimit#48, caddy-ratelimit#22: the clock moves
// between the decision and the header, which then is 0 or negative.
func TestPeerClockThatMovesOnMakesNoZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := acmeConfig(100)
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
		h := newLimiter(t, cfg, WithNonce(func(*http.Request) string { time.Sleep(time.Hour); return "bg" })).Handler(served)
		for range 20 {
			w := send(h, acmePost(order, addr1, "x"))
			if w.Code != http.StatusOK {
				retryAfter(t, w)
			}
			send(h, from(addr1)) // so that the next one is refused
		}
	})
}

// go-limiter writes a date that http.ParseTime refuses.
func TestPeerRetryAfterIsANumber(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	admitted(t, h, from(addr1))
	for key, values := range refused(t, h, from(addr1)).Header() {
		for _, v := range values {
			if strings.Contains(v, "UTC") {
				t.Errorf("%s: %s", key, v)
			}
		}
	}
}

// The answer of a route that leaves the form open follows Accept, and what
// makes no sense there costs nothing.
func TestPeerAcceptFieldsThatMakeNoSense(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	admitted(t, h, from(addr1))
	const json, html = "application/problem+json", "text/html; charset=utf-8"
	for _, tc := range []struct{ accept, want string }{
		{"", json}, {"*/*", json}, {"text/html;q=0.1, application/json", json}, {";;;", json},
		{strings.Repeat("text/html,", 6500), json}, {"text/html", html}, {"\x00", json}, {"text/html;q=0", json},
	} {
		r := from(addr1)
		r.Header["Accept"] = []string{tc.accept}
		if got := refused(t, h, r).Header().Get("Content-Type"); got != tc.want {
			t.Errorf("Accept %.40q is answered with %s, want %s", tc.accept, got, tc.want)
		}
	}
}

// letsencrypt/website#1781: a quota and an overload look alike, so clients
// take a CA for down that is up.
func TestPeerQuotaAndOverloadAreToldApart(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(2)
	cfg.Endpoints = []Endpoint{{Pattern: "/sign", Class: "sign", Guard: "hsm", Mode: ModeFail}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg)
	release, err := l.Guard("hsm").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	types := map[int]string{}
	for range 3 {
		w := send(l.Handler(served), request("GET", "/sign", addr1, ""))
		var doc struct{ Type string }
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		types[w.Code] = doc.Type
	}
	if types[503] == "" || types[429] == "" || types[503] == types[429] {
		t.Errorf("the problem types are %v, want two, for 503 and 429", types)
	}
}

// httprate answers a failing store with 428 and the text of the error, which
// may hold the store's password.
func TestPeerStoreErrorIsNotToldToClients(t *testing.T) {
	secret := "redis://limiter:hunter2@10.0.0.9:6379"
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(2)
	s := newBrokenStore(func(context.Context) error { return errors.New("dial " + secret + ": refused") })
	h := newLimiter(t, cfg, WithStore(s)).Handler(served)
	for i := range 6 {
		w := send(h, from(addr1))
		if want := map[bool]int{true: 200, false: 429}[i < 2]; w.Code != want {
			t.Errorf("request %d is answered %d, want %d", i, w.Code, want)
		}
		if all := fmt.Sprint(w.Header(), w.Body); strings.Contains(all, "hunter2") || strings.Contains(all, "10.0.0.9") {
			t.Errorf("the client is told %s", all)
		}
	}
}

// RFC 9110 lets caches keep a 200 of OCSP and CRL by max-age; quota headers
// would be kept with it. And Retry-After of an admitted response is the
// handler's own business.
func TestPeerAdmittedResponsesCarryNothingOfOurs(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints()
	h := newLimiter(t, cfg).Handler(served)
	for _, target := range []string{"/ocsp/MFQ", "/crl/root.crl", "/acme/directory", "/nowhere"} {
		w := admitted(t, h, request("GET", target, addr1, ""))
		if got := w.Result().Header; len(got) != 2 || got.Get("Served") == "" || got.Get("Content-Type") == "" {
			t.Errorf("%s is answered with %v", target, got)
		}
	}
}

// terraform-provider-acme#401: an HTML 429 breaks clients that parse JSON.
// boulder#2450, golang/go#18428: one without a nonce breaks others.
func TestPeerBrowserHeadersMakeNoHTMLOfAnACMERefusal(t *testing.T) {
	cfg := acmeConfig(1)
	h := newLimiter(t, cfg, WithNonce(func(*http.Request) string { return "bg" })).Handler(served)
	r := func() *http.Request {
		return withHeader(acmePost(order, addr1, kidBody("https://ca/acct/1")), "Accept", "text/html,application/xhtml+xml")
	}
	admitted(t, h, r())
	w := refused(t, h, r())
	var doc struct {
		Type   string
		Status int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Status != w.Code || !strings.HasSuffix(doc.Type, ":rateLimited") || w.Header().Get("Replay-Nonce") != "bg" {
		t.Errorf("the document is %+v (%v), header %v", doc, err, w.Header())
	}
}

// ---- Metrics.

// caddy-ratelimit#102: registering again, as a reload does, panics.
// caddy-ratelimit, pelican#1311: a key is a label, so half a million series.
func TestPeerSeriesDoNotGrowWithClientsOrReloads(t *testing.T) {
	cfg, opts := fourTiers()
	reg := prometheus.NewRegistry()
	l := newLimiter(t, cfg, append(opts, WithRegisterer(reg))...)
	h := l.Handler(served)
	count := func() (n int) {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	send(h, in4(addr1, "f1", "a1"))
	before := count()
	for i := range 300 {
		send(h, in4(fmt.Sprintf("10.0.%d.%d", i>>8, i&255), fmt.Sprint("f", i), fmt.Sprint("a", i)))
		if i%100 == 0 {
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
	}
	if after := count(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

// express-rate-limit's double count: the same limiter mounted twice.
func TestPeerMountedTwiceChargesOnce(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(4)
	l := newLimiter(t, cfg)
	left(t, l.Handler(l.Handler(l.Protect("api", served))), 4, func() *http.Request { return from(addr1) })
}

// go-chi/chi#993, zenazn/goji#177: request state that is pooled is handed to a
// stranger while a handler that timed out still looks at it.
func TestPeerLateHandlerSeesItsOwnRequest(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1000)
	l := newLimiter(t, cfg)
	var late sync.WaitGroup
	go1 := make(chan struct{})
	for i := range 50 {
		addr := fmt.Sprint("192.0.2.", i)
		l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx := r.Context()
			late.Go(func() {
				<-go1
				if info, _ := FromContext(ctx); info.Addr.String() != addr {
					t.Errorf("the request of %s is taken for one of %v", addr, info.Addr)
				}
			})
		})).ServeHTTP(httptest.NewRecorder(), from(addr))
	}
	close(go1)
	late.Wait()
}
