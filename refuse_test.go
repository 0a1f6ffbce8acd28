package weir

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/problem"
	"golang.org/x/crypto/ocsp"
)

// Where several tiers refuse, the one with the longest wait is told, in the
// document, the metric and the log, with the wait of the request as a whole
// (requirement T14).
func TestLongestWaitIsTheOneTold(t *testing.T) {
	// Seconds until each tier's bucket of one has its token again.
	waits := map[string]float64{TierGlobal: 10, TierPerIP: 20, "fleet": 30, TierPerAccount: 40}
	tiers := []string{TierGlobal, TierPerIP, "fleet", TierPerAccount}
	for set := 1; set < 1<<len(tiers); set++ {
		var names []string
		longest, wait := "", 0.0
		for i, name := range tiers {
			if set&(1<<i) != 0 {
				names = append(names, name)
				if waits[name] > wait {
					longest, wait = name, waits[name]
				}
			}
		}
		for _, reverse := range []bool{false, true} {
			if reverse { // the tier asked last is not simply the one blamed
				longest, wait = names[0], 50-waits[names[0]]
			}
			t.Run(fmt.Sprint(strings.Join(names, " and "), ", reversed ", reverse), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg, opts := fourTiers()
					for _, name := range names {
						secs := waits[name]
						if reverse {
							secs = 50 - secs
						}
						switch name {
						case TierGlobal:
							cfg.Tiers.Global = TierConfig{Rate: 1 / secs, Burst: 1}
						case TierPerIP:
							cfg.Tiers.PerIP = TierConfig{Rate: 1 / secs, Burst: 1}
						case TierPerAccount:
							cfg.Tiers.PerAccount = TierConfig{Rate: 1 / secs, Burst: 1}
						default:
							cfg.Tiers.Custom[0].Rate, cfg.Tiers.Custom[0].Burst = 1/secs, 1
						}
					}
					reg := prometheus.NewRegistry()
					logged, log := withLog()
					h := newLimiter(t, cfg, append(opts, WithRegisterer(reg), log)...).Handler(served)
					r := func() *http.Request { return in4(addr1, "f1", "a1") }
					admitted(t, h, r())
					w := refusedBy(t, h, r(), longest)
					if got := retryAfter(t, w); got != int64(wait) {
						t.Errorf("Retry-After is %d, want %v", got, wait)
					}
					var doc struct {
						Secs int64 `json:"retry_after_secs"`
					}
					if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Secs != int64(wait) {
						t.Errorf("the document says %d (%v), want %v", doc.Secs, err, wait)
					}
					for _, name := range tiers {
						want := map[bool]float64{true: 1}[name == longest]
						if got := metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "api", "tier", name); got != want {
							t.Errorf("%v counted for %s, want %v", got, name, want)
						}
					}
					if lines := logged.with("refusing requests"); len(lines) != 1 || !strings.Contains(lines[0], "name="+longest) {
						t.Errorf("the log says %q, want %s blamed", lines, longest)
					}
					time.Sleep(seconds(wait))
					admitted(t, h, r()) // the wait was that of the request as a whole
				})
			})
		}
	}
}

// Retry-After is in whole seconds, rounded up, from 1 to 4294967295
// (requirement R1).
func TestRetryAfterRoundsUp(t *testing.T) {
	for _, tc := range []struct {
		wait float64 // seconds until the token is there
		want int64
	}{
		{1e-9, 1}, {0.2, 1}, {0.999, 1}, {1, 1}, {1.01, 2}, {2, 2}, {59.5, 60}, {3600, 3600},
		{4294967294, 4294967294}, {4294967295, 4294967295}, {4294967296, 4294967295}, {1e12, 4294967295}, {1e300, 4294967295},
	} {
		t.Run(fmt.Sprint(tc.wait, " s"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.Global = TierConfig{Rate: 1 / tc.wait, Burst: 1}
				h := newLimiter(t, cfg).Handler(served)
				admitted(t, h, from(addr1))
				if tc.wait <= 1e-9 {
					return // the clock cannot tell that instant from this one
				}
				if got := retryAfter(t, refused(t, h, from(addr1))); got != tc.want {
					t.Errorf("Retry-After is %d, want %d", got, tc.want)
				}
			})
		})
	}
}

