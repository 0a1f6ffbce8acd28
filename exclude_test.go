package weir

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
)

// Who is outside: paths that the keyed windows do not count (requirement W5),
// and the lists of who is never limited and who always refused (requirement
// T12).

// excludedBy reports whether a request was let through uncounted, and claims
// that it has arrived all the same.
func excludedBy(t testing.TB, l *Limiter, r *http.Request) bool {
	t.Helper()
	window, arrived := counted(t, l, WindowAddress, alice), arrivals(t, l)
	admitted(t, l.Handler(served), r)
	if n := arrivals(t, l) - arrived; n != 1 {
		t.Errorf("%s %s is %d arrivals, want 1", r.Method, r.URL, n)
	}
	return counted(t, l, WindowAddress, alice) == window
}

func TestDefaultExclusions(t *testing.T) {
	for _, tc := range []struct {
		method, target string
		want           bool
	}{
		{"GET", "/healthz", true},
		{"GET", "/livez", true},
		{"GET", "/readyz", true},
		{"GET", "/metrics", true},
		{"GET", "/favicon.ico", true},
		{"GET", "/robots.txt", true},
		{"HEAD", "/healthz", true},
		{"HEAD", "/metrics", true},
		{"GET", "/healthz?verbose=1", true},
		{"GET", "/%68ealthz", true}, // the same path, spelled in another way
		{"GET", "http://ca.example/healthz", true},

		{"POST", "/healthz", false},
		{"PUT", "/metrics", false},
		{"OPTIONS", "/readyz", false},
		{"get", "/healthz", false},
		{"GET", "/healthz/", false},
		{"GET", "/healthz/x", false},
		{"GET", "/Healthz", false},
		{"GET", "/health", false},
		{"GET", "/healthz%2F", false},
		{"GET", "/healthz%00", false},
		{"GET", "/api/healthz", false},
		{"GET", "/", false},
		{"GET", "/acme/directory", false},
		{"OPTIONS", "*", false},
		// ServeMux would send these to /healthz; what is behind may serve them
		// as something else, for free.
		{"GET", "//healthz", false},
		{"GET", "/./healthz", false},
		{"GET", "/x/../healthz", false},
		{"GET", "/acme/new-order/../../healthz", false},
	} {
		t.Run(tc.method+" "+tc.target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, windowed(9, 9, 20))
				if got := excludedBy(t, l, request(tc.method, tc.target, alice, "")); got != tc.want {
					t.Errorf("excluded: %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// Patterns of one's own are those of ServeMux, and lead nowhere but where they
// say: what stands outside is not a way in.
func TestExclusionsOfOnesOwn(t *testing.T) {
	patterns := []string{"/assets/", "GET /openapi.json", "GET /docs/{page}", "static.example/", "GET /one%2Fsegment", "/exact/{$}"}
	for _, tc := range []struct {
		method, target string
		want           bool
	}{
		{"GET", "/assets/app.js", true},
		{"POST", "/assets/app.js", true},
		{"GET", "/assets/", true},
		{"GET", "/assets/a/b/c.css", true},
		{"GET", "/assets/a%20b.png", true},
		{"GET", "/assets/a%2Fb.png", true},
		{"GET", "/assets/..hidden", true},
		{"GET", "/openapi.json", true},
		{"GET", "/docs/limits", true},
		{"GET", "http://static.example/anything", true},
		{"GET", "/exact/", true},

		{"GET", "/assets", false},
		{"GET", "/assetsx/app.js", false},
		{"POST", "/openapi.json", false},
		{"GET", "/docs/", false},
		{"GET", "/docs/a/b", false},
		{"GET", "/docs/a%2Fb", false}, // one segment to a ServeMux, two to others
		{"GET", "/one%2Fsegment", false},
		{"GET", "/one/segment", false},
		{"GET", "/exact/x", false},
		{"GET", "http://static.example.evil/anything", false},
		{"GET", "/healthz", false}, // the list replaces the default

		{"GET", "/assets/app.js;x=1", false}, // which servlet containers cut off
		{"GET", "/assets/a%3Bb", false},
		{"GET", "/assets/a\\app.js", false},
		{"GET", "/assets//acme/new-order", false},
		{"GET", "/assets/%2Facme/new-order", false},
		{"GET", "//assets/app.js", false},
		{"GET", "/assets%2Fapp.js", false},
	} {
		t.Run(tc.method+" "+tc.target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(9, 9, 20)
				cfg.Windows.Exclude = patterns
				cfg.Endpoints = []Endpoint{{Class: "order", Pattern: "/acme/new-order"}}
				l := newLimiter(t, cfg)
				if got := excludedBy(t, l, request(tc.method, tc.target, alice, "")); got != tc.want {
					t.Errorf("excluded: %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// The defaults are there to be extended, and a list that is empty excludes
// nothing.
func TestExclusionsExtendReplaceAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(9, 9, 99)
		l := newLimiter(t, cfg)
		excluded := func(target string, want bool) {
			t.Helper()
			if got := excludedBy(t, l, request("GET", target, alice, "")); got != want {
				t.Errorf("%s excluded: %v, want %v", target, got, want)
			}
		}
		reload := func(patterns ...string) {
			t.Helper()
			cfg.Windows.Exclude = patterns
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		excluded("/healthz", true)
		excluded("/app.js", false)
		reload(append(DefaultConfig().Windows.Exclude, "/app.js")...)
		excluded("/healthz", true)
		excluded("/app.js", true)
		reload()
		excluded("/healthz", false)
		for _, all := range []string{"/", "/{path...}"} {
			reload(all)
			excluded("/anything", true)
			excluded("/", true)
		}
		if got := len(DefaultConfig().Windows.Exclude); got != 6 {
			t.Errorf("the defaults have %d patterns, want 6: somebody has written into them", got)
		}
	})
}

// Outside the keyed windows is not outside everything.
func TestExcludedRequestsStillMeetTheRest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		status int
		blame  string
	}{
		{"a tier", func(c *Config) { c.Tiers.PerIP = perHour(1) }, 429, TierPerIP},
		{"the ceiling", func(c *Config) { c.Windows.Process, c.Windows.PerSubject, c.Windows.PerAddress = 1, 1, 1 }, 429, WindowProcess},
		{"the deny list", func(c *Config) { c.Deny.Networks = []string{bob} }, 403, ""},
		{"neither window", func(c *Config) { c.Windows.PerSubject, c.Windows.PerAddress = 1, 1 }, 200, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(9, 9, 20)
				tc.change(&cfg)
				h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(served)
				probe := func() *http.Request { return request("GET", "/healthz", bob, "") }
				w := send(h, probe())
				if tc.status != http.StatusForbidden && w.Code != http.StatusOK {
					t.Fatalf("the first was answered %d", w.Code)
				}
				switch tc.status {
				case 429:
					refusedBy(t, h, probe(), tc.blame)
				case 403:
					denied(t, h, probe())
				case 200:
					for range 5 {
						admitted(t, h, probe())
						admitted(t, h, withHeader(probe(), "Account", "a1"))
					}
				}
			})
		})
	}
}

// Whichever way it is wired, the request's own path decides.
func TestExclusionsHoldForEveryWiring(t *testing.T) {
	for name, wrap := range map[string]func(*Limiter, http.Handler) http.Handler{
		"Protect": func(l *Limiter, next http.Handler) http.Handler { return l.Protect("api", next) },
		"Windows": (*Limiter).Windows,
		"stages":  func(l *Limiter, next http.Handler) http.Handler { return l.ClientIP(l.Tiers(l.Windows(next))) },
		"a prefix cut off inside": func(l *Limiter, next http.Handler) http.Handler {
			return l.Handler(http.StripPrefix("/healthz", l.Handler(next)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, windowed(1, 1, 0))
				h := wrap(l, served)
				for range 3 {
					admitted(t, h, request("GET", "/healthz", alice, ""))
				}
			})
		})
	}
}

