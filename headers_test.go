package weir

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/problem"
	"golang.org/x/crypto/ocsp"
	"golang.org/x/net/html"
)

// What responses tell of limits (requirement W4), and what refusals look like
// to each client (R3), through the chain. How a field is written is tested in
// package quota, how a document in package problem.

// headed is a Config whose responses always carry all fields. Each client has
// a bucket of 10, one a second, and a window of 20.
func headed() Config {
	cfg := windowed(20, 20, 0)
	cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 10}
	cfg.Headers = HeadersConfig{RateLimit: "always", IETF: true}
	return cfg
}

// told is what a response tells: -1 and "" where it says nothing.
type told struct {
	limit, remaining, reset int64  // X-RateLimit-…
	service                 string // RateLimit
	policies                string // RateLimit-Policy
}

var silence = told{-1, -1, -1, "", ""}

var (
	serviceItem = regexp.MustCompile(`^"[a-z_]+";r=[0-9]{1,15};t=[1-9][0-9]{0,9}$`)
	policyList  = regexp.MustCompile(`^"[a-z_]+";q=[0-9]{1,15};w=[1-9][0-9]{0,9}(, "[a-z_]+";q=[0-9]{1,15};w=[1-9][0-9]{0,9})*$`)
)

// tellsOf reads the fields of a response, and claims that what is there is
// well-formed and there once.
func tellsOf(t testing.TB, h http.Header) told {
	t.Helper()
	one := func(key string) string {
		if len(h[key]) > 1 {
			t.Errorf("%s stands %d times: %q", key, len(h[key]), h[key])
		}
		return strings.Join(h[key], ", ")
	}
	number := func(key string) int64 {
		text := one(key)
		if text == "" {
			return -1
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			t.Errorf("%s is %q, want a whole number", key, text)
		}
		return n
	}
	got := told{number("X-Ratelimit-Limit"), number("X-Ratelimit-Remaining"), number("X-Ratelimit-Reset"), one("Ratelimit"), strings.Join(h["Ratelimit-Policy"], ", ")}
	if got.service != "" && !serviceItem.MatchString(got.service) {
		t.Errorf("RateLimit is %q", got.service)
	}
	if got.policies != "" && !policyList.MatchString(got.policies) {
		t.Errorf("RateLimit-Policy is %q", got.policies)
	}
	if (got.limit < 0) != (got.remaining < 0) || (got.limit < 0) != (got.reset < 0) || got.remaining > got.limit {
		t.Errorf("the X-RateLimit fields do not belong together: %+v", got)
	}
	if got.reset >= 0 && got.reset <= time.Now().Unix() {
		t.Errorf("X-RateLimit-Reset is %d, want Unix seconds after %d", got.reset, time.Now().Unix())
	}
	for key := range h {
		if lower := strings.ToLower(key); strings.Contains(lower, "ratelimit") && http.CanonicalHeaderKey(key) != key {
			t.Errorf("%q is not canonical", key)
		}
	}
	return got
}

// outcomes are the ends that a request by alice can come to.
var outcomes = []struct {
	name    string
	change  func(*Config)
	before  int // like requests
	r       func() *http.Request
	status  int
	refusal bool // by a tier or a window
	told    bool // there is a quota to tell of
}{
	{"admitted", nil, 0, fromAlice, 200, false, true},
	{"admitted, HEAD", nil, 0, func() *http.Request { return request("HEAD", "/", alice, "") }, 200, false, true},
	{"admitted from an excluded path, which has a tier", nil, 0, func() *http.Request { return request("GET", "/healthz", alice, "") }, 200, false, true},
	{"refused by a tier", func(c *Config) { c.Tiers.PerIP = perHour(1) }, 1, fromAlice, 429, true, true},
	{"refused by a window", func(c *Config) { c.Windows.PerAddress = 1 }, 1, fromAlice, 429, true, true},
	{"refused by the ceiling", func(c *Config) { c.Windows = WindowsConfig{Enabled: true, PerAddress: 1, Process: 1} }, 1, fromAlice, 429, true, true},
	{"refused before its body was read", func(c *Config) {
		c.Endpoints = []Endpoint{{Class: "order", Kind: KindACME, Pattern: "/order"}}
		c.Tiers.PerAccount, c.Tiers.PerIP = perHour(9), perHour(1)
	}, 1, func() *http.Request { return acmePost("/order", alice, "{}") }, 429, true, true},
	{"shed by a guard", func(c *Config) {
		c.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
		c.Endpoints = []Endpoint{{Class: "api", Guard: "hsm", Mode: ModeFail}}
	}, 0, fromAlice, 503, false, true},
	{"denied", func(c *Config) { c.Deny.Networks = []string{alice} }, 0, fromAlice, 403, false, false},
	{"exempt", func(c *Config) { c.Exempt.Networks = []string{alice} }, 0, fromAlice, 200, false, false},
	{"admitted without a class", func(c *Config) { c.DefaultClass, c.Endpoints = "", []Endpoint{{Class: "api"}} }, 0, fromAlice, 200, false, false},
	{"admitted without a class under a ceiling", func(c *Config) {
		c.DefaultClass, c.Endpoints, c.Windows.Process = "", []Endpoint{{Class: "api"}}, 99
	}, 0, fromAlice, 200, false, true},
	{"met by nothing", func(c *Config) { c.Tiers.PerIP = TierConfig{} }, 0, func() *http.Request { return request("GET", "/healthz", alice, "") }, 200, false, false},
	{"admitted to an OCSP answer", func(c *Config) { c.Endpoints = []Endpoint{{Class: "api", Kind: KindOCSP}} }, 0, fromAlice, 200, false, false},
	{"admitted to a CRL", func(c *Config) { c.Endpoints = []Endpoint{{Class: "api", Kind: KindCRL}} }, 0, fromAlice, 200, false, false},
	{"refused an OCSP answer", func(c *Config) {
		c.Endpoints, c.Tiers.PerIP = []Endpoint{{Class: "api", Kind: KindOCSP}}, perHour(1)
	}, 1, fromAlice, 429, true, true},
	{"refused a CRL", func(c *Config) {
		c.Endpoints, c.Windows.PerAddress = []Endpoint{{Class: "api", Kind: KindCRL}}, 1
	}, 1, fromAlice, 429, true, true},
}

