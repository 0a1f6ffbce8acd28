package weir

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
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

// isSame reports whether two handlers are one.
func isSame(a, b http.Handler) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

func TestDisabledLimiterIsNotThere(t *testing.T) {
	cfg, opts := fourTiers()
	cfg.Enabled = false
	cfg.Tiers.Global.Burst = -1 // not even looked at
	reg := prometheus.NewRegistry()
	s := newLedger()
	logged, log := withLog()
	l := newLimiter(t, cfg, append(opts, WithRegisterer(reg), WithStore(s), log)...)
	mux := http.NewServeMux()
	for name, h := range map[string]http.Handler{
		"Handler": l.Handler(mux), "Protect": l.Protect("no_such_class", mux), "ClientIP": l.ClientIP(mux),
		"Tiers": l.Tiers(mux), "Guard": l.Guard("no_such_guard").Handler(mux),
	} {
		if h != http.Handler(mux) {
			t.Errorf("%s does not return the handler itself", name)
		}
	}
	if !isSame(l.Handler(served), served) {
		t.Error("Handler does not return the function itself")
	}
	release, err := l.Guard("no_such_guard").Acquire(t.Context())
	if err != nil {
		t.Errorf("Acquire: %v", err)
	}
	release()
	release()
	if families, err := reg.Gather(); err != nil || len(families) > 0 {
		t.Errorf("%d metrics are registered, %v", len(families), err)
	}
	if len(s.tokens()) > 0 || len(logged.with()) > 0 {
		t.Error("the store was asked, or something was logged")
	}
	if got := l.Snapshot(); got.Enabled || len(got.Classes) > 0 || len(got.Tiers) > 0 {
		t.Errorf("the snapshot is %+v", got)
	}
}

func TestWiringMistakesPanicWithTheCure(t *testing.T) {
	cfg, opts := fourTiers()
	cfg.Endpoints = []Endpoint{{Pattern: "/a", Class: "alpha"}, {Class: "beta"}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg, opts...)
	for name, tc := range map[string]struct {
		do   func()
		want []string
	}{
		"a class that is not defined": {func() { l.Protect("gamma", served) }, []string{`"gamma"`, "alpha", "api", "beta"}},
		"the empty class":             {func() { l.Protect("", served) }, []string{`""`, "alpha"}},
		"a guard that is not defined": {func() { l.Guard("hms") }, []string{`"hms"`, "hsm"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				for _, want := range append(tc.want, "weir: ") {
					if !strings.Contains(text, want) {
						t.Errorf("the panic says %q, want %s in it", text, want)
					}
				}
			}()
			tc.do()
		})
	}
	for _, class := range []Class{"alpha", "beta", "api"} {
		l.Protect(class, served)
	}
}