// The lists are asked before anything is spent, and each has its own metric.
func TestListsAreAskedBeforeWindowsSpend(t *testing.T) {
	lists := func(c *Config) {
		c.Exempt = ExemptConfig{Networks: []string{"198.51.100.0/24"}, Accounts: []string{"monitor"}, Classes: []Class{"crl"}}
		c.Deny = DenyConfig{Networks: []string{"203.0.113.0/24"}, Accounts: []string{"thief"}}
	}
	est := func(user, addr string) func() *http.Request {
		return func() *http.Request {
			r := request("POST", "/est", addr, "")
			r.SetBasicAuth(user, "guess")
			return r
		}
	}
	for _, tc := range []struct {
		name    string
		r       func() *http.Request
		status  int
		exempt  uint64
		denied  uint64
		subject int // counted for "monitor", "thief" and "a1" together
		address int // counted for the request's own
	}{
		{"an exempt network", func() *http.Request { return from("198.51.100.1") }, 200, 3, 0, 0, 0},
		{"an exempt network with an account", func() *http.Request { return claiming("a1", "198.51.100.1") }, 200, 3, 0, 0, 0},
		{"an exempt class", func() *http.Request { return request("GET", "/crl", alice, "") }, 200, 3, 0, 0, 0},
		{"an exempt account", func() *http.Request { return claiming("monitor", alice) }, 200, 3, 0, 0, 0},
		{"a mere claim to be exempt", est("monitor", alice), 200, 0, 0, 0, 3},
		{"a denied network", func() *http.Request { return from("203.0.113.1") }, 403, 0, 3, 0, 0},
		{"a denied network with an exempt account", func() *http.Request { return claiming("monitor", "203.0.113.1") }, 403, 0, 3, 0, 0},
		{"a denied account", func() *http.Request { return claiming("thief", alice) }, 403, 0, 3, 0, 0},
		{"a denied account from an exempt network", func() *http.Request { return claiming("thief", "198.51.100.1") }, 403, 0, 3, 0, 0},
		{"a denied account of an exempt class", func() *http.Request { return withHeader(request("GET", "/crl", alice, ""), "Account", "thief") }, 403, 0, 3, 0, 0},
		{"a mere claim to be denied", est("thief", alice), 403, 0, 3, 0, 0},
		{"an excluded path of a denied network", func() *http.Request { return request("GET", "/healthz", "203.0.113.1", "") }, 403, 0, 3, 0, 0},
		{"somebody else", func() *http.Request { return claiming("a1", alice) }, 200, 0, 0, 3, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := windowed(5, 5, 0)
				cfg.Endpoints = []Endpoint{{Class: "crl", Kind: KindCRL, Pattern: "/crl"}, {Class: "est", Kind: KindEST, Pattern: "/est"}}
				lists(&cfg)
				s, reg := newLedger(), prometheus.NewRegistry()
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithStore(s), WithRegisterer(reg))
				for range 3 {
					if w := send(l.Handler(served), tc.r()); w.Code != tc.status {
						t.Fatalf("it was answered %d, want %d", w.Code, tc.status)
					}
				}
				class := "api"
				if path := tc.r().URL.Path; path == "/crl" || path == "/est" {
					class = path[1:]
				}
				c := classOf(t, l, Class(class))
				if c.Exempt != tc.exempt || c.Denied != tc.denied {
					t.Errorf("%d exempt and %d denied were counted, want %d and %d", c.Exempt, c.Denied, tc.exempt, tc.denied)
				}
				if got := metric(t, reg, "weir_ratelimit_exempt_total", "endpoint", class); got != float64(tc.exempt) {
					t.Errorf("the metric of the exempt is %v, want %d", got, tc.exempt)
				}
				if got := metric(t, reg, "weir_ratelimit_denied_total", "endpoint", class); got != float64(tc.denied) {
					t.Errorf("the metric of the denied is %v, want %d", got, tc.denied)
				}
				address, _, _ := net.SplitHostPort(tc.r().RemoteAddr)
				subject := counted(t, l, WindowSubject, "monitor") + counted(t, l, WindowSubject, "thief") + counted(t, l, WindowSubject, "a1")
				if n := counted(t, l, WindowAddress, address); n != tc.address || subject != tc.subject {
					t.Errorf("the windows have %d of accounts and %d of addresses, want %d and %d", subject, n, tc.subject, tc.address)
				}
				if asked := s.asked("admit"); tc.exempt+tc.denied > 0 && asked != 0 {
					t.Errorf("the store was asked %d times, want not at all", asked)
				}
			})
		})
	}
}