func TestTheSwitchSaysWhichResponsesCarryTheFields(t *testing.T) {
	for _, mode := range []string{"off", "rejected", "always", ""} {
		for _, ietf := range []bool{false, true} {
			for _, tc := range outcomes {
				t.Run(fmt.Sprintf("%q, IETF %v, %s", mode, ietf, tc.name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						cfg := headed()
						cfg.Headers = HeadersConfig{RateLimit: mode, IETF: ietf}
						if tc.change != nil {
							tc.change(&cfg)
						}
						l := newLimiter(t, cfg)
						if tc.status == http.StatusServiceUnavailable {
							if _, err := l.Guard("hsm").Acquire(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
						h := l.Handler(served)
						for range tc.before {
							admitted(t, h, tc.r())
						}
						w := send(h, tc.r())
						if w.Code != tc.status {
							t.Fatalf("it was answered %d, want %d", w.Code, tc.status)
						}
						want := tc.told && (mode == "always" || mode != "off" && tc.refusal)
						got := tellsOf(t, w.Header())
						if (got.limit >= 0) != want {
							t.Errorf("it tells %+v; want the fields: %v", got, want)
						}
						if (got.service != "") != (want && ietf) || (got.policies != "") != (want && ietf) {
							t.Errorf("it tells %+v; want the IETF fields: %v", got, want && ietf)
						}
						// Whatever the switch says.
						if refused := tc.status != http.StatusOK; refused != (w.Header().Get("Retry-After") != "") || refused != (w.Header().Get("Cache-Control") == "no-store") {
							t.Errorf("answered %d with %v", tc.status, w.Header())
						}
					})
				})
			}
		}
	}
}

// at is Unix seconds that long after a bubble begins.
func at(secs int64) int64 { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() + secs }