// However the stages are mounted, one request is charged once and all tiers
// hold.
func TestRequestIsChargedOnceHoweverTheStagesAreMounted(t *testing.T) {
	for _, tc := range []struct {
		name string
		wrap func(l *Limiter, h http.Handler) http.Handler
	}{
		{"Handler", func(l *Limiter, h http.Handler) http.Handler { return l.Handler(h) }},
		{"Protect", func(l *Limiter, h http.Handler) http.Handler { return l.Protect("order", h) }},
		{"Tiers alone", func(l *Limiter, h http.Handler) http.Handler { return l.Tiers(h) }},
		{"ClientIP and Tiers", func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.Tiers(h)) }},
		{"ClientIP, Tiers and Guard", func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.Tiers(l.Guard("hsm").Handler(h))) }},
		{"Handler twice", func(l *Limiter, h http.Handler) http.Handler { return l.Handler(l.Handler(h)) }},
		{"Protect twice", func(l *Limiter, h http.Handler) http.Handler { return l.Protect("order", l.Protect("order", h)) }},
		{"Handler around Protect", func(l *Limiter, h http.Handler) http.Handler { return l.Handler(l.Protect("order", h)) }},
		{"Protect around Handler", func(l *Limiter, h http.Handler) http.Handler { return l.Protect("order", l.Handler(h)) }},
		{"ClientIP around Protect", func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.Protect("order", h)) }},
		{"ClientIP around Handler", func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.Handler(h)) }},
		{"ClientIP twice", func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.ClientIP(l.Tiers(h))) }},
		{"Tiers twice", func(l *Limiter, h http.Handler) http.Handler { return l.Tiers(l.Tiers(h)) }},
		{"Handler around all stages", func(l *Limiter, h http.Handler) http.Handler { return l.Handler(l.ClientIP(l.Tiers(h))) }},
		{"Guard before Tiers", func(l *Limiter, h http.Handler) http.Handler { return l.Guard("hsm").Handler(l.Tiers(h)) }},
		{"another middleware between", func(l *Limiter, h http.Handler) http.Handler {
			type key struct{}
			inner := l.Handler(h)
			return l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(w, r.Clone(context.WithValue(r.Context(), key{}, 1)))
			}))
		}},
		{"another Limiter between", func(l *Limiter, h http.Handler) http.Handler {
			other, err := New(noTiersBut(TierGlobal), WithLogger(l.log))
			if err != nil {
				panic(err)
			}
			return l.Handler(other.Handler(l.Handler(h)))
		}},
		{"a TimeoutHandler inside", func(l *Limiter, h http.Handler) http.Handler { return l.Handler(http.TimeoutHandler(h, time.Hour, "")) }},
		{"a TimeoutHandler outside", func(l *Limiter, h http.Handler) http.Handler { return http.TimeoutHandler(l.Handler(h), time.Hour, "") }},
		{"a TimeoutHandler between the stages", func(l *Limiter, h http.Handler) http.Handler {
			return l.ClientIP(http.TimeoutHandler(l.Tiers(h), time.Hour, ""))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, opts := fourTiers()
				narrow(&cfg, TierPerIP, 3)
				cfg.Endpoints = []Endpoint{{Pattern: "/order", Class: "order", Guard: "hsm"}}
				cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
				s := newLedger()
				l := newLimiter(t, cfg, append(opts, WithStore(s))...)
				h := tc.wrap(l, served)
				r := func() *http.Request {
					return withHeader(withHeader(request("GET", "/order", addr1, ""), "Fleet", "f1"), "Account", "a1")
				}
				admitted(t, h, r())
				for tier, want := range map[string]float64{TierGlobal: 99, TierPerIP: 2, "fleet": 99, TierPerAccount: 99} {
					if got := s.in(tier); !slices.Equal(got, []float64{want}) {
						t.Errorf("%s holds %v, want %v", tier, got, want)
					}
				}
				left(t, h, 2, r)
				if c := classOf(t, l, "order"); c.Admitted != 3 || c.Throttled[TierPerIP] != 3 {
					t.Errorf("%d admitted and %d throttled were counted, want 3 and 3", c.Admitted, c.Throttled[TierPerIP])
				}
			})
		})
	}
}

// Handler lets a request pass that no pattern matches, but that is no ticket
// for what Protect stands in front of.
func TestProtectHoldsBehindAHandlerThatKnowsNoClass(t *testing.T) {
	for name, wrap := range map[string]func(l *Limiter, h http.Handler) http.Handler{
		"behind Handler":            func(l *Limiter, h http.Handler) http.Handler { return l.Handler(h) },
		"behind Tiers":              func(l *Limiter, h http.Handler) http.Handler { return l.Tiers(h) },
		"behind ClientIP and Tiers": func(l *Limiter, h http.Handler) http.Handler { return l.ClientIP(l.Tiers(h)) },
		"behind two Handlers":       func(l *Limiter, h http.Handler) http.Handler { return l.Handler(l.Handler(h)) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, opts := fourTiers()
			narrow(&cfg, TierPerIP, 2)
			cfg.DefaultClass = ""
			cfg.Endpoints = []Endpoint{{Pattern: "/other", Class: "other"}, {Class: "signing", Kind: KindEST}}
			l := newLimiter(t, cfg, opts...)
			var class Class
			inner := l.Protect("signing", later(func(ctx context.Context) {
				info, _ := FromContext(ctx)
				class = info.Class
			}))
			h := wrap(l, inner)
			left(t, h, 2, func() *http.Request { return request("POST", "/sign", addr1, "") })
			if class != "signing" {
				t.Errorf("the handler sees class %q, want signing", class)
			}
		})
	}
}