// Whoever sleeps exactly as long as Retry-After says is admitted, if nobody
// else spent meanwhile, whatever the buckets are.
func TestSleepingRetryAfterIsEnough(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 5))
			bucket := func() TierConfig {
				return TierConfig{Rate: math.Exp(rng.Float64()*18 - 10), Burst: 1 + rng.Float64()*20} // 5e-5 … 3e3 a second
			}
			cfg, opts := fourTiers()
			cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = bucket(), bucket(), bucket()
			custom := bucket()
			cfg.Tiers.Custom[0].Rate, cfg.Tiers.Custom[0].Burst = custom.Rate, custom.Burst
			cfg.Endpoints = []Endpoint{{Pattern: "/", Class: "api", Cost: rng.Float64()}}
			cfg.RetryJitter = []float64{0, 0.3}[seed%2]
			h := newLimiter(t, cfg, opts...).Handler(served)
			r := in4(addr1, "f1", "a1")
			for step := range 60 {
				time.Sleep(time.Duration(rng.Float64() * 1e8))
				w := send(h, r)
				if w.Code == http.StatusOK {
					continue
				}
				wait := retryAfter(t, w)
				time.Sleep(time.Duration(wait) * time.Second)
				if w = send(h, r); w.Code != http.StatusOK {
					t.Fatalf("seed %d, step %d: refused again after the %d s that Retry-After said: %+v, cost %v", seed, step, wait, cfg.Tiers, cfg.Endpoints[0].Cost)
				}
			}
		})
	}
}

// Jitter spreads a crowd over the fraction that it may add, and sends nobody
// back too early (requirement R5).
func TestJitterIsNeverEarlyAndSpreadsTheCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait, fraction, crowd = 1000, 0.1, 10_000
		cfg := noTiers()
		cfg.Tiers.Global = TierConfig{Rate: 1.0 / wait, Burst: 1}
		cfg.RetryJitter = fraction
		h := newLimiter(t, cfg).Handler(served)
		admitted(t, h, from(addr1))
		least, most := int64(math.MaxInt64), int64(0)
		r := from(addr1)
		for range crowd {
			got := retryAfter(t, refused(t, h, r))
			least, most = min(least, got), max(most, got)
		}
		if least < wait || most > wait*(1+fraction)+1 {
			t.Errorf("waits from %d to %d, want all within %d and %v", least, most, wait, wait*(1+fraction))
		}
		if spread := float64(most - least); spread < 0.9*wait*fraction {
			t.Errorf("the crowd is spread over %v s, want at least %v", spread, 0.9*wait*fraction)
		}
	})
	t.Run("the wait that never ends needs none", func(t *testing.T) {
		if got := jittered(math.MaxInt64, 0.5); got != math.MaxInt64 {
			t.Errorf("got %v", got)
		}
	})
}

// ---- Before the body (requirement R6).

func TestWhatNeedsNoBodyRefusesWithTheBodyUnread(t *testing.T) {
	for _, tier := range []string{TierGlobal, TierPerIP, "fleet"} {
		for _, shape := range []string{"announced", "chunked"} {
			t.Run(tier+", "+shape, func(t *testing.T) {
				cfg, opts := fourTiers()
				cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
				narrow(&cfg, tier, 1)
				l := newLimiter(t, cfg, opts...)
				h := l.Handler(served)
				r := func() *http.Request {
					return withHeader(acmePost("/acme/new-order", addr1, kidBody("https://ca/acct/1")), "Fleet", "f1")
				}
				admitted(t, h, r())
				for range 3 {
					req := r()
					req.Body = unread{t}
					if shape == "chunked" {
						req.ContentLength = -1
					}
					refused(t, h, req)
				}
				if got := classOf(t, l, "order").Throttled[tier]; got != 3 {
					t.Errorf("%d counted for %s, want 3", got, tier)
				}
			})
		}
	}
	t.Run("the deny list", func(t *testing.T) {
		cfg, opts := fourTiers()
		cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
		cfg.Deny.Networks = []string{addr1}
		r := acmePost("/acme/new-order", addr1, "x")
		r.Body = unread{t}
		denied(t, newLimiter(t, cfg, opts...).Handler(served), r)
	})
	t.Run("while the store fails", func(t *testing.T) {
		cfg, opts := fourTiers()
		cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
		narrow(&cfg, TierPerIP, 1)
		h := newLimiter(t, cfg, append(opts, WithStore(newBrokenStore(failAtOnce)))...).Handler(served)
		r := func() *http.Request { return acmePost("/acme/new-order", addr1, kidBody("https://ca/acct/1")) }
		admitted(t, h, r())
		req := r()
		req.Body = unread{t}
		refused(t, h, req)
	})
}

