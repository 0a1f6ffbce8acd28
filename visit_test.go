package weir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// acmeConfig has an ACME endpoint and an account tier of that burst.
func acmeConfig(burst float64) Config {
	cfg := noTiers()
	cfg.Endpoints = []Endpoint{
		{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME},
		{Pattern: "POST /acme/key-change", Class: "key_change", Kind: KindACME},
		{Pattern: "POST /est", Class: "est", Kind: KindEST},
	}
	cfg.Tiers.PerAccount = perHour(burst)
	return cfg
}

// account is who a request is taken for, "" for nobody.
func account(t *testing.T, l *Limiter, r *http.Request) string {
	t.Helper()
	who := "the handler was not reached"
	l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		info, _ := FromContext(r.Context())
		who = info.Account
	})).ServeHTTP(httptest.NewRecorder(), r)
	return who
}

const order = "/acme/new-order"

func TestAccountOfAnACMERequestIsItsKid(t *testing.T) {
	kid := map[string]any{"alg": "ES256", "kid": "https://ca.example/acme/acct/1", "nonce": "bg", "url": "https://ca.example/acme/new-order"}
	jwk := map[string]any{"alg": "ES256", "jwk": map[string]any{"kty": "EC", "crv": "P-256", "x": "eA", "y": "eQ"}, "nonce": "bg", "url": "u"}
	with := func(m map[string]any, key string, value any) map[string]any {
		m = maps.Clone(m)
		m[key] = value
		return m
	}
	pad := func(body string, size int) string {
		return body[:len(body)-1] + strings.Repeat(" ", size-len(body)) + "}"
	}
	inner := signed(with(jwk, "url", "https://ca.example/acme/key-change"), `{"account":"https://ca.example/acme/acct/1","oldKey":{}}`)
	for _, tc := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"the path of the kid", acmePost(order, addr1, signed(kid, "{}")), "/acme/acct/1"},
		{"under another host it is the same account", acmePost(order, addr1, signed(with(kid, "kid", "http://www.ca.example:8080/acme/acct/1"), "{}")), "/acme/acct/1"},
		{"with a query it is the same account", acmePost(order, addr1, signed(with(kid, "kid", "https://ca.example/acme/acct/1?x=1#y"), "{}")), "/acme/acct/1"},
		{"another path is another account", acmePost(order, addr1, signed(with(kid, "kid", "https://ca.example/acme/acct/2"), "{}")), "/acme/acct/2"},
		{"an empty payload is POST-as-GET", acmePost(order, addr1, signed(kid, "")), "/acme/acct/1"},
		{"a key change counts for the outer signer", acmePost("/acme/key-change", addr1, signed(with(kid, "url", "https://ca.example/acme/key-change"), inner)), "/acme/acct/1"},
		{"a new account has none yet", acmePost(order, addr1, signed(jwk, "{}")), ""},
		{"kid and jwk together are nobody", acmePost(order, addr1, signed(with(kid, "jwk", jwk["jwk"]), "{}")), ""},
		{"an empty kid is nobody", acmePost(order, addr1, signed(with(kid, "kid", ""), "{}")), ""},
		{"a kid that is a number is nobody", acmePost(order, addr1, signed(with(kid, "kid", 7), "{}")), ""},
		{"a kid in the unprotected header is nobody", acmePost(order, addr1, `{"header":{"kid":"https://ca.example/acme/acct/1"},"protected":"e30","payload":"","signature":""}`), ""},
		{"a general JWS is nobody", acmePost(order, addr1, `{"payload":"","signatures":[`+signed(kid, "{}")+`]}`), ""},
		{"junk is nobody", acmePost(order, addr1, "junk"), ""},
		{"half a JWS is nobody", acmePost(order, addr1, signed(kid, "{}")[:80]), ""},
		{"an empty body is nobody", acmePost(order, addr1, ""), ""},
		{"64 KiB are read", acmePost(order, addr1, pad(signed(kid, "{}"), 64<<10)), "/acme/acct/1"},
		{"a byte more is nobody", acmePost(order, addr1, pad(signed(kid, "{}"), 64<<10+1)), ""},
		{"another content type is no excuse, for Vault takes it", withHeader(request("POST", order, addr1, signed(kid, "{}")), "Content-Type", "application/json"), "/acme/acct/1"},
		{"a kid in two spellings, which servers read differently, is nobody", acmePost(order, addr1, signed(with(kid, "KID", "https://ca.example/acme/acct/2"), "{}")), ""},
		{"another method has no account", withHeader(request("PUT", order, addr1, signed(kid, "{}")), "Content-Type", "application/jose+json"), ""},
		{"a kid where the class is not ACME is nobody", acmePost("/est", addr1, signed(kid, "{}")), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := account(t, newLimiter(t, acmeConfig(5)), tc.r); got != tc.want {
				t.Errorf("the account is %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTwoAccountsBehindOneAddressHaveABucketEach(t *testing.T) {
	h := newLimiter(t, acmeConfig(3)).Handler(served)
	by := func(kid string) func() *http.Request {
		return func() *http.Request { return acmePost(order, addr1, kidBody(kid)) }
	}
	left(t, h, 3, by("https://ca.example/acme/acct/1"))
	left(t, h, 3, by("https://ca.example/acme/acct/2"))
	left(t, h, 0, by("https://other.example/acme/acct/1")) // the same account under another name
	// From elsewhere it is the same account too.
	refused(t, h, acmePost(order, "198.51.100.9", kidBody("https://ca.example/acme/acct/2")))
	// And who has none is not limited by this tier.
	admitted(t, h, acmePost(order, addr1, signed(map[string]any{"jwk": map[string]any{}}, "{}")))
}

func TestBodyReachesTheHandlerByteForByte(t *testing.T) {
	body := kidBody("https://ca.example/acme/acct/1")
	errCut := errors.New("the client went away")
	for _, tc := range []struct {
		name string
		body io.Reader
		size int64 // Content-Length; -1 for chunked
		want string
		err  error
	}{
		{"announced", strings.NewReader(body), int64(len(body)), body, nil},
		{"chunked", strings.NewReader(body), -1, body, nil},
		{"byte by byte", iotest.OneByteReader(strings.NewReader(body)), -1, body, nil},
		{"with the end told together with the data", iotest.DataErrReader(strings.NewReader(body)), -1, body, nil},
		{"longer than what is read ahead", strings.NewReader(body + strings.Repeat("x", 200<<10)), -1, body + strings.Repeat("x", 200<<10), nil},
		{"announced longer than what is read ahead", strings.NewReader(strings.Repeat("x", 70<<10)), 70 << 10, strings.Repeat("x", 70<<10), nil},
		{"exactly as long as what is read ahead", strings.NewReader(strings.Repeat("x", 64<<10)), -1, strings.Repeat("x", 64<<10), nil},
		{"one byte longer", strings.NewReader(strings.Repeat("x", 64<<10+1)), -1, strings.Repeat("x", 64<<10+1), nil},
		{"no JSON", strings.NewReader("\x00\xff"), 2, "\x00\xff", nil},
		{"cut off by the client", io.MultiReader(strings.NewReader(body[:50]), iotest.ErrReader(errCut)), -1, body[:50], errCut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []byte
			var err error
			h := newLimiter(t, acmeConfig(5)).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.ContentLength != tc.size {
					t.Errorf("ContentLength is %d, want %d", r.ContentLength, tc.size)
				}
				got, err = io.ReadAll(r.Body)
			}))
			r := acmePost(order, addr1, "x")
			r.Body, r.ContentLength = io.NopCloser(tc.body), tc.size
			h.ServeHTTP(httptest.NewRecorder(), r)
			if string(got) != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("read %d bytes and %v, want %d and %v", len(got), err, len(tc.want), tc.err)
			}
		})
	}
}