func TestTwoLimitersNestedBothCharge(t *testing.T) {
	outer, inner := noTiersBut(TierPerIP), noTiersBut(TierPerAccount)
	outer.Tiers.PerIP, inner.Tiers.PerAccount = perHour(4), perHour(2)
	lo, li := newLimiter(t, outer), newLimiter(t, inner, WithAccount(byHeader("Account")))
	h := lo.Handler(li.Handler(served))
	left(t, h, 2, func() *http.Request { return claiming("a1", addr1) }) // 5 arrive, 4 get to the inner one
	refusedBy(t, h, claiming("a2", addr1), TierPerIP)
	left(t, h, 2, func() *http.Request { return claiming("a3", "192.0.2.2") })
}

// What the handler finds out about its caller concerns every Limiter that has
// charged the caller, not the innermost only.
func TestDisownReachesEveryLimiter(t *testing.T) {
	cfg := noTiersBut(TierPerAccount)
	cfg.Tiers.PerAccount = perHour(3)
	a, b := newLimiter(t, cfg, WithAccount(byHeader("Account"))), newLimiter(t, cfg, WithAccount(byHeader("Account")))
	for range 10 {
		admitted(t, a.Handler(b.Handler(later(Disown))), claiming("victim", addr1))
	}
	admitted(t, a.Handler(b.Handler(later(func(ctx context.Context) { SetAccount(ctx, "verified") }))), claiming("victim", addr1))
	for name, l := range map[string]*Limiter{"outer": a, "inner": b} {
		for id, want := range map[string]int{"victim": 3, "verified": 2} {
			if got := admits(l.Handler(served), 4, func() *http.Request { return claiming(id, addr1) }); got != want {
				t.Errorf("%s: %s has %d left, want %d", name, id, got, want)
			}
		}
	}
}

// Stages that a program puts together answer as Handler does.
func TestStagesComposedByHandEqualHandler(t *testing.T) {
	build := func(whole bool) (http.Handler, *Limiter) {
		cfg, opts := fourTiers()
		narrow(&cfg, TierPerIP, 6)
		narrow(&cfg, TierPerAccount, 3)
		cfg.Endpoints = []Endpoint{
			{Pattern: "/order", Class: "order", Guard: "hsm", Kind: KindACME},
			{Pattern: "GET /crl", Class: "crl", Kind: KindCRL, Cost: 2},
		}
		cfg.DefaultClass = ""
		cfg.Deny.Networks = []string{"203.0.113.0/24"}
		cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
		l := newLimiter(t, cfg, opts...)
		if whole {
			return l.Handler(served), l
		}
		mux := http.NewServeMux()
		mux.Handle("/order", l.Guard("hsm").Handler(served))
		mux.Handle("/", served)
		return l.ClientIP(l.Tiers(mux)), l
	}
	whole, lw := build(true)
	stages, ls := build(false)
	for i, r := range []func() *http.Request{
		func() *http.Request { return in4(addr1, "f", "a") },
		func() *http.Request { return request("GET", "/order", addr1, "") },
		func() *http.Request { return request("GET", "/crl", addr1, "") },
		func() *http.Request { return acmePost("/order", addr1, kidBody("https://ca/acct/1")) },
		func() *http.Request { return acmePost("/order", addr1, kidBody("https://ca/acct/1")) },
		func() *http.Request { return acmePost("/order", "192.0.2.9", kidBody("https://ca/acct/1")) },
		func() *http.Request { return acmePost("/order", "192.0.2.9", kidBody("https://ca/acct/1")) },
		func() *http.Request { return request("GET", "/crl", addr1, "") },
		func() *http.Request { return request("HEAD", "/crl", "192.0.2.8", "") },
		func() *http.Request { return request("GET", "/crl", "203.0.113.1", "") },
		func() *http.Request { return request("GET", "/nothing", "203.0.113.1", "") },
	} {
		a, b := send(whole, r()), send(stages, r())
		if a.Code != b.Code || a.Body.String() != b.Body.String() || !reflect.DeepEqual(a.Header(), b.Header()) {
			t.Errorf("request %d: Handler answers %d %v, the stages %d %v", i, a.Code, a.Header(), b.Code, b.Header())
		}
	}
	if a, b := lw.Snapshot(), ls.Snapshot(); !reflect.DeepEqual(a.Classes, b.Classes) {
		t.Errorf("Handler counts %+v, the stages %+v", a.Classes, b.Classes)
	}
}