func TestNobodyReadsABodyThatNoTierAsksFor(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no account tier":          func(c *Config) { c.Tiers.PerAccount = TierConfig{} },
		"class out of that tier":   func(c *Config) { c.Endpoints[0].Limits = map[string]Limit{TierPerAccount: {}} },
		"class of another kind":    func(c *Config) { c.Endpoints[0].Kind = KindEST },
		"exempt network":           func(c *Config) { c.Exempt.Networks = []string{addr1} },
		"exempt class":             func(c *Config) { c.Exempt.Classes = []Class{"order"} },
		"a path without any class": func(c *Config) { c.Endpoints[0].Pattern, c.DefaultClass = "/elsewhere", "" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, opts := fourTiers()
			cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
			change(&cfg)
			r := acmePost("/acme/new-order", addr1, "x")
			r.Body = unread{t}
			admitted(t, newLimiter(t, cfg, opts...).Handler(served), r)
		})
	}
}

// A client that asks first (Expect: 100-continue) is refused without being
// told to go on, so its body never crosses the wire.
func TestRefusedClientIsNotToldToContinue(t *testing.T) {
	cfg := acmeConfig(100)
	cfg.Tiers.PerIP = perHour(1)
	srv := httptest.NewServer(newLimiter(t, cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		served(w, r)
	})))
	defer srv.Close()
	body := kidBody("https://ca/acme/acct/1")
	head := func(size int) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: ca\r\nContent-Type: application/jose+json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", order, size)
	}
	first := onTheWire(t, srv, head(len(body))+body)
	if line, _ := first.ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Errorf("the first answer to an admitted client is %q, want 100", line)
	}
	_, _ = first.ReadString('\n')
	if resp, err := http.ReadResponse(first, nil); err != nil || resp.StatusCode != http.StatusOK { // and has spent its token
		t.Fatalf("the admitted client ends with %v, %v", resp, err)
	}
	second := onTheWire(t, srv, head(100<<20)) // of which not a byte is sent
	resp, err := http.ReadResponse(bufio.NewReader(second), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "3600" {
		t.Errorf("the first answer to a refused client is %d, Retry-After %q, want 429 at once", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if !resp.Close {
		t.Error("the connection is to be used again although a body of 100 MB may follow")
	}
}

// With a wait that is long enough the request is not refused at all, so there
// its body is read: it is held, and admitted.
func TestHeldRequestHasItsBodyRead(t *testing.T) {
	for _, tc := range []struct {
		name    string
		maxWait time.Duration
		held    bool
	}{
		{"the wait is within max_wait", 10 * time.Second, true},
		{"the wait is exactly max_wait", 5 * time.Second, true},
		{"the wait is longer", 4 * time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := acmeConfig(100)
				cfg.Tiers.PerIP = TierConfig{Rate: 0.2, Burst: 1}
				cfg.Tiers.MaxWait = Duration(tc.maxWait)
				l := newLimiter(t, cfg)
				r := func() *http.Request { return acmePost(order, addr1, kidBody("https://ca/acme/acct/1")) }
				admitted(t, l.Handler(served), r())
				start := time.Now()
				if !tc.held {
					req := r()
					req.Body = unread{t}
					refused(t, l.Handler(served), req)
					if took := time.Since(start); took != 0 {
						t.Errorf("the refusal took %v", took)
					}
					return
				}
				if who := account(t, l, r()); who != "/acme/acct/1" {
					t.Errorf("the account of the held request is %q", who)
				}
				if took := time.Since(start); took != 5*time.Second {
					t.Errorf("the request was held for %v, want 5s", took)
				}
			})
		})
	}
}