func TestChunkedBodyOverARealServerIsWhole(t *testing.T) {
	body := kidBody("https://ca.example/acme/acct/1")
	l := newLimiter(t, acmeConfig(5))
	srv := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := FromContext(r.Context())
		got, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v %v %s", info.Account, r.TransferEncoding, bytes.Equal(got, []byte(body)), r.Trailer.Get("Sum"))
	})))
	defer srv.Close()
	r, _ := http.NewRequest("POST", srv.URL+order, struct{ io.Reader }{strings.NewReader(body)})
	r.Header.Set("Content-Type", "application/jose+json")
	r.Trailer = http.Header{"Sum": {"42"}}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, _ := io.ReadAll(resp.Body)
	if want := "/acme/acct/1 [chunked] true 42"; string(got) != want {
		t.Errorf("the handler saw %q, want %q", got, want)
	}
}

func TestAccountOfAnESTRequestIsItsBasicUser(t *testing.T) {
	basic := func(user, password string) *http.Request {
		r := request("POST", "/est", addr1, "body")
		r.SetBasicAuth(user, password)
		return r
	}
	for _, tc := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"the user", basic("device-7", "secret"), "device-7"},
		{"whatever the password", basic("device-7", "wrong"), "device-7"},
		{"an empty user is nobody", basic("", "secret"), ""},
		{"no credentials are nobody", request("POST", "/est", addr1, ""), ""},
		{"another scheme is nobody", withHeader(request("POST", "/est", addr1, ""), "Authorization", "Bearer abc"), ""},
		{"broken base64 is nobody", withHeader(request("POST", "/est", addr1, ""), "Authorization", "Basic %%%"), ""},
		{"the user in capitals is the same", basic("DEVICE-7", "secret"), "device-7"},
		{"a megabyte of a user is nobody", basic(strings.Repeat("x", 1<<20), ""), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := account(t, newLimiter(t, acmeConfig(5)), tc.r); got != tc.want {
				t.Errorf("the account is %.30q, want %.30q", got, tc.want)
			}
		})
	}
	t.Run("not on an ACME endpoint", func(t *testing.T) {
		r := acmePost(order, addr1, "{}")
		r.SetBasicAuth("device-7", "secret")
		if got := account(t, newLimiter(t, acmeConfig(5)), r); got != "" {
			t.Errorf("the account is %q, want none", got)
		}
	})
}