// The chain hands the ResponseWriter itself on: whatever it can do, the handler
// can do.
func TestResponseWriterIsHandedOnAsItIs(t *testing.T) {
	cfg, opts := fourTiers()
	l := newLimiter(t, cfg, opts...)
	w := httptest.NewRecorder()
	for _, stage := range []func(http.Handler) http.Handler{l.Handler, l.ClientIP, l.Tiers, func(h http.Handler) http.Handler { return l.Protect("api", h) }} {
		stage(http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
			if got != http.ResponseWriter(w) {
				t.Errorf("the handler got a %T, want the very same writer", got)
			}
		})).ServeHTTP(w, from(addr1))
	}
}

// On a real server, over HTTP/1.1 and HTTP/2, everything a handler may ask of
// its writer works behind the chain.
func TestHandlersKeepTheirPowersOnAServer(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		cfg, opts := fourTiers()
		var hijacked atomic.Bool
		srv := httptest.NewUnstartedServer(newLimiter(t, cfg, opts...).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctl := http.NewResponseController(w)
			switch r.URL.Path {
			case "/flush":
				_, _ = io.WriteString(w, "first ")
				if err := ctl.Flush(); err != nil {
					t.Errorf("Flush: %v", err)
				}
				_, _ = io.WriteString(w, r.Proto)
			case "/deadline":
				if err := errors.Join(ctl.SetReadDeadline(time.Now().Add(time.Hour)), ctl.SetWriteDeadline(time.Now().Add(time.Hour))); err != nil {
					t.Errorf("deadlines: %v", err)
				}
			case "/duplex":
				if err := ctl.EnableFullDuplex(); err != nil {
					t.Errorf("EnableFullDuplex: %v", err)
				}
			case "/copy":
				if _, ok := w.(io.ReaderFrom); !ok && r.ProtoMajor == 1 {
					t.Error("the writer is no ReaderFrom any more")
				}
				_, _ = io.Copy(w, strings.NewReader("copied"))
			case "/hijack":
				conn, buf, err := ctl.Hijack()
				if err != nil {
					t.Errorf("Hijack: %v", err)
					return
				}
				hijacked.Store(true)
				_, _ = buf.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				_ = buf.Flush()
				_ = conn.Close()
			}
		})))
		srv.EnableHTTP2 = h2
		srv.StartTLS()
		get := func(path string) (int, string) {
			resp, err := srv.Client().Get(srv.URL + path)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(body)
		}
		if _, body := get("/flush"); body != "first "+map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2] {
			t.Errorf("the flushed answer is %q", body)
		}
		if _, body := get("/copy"); body != "copied" {
			t.Errorf("the copied answer is %q", body)
		}
		get("/deadline")
		if !h2 {
			get("/duplex")
			if code, _ := get("/hijack"); code != 299 || !hijacked.Load() {
				t.Errorf("the hijacked answer is %d", code)
			}
		}
		srv.Close()
	}
}

// Requests that do not look like requests.
func TestOddRequestsNeitherPanicNorSlipThrough(t *testing.T) {
	raw := func(method, requestURI, path, host string) *http.Request {
		r := from(addr1)
		r.Method, r.RequestURI, r.URL.Path, r.Host = method, requestURI, path, host
		return r
	}
	for _, tc := range []struct {
		name string
		r    func() *http.Request
	}{
		{"OPTIONS *", func() *http.Request { return raw("OPTIONS", "*", "*", "ca.example") }},
		{"CONNECT to a host", func() *http.Request { return raw("CONNECT", "evil.example:443", "", "evil.example:443") }},
		{"CONNECT with a path", func() *http.Request { return raw("CONNECT", "/acme/new-order", "/acme/new-order", "ca.example") }},
		{"an empty path", func() *http.Request { return raw("GET", "", "", "ca.example") }},
		{"a path without a slash", func() *http.Request { return raw("GET", "x", "x", "ca.example") }},
		{"an empty host", func() *http.Request { return raw("GET", "/", "/", "") }},
		{"a host that is none", func() *http.Request { return raw("GET", "/", "/", "]:::[\x00") }},
		{"an empty method is GET", func() *http.Request { return raw("", "/", "/", "ca.example") }},
		{"a method of its own", func() *http.Request { return raw("BREW", "/pot", "/pot", "ca.example") }},
		{"no body at all", func() *http.Request {
			r := acmePost("/acme/new-order", addr1, "x")
			r.Body = nil
			return r
		}},
		{"no headers at all", func() *http.Request {
			r := from(addr1)
			r.Header = nil
			return r
		}},
		{"a megabyte of headers", func() *http.Request {
			r := from(addr1)
			for i := range 100 {
				r.Header.Add("X-Forwarded-For", strings.Repeat("1.2.3.4,", 1000))
				r.Header.Add("Accept", strings.Repeat("text/html;q=0.1,", 500))
				r.Header.Set(fmt.Sprint("X-", i), strings.Repeat("x", 1000))
			}
			return r
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := noTiers()
			cfg.ClientIP.TrustedProxies = []string{"192.0.2.0/24"}
			cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
			cfg.Tiers.Global, cfg.Tiers.PerAccount = perHour(2), perHour(2)
			left(t, newLimiter(t, cfg).Handler(served), 2, tc.r)
		})
	}
}