// Where a request would be held but for the line before it, or because too many
// are held already, it is refused for certain: its body stays unread too, and
// the wait that it is told is the line's.
func TestRequestThatFindsNoPlaceInLineKeepsItsBodyUnread(t *testing.T) {
	for _, tc := range []struct {
		name       string
		maxWait    time.Duration
		maxWaiting int
		held       int   // who get a place
		wait       int64 // what the next one is told
	}{
		{"the line is too long", 3 * time.Second, 100, 3, 4},
		{"too many of that client are held", time.Minute, 2 * lineShare, 2, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := acmeConfig(100)
				cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
				cfg.Tiers.MaxWait, cfg.Tiers.MaxWaiting = Duration(tc.maxWait), tc.maxWaiting
				h := newLimiter(t, cfg).Handler(served)
				r := func() *http.Request { return acmePost(order, addr1, kidBody("https://ca/acme/acct/1")) }
				admitted(t, h, r())
				var wg sync.WaitGroup
				for range tc.held {
					wg.Go(func() { admitted(t, h, r()) })
				}
				synctest.Wait()
				start := time.Now()
				last := r()
				last.Body = unread{t}
				if got := retryAfter(t, refused(t, h, last)); got != tc.wait {
					t.Errorf("Retry-After is %d, want %d", got, tc.wait)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("the refusal took %v", took)
				}
				wg.Wait()
			})
		})
	}
}

// ---- The documents.

func TestRefusalSpeaksTheProtocolOfItsKind(t *testing.T) {
	problemJSON := func(t *testing.T, body []byte) map[string]any {
		var doc map[string]any
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatalf("no JSON: %v: %q", err, body)
		}
		return doc
	}
	for _, tc := range []struct {
		kind   Kind
		accept string
		status int
		typ    string
		check  func(t *testing.T, body []byte)
	}{
		{KindACME, "", 429, "application/problem+json", func(t *testing.T, body []byte) {
			doc := problemJSON(t, body)
			if doc["type"] != "urn:ietf:params:acme:error:rateLimited" || doc["status"] != 429.0 || doc["detail"] == "" {
				t.Errorf("the document is %v", doc)
			}
		}},
		{KindACME, "text/html", 429, "application/problem+json", nil},
		{KindOCSP, "", 429, "application/ocsp-response", func(t *testing.T, body []byte) {
			if string(body) != "\x30\x03\x0A\x01\x03" {
				t.Errorf("the body is %x", body)
			}
			if _, err := ocsp.ParseResponse(body, nil); err == nil || err.Error() != "ocsp: error from server: try later" {
				t.Errorf("an OCSP client reads %v", err)
			}
		}},
		{KindOCSP, "text/html", 429, "application/ocsp-response", nil},
		{KindCRL, "", 429, "text/plain; charset=utf-8", nil},
		{KindEST, "", 429, "text/plain; charset=utf-8", nil},
		{KindSCEP, "", 429, "text/plain; charset=utf-8", nil},
		{KindAPI, "", 429, "application/problem+json", func(t *testing.T, body []byte) {
			if doc := problemJSON(t, body); doc["status"] != 429.0 || doc["reason"] != "rate_limited" || doc["class"] != "it" {
				t.Errorf("the document is %v", doc)
			}
		}},
		{KindAPI, "text/html", 429, "text/html; charset=utf-8", nil},
		{KindAPI, "text/plain", 429, "text/plain; charset=utf-8", nil},
		{KindPage, "text/html,*/*;q=0.8", 429, "text/html; charset=utf-8", func(t *testing.T, body []byte) {
			if !strings.Contains(string(body), "<!") || strings.Contains(string(body), addr1) {
				t.Errorf("the page is %q", body)
			}
		}},
		{KindPage, "application/json", 429, "application/problem+json", nil},
		{KindS3, "", 503, "application/xml", func(t *testing.T, body []byte) {
			var doc struct{ Code, Resource, RequestId string }
			if err := xml.Unmarshal(body, &doc); err != nil || doc.Code != "SlowDown" || doc.Resource != "/it" || doc.RequestId == "" {
				t.Errorf("the document is %+v, %v", doc, err)
			}
		}},
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			t.Run(fmt.Sprintf("%s to %s, Accept %q", tc.kind, method, tc.accept), func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.PerIP = perHour(1)
				cfg.Endpoints = []Endpoint{{Pattern: "/it", Class: "it", Kind: tc.kind}}
				l := newLimiter(t, cfg, WithHelp("https://ca.example/limits"))
				r := func() *http.Request {
					r := request(method, "/it", addr1, "")
					if tc.accept != "" {
						r.Header.Set("Accept", tc.accept)
					}
					return r
				}
				admitted(t, l.Handler(served), r())
				w := send(l.Handler(served), r())
				h := w.Header()
				if w.Code != tc.status || h.Get("Content-Type") != tc.typ || h.Get("Cache-Control") != "no-store" || retryAfter(t, w) != 3600 {
					t.Errorf("got %d %v", w.Code, h)
				}
				if link := h.Get("Link"); link != "" && link != `<https://ca.example/limits>;rel="help"` || tc.kind == KindACME && link == "" {
					t.Errorf("Link is %q", link)
				}
				if method == "HEAD" {
					if w.Body.Len() > 0 {
						t.Errorf("HEAD is answered with a body: %q", w.Body)
					}
					if n, _ := strconv.Atoi(h.Get("Content-Length")); n < 5 {
						t.Errorf("Content-Length is %q, want that of the document", h.Get("Content-Length"))
					}
					return
				}
				if h.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
					t.Errorf("Content-Length is %q for %d bytes", h.Get("Content-Length"), w.Body.Len())
				}
				if tc.check != nil {
					tc.check(t, w.Body.Bytes())
				}
			})
		}
	}
}