// Lists change with the next request.
func TestListsAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(1, 1, 0)
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		left(t, h, 1, fromAlice)
		for _, step := range []struct {
			change func(*Config)
			status int
		}{
			{func(c *Config) { c.Exempt.Networks = []string{alice} }, 200},
			{func(c *Config) { c.Deny.Networks = []string{alice} }, 403}, // denied goes before exempt
			{func(c *Config) { c.Exempt.Networks, c.Deny.Networks = nil, nil }, 429},
		} {
			step.change(&cfg)
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
			if w := send(h, fromAlice()); w.Code != step.status {
				t.Errorf("it was answered %d, want %d", w.Code, step.status)
			}
		}
	})
}

// What is denied is denied before a body is read, where that can be known.
func TestDeniedRequestsKeepTheirBodyUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := windowed(9, 9, 20)
		cfg.Endpoints = []Endpoint{{Class: "order", Kind: KindACME, Pattern: order}}
		cfg.Tiers.PerAccount = perHour(9)
		cfg.Deny = DenyConfig{Networks: []string{alice}, Accounts: []string{"thief"}}
		h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(served)
		for _, r := range []*http.Request{acmePost(order, alice, "x"), withHeader(acmePost(order, bob, "x"), "Account", "thief")} {
			r.Body = unread{t}
			denied(t, h, r)
		}
	})
}