// On admission the response tells of the tier or window with the fewest
// requests left. On a refusal it tells of the one that refused, though another
// may have less.
func TestTheTightestIsTold(t *testing.T) {
	account := func() *http.Request { return claiming("a1", alice) }
	for _, tc := range []struct {
		name   string
		change func(*Config)
		before int
		r      func() *http.Request
		want   told
	}{
		{"a bucket", nil, 0, fromAlice,
			told{10, 9, at(1), `"per_ip";r=9;t=9`, `"per_ip";q=10;w=10, "address";q=20;w=60`}},
		{"a bucket that is half empty", nil, 4, fromAlice,
			told{10, 5, at(5), `"per_ip";r=5;t=5`, `"per_ip";q=10;w=10, "address";q=20;w=60`}},
		{"an address's window", func(c *Config) { c.Windows.PerAddress = 5 }, 0, fromAlice,
			told{5, 4, at(60), `"address";r=4;t=60`, `"per_ip";q=10;w=10, "address";q=5;w=60`}},
		{"an account's window", func(c *Config) { c.Windows.PerSubject = 5 }, 0, account,
			told{5, 4, at(60), `"subject";r=4;t=60`, `"per_ip";q=10;w=10, "subject";q=5;w=60`}},
		{"an account's bucket", func(c *Config) { c.Tiers.PerAccount = TierConfig{Rate: 0.5, Burst: 3} }, 1, account,
			told{3, 1, at(4), `"per_account";r=1;t=2`, `"per_ip";q=10;w=10, "subject";q=20;w=60, "per_account";q=3;w=6`}},
		{"the ceiling", func(c *Config) { c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = 6, 6, 6 }, 0, account,
			told{6, 5, at(60), `"process";r=5;t=60`, `"process";q=6;w=60, "per_ip";q=10;w=10, "subject";q=6;w=60`}},
		{"of equals the first that is asked", func(c *Config) { c.Windows.PerAddress = 10 }, 0, fromAlice,
			told{10, 9, at(1), `"per_ip";r=9;t=9`, `"per_ip";q=10;w=10, "address";q=10;w=60`}},
		{"requests are counted, not tokens", func(c *Config) {
			c.Endpoints = []Endpoint{{Class: "api", Cost: 4}}
			c.Windows.PerAddress = 5
		}, 0, fromAlice, // 6 tokens are 1 request
			told{10, 6, at(4), `"per_ip";r=6;t=6`, `"per_ip";q=10;w=10, "address";q=5;w=60`}},
		{"a tier in shadow is not there", func(c *Config) { c.Shadow, c.Tiers.Global = []string{TierPerIP}, TierConfig{Rate: 5, Burst: 50} }, 0, fromAlice,
			told{20, 19, at(60), `"address";r=19;t=60`, `"global";q=50;w=10, "address";q=20;w=60`}},
		{"the last one", func(c *Config) { c.Windows.PerAddress = 2 }, 1, fromAlice,
			told{2, 0, at(60), `"address";r=0;t=60`, `"per_ip";q=10;w=10, "address";q=2;w=60`}},

		{"refused by the window", func(c *Config) { c.Windows.PerAddress = 2 }, 2, fromAlice,
			told{2, 0, at(60), `"address";r=0;t=60`, `"per_ip";q=10;w=10, "address";q=2;w=60`}},
		{"refused by the bucket", func(c *Config) { c.Tiers.PerIP = TierConfig{Rate: 0.25, Burst: 2} }, 2, fromAlice,
			told{2, 0, at(8), `"per_ip";r=0;t=4`, `"per_ip";q=2;w=8, "address";q=20;w=60`}},
		{"refused by the ceiling", func(c *Config) {
			c.Windows = WindowsConfig{Enabled: true, Window: Duration(30 * time.Second), PerAddress: 2, Process: 2}
		}, 2, fromAlice,
			told{2, 0, at(30), `"process";r=0;t=30`, `"process";q=2;w=30, "per_ip";q=10;w=10, "address";q=2;w=30`}},
		{"refused by the one with the longer wait, though the other has as little", func(c *Config) {
			c.Windows.PerAddress, c.Tiers.PerIP = 2, TierConfig{Rate: 0.01, Burst: 2}
		}, 2, fromAlice, told{2, 0, at(200), `"per_ip";r=0;t=100`, `"per_ip";q=2;w=200, "address";q=2;w=60`}},
		{"refused for its cost, with more left than the other", func(c *Config) {
			c.Endpoints = []Endpoint{{Class: "api", Cost: 4}}
			c.Windows.PerAddress = 3
		}, 2, fromAlice, // 2 tokens, 2 more needed; the draft's t must not outlast Retry-After
			told{10, 2, at(8), `"per_ip";r=2;t=2`, `"per_ip";q=10;w=10, "address";q=3;w=60`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := headed()
				if tc.change != nil {
					tc.change(&cfg)
				}
				h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(served)
				for range tc.before {
					admitted(t, h, tc.r())
				}
				if got := tellsOf(t, send(h, tc.r()).Header()); got != tc.want {
					t.Errorf("it tells\n%+v, want\n%+v", got, tc.want)
				}
			})
		})
	}
}

// X-RateLimit-Reset is when all is there again, in seconds since 1970, rounded
// up: the boundary, for a window; for a bucket, when it is full.
func TestResetIsUnixTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := headed()
		cfg.Tiers.PerIP = TierConfig{}
		h := newLimiter(t, cfg).Handler(served)
		for _, tc := range []struct {
			at    time.Duration
			reset int64
		}{
			{0, at(60)}, {1, at(60)}, {59*time.Second + 999*time.Millisecond, at(60)}, {time.Minute, at(120)}, {time.Minute + 1, at(120)},
		} {
			time.Sleep(tc.at - time.Since(time.Unix(at(0), 0)))
			if got := tellsOf(t, admitted(t, h, fromAlice()).Header()).reset; got != tc.reset {
				t.Errorf("at %v X-RateLimit-Reset is %d, want %d", tc.at, got, tc.reset)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := headed()
		cfg.Tiers.PerIP = TierConfig{Rate: 0.4, Burst: 3} // a token takes 2.5 s
		h := newLimiter(t, cfg).Handler(served)
		for i, want := range []int64{3, 5, 8} {
			if got := tellsOf(t, admitted(t, h, fromAlice()).Header()).reset; got != at(want) {
				t.Errorf("after %d X-RateLimit-Reset is %d, want %d", i+1, got, at(want))
			}
		}
	})
}