// A client that uses RFC 6960 over HTTP sees a responder that is alive but
// busy, over a real connection, and the refusal of a HEAD is well-formed there.
func TestRefusalsOverARealServer(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	cfg.Endpoints = []Endpoint{{Pattern: "/ocsp/", Class: "ocsp", Kind: KindOCSP}}
	for _, h2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(newLimiter(t, cfg).Handler(served))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		for i, method := range []string{"GET", "GET", "HEAD", "POST"} {
			r, _ := http.NewRequest(method, srv.URL+"/ocsp/MFQ", nil)
			resp, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if i == 0 {
				continue
			}
			if err != nil || resp.StatusCode != 429 || resp.ContentLength != 5 || (len(body) == 5) == (method == "HEAD") || resp.ProtoMajor == 2 != h2 {
				t.Errorf("%s over %s: %d, length %d, body %x, %v", method, resp.Proto, resp.StatusCode, resp.ContentLength, body, err)
			}
		}
		srv.Close()
	}
}

func TestProgramsOwnWriterFindsTheHeaderSet(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	cfg.Endpoints = []Endpoint{{Pattern: "/est", Class: "est", Kind: KindEST}}
	var got problem.Rejection
	h := newLimiter(t, cfg, WithHelp("https://ca.example/limits"),
		WithRejection(KindEST, func(w http.ResponseWriter, _ *http.Request, rej problem.Rejection) {
			got = rej
			if w.Header().Get("Retry-After") != "3600" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("the writer is called with %v", w.Header())
			}
			w.WriteHeader(rej.StatusCode())
		})).Handler(served)
	r := func(path string) *http.Request { return request("GET", path, addr1, "") }
	admitted(t, h, r("/est"))
	if w := refused(t, h, r("/est")); w.Body.Len() > 0 {
		t.Errorf("the built-in writer wrote %q", w.Body)
	}
	if got.Tier != TierPerIP || got.Class != "est" || got.Reason != problem.ReasonRate || got.Help == "" || got.Nonce != "" {
		t.Errorf("the rejection is %+v", got)
	}
	refusedBy(t, h, r("/"), TierPerIP) // other kinds keep theirs
}

