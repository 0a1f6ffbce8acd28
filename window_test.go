package weir

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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

// The fixed windows (requirements W1–W5) through the chain. What a window is,
// is tested where it lives, in package store; here it is who is counted, where,
// and how often. Bubbles start at midnight, so a minute begins with each.

// windowed is a Config in which nothing limits but windows of a minute.
func windowed(subject, address, process int) Config {
	cfg := noTiers()
	cfg.Windows.Enabled = true
	cfg.Windows.PerSubject, cfg.Windows.PerAddress, cfg.Windows.Process = subject, address, process
	return cfg
}

// counted returns what a window has counted so far: that of an account, of an
// address, or that of all.
func counted(t testing.TB, l *Limiter, window, id string) int {
	t.Helper()
	p := l.policy.Load()
	check := store.Check{Scope: p.cfg.Namespace + "/" + window, Window: time.Duration(p.cfg.Windows.Window)}
	switch window {
	case WindowSubject:
		check.Key = l.keyer.key(TierPerAccount, id)
	case WindowAddress:
		check.Key = l.ask(p, from(id)).key
	}
	const room = 1 << 40 // to see a count that is above the limit
	check.Limit.Burst = room
	_, states, err := l.peeker.Peek(t.Context(), []store.Check{check}, nil)
	if err != nil {
		t.Fatalf("looking at %s: %v", window, err)
	}
	return room - int(states[0].Tokens)
}

func arrivals(t testing.TB, l *Limiter) int { t.Helper(); return counted(t, l, WindowProcess, "") }

// setting is a middleware in which the program says who the request is from.
func setting(id string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			SetAccount(r.Context(), id)
			next.ServeHTTP(w, r)
		})
	}
}

// A request is in one keyed window (requirement W1): that of its account only
// if somebody vouches for it. A name that anybody may write would be a new
// budget for each new name.
func TestARequestIsCountedInExactlyOneKeyedWindow(t *testing.T) {
	handler := (*Limiter).Handler
	after := func(middleware func(http.Handler) http.Handler, stages func(*Limiter, http.Handler) http.Handler) func(*Limiter, http.Handler) http.Handler {
		return func(l *Limiter, next http.Handler) http.Handler { return l.ClientIP(middleware(stages(l, next))) }
	}
	byHand := func(l *Limiter, next http.Handler) http.Handler { return l.Tiers(l.Windows(next)) }
	kid := func() *http.Request { return acmePost("/acme", alice, kidBody("https://ca.example/a1")) }
	user := func() *http.Request {
		r := request("POST", "/est", alice, "")
		r.SetBasicAuth("a1", "guess")
		return r
	}
	known := func() *http.Request { return claiming("a1", alice) }
	for _, tc := range []struct {
		name   string
		change func(*Config)
		wrap   func(*Limiter, http.Handler) http.Handler
		r      func() *http.Request
		want   string // window and id, "" for none
	}{
		{"nobody vouches for anything", nil, handler, fromAlice, "address " + alice},
		{"the program's function knows the account", nil, handler, known, "subject a1"},
		{"an IPv6 client is its network", nil, handler, func() *http.Request { return from("2001:db8::77") }, "address 2001:db8::"},
		{"a mapped address is the address", nil, handler, func() *http.Request { return from("::ffff:192.0.2.1") }, "address " + alice},
		{"a client without an address is counted with its like", nil, handler, func() *http.Request { return from("") }, "address "},
		{"SetAccount before the chain", nil, after(setting("a1"), handler), fromAlice, "subject a1"},
		{"SetAccount before the stage by hand", nil, after(setting("a1"), (*Limiter).Windows), fromAlice, "subject a1"},
		{"SetAccount between the stages by hand", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.Tiers(setting("a1")(l.Windows(next)))
		}, fromAlice, "subject a1"},
		{"SetAccount goes before the function", nil, after(setting("a2"), handler), known, "subject a2"},
		{"SetAccount to nobody", nil, after(setting(""), handler), fromAlice, "address " + alice},
		{"SetAccount in the handler, when all is counted", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.Handler(setting("a1")(next))
		}, fromAlice, "address " + alice},
		{"a kid is a claim", nil, handler, kid, "address " + alice},
		{"a kid is a claim, also of a deny list's account", func(c *Config) { c.Deny.Accounts = []string{"/a2"} }, handler, kid, "address " + alice},
		{"a Basic user is a claim", nil, handler, user, "address " + alice},
		{"a kid stays a claim behind the tiers by hand", nil, byHand, kid, "address " + alice},
		{"a Basic user stays a claim behind the tiers by hand", nil, byHand, user, "address " + alice},
		{"a claim that SetAccount confirms", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.Tiers(setting("a1")(l.Windows(next)))
		}, user, "subject a1"},
		{"a claim that was disowned", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.ClientIP(setting("a1")(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				Disown(r.Context())
				l.Windows(next).ServeHTTP(w, r)
			})))
		}, fromAlice, "address " + alice},
		{"per_subject 0 counts no account, by its address neither", func(c *Config) { c.Windows.PerSubject = 0 }, handler, known, ""},
		{"per_subject 0 without an account tier, the same", func(c *Config) {
			c.Windows.PerSubject, c.Tiers.PerAccount = 0, TierConfig{}
		}, handler, known, ""},
		{"per_subject 0 in the stage by hand, the same", func(c *Config) { c.Windows.PerSubject = 0 }, (*Limiter).Windows, known, ""},
		{"per_subject 0 counts an address without one", func(c *Config) { c.Windows.PerSubject = 0 }, handler, fromAlice, "address " + alice},
		{"per_subject 0 counts an address that claims one", func(c *Config) { c.Windows.PerSubject = 0 }, handler, user, "address " + alice},
		{"an excluded path", func(c *Config) { c.Windows.Exclude = []string{"/"} }, handler, known, ""},
		{"a request without a class", func(c *Config) { c.DefaultClass = "" }, handler, known, ""},
		{"windows are off", func(c *Config) { c.Windows.Enabled = false }, handler, known, ""},
		{"the chain twice", nil, func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Handler(next)) }, known, "subject a1"},
		{"Protect inside the chain", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.Handler(l.Protect("api", next))
		}, fromAlice, "address " + alice},
		{"each stage and the chain", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.Windows(l.Tiers(l.Handler(l.Windows(next))))
		}, fromAlice, "address " + alice},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(10, 10, 0)
				cfg.Tiers.PerAccount = perHour(10)
				cfg.Endpoints = []Endpoint{
					{Class: "acme", Kind: KindACME, Pattern: "/acme"}, {Class: "est", Kind: KindEST, Pattern: "/est"}, {Class: "api"},
				}
				if tc.change != nil {
					tc.change(&cfg)
				}
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
				admitted(t, tc.wrap(l, served), tc.r())
				var got []string
				for _, id := range []string{"a1", "a2", "/a1"} {
					for range counted(t, l, WindowSubject, id) {
						got = append(got, "subject "+id)
					}
				}
				for _, id := range []string{alice, "2001:db8::", ""} {
					for range counted(t, l, WindowAddress, id) {
						got = append(got, "address "+id)
					}
				}
				if strings.Join(got, ", ") != tc.want {
					t.Errorf("it was counted in %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// Subjects and addresses do not share anything: the same account from two
// addresses is one subject, one address with two accounts is two.
func TestWindowsOfDifferentClientsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, windowed(3, 2, 0), WithAccount(byHeader("Account")))
		h := l.Handler(served)
		left(t, h, 2, fromAlice)
		left(t, h, 2, func() *http.Request { return from(bob) })
		left(t, h, 3, func() *http.Request { return claiming("a1", alice) })
		left(t, h, 0, func() *http.Request { return claiming("a1", bob) })
		left(t, h, 3, func() *http.Request { return claiming("a2", alice) })
		left(t, h, 3, func() *http.Request { return claiming(alice, bob) }) // an account that is called like an address
	})
}

func TestDefaultsOfTheWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Windows.Enabled = true
		h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(served)
		left(t, h, 300, fromAlice)
		left(t, h, 600, func() *http.Request { return claiming("a1", alice) })
		time.Sleep(59 * time.Second)
		if got := retryAfter(t, refusedBy(t, h, fromAlice(), WindowAddress)); got != 1 {
			t.Errorf("in the minute's last second Retry-After is %d, want 1", got)
		}
		time.Sleep(time.Second)
		left(t, h, 300, fromAlice)
	})
}

// fates are what can become of a request of class "api" (requirement W3).
var fates = []struct {
	name   string
	change func(*Config)
	before func(l *Limiter) []*http.Request // come first, and pass
	r      func(t testing.TB) *http.Request
	status int
}{
	{"admitted", nil, nil, nil, 200},
	{"excluded from the keyed windows", func(c *Config) { c.Windows.Exclude = []string{"/"} }, nil, nil, 200},
	{"refused by the global tier", func(c *Config) { c.Tiers.Global = perHour(1) }, first(bob), nil, 429},
	{"refused by its address's tier", func(c *Config) { c.Tiers.PerIP = perHour(1) }, first(alice), nil, 429},
	{"refused by its account's tier", func(c *Config) { c.Tiers.PerAccount = perHour(1) }, func(*Limiter) []*http.Request {
		return []*http.Request{claiming("a1", bob)}
	}, func(testing.TB) *http.Request { return claiming("a1", alice) }, 429},
	{"refused by its address's window", func(c *Config) { c.Windows.PerAddress = 1 }, first(alice), nil, 429},
	{"refused by its account's window", func(c *Config) { c.Windows.PerSubject = 1 }, func(*Limiter) []*http.Request {
		return []*http.Request{claiming("a1", bob)}
	}, func(testing.TB) *http.Request { return claiming("a1", alice) }, 429},
	{"refused by the ceiling itself", func(c *Config) { c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1 }, first(bob), nil, 429},
	{"refused by tier, window and ceiling", func(c *Config) {
		c.Tiers.PerIP = perHour(1)
		c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1
	}, first(alice), nil, 429},
	{"refused with its body unread", func(c *Config) {
		c.Endpoints = []Endpoint{{Class: "api", Kind: KindACME}}
		c.Tiers.PerIP, c.Tiers.PerAccount = perHour(1), perHour(1)
	}, first(alice), unreadPost, 429},
	{"refused by its window with its body unread", func(c *Config) {
		c.Endpoints = []Endpoint{{Class: "api", Kind: KindACME}}
		c.Tiers.PerAccount, c.Windows.PerAddress = perHour(1), 1
	}, first(alice), unreadPost, 429},
	{"refused by the ceiling with its body unread", func(c *Config) {
		c.Endpoints = []Endpoint{{Class: "api", Kind: KindACME}}
		c.Tiers.PerAccount = perHour(9)
		c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1
	}, first(bob), unreadPost, 429},
	{"refused by a tier that would hold it", func(c *Config) {
		c.Tiers.PerIP, c.Tiers.MaxWait = perHour(1), Duration(time.Second)
	}, first(alice), nil, 429},
	{"refused by the ceiling where a tier would hold it", func(c *Config) {
		c.Tiers.PerIP, c.Tiers.MaxWait = TierConfig{Rate: 0.01, Burst: 1}, Duration(time.Hour)
		c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1
	}, first(alice), nil, 429},
	{"on the deny list by its network", func(c *Config) { c.Deny.Networks = []string{alice} }, nil, nil, 403},
	{"on the deny list by its account", func(c *Config) { c.Deny.Accounts = []string{"a1"} }, nil,
		func(testing.TB) *http.Request { return claiming("a1", alice) }, 403},
	{"on the exempt list by its network", func(c *Config) { c.Exempt.Networks = []string{alice} }, nil, nil, 200},
	{"on the exempt list by its network, but accounts are denied", func(c *Config) {
		c.Exempt.Networks, c.Deny.Accounts = []string{alice}, []string{"thief"}
	}, nil, nil, 200},
	{"on the exempt list by its class", func(c *Config) { c.Exempt.Classes = []Class{"api"} }, nil, nil, 200},
	{"on the exempt list by its account", func(c *Config) { c.Exempt.Accounts = []string{"a1"} }, nil,
		func(testing.TB) *http.Request { return claiming("a1", alice) }, 200},
	{"exempt above the ceiling", func(c *Config) {
		c.Exempt.Networks = []string{alice}
		c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1
	}, first(bob), nil, 200},
	{"let through by a tier in shadow", func(c *Config) {
		c.Tiers.PerIP, c.Shadow = perHour(1), []string{TierPerIP}
	}, first(alice), nil, 200},
	{"let through by windows in shadow", func(c *Config) {
		c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 1, 1, 1
		c.Shadow = []string{WindowAddress, WindowProcess}
	}, first(alice), nil, 200},
	{"shed by its guard", func(c *Config) {
		c.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
		c.Endpoints = []Endpoint{{Class: "api", Guard: "hsm", Mode: ModeFail}}
	}, func(l *Limiter) []*http.Request {
		_, err := l.Guard("hsm").Acquire(context.Background())
		if err != nil {
			panic(err)
		}
		return nil
	}, nil, 503},
}

// first is one request that comes before.
func first(addr string) func(*Limiter) []*http.Request {
	return func(*Limiter) []*http.Request { return []*http.Request{from(addr)} }
}

// unreadPost is an ACME POST whose body nobody may read.
func unreadPost(t testing.TB) *http.Request {
	r := acmePost("/", alice, "x")
	r.Body = unread{t}
	return r
}