func TestWithAccountGoesBeforeTheBuiltInWays(t *testing.T) {
	for _, tc := range []struct {
		name, own, want string
	}{
		{"its word counts", "own", "own"},
		{"where it knows of none the built-in way is asked", "", "/acme/acct/1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLimiter(t, acmeConfig(5), WithAccount(func(*http.Request) (string, bool) { return tc.own, true }))
			if got := account(t, l, acmePost(order, addr1, kidBody("https://ca/acme/acct/1"))); got != tc.want {
				t.Errorf("the account is %q, want %q", got, tc.want)
			}
		})
	}
	t.Run("and leaves the body unread", func(t *testing.T) {
		h := newLimiter(t, acmeConfig(5), WithAccount(byHeader("Account"))).Handler(served)
		r := withHeader(acmePost(order, addr1, "x"), "Account", "a1")
		r.Body = unread{t}
		admitted(t, h, r)
	})
}

// A function of the program that fails must not fail the request.
func TestCallbacksThatFailAreContained(t *testing.T) {
	empty := func(*http.Request) (string, bool) { return "", true }
	no := func(*http.Request) (string, bool) { return "somebody", false }
	panics := func(*http.Request) (string, bool) { panic("no such map entry") }
	aborts := func(*http.Request) (string, bool) { panic(http.ErrAbortHandler) }
	for _, tc := range []struct {
		name   string
		f      func(*http.Request) (string, bool)
		panics float64
	}{
		{"it returns an empty text", empty, 0},
		{"it returns false", no, 0},
		{"it panics", panics, 4},
		{"it panics as a handler would to abort", aborts, 4},
	} {
		for callback, opt := range map[string]Option{"account": WithAccount(tc.f), "key": WithKey("fleet", tc.f)} {
			t.Run(callback+": "+tc.name, func(t *testing.T) {
				cfg, opts := fourTiers()
				narrow(&cfg, TierPerIP, 4)
				s, reg := newLedger(), prometheus.NewRegistry()
				logged, log := withLog()
				l := newLimiter(t, cfg, append(opts, opt, log, WithRegisterer(reg), WithStore(s))...)
				h := l.Handler(served)
				// Served, and still limited by the tiers that are left.
				left(t, h, 4, func() *http.Request { return in4(addr1, "f1", "a1") })
				tier := map[string]string{"account": TierPerAccount, "key": "fleet"}[callback]
				if got := s.in(tier); len(got) > 0 {
					t.Errorf("tier %s holds %v, want no bucket", tier, got)
				}
				if got := metric(t, reg, "weir_callback_panics_total", "callback", callback); (got > 0) != (tc.panics > 0) || got > 0 && got < tc.panics {
					t.Errorf("%v panics counted, want at least %v", got, tc.panics)
				}
				if n := len(logged.with("ERROR", "panicked", "callback="+callback)); (n == 1) != (tc.panics > 0) {
					t.Errorf("%d log lines", n)
				}
				if got := metric(t, reg, "weir_ratelimit_unkeyed_total", "tier", "fleet"); (got > 0) != (callback == "key") {
					t.Errorf("%v requests without a key counted", got)
				}
			})
		}
	}
	t.Run("nonce: it panics", func(t *testing.T) {
		reg := prometheus.NewRegistry()
		h := newLimiter(t, acmeConfig(1), WithRegisterer(reg), WithNonce(func(*http.Request) string { panic("no nonces left") })).Handler(served)
		r := func() *http.Request { return acmePost(order, addr1, kidBody("https://ca/acme/acct/1")) }
		admitted(t, h, r())
		if w := refused(t, h, r()); w.Header().Get("Replay-Nonce") != "" {
			t.Errorf("nonce %q", w.Header().Get("Replay-Nonce"))
		}
		if got := metric(t, reg, "weir_callback_panics_total", "callback", "nonce"); got != 1 {
			t.Errorf("%v panics counted, want 1", got)
		}
	})
}