// Stages by hand each tell; what stands in the end is the tightest of all, and
// every policy once.
func TestStagesByHandTellTogether(t *testing.T) {
	for _, tc := range []struct {
		name    string
		address int
		want    told
	}{
		{"the window is the tighter", 5, told{5, 4, at(60), `"address";r=4;t=60`, `"per_ip";q=10;w=10, "address";q=5;w=60`}},
		{"the bucket is the tighter", 20, told{10, 9, at(1), `"per_ip";r=9;t=9`, `"per_ip";q=10;w=10, "address";q=20;w=60`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := headed()
				cfg.Windows.PerAddress = tc.address
				l := newLimiter(t, cfg)
				var info Info
				h := l.ClientIP(l.Tiers(l.Windows(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					info, _ = FromContext(r.Context())
					served(w, r)
				})))))
				w := admitted(t, h, fromAlice())
				if got := tellsOf(t, w.Header()); got != tc.want {
					t.Errorf("it tells\n%+v, want\n%+v", got, tc.want)
				}
				if name, _, _ := strings.Cut(tc.want.service[1:], `"`); info.Tier != name || int64(info.Remaining) != tc.want.remaining || int64(info.Burst) != tc.want.limit {
					t.Errorf("the handler knows of %s, %v of %v", info.Tier, info.Remaining, info.Burst)
				}
			})
		})
	}
}

// A response in which a tier or window in shadow had a part is, to the byte,
// that of a server without it.
func TestShadowIsNotToldOf(t *testing.T) {
	for _, shadow := range [][]string{{TierPerIP}, {WindowAddress}, {WindowProcess}, {TierPerIP, WindowAddress, WindowProcess}} {
		t.Run(strings.Join(shadow, " and "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				with, without := headed(), headed()
				with.Tiers.Global, without.Tiers.Global = TierConfig{Rate: 1, Burst: 4}, TierConfig{Rate: 1, Burst: 4}
				with.Tiers.PerIP, with.Windows.PerAddress, with.Windows.PerSubject, with.Windows.Process = perHour(2), 2, 2, 2
				without.Tiers.PerIP, without.Windows = with.Tiers.PerIP, with.Windows
				with.Shadow = shadow
				if slices.Contains(shadow, TierPerIP) {
					without.Tiers.PerIP = TierConfig{}
				}
				if slices.Contains(shadow, WindowAddress) {
					without.Windows.PerAddress = 1000 // it has no off
					without.Shadow = []string{WindowAddress}
				}
				if slices.Contains(shadow, WindowProcess) {
					without.Windows.Process = 0
				} else if len(without.Shadow) > 0 {
					without.Windows.Process = 0
					with.Windows.Process = 0
				}
				a, b := newLimiter(t, with).Handler(served), newLimiter(t, without).Handler(served)
				for i := range 7 {
					got, want := send(a, fromAlice()), send(b, fromAlice())
					if got.Code != want.Code || !maps.EqualFunc(got.Header(), want.Header(), slices.Equal) || got.Body.String() != want.Body.String() {
						t.Errorf("request %d was answered %d %v %s, want %d %v %s", i, got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
					}
				}
			})
		})
	}
}

// The t of RateLimit is a promise, and Retry-After outranks it: it never says
// more, whatever the cost, the jitter, and the line.
func TestRateLimitNeverOutlastsRetryAfter(t *testing.T) {
	item := regexp.MustCompile(`;t=([0-9]+)$`)
	for seed := range uint64(80) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			cfg := headed()
			cfg.Tiers.PerIP = TierConfig{Rate: 0.01 + rng.Float64(), Burst: 10 + 20*rng.Float64()}
			cfg.Tiers.Global = TierConfig{Rate: 0.01 + rng.Float64(), Burst: 10 + 20*rng.Float64()}
			cfg.Endpoints = []Endpoint{{Class: "api", Cost: rng.Float64() * 10}}
			cfg.RetryJitter = []float64{0, 0.5}[seed%2]
			h := newLimiter(t, cfg).Handler(served)
			for range 60 {
				time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
				w := send(h, fromAlice())
				if w.Code == http.StatusOK {
					continue
				}
				service := tellsOf(t, w.Header()).service
				secs, _ := strconv.ParseInt(item.FindStringSubmatch(service)[1], 10, 64)
				if wait := retryAfter(t, w); secs > wait {
					t.Fatalf("seed %d: RateLimit is %s beside Retry-After %d", seed, service, wait)
				}
			}
		})
	}
}

// A request that was held tells what is left when it is let in.
func TestAHeldRequestTellsWhatIsLeftInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := headed()
		cfg.Tiers.PerIP, cfg.Tiers.MaxWait = TierConfig{Rate: 0.1, Burst: 1}, Duration(time.Minute)
		cfg.Windows.PerSubject, cfg.Windows.PerAddress, cfg.Windows.Process = 9, 9, 9
		b := newBank(t, cfg)
		b.until(55 * time.Second)
		b.drain(1, fromAlice)
		a := b.arrive("a", fromAlice())
		a.admittedAt(65 * time.Second)
		want := told{1, 0, at(75), `"per_ip";r=0;t=10`, `"process";q=9;w=60, "per_ip";q=1;w=10, "address";q=9;w=60`}
		if got := tellsOf(t, a.rec.Header()); got != want {
			t.Errorf("it tells\n%+v, want\n%+v", got, want)
		}
		c := b.arrive("c", fromAlice())
		d := b.arrive("d", fromAlice())
		d.leave()
		<-d.done
		if got := tellsOf(t, d.rec.Header()).limit; got != 1 {
			t.Errorf("whoever leaves the line is told of a limit of %d, want 1", got)
		}
		c.admittedAt(75 * time.Second)
	})
}