// Whatever becomes of a request, and however the chain is mounted, it is one
// arrival (requirement W3).
func TestEveryRequestIsOneArrivalWhateverBecomesOfIt(t *testing.T) {
	for _, mount := range []struct {
		name string
		wrap func(*Limiter, http.Handler) http.Handler
	}{
		{"Handler", (*Limiter).Handler},
		{"Handler twice", func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Handler(next)) }},
		{"Protect", func(l *Limiter, next http.Handler) http.Handler { return l.Protect("api", next) }},
		{"Protect inside Handler", func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Protect("api", next)) }},
		{"Handler inside Protect", func(l *Limiter, next http.Handler) http.Handler { return l.Protect("api", l.Handler(next)) }},
		{"Handler behind ClientIP", func(l *Limiter, next http.Handler) http.Handler { return l.ClientIP(l.Handler(next)) }},
		{"the windows first", func(l *Limiter, next http.Handler) http.Handler { return l.Windows(l.Handler(next)) }},
	} {
		for _, fate := range fates {
			t.Run(fate.name+", "+mount.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := windowed(10, 10, 20)
					if fate.change != nil {
						fate.change(&cfg)
					}
					l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
					h := mount.wrap(l, served)
					var before []*http.Request
					if fate.before != nil {
						before = fate.before(l)
					}
					for _, r := range before {
						if w := send(h, r); w.Code != http.StatusOK {
							t.Fatalf("what comes before was answered %d", w.Code)
						}
					}
					r := fromAlice()
					if fate.r != nil {
						r = fate.r(t)
					}
					if w := send(h, r); w.Code != fate.status {
						t.Fatalf("it was answered %d, want %d: %s", w.Code, fate.status, w.Body)
					}
					if got, want := arrivals(t, l), len(before)+1; got != want {
						t.Errorf("%d arrivals were counted, want %d", got, want)
					}
				})
			})
		}
	}
}

// A request without a class is an arrival all the same, once, also where
// Protect gives it a class further in.
func TestRequestsWithoutAClassArrive(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		wrap   func(*Limiter, http.Handler) http.Handler
		r      *http.Request
		status int
		metric string // that counts it, of endpoint "unclassified"
	}{
		{"it passes", nil, (*Limiter).Handler, from(alice), 200, "ratelimit_admitted_total"},
		{"the chain twice", nil, func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Handler(next)) }, from(alice), 200, "ratelimit_admitted_total"},
		{"each stage by hand", nil, func(l *Limiter, next http.Handler) http.Handler {
			return l.ClientIP(l.Windows(l.Tiers(l.Windows(next))))
		}, from(alice), 200, "ratelimit_admitted_total"},
		{"Protect inside", nil, func(l *Limiter, next http.Handler) http.Handler { return l.Handler(l.Protect("api", next)) }, from(alice), 200, "ratelimit_admitted_total"},
		{"its network is denied", func(c *Config) { c.Deny.Networks = []string{alice} }, (*Limiter).Handler, from(alice), 403, "ratelimit_denied_total"},
		{"its account is denied", func(c *Config) { c.Deny.Accounts = []string{"a1"} }, (*Limiter).Handler, claiming("a1", alice), 403, "ratelimit_denied_total"},
		{"its network is exempt", func(c *Config) { c.Exempt.Networks = []string{alice} }, (*Limiter).Handler, from(alice), 200, "ratelimit_exempt_total"},
		{"its account is exempt", func(c *Config) { c.Exempt.Accounts = []string{"a1"} }, (*Limiter).Handler, claiming("a1", alice), 200, "ratelimit_exempt_total"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(1, 1, 20)
				cfg.DefaultClass = ""
				cfg.Endpoints = []Endpoint{{Class: "api"}}
				if tc.change != nil {
					tc.change(&cfg)
				}
				reg := prometheus.NewRegistry()
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithRegisterer(reg))
				h := tc.wrap(l, served)
				if w := send(h, tc.r); w.Code != tc.status {
					t.Fatalf("it was answered %d, want %d", w.Code, tc.status)
				}
				if got := arrivals(t, l); got != 1 {
					t.Errorf("%d arrivals were counted, want 1", got)
				}
				if got := metric(t, reg, "weir_"+tc.metric, "endpoint", "unclassified"); got != 1 {
					t.Errorf("%s counts %v, want 1", tc.metric, got)
				}
			})
		})
	}
}

// The ceiling holds for who has no class as for everybody, except for those
// who are never limited.
func TestTheCeilingHoldsForRequestsWithoutAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(2, 2, 4)
		cfg.DefaultClass = ""
		cfg.Endpoints = []Endpoint{{Class: "api", Pattern: "/api"}}
		cfg.Exempt.Networks, cfg.Exempt.Accounts = []string{carol}, []string{"monitor"}
		logged, log := withLog()
		reg := prometheus.NewRegistry()
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithRegisterer(reg), log)
		h := l.Handler(served)
		left(t, h, 4, fromAlice)
		refusedBy(t, h, to("api", bob), WindowProcess)
		admitted(t, h, from(carol))
		admitted(t, h, claiming("monitor", alice))
		if got := arrivals(t, l); got != 10 { // 4 and the 3 that left tries in vain, and 3
			t.Errorf("%d arrivals were counted, want 10", got)
		}
		if got := metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "unclassified", "tier", "process"); got != 3 {
			t.Errorf("%v refusals of no class were counted, want 3", got)
		}
		if n := len(logged.with("refusing requests", "class=unclassified", "by=tier", "name=process")); n != 1 {
			t.Errorf("%d lines tell of them, want 1", n)
		}
		time.Sleep(time.Minute)
		left(t, h, 4, fromAlice)
	})
}

// Without the ceiling a request without a class costs nothing, but denied is
// denied.
func TestDeniedAccountsAreDeniedWithoutAClassToo(t *testing.T) {
	cfg := noTiers()
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{{Class: "api", Pattern: "/api"}}
	cfg.Deny.Accounts = []string{"thief"}
	s := newLedger()
	l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithStore(s))
	for _, h := range []http.Handler{l.Handler(served), l.Handler(l.Handler(served)), l.Tiers(served), l.Windows(served)} {
		denied(t, h, claiming("thief", alice))
		admitted(t, h, claiming("a1", alice))
	}
	if s.asked("admit") != 0 {
		t.Error("the store was asked")
	}
	if c := classOf(t, l, "unclassified"); c.Denied != 4 || c.Admitted != 0 {
		t.Errorf("counted %+v, want 4 denied and nobody admitted by tiers that were not asked", c)
	}
}