func TestPanickingHandlerLeavesTheChainWhole(t *testing.T) {
	cfg, opts := fourTiers()
	cfg.Endpoints = []Endpoint{{Pattern: "/boom", Class: "boom", Guard: "hsm"}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	narrow(&cfg, TierPerIP, 5)
	l := newLimiter(t, cfg, opts...)
	h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Panic") != "" {
			SetAccount(r.Context(), "a2")
			panic(http.ErrAbortHandler)
		}
		served(w, r)
	}))
	boom := func() *http.Request { return request("GET", "/boom", addr1, "") }
	for range 3 {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("the panic arrives as %v", p)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), withHeader(boom(), "Panic", "1"))
		}()
	}
	left(t, h, 2, boom) // its tokens stay spent, its slot does not
	if g := l.Snapshot().Guards[0]; g.InFlight != 0 {
		t.Errorf("%d slots are still held", g.InFlight)
	}
}

// A handler that http.TimeoutHandler gave up on runs on. What it then says
// about its caller still counts, and disturbs nobody.
func TestTimedOutHandlerMaySettleLate(t *testing.T) {
	for name, wrap := range map[string]func(l *Limiter, h http.Handler) http.Handler{
		"outside": func(l *Limiter, h http.Handler) http.Handler {
			return http.TimeoutHandler(l.Handler(h), time.Second, "late")
		},
		"inside": func(l *Limiter, h http.Handler) http.Handler {
			return l.Handler(http.TimeoutHandler(h, time.Second, "late"))
		},
		"between": func(l *Limiter, h http.Handler) http.Handler {
			return l.ClientIP(http.TimeoutHandler(l.Tiers(h), time.Second, "late"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiersBut(TierPerAccount)
				cfg.Tiers.PerAccount = perHour(10)
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
				done := make(chan struct{})
				w := send(wrap(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					defer close(done)
					time.Sleep(time.Minute)
					if info, ok := FromContext(r.Context()); !ok || info.Account != "claimed" {
						t.Errorf("got %+v, %v", info, ok)
					}
					SetAccount(r.Context(), "verified")
				})), claiming("claimed", addr1))
				if w.Code != http.StatusServiceUnavailable || w.Body.String() != "late" {
					t.Errorf("the answer is %d %q, want TimeoutHandler's", w.Code, w.Body)
				}
				<-done
				if got := budgets(t, l, "claimed", "verified"); !slices.Equal(got, []int{10, 9}) {
					t.Errorf("claimed and verified have %v left, want 10 and 9", got)
				}
			})
		})
	}
}