// A handler's own fields take the place of ours, and what it deletes is gone.
func TestFieldsOfTheHandlerWin(t *testing.T) {
	for _, tc := range []struct {
		name string
		does func(http.Header)
		want map[string][]string
	}{
		{"it sets one", func(h http.Header) { h.Set("X-RateLimit-Limit", "7") }, map[string][]string{
			"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Remaining": {"9"}}},
		{"it sets all", func(h http.Header) {
			h.Set("X-RateLimit-Limit", "7")
			h.Set("X-RateLimit-Remaining", "6")
			h.Set("X-RateLimit-Reset", "5")
			h.Set("RateLimit", `"own";r=6`)
			h.Set("RateLimit-Policy", `"own";q=7`)
		}, map[string][]string{
			"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Remaining": {"6"}, "X-Ratelimit-Reset": {"5"},
			"Ratelimit": {`"own";r=6`}, "Ratelimit-Policy": {`"own";q=7`}}},
		{"it deletes them", func(h http.Header) {
			for key := range h {
				h.Del(key)
			}
		}, map[string][]string{"X-Ratelimit-Limit": nil, "Ratelimit": nil, "Ratelimit-Policy": nil}},
		{"it replaces the whole map", func(h http.Header) {
			clear(h)
			h["X-Ratelimit-Limit"] = []string{"7"}
		}, map[string][]string{"X-Ratelimit-Limit": {"7"}, "X-Ratelimit-Reset": nil}},
		{"its Retry-After stays (RFC 7030 has one under a 202)", func(h http.Header) { h.Set("Retry-After", "600") }, map[string][]string{
			"Retry-After": {"600"}, "X-Ratelimit-Limit": {"10"}}},
		{"its Cache-Control stays", func(h http.Header) { h.Set("Cache-Control", "max-age=60") }, map[string][]string{
			"Cache-Control": {"max-age=60"}, "X-Ratelimit-Limit": {"10"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLimiter(t, headed()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tc.does(w.Header()) }))
				for range 2 { // nothing of one response reaches the next
					w := send(h, from(bob))
					for key, want := range tc.want {
						if got := w.Header()[key]; key != "X-Ratelimit-Remaining" && !slices.Equal(got, want) {
							t.Errorf("%s is %q, want %q", key, got, want)
						}
					}
				}
			})
		})
	}
}

// To write into a value in place must not reach another response.
func TestResponsesShareNoValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimiter(t, headed()).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for key, values := range w.Header() {
				if len(values) != 1 || values[0] == "spoilt" {
					t.Errorf("%s is %q", key, values)
				}
				w.Header()[key] = append(values, "more")
				values[0] = "spoilt"
			}
		}))
		for range 3 {
			send(h, fromAlice())
		}
	})
}

// Two Limiters around one handler: the client is told of the quota that is used
// up first, and of every policy; nothing stands twice.
func TestNestedLimitersTellTogether(t *testing.T) {
	limiter := func(t *testing.T, tier TierConfig, mode string, ietf bool) *Limiter {
		cfg := noTiers()
		cfg.Tiers.PerIP, cfg.Headers = tier, HeadersConfig{RateLimit: mode, IETF: ietf}
		return newLimiter(t, cfg)
	}
	small, large := TierConfig{Rate: 1, Burst: 3}, TierConfig{Rate: 1, Burst: 30}
	for _, tc := range []struct {
		name                 string
		outer, inner         TierConfig
		outerMode, innerMode string
		outerIETF, innerIETF bool
		want                 told
	}{
		{"the outer is the tighter", small, large, "always", "always", true, true,
			told{3, 2, at(1), `"per_ip";r=2;t=2`, `"per_ip";q=3;w=3, "per_ip";q=30;w=30`}},
		{"the inner is the tighter", large, small, "always", "always", true, true,
			told{3, 2, at(1), `"per_ip";r=2;t=2`, `"per_ip";q=30;w=30, "per_ip";q=3;w=3`}},
		{"the same twice", small, small, "always", "always", true, true,
			told{3, 2, at(1), `"per_ip";r=2;t=2`, `"per_ip";q=3;w=3`}},
		{"only the outer tells", large, small, "always", "off", true, true,
			told{30, 29, at(1), `"per_ip";r=29;t=29`, `"per_ip";q=30;w=30`}},
		{"only the inner tells", large, small, "rejected", "always", true, true,
			told{3, 2, at(1), `"per_ip";r=2;t=2`, `"per_ip";q=3;w=3`}},
		{"without the IETF fields", large, small, "always", "always", false, false, told{3, 2, at(1), "", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outer, inner := limiter(t, tc.outer, tc.outerMode, tc.outerIETF), limiter(t, tc.inner, tc.innerMode, tc.innerIETF)
				h := outer.Handler(inner.Handler(served))
				w := admitted(t, h, fromAlice())
				if policies := w.Header()["Ratelimit-Policy"]; len(policies) > 1 {
					w.Header()["Ratelimit-Policy"] = []string{strings.Join(policies, ", ")} // lines of one list
				}
				if got := tellsOf(t, w.Header()); got != tc.want {
					t.Errorf("it tells\n%+v, want\n%+v", got, tc.want)
				}
			})
		})
	}
	t.Run("a refusal by the inner one tells of that", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			outer, inner := limiter(t, large, "always", true), limiter(t, small, "rejected", true)
			h := outer.Handler(inner.Handler(served))
			for range 3 {
				admitted(t, h, fromAlice())
			}
			w := refused(t, h, fromAlice())
			if got := tellsOf(t, w.Header()); got.limit != 3 || got.remaining != 0 || got.service != `"per_ip";r=0;t=1` {
				t.Errorf("it tells %+v", got)
			}
		})
	})
}