func TestSetAccountBeforeTheTiersDecidesWhoPays(t *testing.T) {
	cfg := acmeConfig(2)
	cfg.Deny.Accounts = []string{"thief"}
	cfg.Exempt.Accounts = []string{"monitor"}
	l := newLimiter(t, cfg)
	verify := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			SetAccount(r.Context(), r.Header.Get("Certificate"))
			next.ServeHTTP(w, r)
		})
	}
	h := l.ClientIP(verify(l.Tiers(later(func(ctx context.Context) {
		if info, _ := FromContext(ctx); info.Account == "" {
			t.Error("the handler does not know the account")
		}
	}))))
	by := func(cn string) func() *http.Request {
		return func() *http.Request {
			r := withHeader(acmePost(order, addr1, "x"), "Certificate", cn)
			r.Body = unread{t} // the account is known, so nobody looks for a kid
			return r
		}
	}
	left(t, h, 2, by("device-1"))
	left(t, h, 2, by("device-2"))
	denied(t, h, by("thief")())
	for range 5 {
		admitted(t, h, by("monitor")())
	}
	if got := classOf(t, l, "order").Exempt; got != 5 {
		t.Errorf("%d counted as exempt, want 5: SetAccount verifies", got)
	}
}

// budgets is what each account has left in a bucket of 10, by draining it.
func budgets(t *testing.T, l *Limiter, accounts ...string) (n []int) {
	t.Helper()
	h := l.Handler(served)
	for _, a := range accounts {
		n = append(n, admits(h, 11, func() *http.Request { return claiming(a, addr1) }))
	}
	return n
}