// The nonce of a refused POST saves its client a request; a refused new-nonce
// must not carry one, or clients take it for granted (requirement R7).
func TestRefusedACMEPostCarriesANonce(t *testing.T) {
	fresh := 0
	cfg := acmeConfig(100)
	cfg.Endpoints = append(cfg.Endpoints,
		Endpoint{Pattern: "/acme/new-nonce", Class: "nonce", Kind: KindACME},
		Endpoint{Pattern: "/acme/order/{id}", Class: "poll", Kind: KindACME})
	cfg.Tiers.PerIP = perHour(1)
	cfg.Deny.Networks = []string{"203.0.113.0/24"}
	h := newLimiter(t, cfg, WithNonce(func(*http.Request) string { fresh++; return fmt.Sprint("nonce", fresh) })).Handler(served)
	if w := admitted(t, h, acmePost(order, addr1, kidBody("https://ca/acct/1"))); w.Header().Get("Replay-Nonce") != "" || fresh != 0 {
		t.Error("an admitted request got a nonce from the limiter")
	}
	for _, tc := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"new-order", acmePost(order, addr1, "x"), "nonce1"},
		{"a poll, POST-as-GET", acmePost("/acme/order/7", addr1, "x"), "nonce2"},
		{"each refusal has its own", acmePost(order, addr1, "x"), "nonce3"},
		{"new-nonce by HEAD has none", request("HEAD", "/acme/new-nonce", addr1, ""), ""},
		{"new-nonce by GET has none", request("GET", "/acme/new-nonce", addr1, ""), ""},
		{"an old-style GET of an order has none", request("GET", "/acme/order/7", addr1, ""), ""},
		{"EST has none", request("POST", "/est", addr1, "x"), ""},
		{"an unknown path has none", request("POST", "/", addr1, "x"), ""},
		{"a denied POST has one", acmePost(order, "203.0.113.1", "x"), "nonce4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := send(h, tc.r)
			if w.Header().Get("Served") != "" || w.Header().Get("Replay-Nonce") != tc.want {
				t.Errorf("got %d with nonce %q, want %q", w.Code, w.Header().Get("Replay-Nonce"), tc.want)
			}
		})
	}
	if fresh != 4 {
		t.Errorf("%d nonces were made, want 4: the source is asked for those only that are sent", fresh)
	}
	t.Run("a source that has none is no fault", func(t *testing.T) {
		h := newLimiter(t, cfg, WithNonce(func(*http.Request) string { return "" })).Handler(served)
		admitted(t, h, request("GET", "/", addr1, ""))
		if w := refused(t, h, acmePost(order, addr1, "x")); len(w.Header()["Replay-Nonce"]) != 0 {
			t.Errorf("nonce %q", w.Header()["Replay-Nonce"])
		}
	})
}

// No document ever names a caller (requirement R5), and none gives back what a
// client sent: not its address, its account, its path (S3's Resource excepted)
// or a header.
func TestNoRefusalReflectsTheClient(t *testing.T) {
	const mark = "reflected-by-nobody"
	for _, kind := range []Kind{KindACME, KindOCSP, KindCRL, KindEST, KindSCEP, KindAPI, KindPage} {
		cfg, opts := fourTiers()
		narrow(&cfg, TierPerAccount, 1)
		cfg.Endpoints = []Endpoint{{Pattern: "/it/", Class: "it", Kind: kind}}
		cfg.ClientIP.TrustedProxies = []string{"192.0.2.0/24"}
		h := newLimiter(t, cfg, opts...).Handler(served)
		for _, accept := range []string{"", "text/html", "text/plain"} {
			r := withHeader(in4(addr1, mark, mark), "X-Forwarded-For", "203.0.113.77")
			r.URL.Path = "/it/" + mark
			for _, name := range []string{"Accept", "User-Agent", "Referer", "X-Request-Id", "Origin"} {
				r.Header.Set(name, strings.TrimPrefix(accept+", x/"+mark, ", "))
			}
			var w *httptest.ResponseRecorder
			for range 2 {
				w = send(h, r)
			}
			if all := fmt.Sprint(w.Header(), w.Body); w.Code != 429 || strings.Contains(all, mark) || strings.Contains(all, "203.0.113.77") || strings.Contains(all, addr1) {
				t.Errorf("%s, Accept %q: %d %s", kind, accept, w.Code, all)
			}
		}
	}
}