// A program may send one request through several handlers at once (to hedge,
// say). That is one request still.
func TestOneRequestOnSeveralGoroutinesIsChargedOnce(t *testing.T) {
	for name, fan := range map[string]func(l *Limiter) []http.Handler{
		"twice the same stage": func(l *Limiter) []http.Handler { h := l.Tiers(served); return []http.Handler{h, h, h, h} },
		"two classes": func(l *Limiter) []http.Handler {
			return []http.Handler{l.Protect("api", served), l.Protect("order", served)}
		},
		"tiers and guard": func(l *Limiter) []http.Handler {
			return []http.Handler{l.Tiers(served), l.Guard("hsm").Handler(served)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, opts := fourTiers()
			cfg.Endpoints = []Endpoint{{Pattern: "/order", Class: "order", Mode: ModeFail}}
			cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 4}}
			s := newBrokenStore(func(context.Context) error { // slow, so that they meet there
				for range 100 {
					runtime.Gosched()
				}
				return nil
			})
			l := newLimiter(t, cfg, append(opts, WithStore(s))...)
			handlers := fan(l)
			for range 20 {
				l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					var wg sync.WaitGroup
					for _, h := range handlers {
						wg.Go(func() {
							h.ServeHTTP(httptest.NewRecorder(), r)
							FromContext(r.Context())
							SetAccount(r.Context(), "a1")
						})
					}
					wg.Wait()
				})).ServeHTTP(httptest.NewRecorder(), from(addr1))
			}
			if got := s.in(TierPerIP); len(got) != 1 || got[0] < 80 || got[0] > 80.1 {
				t.Errorf("20 requests left %v of 100 tokens, want 80", got)
			}
		})
	}
}

// ---- A store that fails must not become an outage.

func TestFailingStoreRefusesNobodyForIt(t *testing.T) {
	for _, tc := range []struct {
		name    string
		onError string
		want    int // of 10 like requests where the tier holds 3
	}{
		{"local counting takes over and limits", "local", 3},
		{"allow lets pass uncounted", "allow", 10},
		{"local is the default", "", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, opts := fourTiers()
				narrow(&cfg, TierPerIP, 3)
				cfg.Store.OnError = tc.onError
				s, reg := newBrokenStore(failAtOnce), prometheus.NewRegistry()
				logged, log := withLog()
				l := newLimiter(t, cfg, append(opts, WithStore(s), WithRegisterer(reg), log)...)
				h := l.Handler(served)
				r := func() *http.Request { return in4(addr1, "f1", "a1") }
				if got := admits(h, 10, r); got != tc.want {
					t.Errorf("%d of 10 were admitted, want %d", got, tc.want)
				}
				if got := metric(t, reg, "weir_store_errors_total", "op", "admit", "reason", "other"); got != 10 {
					t.Errorf("%v errors counted, want 10", got)
				}
				lines := logged.with("ERROR", "op=admit", errStoreDown.Error())
				if len(lines) != 1 {
					t.Errorf("%d log lines within one interval, want one:\n%s", len(lines), strings.Join(lines, "\n"))
				}
				time.Sleep(storeLogInterval + 1)
				send(h, r())
				if lines = logged.with("ERROR", "op=admit", "times=10"); len(lines) != 1 {
					t.Errorf("the next interval's line is missing or does not say how often: %q", logged.with("ERROR"))
				}
				s.repair()
				left(t, h, 3, func() *http.Request { return in4("192.0.2.2", "f1", "a1") })
			})
		})
	}
}

// A store that hangs holds a request up for a moment, not for ever: the chain
// gives it a deadline where the request has none.
func TestHangingStoreHoldsNobodyUpForLong(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context){
		"on admission":              func(context.Context) {},
		"when the account is set":   func(ctx context.Context) { SetAccount(ctx, "a2") },
		"when the request disowned": Disown,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, opts := fourTiers()
				s := newBrokenStore(nil)
				l := newLimiter(t, cfg, append(opts, WithStore(s))...)
				if name == "on admission" {
					s.breakAs(failAtDeadline)
				}
				start := time.Now()
				admitted(t, l.Handler(later(func(ctx context.Context) {
					s.breakAs(failAtDeadline)
					do(ctx)
					FromContext(ctx)
				})), in4(addr1, "f1", "a1"))
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("the request took %v", took)
				}
			})
		})
	}
}