// Stages by hand: each counts what reaches it.
func TestStagesByHandCountWhatReachesThem(t *testing.T) {
	windows := func(l *Limiter, next http.Handler) http.Handler { return l.Windows(next) }
	behind := func(l *Limiter, next http.Handler) http.Handler { return l.ClientIP(l.Tiers(l.Windows(next))) }
	before := func(l *Limiter, next http.Handler) http.Handler { return l.ClientIP(l.Windows(l.Tiers(next))) }
	tier := func(c *Config) { c.Tiers.PerIP = perHour(2) }
	window := func(c *Config) { c.Windows.PerAddress = 2 }
	for _, tc := range []struct {
		name      string
		wrap      func(*Limiter, http.Handler) http.Handler
		change    func(*Config)
		admitted  int // of 5
		arrived   int
		window    int // counted in the address's
		tokens    float64
		throttled map[string]uint64
	}{
		{"the windows alone know no tier", windows, tier, 5, 5, 5, -1, nil},
		{"the windows alone refuse", windows, window, 2, 5, 2, -1, map[string]uint64{WindowAddress: 3}},
		{"behind the tiers they see what those admit", behind, tier, 2, 2, 2, 0, map[string]uint64{TierPerIP: 3}},
		{"behind the tiers they refuse what has paid there", behind, func(c *Config) { tier(c); c.Tiers.PerIP.Burst = 9; window(c) }, 2, 5, 2, 4, map[string]uint64{WindowAddress: 3}},
		{"before the tiers they count what those refuse", before, tier, 2, 5, 5, 0, map[string]uint64{TierPerIP: 3}},
		{"before the tiers they spare those", before, func(c *Config) { tier(c); c.Tiers.PerIP.Burst = 9; window(c) }, 2, 5, 2, 7, map[string]uint64{WindowAddress: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(10, 10, 20)
				tc.change(&cfg)
				s := newLedger()
				l := newLimiter(t, cfg, WithStore(s))
				if got := admits(tc.wrap(l, served), 5, fromAlice); got != tc.admitted {
					t.Errorf("%d of 5 were admitted, want %d", got, tc.admitted)
				}
				if got := arrivals(t, l); got != tc.arrived {
					t.Errorf("%d arrivals were counted, want %d", got, tc.arrived)
				}
				if got := counted(t, l, WindowAddress, alice); got != tc.window {
					t.Errorf("the address's window has %d, want %d", got, tc.window)
				}
				if got := s.in(TierPerIP); tc.tokens < 0 && len(got) > 0 || tc.tokens >= 0 && !slices.Equal(got, []float64{tc.tokens}) {
					t.Errorf("the address's bucket has %v, want %v", got, tc.tokens)
				}
				c := classOf(t, l, "api")
				for name, n := range c.Throttled {
					if n != tc.throttled[name] {
						t.Errorf("%d refused by %s were counted, want %d", n, name, tc.throttled[name])
					}
				}
			})
		})
	}
}

// A request that goes through two stages by hand is one request in the metrics.
func TestStagesByHandCountARequestOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   func(ClassSnapshot) bool
	}{
		"admitted": {func(*Config) {}, func(c ClassSnapshot) bool { return c.Admitted == 1 && c.Exempt == 0 }},
		"exempt":   {func(c *Config) { c.Exempt.Networks = []string{alice} }, func(c ClassSnapshot) bool { return c.Admitted == 0 && c.Exempt == 1 }},
		"excluded": {func(c *Config) { c.Windows.Exclude = []string{"/"} }, func(c ClassSnapshot) bool { return c.Admitted == 1 && c.Exempt == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := windowed(10, 10, 20)
			cfg.Tiers.PerIP = perHour(10)
			tc.change(&cfg)
			l := newLimiter(t, cfg)
			admitted(t, l.ClientIP(l.Tiers(l.Windows(l.Handler(served)))), fromAlice())
			if c := classOf(t, l, "api"); !tc.want(c) {
				t.Errorf("counted as %d admitted, %d exempt", c.Admitted, c.Exempt)
			}
		})
	}
}

// A program may send a request on that was refused. It stays one arrival.
func TestARefusedRequestThatIsSentAgainHasArrivedAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(1, 1, 10)
		l := newLimiter(t, cfg)
		inner := l.Handler(served)
		h := l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 3 {
				inner.ServeHTTP(httptest.NewRecorder(), r)
			}
		}))
		send(h, fromAlice())
		send(h, fromAlice())
		if got := arrivals(t, l); got != 2 {
			t.Errorf("%d arrivals were counted, want 2", got)
		}
	})
}

// Parts of one request that come to the windows at the same time count once.
func TestPartsOfARequestAtOnceAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, windowed(9, 9, 20))
		inner := l.Handler(served)
		h := l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() { inner.ServeHTTP(httptest.NewRecorder(), r) })
			}
			all.Wait()
		}))
		send(h, fromAlice())
		if a, n, k := arrivals(t, l), counted(t, l, WindowAddress, alice), classOf(t, l, "api").Admitted; a != 1 || n != 1 || k != 1 {
			t.Errorf("%d arrivals, %d in its window, %d admitted were counted, want one each", a, n, k)
		}
	})
}

// What one limit refuses costs no other anything, whichever refuses: tiers
// stay as they are to the bit and keyed windows uncounted. Only the ceiling
// goes on, which counts arrivals.
func TestWhatIsRefusedSpendsNothing(t *testing.T) {
	limits := []string{TierGlobal, TierPerIP, "fleet", TierPerAccount, WindowSubject, WindowAddress, WindowProcess}
	for _, refusing := range limits {
		for _, withAccount := range []bool{true, false} {
			if !withAccount && (refusing == TierPerAccount || refusing == WindowSubject) || withAccount && refusing == WindowAddress {
				continue // it does not apply
			}
			t.Run(fmt.Sprintf("refused by %s, account known: %v", refusing, withAccount), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg, opts := fourTiers()
					cfg.Windows = WindowsConfig{Enabled: true, PerSubject: 50, PerAddress: 50, Process: 100}
					switch refusing {
					case WindowSubject:
						cfg.Windows.PerSubject = 2
					case WindowAddress:
						cfg.Windows.PerAddress = 2
					case WindowProcess:
						cfg.Windows.PerSubject, cfg.Windows.PerAddress, cfg.Windows.Process = 2, 2, 2
					default:
						narrow(&cfg, refusing, 2)
					}
					s := newLedger()
					l := newLimiter(t, cfg, append(opts, WithStore(s))...)
					h := l.Handler(served)
					r := func() *http.Request {
						r := withHeader(from(alice), "Fleet", "f1")
						if withAccount {
							r.Header.Set("Account", "a1")
						}
						return r
					}
					for i := range 2 {
						if refusing == WindowProcess { // not the client's own window
							admitted(t, h, in4(fmt.Sprintf("198.51.100.%d", i), "f0", fmt.Sprint("b", i)))
							continue
						}
						admitted(t, h, r())
					}
					held := s.tokens()
					subject, address, arrived := counted(t, l, WindowSubject, "a1"), counted(t, l, WindowAddress, alice), arrivals(t, l)
					for range 5 {
						refusedBy(t, h, r(), refusing)
					}
					for id, tokens := range s.tokens() {
						if was, seen := held[id]; seen && tokens != was && !strings.Contains(id.scope, WindowProcess) {
							t.Errorf("%s went from %v to %v", id.scope, was, tokens)
						}
					}
					if n, m := counted(t, l, WindowSubject, "a1"), counted(t, l, WindowAddress, alice); n != subject || m != address {
						t.Errorf("the windows went from %d and %d to %d and %d", subject, address, n, m)
					}
					if n := arrivals(t, l); n != arrived+5 {
						t.Errorf("%d arrivals, want %d", n, arrived+5)
					}
				})
			})
		}
	}
}