// On the wire: what HEAD, 304, ranges, streams and hijacked connections need
// is as it was, with the fields where there is a header to put them in.
func TestFieldsOnTheWire(t *testing.T) {
	cfg := headed()
	cfg.Tiers.PerIP = TierConfig{Rate: 1000, Burst: 1e6}
	cfg.Windows.PerAddress = 1e6 - 1
	l := newLimiter(t, cfg)
	crl := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", `"1"`)
		http.ServeContent(w, r, "crl.pem", time.Unix(1e9, 0), strings.NewReader("0123456789"))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/file", crl)
	goOn := make(chan struct{})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-goOn
		_, _ = io.WriteString(w, "second\n")
	})
	mux.HandleFunc("/hijack", func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nraw")
		_ = buf.Flush()
		_ = conn.Close()
	})
	mux.HandleFunc("/informed", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNoContent)
	})
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(l.Handler(mux))
			p.start(srv)
			defer srv.Close()
			ask := func(t *testing.T, method, path string, header ...string) *http.Response {
				t.Helper()
				r, _ := http.NewRequest(method, srv.URL+path, nil)
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				resp, err := srv.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() })
				return resp
			}
			body := func(resp *http.Response) string {
				b, _ := io.ReadAll(resp.Body)
				return string(b)
			}
			for _, tc := range []struct {
				method string
				header []string
				status int
				length int64
				body   string
			}{
				{"GET", nil, 200, 10, "0123456789"},
				{"HEAD", nil, 200, 10, ""},
				{"GET", []string{"If-None-Match", `"1"`}, 304, 0, ""},
				{"HEAD", []string{"If-None-Match", `"1"`}, 304, 0, ""},
				{"GET", []string{"Range", "bytes=2-4"}, 206, 3, "234"},
			} {
				resp := ask(t, tc.method, "/file", tc.header...)
				if got := body(resp); resp.StatusCode != tc.status || got != tc.body || tc.status != 304 && resp.ContentLength != tc.length {
					t.Errorf("%s with %v is answered %s, %d bytes, %q", tc.method, tc.header, resp.Status, resp.ContentLength, got)
				}
				if got := tellsOf(t, resp.Header); got.limit != 1e6-1 || got.service == "" {
					t.Errorf("%s with %v tells %+v", tc.method, tc.header, got)
				}
			}
			t.Run("a stream", func(t *testing.T) {
				resp := ask(t, "GET", "/stream")
				lines := bufio.NewReader(resp.Body)
				first, _ := lines.ReadString('\n')
				goOn <- struct{}{} // the header and this part came while the handler was at work
				second, _ := lines.ReadString('\n')
				if first+second != "first\nsecond\n" || tellsOf(t, resp.Header).limit < 0 {
					t.Errorf("read %q and %q under %v", first, second, resp.Header)
				}
			})
			t.Run("no content after a hint", func(t *testing.T) {
				if resp := ask(t, "GET", "/informed"); resp.StatusCode != 204 || tellsOf(t, resp.Header).limit < 0 {
					t.Errorf("%s under %v", resp.Status, resp.Header)
				}
			})
			if p.major == 1 {
				t.Run("a hijacked connection", func(t *testing.T) {
					if resp := ask(t, "GET", "/hijack"); body(resp) != "" && tellsOf(t, resp.Header) != silence {
						t.Errorf("the handler's own answer carries %v", resp.Header)
					}
				})
			}
		})
	}
}

// A proxy adds what its backend sent to what stands. ModifyResponse is where
// one of the two is dropped, as the package documentation says.
func TestAProxyDropsWhatItsBackendTells(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "7")
		w.Header().Set("Served", "yes")
	}))
	defer backend.Close()
	target, _ := url.Parse(backend.URL)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ModifyResponse = func(resp *http.Response) error {
		resp.Header.Del("X-RateLimit-Limit")
		return nil
	}
	h := newLimiter(t, headed()).Handler(proxy)
	if got := tellsOf(t, admitted(t, h, request("GET", "http://ca.example/", alice, "")).Header()).limit; got != 10 {
		t.Errorf("X-RateLimit-Limit is %d, want ours", got)
	}
}