// A store that panics is one that fails: for who asks the store on the way, for
// a body that must stay unread, and for a handler that settles.
func TestPanickingStoreIsAFailingStore(t *testing.T) {
	explode := func(context.Context) error { panic("nil map") }
	cfg, opts := fourTiers()
	cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
	narrow(&cfg, TierPerIP, 3)
	s, reg := newBrokenStore(nil), prometheus.NewRegistry()
	logged, log := withLog()
	l := newLimiter(t, cfg, append(opts, WithStore(s), WithRegisterer(reg), log)...)
	h := l.Handler(later(func(ctx context.Context) {
		s.breakAs(explode)
		SetAccount(ctx, "a2")
		Disown(ctx)
		Disown(ctx)
	}))
	admitted(t, h, in4(addr1, "f1", "a1"))
	for range 3 { // the local bucket is another
		admitted(t, h, acmePost("/acme/new-order", addr1, kidBody("https://ca/acct/1")))
	}
	r := acmePost("/acme/new-order", addr1, "x")
	r.Body = unread{t}
	refused(t, h, r)
	for _, op := range []string{"admit", "refund"} {
		if got := metric(t, reg, "weir_store_errors_total", "op", op, "reason", "panic"); got == 0 {
			t.Errorf("no errors of %s counted", op)
		}
		if n := len(logged.with("ERROR", "op="+op, "panic: nil map")); n != 1 {
			t.Errorf("%d log lines for %s, want one", n, op)
		}
	}
}

// A store may look at the request that it is asked for, to trace its calls by
// class, say.
func TestStoreMayLookAtTheRequest(t *testing.T) {
	cfg, opts := fourTiers()
	var classes []Class
	s := newBrokenStore(func(ctx context.Context) error {
		info, _ := FromContext(ctx)
		classes = append(classes, info.Class)
		return nil
	})
	l := newLimiter(t, cfg, append(opts, WithStore(s))...)
	admitted(t, l.ClientIP(l.Tiers(later(func(ctx context.Context) {
		SetAccount(ctx, "a2")
		Disown(ctx)
	}))), in4(addr1, "f1", "a1"))
	if len(classes) != 4 || classes[0] != "api" { // admit, refund, admit, refund
		t.Errorf("the store saw %q", classes)
	}
}

// A client that leaves, or whose deadline passes, while the store is slow ends no
// call: it is no failure of the store, and no way past a limit that is not counted
// while the store fails.
func TestLeavingClientIsCountedLikeAnyOther(t *testing.T) {
	for name, leave := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"gone": func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
		"too late": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, reg := newBrokenStore(func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(10 * time.Millisecond):
						return nil
					}
				}), prometheus.NewRegistry()
				cfg := noTiers()
				cfg.Tiers.PerIP = perHour(1)
				cfg.Store.OnError = "allow"
				h := newLimiter(t, cfg, WithStore(s), WithRegisterer(reg)).Handler(served)
				for want := range 2 { // the first is admitted, the second is not
					ctx, stop := leave(t.Context())
					time.AfterFunc(time.Millisecond, stop)
					w := send(h, from(addr1).WithContext(ctx))
					if refused := w.Code == http.StatusTooManyRequests; refused != (want == 1) {
						t.Errorf("request %d: %d", want, w.Code)
					}
				}
				if got := metric(t, reg, "weir_store_errors_total", "op", "admit", "reason", "timeout"); got != 0 {
					t.Errorf("%v errors counted, want none", got)
				}
			})
		})
	}
}

// A token goes back to whoever gave it: after the store has come back it must
// not be handed one that it never lent, nor may the local bucket keep it.
func TestTokenGoesBackToTheStoreItCameFrom(t *testing.T) {
	for _, onError := range []string{"local", "allow"} {
		t.Run(onError, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := noTiersBut(TierPerAccount)
				cfg.Tiers.PerAccount = perHour(3)
				cfg.Store.OnError = onError
				s := newBrokenStore(nil)
				l := newLimiter(t, cfg, WithStore(s), WithAccount(byHeader("Account")))
				for range 2 {
					admitted(t, l.Handler(served), claiming("a1", addr1))
				}
				s.breakAs(failAtOnce)
				for range 5 { // more than the local bucket holds
					admitted(t, l.Handler(later(func(ctx context.Context) {
						s.repair()
						Disown(ctx)
						s.breakAs(failAtOnce)
					})), claiming("a1", addr1))
				}
				s.repair()
				left(t, l.Handler(served), 1, func() *http.Request { return claiming("a1", addr1) })
			})
		})
	}
}