// Windows are aligned: around a boundary two budgets pass, within a moment, and
// not one request more (the price of fixed windows; a tier beside them evens
// it out).
func TestExactlyTwoBudgetsPassOverABoundary(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg    Config
		budget int
		r      func(i int) *http.Request
	}{
		WindowAddress: {windowed(100, 7, 0), 7, func(int) *http.Request { return from(alice) }},
		WindowSubject: {windowed(9, 100, 0), 9, func(i int) *http.Request { return claiming("a1", fmt.Sprintf("198.51.100.%d", i%250)) }},
		WindowProcess: {windowed(5, 5, 5), 5, func(i int) *http.Request { return from(fmt.Sprintf("198.51.100.%d", i%250)) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLimiter(t, tc.cfg, WithAccount(byHeader("Account"))).Handler(served)
				burst := func() (n int) {
					for i := range 200 {
						if send(h, tc.r(i)).Code == http.StatusOK {
							n++
						}
					}
					return n
				}
				time.Sleep(time.Minute - time.Nanosecond)
				last := burst()
				time.Sleep(time.Nanosecond) // over the boundary, by a nanosecond
				next := burst()
				time.Sleep(time.Minute - time.Nanosecond)
				again := burst()
				time.Sleep(time.Nanosecond)
				if last != tc.budget || next != tc.budget || again != 0 || burst() != tc.budget {
					t.Errorf("%d passed before, %d after the boundary and %d until the next; the budget is %d", last, next, again, tc.budget)
				}
			})
		})
	}
}

// The clock jumps, by whole windows or by parts, as it does for a machine that
// slept. Each window has its budget once.
func TestAClockThatJumpsGrantsEachWindowItsBudgetOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 3))
		h := newLimiter(t, windowed(10, 10, 0)).Handler(served)
		window, passed := int64(-1), 0
		for range 400 {
			time.Sleep(time.Duration(rng.Int64N(int64(40 * time.Second))))
			if rng.IntN(20) == 0 {
				time.Sleep(time.Duration(rng.Int64N(int64(24 * time.Hour))))
			}
			if now := time.Now().Unix() / 60; now != window {
				window, passed = now, 0
			}
			n := rng.IntN(9)
			got := admits(h, n, fromAlice)
			if want := min(n, 10-passed); got != want {
				t.Fatalf("in a window in which %d had passed, %d of %d did, want %d", passed, got, n, want)
			}
			passed += got
		}
	})
}

// A crowd on many goroutines, over many windows, gets each budget whole and not
// one more.
func TestACrowdGetsExactlyTheBudgetOfEachWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(30, 20, 70)
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		h := l.Handler(served)
		type place struct {
			window int64
			who    string
		}
		var mu sync.Mutex
		passed, offered := map[place]int{}, map[place]int{}
		var crowd sync.WaitGroup
		for i := range 64 {
			crowd.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 9))
				who, r := "address", fromAlice
				if i%2 == 0 {
					who, r = "subject", func() *http.Request { return claiming("a1", bob) }
				}
				for range 60 {
					at := time.Now().Unix() / 60 // the whole instant long
					w := send(h, r())
					mu.Lock()
					for _, who := range []string{who, "all"} {
						offered[place{at, who}]++
						if w.Code == http.StatusOK {
							passed[place{at, who}]++
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(1+rng.IntN(40)) * 250 * time.Millisecond)
				}
			})
		}
		crowd.Wait()
		budget := map[string]int{"address": 20, "subject": 30, "all": 70}
		full := 0
		for at, n := range passed {
			if n > budget[at.who] {
				t.Errorf("%d of %s passed in window %d, the budget is %d", n, at.who, at.window, budget[at.who])
			}
			if at.who != "all" && offered[place{at.window, "all"}] <= 70 && n != min(offered[at], budget[at.who]) {
				t.Errorf("%d of %s passed in window %d of %d that came, the budget is %d", n, at.who, at.window, offered[at], budget[at.who])
			}
			if n == budget[at.who] {
				full++
			}
		}
		if full < 4 {
			t.Errorf("only %d budgets were used up: this test shows nothing", full)
		}
	})
}

// Who waits as long as Retry-After says is let in, whatever the length of the
// window, and it never says more than the window has left.
func TestSleepingRetryAfterOfAWindowIsEnough(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			length := time.Second + time.Duration(rng.Int64N(int64(time.Hour)))
			n := 1 + rng.IntN(5)
			cfg := windowed(n, n, 0)
			cfg.Windows.Window = Duration(length)
			if seed%2 == 0 {
				cfg.Windows.Process = n
			}
			time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Hour))))
			h := newLimiter(t, cfg).Handler(served)
			for range 10 {
				time.Sleep(time.Duration(rng.Int64N(int64(2 * length))))
				left(t, h, n, fromAlice)
				end := length - time.Duration(time.Now().UnixNano()%int64(length))
				got := retryAfter(t, refused(t, h, fromAlice()))
				if want := int64((end + time.Second - 1) / time.Second); got != want {
					t.Fatalf("Retry-After is %d, want %d: the window ends in %v", got, want, end)
				}
				time.Sleep(time.Duration(got) * time.Second)
				admitted(t, h, fromAlice())
				time.Sleep(length) // and past what this one has used
			}
		})
	}
}

// Of windows and tiers that refuse, the one with the longest wait is told
// (requirement T14), and its wait.
func TestTheLongestWaitAmongTiersAndWindowsIsTold(t *testing.T) {
	for _, tc := range []struct {
		name  string
		at    time.Duration // in the minute
		secs  float64       // a token of the address
		blame string
		wait  int64
	}{
		{"the window goes on longer", 10 * time.Second, 49, WindowAddress, 50},
		{"the token takes longer", 10 * time.Second, 51, TierPerIP, 51},
		{"the window is about to end", time.Minute - 1, 30, TierPerIP, 30},
		{"the minute has just begun", 0, 59, WindowAddress, 60},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(1, 1, 0)
				cfg.Tiers.PerIP = TierConfig{Rate: 1 / tc.secs, Burst: 1}
				h := newLimiter(t, cfg).Handler(served)
				time.Sleep(tc.at)
				admitted(t, h, fromAlice())
				if got := retryAfter(t, refusedBy(t, h, fromAlice(), tc.blame)); got != tc.wait {
					t.Errorf("Retry-After is %d, want %d", got, tc.wait)
				}
				time.Sleep(time.Duration(tc.wait) * time.Second)
				admitted(t, h, fromAlice())
			})
		})
	}
}