// refusalWays are the ways to be refused, each with a Config in which the next
// request by alice of class "it" is.
var refusalWays = []struct {
	name   string
	change func(*Config)
	status int
	before int
}{
	{"by a tier", func(c *Config) { c.Tiers.PerIP = perHour(1) }, 429, 1},
	{"by a window", func(c *Config) { c.Windows.PerAddress = 1 }, 429, 1},
	{"by the ceiling", func(c *Config) { c.Windows = WindowsConfig{Enabled: true, PerAddress: 1, Process: 1} }, 429, 1},
	{"by the deny list", func(c *Config) { c.Deny.Networks = []string{alice} }, 403, 0},
	{"by a guard", func(c *Config) { c.Endpoints[0].Guard, c.Endpoints[0].Mode = "hsm", ModeFail }, 503, 0},
}

// onEachRefusal has alice refused in every way, for a kind of endpoint.
func onEachRefusal(t *testing.T, kind Kind, r func() *http.Request, claim func(t *testing.T, status int, w *httptest.ResponseRecorder)) {
	for _, way := range refusalWays {
		t.Run(string(kind)+" refused "+way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := headed()
				cfg.Endpoints = []Endpoint{{Class: "it", Pattern: "/it", Kind: kind}}
				cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
				way.change(&cfg)
				l := newLimiter(t, cfg, WithHelp("https://ca.example/limits"))
				if _, err := l.Guard("hsm").Acquire(t.Context()); err != nil {
					t.Fatal(err)
				}
				h := l.Handler(served)
				for range way.before {
					admitted(t, h, r())
				}
				w := send(h, r())
				if w.Header().Get("Served") != "" {
					t.Fatal("it was let in")
				}
				claim(t, way.status, w)
			})
		})
	}
}

// Every refusal carries a Retry-After, may be kept by nobody, and is a document
// that a parser of its format takes; that of HEAD is empty.
func TestEveryRefusalIsADocumentOfItsProtocol(t *testing.T) {
	readJSON := func(t *testing.T, status int, w *httptest.ResponseRecorder) {
		var doc struct {
			Type, Detail string
			Status       int
		}
		d := json.NewDecoder(w.Body)
		if err := d.Decode(&doc); err != nil || doc.Status != status || doc.Detail == "" || d.More() {
			t.Errorf("the document is %+v, %v", doc, err)
		}
	}
	readText := func(t *testing.T, _ int, w *httptest.ResponseRecorder) {
		if text := w.Body.String(); !strings.HasSuffix(text, ".\n") || strings.ContainsAny(text, "<>{}\r") {
			t.Errorf("the text is %q", text)
		}
	}
	readHTML := func(t *testing.T, status int, w *httptest.ResponseRecorder) {
		root, err := html.Parse(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		titles := 0
		for node := range root.Descendants() {
			switch {
			case node.Type == html.TextNode && node.Parent.Data != "style":
				text.WriteString(node.Data)
			case node.Type == html.ElementNode && node.Data == "title":
				titles++
			case node.Type == html.ElementNode && slices.Contains([]string{"script", "img", "link", "iframe"}, node.Data):
				t.Errorf("the page has a %s", node.Data)
			}
		}
		if titles != 1 || !strings.Contains(text.String(), fmt.Sprint(status)) {
			t.Errorf("the page has %d titles and says %q", titles, text.String())
		}
	}
	for _, tc := range []struct {
		kind   Kind
		accept string
		typ    string
		read   func(*testing.T, int, *httptest.ResponseRecorder)
	}{
		{KindACME, "", "application/problem+json", readJSON},
		{KindAPI, "", "application/problem+json", readJSON},
		{KindAPI, "*/*", "application/problem+json", readJSON},
		{KindAPI, "text/html;q=0.1, application/json", "application/problem+json", readJSON},
		{KindAPI, "text/html", "text/html; charset=utf-8", readHTML},
		{KindAPI, "text/plain", "text/plain; charset=utf-8", readText},
		{KindPage, "text/html,application/xhtml+xml,*/*;q=0.8", "text/html; charset=utf-8", readHTML},
		{KindPage, "", "application/problem+json", readJSON}, // browsers say what they want
		{KindPage, "application/json", "application/problem+json", readJSON},
		{KindEST, "text/html", "text/plain; charset=utf-8", readText},
		{KindSCEP, "", "text/plain; charset=utf-8", readText},
		{KindCRL, "text/html", "text/plain; charset=utf-8", readText},
		{KindOCSP, "text/html", "application/ocsp-response", func(t *testing.T, _ int, w *httptest.ResponseRecorder) {
			if _, err := ocsp.ParseResponse(w.Body.Bytes(), nil); err != (ocsp.ResponseError{Status: ocsp.TryLater}) {
				t.Errorf("an OCSP client reads %v", err)
			}
		}},
		{KindS3, "text/html", "application/xml", func(t *testing.T, _ int, w *httptest.ResponseRecorder) {
			var doc struct {
				XMLName                            xml.Name
				Code, Message, Resource, RequestId string
			}
			if err := xml.NewDecoder(w.Body).Decode(&doc); err != nil || doc.XMLName.Local != "Error" || doc.Code == "" || doc.Resource != "/it" {
				t.Errorf("the document is %+v, %v", doc, err)
			}
		}},
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			r := func() *http.Request {
				r := request(method, "/it", alice, "")
				if tc.accept != "" {
					r.Header.Set("Accept", tc.accept)
				}
				return r
			}
			t.Run(fmt.Sprintf("%s, Accept %q", method, tc.accept), func(t *testing.T) {
				onEachRefusal(t, tc.kind, r, func(t *testing.T, status int, w *httptest.ResponseRecorder) {
					h := w.Header()
					if tc.kind == KindS3 && status == http.StatusTooManyRequests {
						status = http.StatusServiceUnavailable // what S3 clients retry
					}
					if w.Code != status || h.Get("Content-Type") != tc.typ || h.Get("X-Content-Type-Options") != "nosniff" {
						t.Errorf("answered %d under %v", w.Code, h)
					}
					if got := h["Cache-Control"]; !slices.Equal(got, []string{"no-store"}) {
						t.Errorf("Cache-Control is %q", got)
					}
					for _, key := range []string{"Etag", "Expires", "Last-Modified", "Age"} {
						if h.Get(key) != "" {
							t.Errorf("%s is %q", key, h.Get(key))
						}
					}
					_ = retryAfter(t, w)
					_ = tellsOf(t, h)
					if method == "HEAD" {
						if w.Body.Len() > 0 || h.Get("Content-Length") == "" || h.Get("Content-Length") == "0" {
							t.Errorf("%d bytes for HEAD, Content-Length %q", w.Body.Len(), h.Get("Content-Length"))
						}
						return
					}
					if h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
						t.Errorf("Content-Length is %q for %d bytes", h.Get("Content-Length"), w.Body.Len())
					}
					tc.read(t, status, w)
				})
			})
		}
	}
}