// To look at the first segment before the ServeMux is asked changes no answer.
func TestExclusionsAreThoseOfTheServeMux(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	pick := func(list ...string) string { return list[rng.IntN(len(list))] }
	segment := func() string {
		return pick("a", "b", "c", "%61", "a%2Fb", "%7Bx%7D", "a b", "ä", ".", "..", "")
	}
	found := 0
	for range 20_000 {
		var patterns []string
		for mux := http.NewServeMux(); len(patterns) < 1+rng.IntN(3); {
			p := pick("", "GET ", "POST ") + pick("", "", "example.com") + "/" +
				pick("a", "b", "%61", "a%2Fb", "%7Bx%7D", "{x}", "{$}", "{rest...}", "") + pick("", "", "/", "/{y}", "/b")
			if register(mux, p) == nil {
				patterns = append(patterns, p)
			} else {
				mux = http.NewServeMux()
				patterns = nil
			}
		}
		x := newExclusions(patterns)
		all := exclusions{mux: x.mux}
		for range 20 {
			target := "/" + segment() + pick("", "/", "/"+segment(), "//"+segment())
			r := &http.Request{Method: pick("GET", "POST", "HEAD", "CONNECT"), Host: pick("", "example.com", "other.example"), URL: &url.URL{Path: target}}
			if u, err := url.ParseRequestURI(target); err == nil && rng.IntN(2) == 0 {
				r.URL = u
			}
			want := all.have(r)
			if got := x.have(r); got != want {
				t.Fatalf("%s %s%s (raw %q) is outside %q: %v, by the ServeMux %v", r.Method, r.Host, r.URL.Path, r.URL.RawPath, patterns, got, want)
			}
			if want {
				found++
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d requests were outside", found)
	}
}