// Windows in shadow decide and count, and let everything pass.
func TestWindowsInShadow(t *testing.T) {
	for _, tc := range []struct {
		window string
		r      func() *http.Request
	}{
		{WindowSubject, func() *http.Request { return claiming("a1", alice) }},
		{WindowAddress, fromAlice},
		{WindowProcess, fromAlice},
	} {
		t.Run(tc.window, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(2, 2, 2)
				cfg.Shadow = []string{tc.window}
				for _, other := range windowNames {
					if other != tc.window {
						cfg.Windows.Process = 100
						cfg.Windows.PerSubject, cfg.Windows.PerAddress = 50, 50
					}
				}
				switch tc.window {
				case WindowSubject:
					cfg.Windows.PerSubject = 2
				case WindowAddress:
					cfg.Windows.PerAddress = 2
				case WindowProcess:
					cfg.Windows = WindowsConfig{Enabled: true, PerSubject: 2, PerAddress: 2, Process: 2}
					cfg.Windows.Exclude = []string{"/"}
				}
				reg := prometheus.NewRegistry()
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithRegisterer(reg))
				h := l.Handler(served)
				for range 5 {
					admitted(t, h, tc.r())
				}
				if got := metric(t, reg, "weir_ratelimit_shadowed_total", "endpoint", "api", "tier", tc.window); got != 3 {
					t.Errorf("%v counted as refused by shadow, want 3", got)
				}
				if got := metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "api", "tier", tc.window); got != 0 {
					t.Errorf("%v counted as refused, want none", got)
				}
				if got := metric(t, reg, "weir_ratelimit_admitted_total", "endpoint", "api"); got != 5 {
					t.Errorf("%v counted as admitted, want 5", got)
				}
				want := 2 // what is not there is not spent
				if tc.window == WindowProcess {
					want = 5 // but who comes has come
				}
				if got := counted(t, l, tc.window, map[string]string{WindowSubject: "a1", WindowAddress: alice}[tc.window]); got != want {
					t.Errorf("the window has %d, want %d", got, want)
				}
			})
		})
	}
}

// What is refused before its body is read would have been refused by shadows,
// too.
func TestShadowsTellOfRequestsRefusedBeforeTheirBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(9, 1, 0)
		cfg.Endpoints = []Endpoint{{Class: "api", Kind: KindACME}}
		cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(1), perHour(9)
		cfg.Shadow = []string{WindowAddress}
		l := newLimiter(t, cfg)
		admitted(t, l.Handler(served), acmePost("/", alice, kidBody("https://ca.example/a1")))
		refused(t, l.Handler(served), unreadPost(t))
		if n := l.counts.class("api").shadowed[WindowAddress].value(); n != 1 {
			t.Errorf("%d counted as refused by shadow, want 1", n)
		}
	})
}

// A request that is held is in the window in which it is admitted; while it
// waits it takes nobody's place there.
func TestAHeldRequestIsCountedWhenItIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(2, 2, 0).with(Endpoint{Class: "free", Limits: map[string]Limit{TierGlobal: {}}})
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Minute)
		b := newBank(t, cfg)
		b.until(55 * time.Second)
		b.drain(1, func() *http.Request { return from(bob) })
		a := b.arrive("a", fromAlice()) // until 1:05
		if n := counted(t, b.l, WindowAddress, alice); n != 0 {
			t.Errorf("%d counted while it waits, want 0", n)
		}
		b.drain(2, func() *http.Request { return to("free", alice) })
		b.arrive("over", to("free", alice)).refusedAt(55*time.Second, 5)
		a.admittedAt(65 * time.Second)
		if n := counted(t, b.l, WindowAddress, alice); n != 1 {
			t.Errorf("%d counted in the next window, want 1", n)
		}
		b.idle()
	})
}

// Whose window is used up while it is held is refused when its turn comes, or
// is let in if another window has begun by then.
func TestTheWindowDecidesWhenAHeldRequestHasItsTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(1, 1, 0).with(Endpoint{Class: "free", Limits: map[string]Limit{TierGlobal: {}}})
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Minute)
		b := newBank(t, cfg)
		b.drain(1, func() *http.Request { return from(bob) })
		a := b.arrive("a", fromAlice())
		b.drain(1, func() *http.Request { return to("free", alice) })
		a.refusedAt(10*time.Second, 50)
		b.until(55 * time.Second)
		b.drain(1, func() *http.Request { return from(carol) })
		c := b.arrive("c", fromAlice())
		// Its own window refuses it at once, although a token will be there in time.
		c.refusedAt(55*time.Second, 10)
		b.idle()
	})
}

// A window does not hold anybody: its wait counts among the reasons to refuse
// at once.
func TestAWindowHoldsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(1, 1, 0)
		cfg.Tiers.PerIP, cfg.Tiers.MaxWait = TierConfig{Rate: 1, Burst: 1}, Duration(time.Hour)
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		b.arrive("short of both", fromAlice()).refusedAt(0, 60)
		b.until(2 * time.Second)
		b.arrive("short of its window", fromAlice()).refusedAt(2*time.Second, 58)
		b.until(time.Minute)
		b.arrive("in the next", fromAlice()).admittedAt(time.Minute)
		b.idle()
	})
}

// The ceiling counts a request when it comes, not when its turn comes: one
// that waits over a boundary is no arrival of the next window, and nobody is
// refused there after having waited.
func TestAHeldRequestArrivesWhenItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(4, 4, 4)
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Minute)
		b := newBank(t, cfg)
		b.until(55 * time.Second)
		b.drain(1, func() *http.Request { return from(bob) })
		first, second := b.arrive("first", fromAlice()), b.arrive("second", fromAlice()) // until 1:05 and 1:15
		if n := arrivals(t, b.l); n != 3 {
			t.Errorf("%d have arrived, want 3: in line or not", n)
		}
		b.until(time.Minute)
		if n := arrivals(t, b.l); n != 0 {
			t.Errorf("%d have arrived in a window that has just begun", n)
		}
		for range 4 {
			b.arrive("fills the window", from("198.51.100.1")).leave()
		}
		first.admittedAt(65 * time.Second)
		second.admittedAt(75 * time.Second)
		if n := arrivals(t, b.l); n != 4 {
			t.Errorf("%d have arrived, want the 4 that came in this window", n)
		}
		b.idle()
	})
}

// Not even a place in line is to be had above the ceiling, whether the request
// would be the first in line or finds one.
func TestTheCeilingRefusesWhomATierWouldHold(t *testing.T) {
	for _, tc := range []struct {
		name  string
		inUse int // that stand in line before it
		rate  float64
		blame string
		wait  int64
	}{
		{"no line, and the ceiling is the longer wait", 0, 0.1, WindowProcess, 60},
		{"no line, and the tier is the longer wait", 0, 0.01, TierGlobal, 100},
		{"a line, and the ceiling is the longer wait", 2, 0.1, WindowProcess, 60},
		{"a line, and the tier is the longer wait", 2, 0.02, TierGlobal, 150},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 1 + tc.inUse
				cfg := windowed(n, n, n)
				cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: tc.rate, Burst: 1}, Duration(time.Hour)
				b := newBank(t, cfg)
				b.drain(1, func() *http.Request { return from(bob) })
				for range tc.inUse {
					b.arrive("in line", from(carol)).held()
				}
				a := b.arrive("above the ceiling", fromAlice())
				a.refusedAt(0, tc.wait)
				if !strings.Contains(a.rec.Body.String(), fmt.Sprintf(`"violated-policies":[%q]`, tc.blame)) {
					t.Errorf("it was refused with %s, want %s blamed", a.rec.Body, tc.blame)
				}
				if got := arrivals(t, b.l); got != n+1 {
					t.Errorf("%d arrivals were counted, want %d", got, n+1)
				}
			})
		})
	}
}