// A writer of the program's own finds the fields set, and may drop them.
func TestAWriterOfOnesOwnFindsTheFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := headed()
		cfg.Windows.PerAddress = 1
		var found told
		h := newLimiter(t, cfg, WithRejection(KindAPI, func(w http.ResponseWriter, r *http.Request, rej problem.Rejection) {
			found = tellsOf(t, w.Header())
			w.Header().Del("X-RateLimit-Limit")
			problem.Empty(w, r, rej)
		})).Handler(served)
		admitted(t, h, fromAlice())
		w := refused(t, h, fromAlice())
		if found.limit != 1 || found.service != `"address";r=0;t=60` || w.Header().Get("X-RateLimit-Limit") != "" {
			t.Errorf("it found %+v and sent %v", found, w.Header())
		}
	})
}

// Whatever an Accept field says, the refusal is one of three documents, sound
// and without a word of it.
func FuzzAccept(f *testing.F) {
	for _, accept := range []string{
		"", "*/*", "text/html", "text/html;q=0.1, application/json", ";;;", ",", "text/*;q=0", "text/html;q=1.5", "text/html;q=-1",
		"a/b;q=\"x,y\"", "text/html;level=1;q=.5", "application/problem+json;q=0.001, */*;q=0", "TEXT/HTML", "text/html\x00", "\xff/\xfe",
		strings.Repeat("text/html,", 2000), strings.Repeat("a/b;q=0.", 5000), "q=1", "text/ html", "*/*;q=0",
	} {
		f.Add(accept, "GET")
		f.Add(accept, "HEAD")
	}
	cfg := headed()
	cfg.Tiers.PerIP, cfg.Windows.PerAddress = perHour(1), 1
	cfg.Endpoints = []Endpoint{{Class: "page", Pattern: "/page", Kind: KindPage}, {Class: "acme", Pattern: "/acme", Kind: KindACME}}
	h := newLimiter(f, cfg).Handler(served)
	send(h, fromAlice())
	f.Fuzz(func(t *testing.T, accept, method string) {
		for _, path := range []string{"/", "/page", "/acme"} {
			r := fromAlice()
			r.Method, r.URL.Path = method, path
			r.Header["Accept"] = []string{accept, accept}
			w := send(h, r)
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Cache-Control") != "no-store" {
				t.Fatalf("answered %d under %v", w.Code, w.Header())
			}
			body := w.Body.Bytes()
			switch typ := w.Header().Get("Content-Type"); {
			case method == "HEAD":
				if len(body) > 0 {
					t.Fatalf("HEAD is answered with %q", body)
				}
			case typ == "application/problem+json":
				if !json.Valid(body) {
					t.Fatalf("no JSON: %q", body)
				}
			case typ == "text/html; charset=utf-8" && path != "/acme":
				if _, err := html.Parse(bytes.NewReader(body)); err != nil || !bytes.HasPrefix(body, []byte("<!")) {
					t.Fatalf("no page: %v: %q", err, body)
				}
			case typ == "text/plain; charset=utf-8" && path == "/":
			default:
				t.Fatalf("%s of type %q", path, typ)
			}
			_ = retryAfter(t, w)
		}
	})
}