// What a middleware outside has set stays, but for what would be wrong on a
// refusal; and on an admitted response the chain sets nothing at all.
func TestHeadersOfOthersAreLeftAlone(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	inner := newLimiter(t, cfg).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Served", "yes")
		w.Header().Set("Retry-After", "86400") // RFC 7030 section 4.2.3, RFC 8555 section 7.5.1
		w.WriteHeader(http.StatusAccepted)
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Strict-Transport-Security", "max-age=1")
		w.Header().Set("Etag", `"1"`)
		w.Header().Set("Content-Encoding", "gzip")
		inner.ServeHTTP(w, r)
	})
	w := admitted(t, h, from(addr1))
	if got := w.Result().Header; len(got) != 5 || got.Get("Retry-After") != "86400" {
		t.Errorf("the admitted response has %v", got)
	}
	got := refused(t, h, from(addr1)).Result().Header
	if got.Get("Strict-Transport-Security") == "" || got.Get("Etag") != "" || got.Get("Content-Encoding") != "" {
		t.Errorf("the refusal has %v", got)
	}
}

// A flood of refusals writes a line for each class and tier each interval, and
// the line says how many it stands for (requirement M6).
// What an outer limiter has said stands where it is longer, and the document
// says the same.
func TestLongerRetryAfterOfAnOuterLimiterStands(t *testing.T) {
	for _, tc := range []struct {
		name, standing string
		want           int64
	}{
		{"longer", "86400", 86400},
		{"the longest that is legal", "4294967295", 4294967295},
		{"shorter", "5", 10},
		{"a date that is later", "Sat, 01 Jan 2000 00:01:00 GMT", 60},
		{"a date that is sooner", "Sat, 01 Jan 2000 00:00:05 GMT", 10},
		{"a date that is over", "Fri, 31 Dec 1999 23:59:59 GMT", 10},
		{"beyond all numbers", "99999999999999999999", 10},
		{"negative", "-86400", 10},
		{"a word", "soon", 10},
		{"empty", "", 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock begins in 2000
				cfg := noTiers()
				cfg.Tiers.PerIP = TierConfig{Rate: 0.1, Burst: 1}
				h := newLimiter(t, cfg).Handler(served)
				admitted(t, h, from(addr1))
				w := httptest.NewRecorder()
				w.Header().Set("Retry-After", tc.standing)
				h.ServeHTTP(w, from(addr1))
				var doc struct {
					Secs int64 `json:"retry_after_secs"`
				}
				if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil || doc.Secs != tc.want {
					t.Errorf("the document says %d (%v), want %d", doc.Secs, err, tc.want)
				}
				if got := retryAfter(t, w); got != tc.want {
					t.Errorf("Retry-After is %d, want %d", got, tc.want)
				}
			})
		})
	}
}

func TestFloodIsLoggedInFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerIP = TierConfig{Rate: 1e-6, Burst: 1}
		cfg.Endpoints = []Endpoint{{Pattern: "/a", Class: "a"}, {Pattern: "/b", Class: "b"}}
		logged, log := withLog()
		l := newLimiter(t, cfg, log)
		h := l.Handler(served)
		admitted(t, h, from(addr1))
		before := len(logged.with())
		const span = 60 * time.Second
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				r := request("GET", []string{"/a", "/b"}[i%2], addr1, "")
				for start := time.Now(); time.Since(start) < span; time.Sleep(100 * time.Millisecond) {
					send(h, r)
				}
			})
		}
		wg.Wait()
		for _, class := range []string{"a", "b"} {
			lines := logged.with("WARN", "refusing requests", "class="+class, "by=tier", "name="+TierPerIP, "reason=rate_limited")
			if want := int(span / logInterval); len(lines) != want {
				t.Errorf("%d lines for class %s in %v, want %d", len(lines), class, span, want)
			}
			told := uint64(0)
			for _, line := range lines {
				_, n, _ := strings.Cut(line, "times=")
				times, _ := strconv.ParseUint(n, 10, 64)
				told += times
			}
			if all := classOf(t, l, Class(class)).Throttled[TierPerIP]; told > all || told < all-all/4 {
				t.Errorf("the lines for class %s stand for %d refusals of %d", class, told, all)
			}
		}
		if n := len(logged.with()) - before; n != 2*int(span/logInterval) {
			t.Errorf("%d lines in all:\n%s", n, strings.Join(logged.with(), "\n"))
		}
	})
}

// A client that left while it was refused is no trouble.
func TestRefusalToAClientThatLeft(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	admitted(t, h, from(addr1).WithContext(ctx))
	refused(t, h, from(addr1).WithContext(ctx))
}