// Whatever else refuses it may have the longer wait, in line or not.
func TestTheLongestWaitIsToldAlsoAboveTheCeilingAndBehindALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(3, 3, 3).with(Endpoint{Class: "free", Limits: map[string]Limit{TierGlobal: {}}})
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Hour)
		cfg.Tiers.PerIP = TierConfig{Rate: 1.0 / 200, Burst: 1, MaxWait: waiting(0)}
		b := newBank(t, cfg)
		b.drain(1, func() *http.Request { return from(bob) })
		b.drain(1, func() *http.Request { return to("free", alice) })
		b.arrive("in line", from(carol)).held()
		a := b.arrive("short of its own, too", fromAlice())
		a.refusedAt(0, 200)
		if !strings.Contains(a.rec.Body.String(), TierPerIP) {
			t.Errorf("it was refused with %s, want its address's tier blamed", a.rec.Body)
		}
	})
}

// In shadow the ceiling tells once of each request that it would have refused
// when it came, however often that asks the store again, and of no other.
func TestTheCeilingInShadowJudgesAHeldRequestAsItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(3, 3, 3)
		cfg.Windows.Exclude = []string{"/"}
		cfg.Shadow = []string{WindowProcess}
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(5*time.Minute)
		b := newBank(t, cfg)
		b.drain(1, fromAlice)
		var all []*arrival
		for range 4 { // the second to the fifth
			all = append(all, b.arrive("held", fromAlice()))
		}
		for i, a := range all {
			a.admittedAt(time.Duration(10*(i+1)) * time.Second)
		}
		if n := b.l.counts.class("api").shadowed[WindowProcess].value(); n != 2 {
			t.Errorf("%d counted as refused by shadow, want the fourth and the fifth", n)
		}
		b.idle()
	})
}

// Limits and length change within a window. What has been counted stays
// counted.
func TestReloadWithinAWindow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*WindowsConfig)
		at     time.Duration // of the reload; 4 of 6 were used at 0:10
		left   int
		wait   int64 // of the next, from then on
	}{
		{"nothing changes", func(*WindowsConfig) {}, 20 * time.Second, 2, 40},
		{"a higher limit gives the difference", func(w *WindowsConfig) { w.PerAddress = 9 }, 20 * time.Second, 5, 40},
		{"a lower limit leaves the rest of it", func(w *WindowsConfig) { w.PerAddress = 5 }, 20 * time.Second, 1, 40},
		{"a limit below the count leaves nothing", func(w *WindowsConfig) { w.PerAddress = 3 }, 20 * time.Second, 0, 40},
		{"a longer window takes the count along", func(w *WindowsConfig) { w.Window = Duration(time.Hour) }, 20 * time.Second, 2, 3580},
		{"a shorter window that the last is in, too", func(w *WindowsConfig) { w.Window = Duration(30 * time.Second) }, 20 * time.Second, 2, 10},
		{"a shorter window that has begun since starts from nothing", func(w *WindowsConfig) { w.Window = Duration(15 * time.Second) }, 20 * time.Second, 6, 10},
		{"in the next window the new limit is whole", func(w *WindowsConfig) { w.PerAddress = 3 }, 65 * time.Second, 3, 55},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(6, 6, 0)
				l := newLimiter(t, cfg)
				h := l.Handler(served)
				time.Sleep(10 * time.Second)
				if admits(h, 4, fromAlice) != 4 {
					t.Fatal("4 of 6 were not admitted")
				}
				time.Sleep(tc.at - 10*time.Second)
				tc.change(&cfg.Windows)
				if err := l.Reload(cfg); err != nil {
					t.Fatal(err)
				}
				left(t, h, tc.left, fromAlice)
				if got := retryAfter(t, refusedBy(t, h, fromAlice(), WindowAddress)); got != tc.wait {
					t.Errorf("Retry-After is %d, want %d", got, tc.wait)
				}
				time.Sleep(time.Duration(tc.wait) * time.Second)
				left(t, h, cfg.Windows.PerAddress, fromAlice)
			})
		})
	}
}

// Windows may be switched on and off, each and all of them.
func TestReloadSwitchesWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(2, 2, 0)
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		h := l.Handler(served)
		reload := func(change func(*Config)) {
			t.Helper()
			change(&cfg)
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		a1 := func() *http.Request { return claiming("a1", alice) }
		left(t, h, 2, a1)
		reload(func(c *Config) { c.Windows.PerSubject = 0 })
		admitted(t, h, a1())
		left(t, h, 2, fromAlice)
		reload(func(c *Config) { c.Windows.Enabled, c.Tiers.Global = false, perHour(1000) })
		admitted(t, h, fromAlice())
		if n := len(l.Snapshot().Tiers); n != 0 {
			t.Errorf("%d keyed tables are left, want none", n)
		}
		reload(func(c *Config) { c.Windows.Enabled, c.Windows.PerSubject, c.Windows.Process = true, 2, 5 })
		left(t, h, 2, a1)
		refusedBy(t, h, from(bob), WindowProcess)
	})
}

// However often the same configuration comes, nobody gets a second budget.
func TestReloadsDuringACrowdGrantNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(40, 40, 400)
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		h := l.Handler(served)
		var passed atomic.Int64
		var crowd sync.WaitGroup
		for i := range 8 {
			crowd.Go(func() {
				for range 50 {
					if i%4 == 3 {
						if err := l.Reload(cfg); err != nil {
							t.Error(err)
						}
						continue
					}
					if send(h, claiming(fmt.Sprint("a", i%2), alice)).Code == http.StatusOK {
						passed.Add(1)
					}
				}
			})
		}
		crowd.Wait()
		if n := passed.Load(); n != 80 || arrivals(t, l) != 300 {
			t.Errorf("%d passed of %d arrivals, want 80 of 300", n, arrivals(t, l))
		}
	})
}