func TestSetAccountLaterMovesTheCharge(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context)
		want []int // what claimed, verified and third have left of 7
	}{
		{"without it the claimed account pays", func(context.Context) {}, []int{6, 7, 7}},
		{"the verified one pays instead", func(ctx context.Context) { SetAccount(ctx, "verified") }, []int{7, 6, 7}},
		{"the same one changes nothing", func(ctx context.Context) { SetAccount(ctx, "claimed") }, []int{6, 7, 7}},
		{"the same one twice changes nothing", func(ctx context.Context) { SetAccount(ctx, "verified"); SetAccount(ctx, "verified") }, []int{7, 6, 7}},
		{"the last one pays", func(ctx context.Context) { SetAccount(ctx, "verified"); SetAccount(ctx, "third") }, []int{7, 7, 6}},
		{"back again", func(ctx context.Context) { SetAccount(ctx, "verified"); SetAccount(ctx, "claimed") }, []int{6, 7, 7}},
		{"nobody", func(ctx context.Context) { SetAccount(ctx, "") }, []int{7, 7, 7}},
		{"disowned", Disown, []int{7, 7, 7}},
		{"disowned twice", func(ctx context.Context) { Disown(ctx); Disown(ctx) }, []int{7, 7, 7}},
		{"disowned, then verified", func(ctx context.Context) { Disown(ctx); SetAccount(ctx, "verified") }, []int{7, 6, 7}},
		{"disowned, then the same after all", func(ctx context.Context) { Disown(ctx); SetAccount(ctx, "claimed") }, []int{6, 7, 7}},
		{"verified, then disowned", func(ctx context.Context) { SetAccount(ctx, "verified"); Disown(ctx) }, []int{7, 7, 7}},
		{"disowned by many goroutines at once", func(ctx context.Context) {
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() { Disown(ctx) })
			}
			wg.Wait()
		}, []int{7, 7, 7}},
		{"with the client gone", func(ctx context.Context) {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			SetAccount(gone, "verified")
		}, []int{7, 6, 7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiers()
				cfg.Tiers.PerAccount = perHour(10)
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
				for _, id := range []string{"claimed", "verified", "third"} {
					for range 3 { // so that a token too many would not run over
						admitted(t, l.Handler(served), claiming(id, addr1))
					}
				}
				admitted(t, l.Handler(later(tc.do)), claiming("claimed", addr1))
				if got := budgets(t, l, "claimed", "verified", "third"); !slices.Equal(got, tc.want) {
					t.Errorf("claimed, verified and third have %v left, want %v", got, tc.want)
				}
			})
		})
	}
}

func TestSetAccountLaterRefusesNobody(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerAccount = perHour(1)
	cfg.Deny.Accounts = []string{"thief"}
	l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
	for i, id := range []string{"verified", "verified", "verified", "thief"} {
		admitted(t, l.Handler(later(func(ctx context.Context) { SetAccount(ctx, id) })), claiming(fmt.Sprint("claimed", i), addr1))
	}
	// And a token that was not taken is not given back: verified had one.
	admitted(t, l.Handler(later(func(ctx context.Context) { SetAccount(ctx, "verified"); Disown(ctx) })), claiming("claimed9", addr1))
	refusedBy(t, l.Handler(served), claiming("verified", addr1), TierPerAccount)
}

// Whoever sends junk with a victim's kid pays with his own address and from the
// common bucket; the victim does not (requirement T9).
func TestDisownGivesBackTheAccountsTokenOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, opts := fourTiers()
		s := newLedger()
		l := newLimiter(t, cfg, append(opts, WithStore(s))...)
		h := l.Handler(later(Disown))
		for range 40 {
			admitted(t, h, in4("192.0.2.66", "f1", "victim"))
		}
		for tier, want := range map[string]float64{TierGlobal: 60, TierPerIP: 60, "fleet": 60, TierPerAccount: 100} {
			if got := s.in(tier); !slices.Equal(got, []float64{want}) {
				t.Errorf("%s holds %v, want %v", tier, got, want)
			}
		}
		if n := s.asked("refund"); n != 40 {
			t.Errorf("%d refunds, want 40", n)
		}
	})
}

func TestDisownNeverFillsABucketAboveItsBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = TierConfig{Rate: 1, Burst: 3}
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		admitted(t, l.Handler(later(func(ctx context.Context) {
			time.Sleep(time.Hour) // full again long since
			Disown(ctx)
		})), claiming("a1", addr1))
		left(t, l.Handler(served), 3, func() *http.Request { return claiming("a1", addr1) })
	})
}

// A request that is under way while a Reload raises the burst must not, by
// giving its token back, cut the bucket to the size it had.
func TestDisownAfterAReloadTakesNothingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = TierConfig{Rate: 1, Burst: 5}
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		admitted(t, l.Handler(later(func(ctx context.Context) {
			cfg.Tiers.PerAccount = TierConfig{Rate: 1, Burst: 100}
			if err := l.Reload(cfg); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Second)
			admitted(t, l.Handler(served), claiming("a1", addr1)) // 4 + 50 - 1
			Disown(ctx)
		})), claiming("a1", addr1))
		left(t, l.Handler(served), 54, func() *http.Request { return claiming("a1", addr1) })
	})
}

// What a tier in shadow mode takes goes back like any other token, and what it
// could not take does not.
func TestDisownIsExactInShadowMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.Tiers.PerAccount = perHour(2)
		cfg.Shadow = []string{TierPerAccount}
		s := newLedger()
		l := newLimiter(t, cfg, WithStore(s), WithAccount(byHeader("Account")))
		holds := func(when string, want float64) {
			t.Helper()
			if got := s.in(TierPerAccount); len(got) != 1 || got[0] != want {
				t.Errorf("%s the buckets hold %v, want %v", when, got, want)
			}
		}
		admitted(t, l.Handler(later(Disown)), claiming("a1", addr1))
		holds("after a request that was disowned", 2)
		for range 2 {
			admitted(t, l.Handler(served), claiming("a1", addr1))
		}
		holds("after two requests", 0)
		admitted(t, l.Handler(later(Disown)), claiming("a1", addr1))
		holds("after one that took nothing and was disowned", 0)
		admitted(t, l.Handler(later(func(ctx context.Context) {
			SetAccount(ctx, "a1")
			Disown(ctx)
		})), from(addr1))
		holds("after one that was set, took nothing and was disowned", 0)
	})
}

// Whose network or class is exempt is never limited, so neither is the account
// that the handler finds out later.
func TestSetAccountLaterChargesNobodyForAnExemptRequest(t *testing.T) {
	for name, exempt := range map[string]ExemptConfig{
		"by network": {Networks: []string{addr1}},
		"by class":   {Classes: []Class{"api"}},
		"by account": {Accounts: []string{"monitor", "verified"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := noTiers()
			cfg.Tiers.PerAccount = perHour(10)
			cfg.Endpoints = []Endpoint{{Class: "other"}}
			cfg.Exempt = exempt
			s := newLedger()
			l := newLimiter(t, cfg, WithStore(s), WithAccount(byHeader("Account")))
			admitted(t, l.Handler(later(func(ctx context.Context) { SetAccount(ctx, "verified") })), claiming("monitor", addr1))
			if got := s.in(TierPerAccount); len(got) != 0 {
				t.Errorf("the account tier was asked: %v", got)
			}
		})
	}
}

func TestOutsideALimiterNothingHappens(t *testing.T) {
	ctx := t.Context()
	SetAccount(ctx, "a1")
	Disown(ctx)
	if info, ok := FromContext(ctx); ok || info != (Info{}) {
		t.Errorf("got %+v, %v", info, ok)
	}
}