func TestFailingStoreIsToldWhenAnAccountIsSetOrDisowned(t *testing.T) {
	for op, do := range map[string]func(context.Context){"admit": func(ctx context.Context) { SetAccount(ctx, "a2") }, "refund": Disown} {
		t.Run(op, func(t *testing.T) {
			cfg := noTiersBut(TierPerAccount)
			s, reg := newBrokenStore(nil), prometheus.NewRegistry()
			logged, log := withLog()
			l := newLimiter(t, cfg, WithStore(s), WithRegisterer(reg), WithAccount(byHeader("Account")), log)
			admitted(t, l.Handler(later(func(ctx context.Context) {
				s.breakAs(failAtOnce)
				do(ctx)
			})), claiming("a1", addr1))
			if got := metric(t, reg, "weir_store_errors_total", "op", op, "reason", "other"); got != 1 {
				t.Errorf("%v errors counted, want 1", got)
			}
			if n := len(logged.with("ERROR", "op="+op)); n != 1 {
				t.Errorf("%d log lines, want one", n)
			}
		})
	}
}

// plainStore has none of the optional powers.
type plainStore struct{ s store.Store }

func (p plainStore) Admit(ctx context.Context, c []store.Check, d []store.State) (store.Verdict, []store.State, error) {
	return p.s.Admit(ctx, c, d)
}
func (p plainStore) Refund(ctx context.Context, c []store.Check) error { return p.s.Refund(ctx, c) }
func (p plainStore) Close() error                                      { return p.s.Close() }

func TestStoreWithoutOptionalPowersIsEnough(t *testing.T) {
	cfg, opts := fourTiers()
	cfg.Endpoints = []Endpoint{{Pattern: "POST /acme/new-order", Class: "order", Kind: KindACME}}
	narrow(&cfg, TierPerIP, 2)
	l := newLimiter(t, cfg, append(opts, WithStore(plainStore{store.NewMemory()}))...)
	left(t, l.Handler(served), 2, func() *http.Request {
		return acmePost("/acme/new-order", addr1, kidBody("https://ca/acct/1"))
	})
	if err := l.Reload(cfg); err != nil {
		t.Error(err)
	}
	if got := l.Snapshot().Tiers; len(got) > 0 {
		t.Errorf("a store of unknown size is told to be %v", got)
	}
}

// A Limiter does not close a store that it was given, and a store that
// somebody else has closed is one that fails.
func TestStoreOfTheProgramsOwnStaysTheProgramsOwn(t *testing.T) {
	cfg := noTiersBut(TierPerIP)
	cfg.Tiers.PerIP = perHour(2)
	s := store.NewMemory()
	l := newLimiter(t, cfg, WithStore(s))
	_ = l.Close()
	if _, _, err := s.Admit(t.Context(), []store.Check{{Scope: "x", Limit: store.Limit{Rate: 1, Burst: 1}, Cost: 1}}, nil); err != nil {
		t.Errorf("the store is closed: %v", err)
	}
	h := l.Handler(served)
	left(t, h, 2, func() *http.Request { return from(addr1) }) // after Close it still limits
	_ = s.Close()
	left(t, h, 2, func() *http.Request { return from("192.0.2.2") })
}

// The raw bytes on the wire, for what an http.Client cannot be made to send.
func onTheWire(t *testing.T, srv *httptest.Server, text string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn)
}

func TestOddRequestLinesOverARealServer(t *testing.T) {
	cfg := noTiersBut(TierGlobal)
	cfg.Tiers.Global = perHour(1)
	srv := httptest.NewUnstartedServer(newLimiter(t, cfg).Handler(served))
	srv.Config.DisableGeneralOptionsHandler = true // or OPTIONS * would not get to any handler
	srv.Start()
	defer srv.Close()
	for i, line := range []string{"GET /first", "OPTIONS *", "CONNECT ca.example:443", "GET //acme//new-order", "GET /%2e%2e/x"} {
		in := onTheWire(t, srv, line+" HTTP/1.1\r\nHost: ca.example\r\nConnection: close\r\n\r\n")
		status, err := in.ReadString('\n')
		want := map[bool]string{true: "200", false: "429"}[i == 0]
		if err != nil || !strings.Contains(status, want) {
			t.Errorf("%s: %q, %v, want %s", line, status, err, want)
		}
	}
}