// While the store fails, this process counts: windows as well, and each arrival
// once.
func TestWindowsGoOnWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(3, 3, 5)
		s := newBrokenStore(nil)
		l := newLimiter(t, cfg, WithStore(s))
		h := l.Handler(served)
		if admits(h, 2, fromAlice) != 2 {
			t.Fatal("2 of 3 were not admitted")
		}
		s.breakAs(failAtOnce)
		left(t, h, 3, fromAlice) // a count of its own
		refusedBy(t, h, from(bob), WindowProcess)
		s.repair()
		if n := arrivals(t, l); n != 2 {
			t.Errorf("%d arrivals in the store, want the 2 that it was asked for", n)
		}
		left(t, h, 1, fromAlice)
		s.breakAs(failAtOnce)
		time.Sleep(time.Minute)
		left(t, h, 3, fromAlice)
	})
	t.Run("or lets pass uncounted", func(t *testing.T) {
		cfg := windowed(1, 1, 1)
		cfg.Store.OnError = "allow"
		h := newLimiter(t, cfg, WithStore(newBrokenStore(failAtOnce))).Handler(served)
		if n := admits(h, 10, fromAlice); n != 10 {
			t.Errorf("%d of 10 were admitted, want all", n)
		}
	})
}

// Whoever answers when its turn comes, a held request has arrived before.
func TestAHeldRequestArrivesOnceAlsoIfTheStoreFailsMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(9, 9, 20)
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 1, Burst: 1}, Duration(time.Minute)
		s := newBrokenStore(nil)
		b := newBank(t, cfg, WithStore(s))
		b.drain(1, fromAlice)
		a := b.arrive("held", fromAlice())
		s.breakAs(failAtOnce)
		a.admittedAt(time.Second)
		s.repair()
		if n := arrivals(t, b.l); n != 2 {
			t.Errorf("%d arrivals were counted, want the held one and that before", n)
		}
		if n := counted(t, b.l, WindowAddress, alice); n != 1 {
			t.Errorf("its window has %d, want the one before: the other was counted here", n)
		}
	})
}

// A store that cannot look without spending counts the same.
func TestAStoreThatCannotLookCountsEachArrivalOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(4, 4, 4)
		cfg.Tiers.Global, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Minute)
		s := newLedger()
		b := newBank(t, cfg, WithStore(struct{ store.Store }{s}))
		b.drain(1, fromAlice)
		first, second := b.arrive("first", fromAlice()), b.arrive("second", fromAlice())
		first.admittedAt(10 * time.Second)
		second.admittedAt(20 * time.Second)
		b.arrive("fourth", fromAlice()).admittedAt(30 * time.Second)
		b.arrive("fifth", from(bob)).refusedAt(30*time.Second, 30)
		b.l.peeker = s
		if n := arrivals(t, b.l); n != 5 {
			t.Errorf("%d arrivals were counted, want 5", n)
		}
		b.idle()
	})
}

// A panic in the program's function vouches for nobody.
func TestAFunctionThatPanicsVouchesForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, windowed(9, 2, 0), WithAccount(func(*http.Request) (string, bool) { panic("no database") }))
		left(t, l.Handler(served), 2, fromAlice)
	})
}

// Metrics and snapshot know the windows by their names (requirements M1–M3,
// M8).
func TestWindowsInMetricsAndSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(2, 2, 12)
		cfg.Tiers.MaxKeys = 1000
		reg := prometheus.NewRegistry()
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithRegisterer(reg))
		h := l.Handler(served)
		throttled := func(tier string) float64 {
			t.Helper()
			return metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "api", "tier", tier)
		}
		for _, tier := range windowNames {
			if _, there := classOf(t, l, "api").Throttled[tier]; !there {
				t.Errorf("%s is not counted from the start", tier)
			}
		}
		admits(h, 3, fromAlice)
		admits(h, 5, func() *http.Request { return claiming("a1", alice) })
		admits(h, 2, func() *http.Request { return from(bob) })
		admits(h, 2, func() *http.Request { return from(carol) })
		admits(h, 4, func() *http.Request { return from("198.51.100.1") })
		if a, s, p := throttled(WindowAddress), throttled(WindowSubject), throttled(WindowProcess); a != 1 || s != 3 || p != 4 {
			t.Errorf("address %v, subject %v, process %v refused, want 1, 3, 4", a, s, p)
		}
		for scope, keys := range map[string]float64{WindowAddress: 3, WindowSubject: 1} {
			if got := metric(t, reg, "weir_ratelimit_key_count", "scope", scope); got != keys {
				t.Errorf("%v keys in %s, want %v", got, scope, keys)
			}
			if got := metric(t, reg, "weir_ratelimit_max_keys", "scope", scope); got != 1000 {
				t.Errorf("%s is bounded by %v, want 1000", scope, got)
			}
			if s := tierOf(t, l, scope); float64(s.Keys) != keys || s.MaxKeys != 1000 {
				t.Errorf("the snapshot has %+v", s)
			}
		}
		if got := len(l.Snapshot().Tiers); got != 2 {
			t.Errorf("%d keyed scopes, want 2: the ceiling has no key", got)
		}
		if c := classOf(t, l, "api"); c.Throttled[WindowProcess] != 4 || c.Throttled[WindowSubject] != 3 || c.Admitted != 8 {
			t.Errorf("the snapshot has %+v", c)
		}
		// Ended windows are worth nothing and are given back.
		time.Sleep(time.Minute + 10*time.Minute + 1)
		_ = l.Snapshot() // a look at the size gives places back, if not all at once
		if got := metric(t, reg, "weir_ratelimit_key_count", "scope", WindowAddress); got != 0 {
			t.Errorf("%v keys are held of windows that have long ended", got)
		}
	})
}

// What is not configured leaves no trace (requirement T7).
func TestWindowsThatAreOffLeaveNoTrace(t *testing.T) {
	cfg := noTiersBut(TierGlobal)
	cfg.Windows.PerSubject, cfg.Windows.PerAddress, cfg.Windows.Process = -1, -1, -1 // not looked at
	s := newLedger()
	l := newLimiter(t, cfg, WithStore(s), WithAccount(func(*http.Request) (string, bool) {
		t.Error("somebody asks for the account")
		return "", false
	}))
	admitted(t, l.Handler(served), fromAlice())
	admitted(t, l.Windows(served), fromAlice())
	if n := len(s.limits); n != 1 {
		t.Errorf("%d buckets were touched, want that of all", n)
	}
	if c := classOf(t, l, "api"); len(c.Throttled) != 1 {
		t.Errorf("counted are %v", c.Throttled)
	}
	for _, c := range l.Snapshot().Classes {
		if c.Class == classOther {
			t.Error("requests without a class are counted, by nothing")
		}
	}
}

// A body that takes its time is an arrival when it has come; a client that
// leaves in the middle of it is one too.
func TestAClientThatLeavesInItsBodyHasArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(9, 9, 20)
		cfg.Endpoints = []Endpoint{{Class: "api", Kind: KindACME}}
		cfg.Tiers.PerAccount = perHour(9)
		l := newLimiter(t, cfg)
		r := acmePost("/", alice, "x")
		r.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"protected":"`), broken{}))
		send(l.Handler(served), r)
		if n := arrivals(t, l); n != 1 {
			t.Errorf("%d arrivals were counted, want 1", n)
		}
	})
}

// broken is a connection that was cut.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