// A handler's goroutines may outlive the request. What they ask and say then
// is harmless, and a charge moves once however many of them say so.
func TestContextOutlivesTheRequest(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(10), perHour(10)
	l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
	var wg sync.WaitGroup
	ended := make(chan struct{})
	admitted(t, l.Handler(later(func(ctx context.Context) {
		for i := range 8 {
			wg.Go(func() {
				<-ended
				for range 50 {
					SetAccount(ctx, fmt.Sprint("a", i%2))
					if info, ok := FromContext(ctx); !ok || info.Addr.String() != addr1 || info.Class != "api" {
						t.Errorf("got %+v, %v", info, ok)
					}
					Disown(ctx)
				}
			})
		}
	})), claiming("a0", addr1))
	close(ended)
	wg.Wait()
	if got := budgets(t, l, "a0"); got[0] != 9 { // the address has one less
		t.Errorf("a0 has %v left, want 9", got)
	}
}

func TestInfoIsACopy(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.PerAccount = perHour(10)
	var before, after Info
	h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(later(func(ctx context.Context) {
		before, _ = FromContext(ctx)
		SetAccount(ctx, "verified")
		after, _ = FromContext(ctx)
	}))
	admitted(t, h, claiming("claimed", addr1))
	if before.Account != "claimed" || after.Account != "verified" {
		t.Errorf("the accounts are %q before and %q after SetAccount", before.Account, after.Account)
	}
}

// The visit is a context like any other: values, deadlines and cancellation
// of what is above it come through.
func TestVisitPassesOnItsParent(t *testing.T) {
	type key struct{}
	cfg := noTiers()
	cfg.Tiers.PerIP = perHour(10)
	h := newLimiter(t, cfg).Handler(later(func(ctx context.Context) {
		if ctx.Value(key{}) != "value" {
			t.Error("a value of the parent is lost")
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the deadline of the parent is lost")
		}
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), errStoreDown) {
			t.Errorf("the parent's end is told as %v because of %v", ctx.Err(), context.Cause(ctx))
		}
		child, cancel := context.WithCancel(ctx)
		defer cancel()
		if child.Err() == nil {
			t.Error("a child outlives its parent")
		}
	}))
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	end(errStoreDown)
	admitted(t, h, from(addr1).WithContext(ctx))
}

// Ids leave a request as keyed hashes only (requirement L10): not in store
// keys, not in metrics, not in logs.
func TestNoIDLeavesARequestInClear(t *testing.T) {
	const secret = "alice@example.org"
	cfg, opts := fourTiers()
	narrow(&cfg, TierPerAccount, 1)
	narrow(&cfg, "fleet", 2)
	s, reg := newLedger(), prometheus.NewRegistry()
	logged, log := withLog()
	h := newLimiter(t, cfg, append(opts, log, WithStore(s), WithRegisterer(reg))...).Handler(served)
	for range 5 {
		send(h, in4("203.0.113.77", secret, secret))
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	metrics, _ := json.Marshal(families)
	var keys strings.Builder
	for id := range s.tokens() {
		fmt.Fprintf(&keys, "%s %q\n", id.scope, id.key[:])
	}
	for where, text := range map[string]string{"metrics": string(metrics), "logs": strings.Join(logged.with(), "\n"), "keys": keys.String()} {
		if text == "" {
			t.Errorf("%s: nothing to look at", where)
		}
		for _, id := range []string{secret, secret[:8], "203.0.113.77"} {
			if strings.Contains(text, id) {
				t.Errorf("%s tell %q:\n%s", where, id, text)
			}
		}
	}
	t.Run("two Limiters do not hash alike", func(t *testing.T) {
		a, b := newLimiter(t, noTiersBut(TierPerAccount)), newLimiter(t, noTiersBut(TierPerAccount))
		if a.keyer.key(TierPerAccount, secret) == b.keyer.key(TierPerAccount, secret) {
			t.Error("the same hash without a common secret")
		}
	})
	t.Run("two that share a secret do", func(t *testing.T) {
		cfg := noTiersBut(TierPerAccount)
		cfg.Store.KeySecret = "0123456789abcdef"
		a, b := newLimiter(t, cfg), newLimiter(t, cfg)
		if a.keyer.key(TierPerAccount, secret) != b.keyer.key(TierPerAccount, secret) {
			t.Error("another hash in spite of a common secret")
		}
	})
}
