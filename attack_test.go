package weir

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A path that one router takes for a dear request and another for a cheap one
// would let its sender choose how it is limited; it is refused, by each stage.
func TestPathsWithTwoMeaningsAreRefused(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints()
	cfg.AuthLock.Enabled = true
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg)
	for _, target := range []string{
		"/.well-known/est/..%2F..%2Fcrl/simpleenroll", "/ocsp/..%2Facme%2Fdirectory", "/ocsp/../acme/directory",
		"/scep/..%2Fcrl?operation=PKIOperation", "/acme/finalize/..%2F..%2Fdirectory", "/x/../.well-known/est/simpleenroll",
	} {
		for name, h := range map[string]http.Handler{
			"the chain": l.Handler(served), "tiers": l.Tiers(served), "windows": l.Windows(served),
			"the auth lock": l.AuthLock(served), "a guard": l.Guard("hsm").Handler(served), "address, then tiers": l.ClientIP(l.Tiers(served)),
		} {
			if w := send(h, request("POST", target, addr1, "")); w.Code != http.StatusBadRequest || w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: POST %s is answered %d", name, target, w.Code)
			}
		}
	}
}

// A client that sends its body slowly waits without a slot, and one that has
// left over HTTP/1.1 leaves the queue.
func TestSlowAndGoneClientsHoldNoSlot(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = []Endpoint{{Pattern: "/ocsp", Class: "ocsp", Kind: KindOCSP, Guard: "hsm"}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 2, MaxQueue: 8, AcquireTimeout: Duration(time.Minute)}}
	l := newLimiter(t, cfg)
	srv := httptest.NewServer(l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})))
	t.Cleanup(srv.Close) // after the connections below
	dial := func(body string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, _ = fmt.Fprintf(c, "POST /ocsp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n%s", body)
		return c
	}
	for range 4 {
		dial("{")
	}
	resp, err := http.Post(srv.URL+"/ocsp", "", strings.NewReader("{}{}"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("beside slow clients: %v, %v", resp, err)
	}
	_ = resp.Body.Close()

	var release []func()
	for range 2 {
		free, err := l.Guard("hsm").Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release = append(release, free)
	}
	gone := dial("{}{}")
	eventually(t, "the request to be queued", func() bool { return l.Snapshot().Guards[0].Queued == 1 })
	_ = gone.Close()
	eventually(t, "the queue to notice that its client has left", func() bool { return l.Snapshot().Guards[0].Queued == 0 })
	for _, free := range release {
		free()
	}
}

// eventually waits for what a server does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// Junk in a victim's name that a full guard sheds leaves the victim's tokens.
func TestShedJunkLeavesTheVictimItsTokens(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Tiers.PerAccount = perHour(3)
	cfg.Endpoints = []Endpoint{{Pattern: "/acme/new-order", Class: "order", Kind: KindACME, Guard: "hsm", Mode: ModeFail, Disown: true}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg)
	h := l.Handler(served)
	free, err := l.Guard("hsm").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if w := send(h, acmePost("/acme/new-order", addr1, kidBody("https://ca/acme/acct/1"))); w.Code != http.StatusServiceUnavailable {
			t.Fatalf("answered %d, want it shed", w.Code)
		}
	}
	free()
	for range 3 {
		admitted(t, h, acmePost("/acme/new-order", "198.51.100.2", kidBody("https://ca/acme/acct/1")))
	}
}

// An owner does not escape its account's tier by a header that its server takes.
func TestSeveralContentTypesHideNoAccount(t *testing.T) {
	cfg := acmeConfig(1)
	h := newLimiter(t, cfg).Handler(served)
	for i, types := range [][]string{{"application/jose+json", "x/y"}, {"application/jose+json; charset=utf-8"}} {
		r := acmePost(order, addr1, kidBody("https://ca/acme/acct/1"))
		r.Header["Content-Type"] = types
		if i == 0 {
			admitted(t, h, r)
		} else {
			refused(t, h, r)
		}
	}
}

// One address has no more than its share of those held, whatever it claims.
func TestOneAddressHoldsItsShareOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := acmeConfig(1)
	cfg.Tiers.PerAccount = TierConfig{Rate: 1.0 / 30, Burst: 1}
	cfg.Tiers.MaxWait, cfg.Tiers.MaxWaiting = Duration(time.Minute), 4*lineShare
	l := newLimiter(t, cfg)
	h := l.Handler(served)
	done := make(chan int, 100)
	for i := range 50 {
		kid := fmt.Sprintf("https://ca/acme/acct/%d", i/2)
		go func() { done <- send(h, acmePost(order, addr1, kidBody(kid)).WithContext(ctx)).Code }()
	}
	for range 46 { // 25 first ones pass, and 21 second ones find no place
		<-done
	}
	if n := l.Snapshot().Holding; n != 4 {
		t.Errorf("%d requests of one address are held, want 4", n)
	}
	cancel()
	for range 4 {
		<-done
	}
}

// Nor by a body that is longer, or deeper, than what is looked at; the key that
// a new account brings along hides nothing.
func TestHiddenAccountsCostNoLess(t *testing.T) {
	body := kidBody("https://ca/acme/acct/1")
	deep := strings.Repeat("[", 65) + strings.Repeat("]", 65)
	for _, tc := range []struct {
		name, body string
		free       bool
	}{
		{"blanks up to 65 KiB", body + strings.Repeat(" ", 65<<10), false},
		{"a deep member", `{"x":` + deep + "," + body[1:], false},
		{"what is no JSON", "}{", false},
		{"a null for a jwk, which go-jose takes for none", signed(map[string]any{"alg": "ES256", "kid": kid1, "jwk": nil}, "{}"), false},
		{"a kid in two spellings", signed(map[string]any{"alg": "ES256", "kid": kid1, "Kid": kid1}, "{}"), false},
		{"a jwk", `{"protected":"` + base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","jwk":{"kty":"EC"}}`)) + `","payload":"","signature":""}`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newLimiter(t, acmeConfig(2)).Handler(served)
			for range 2 {
				admitted(t, h, acmePost(order, addr1, tc.body))
			}
			if tc.free {
				admitted(t, h, acmePost(order, addr1, tc.body))
			} else {
				refused(t, h, acmePost(order, addr1, tc.body))
			}
			admitted(t, h, acmePost(order, "198.51.100.2", tc.body)) // each address has a bucket for them
		})
	}
}

// Vault looks a kid up by what is behind its last slash, takes any media type,
// and PUT for POST. None of that gives an account a second budget.
func TestAnAccountHasOneBudgetWhateverItsURLIs(t *testing.T) {
	const id = "c8f0ae3e-1b52-4d0f-8d55-9c0c1b5a6f11"
	s := newLedger()
	cfg := acmeConfig(5)
	cfg.DefaultClass, cfg.Endpoints[0].Pattern = "", order
	h := newLimiter(t, cfg, WithStore(s)).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetAccount(r.Context(), id) // as Vault knows it
		served(w, r)
	}))
	for i, kid := range []string{"https://vault/v1/pki/acme/account/" + id, "https://vault/v1/other/" + id, "x/" + id, id, "?/" + id} {
		r := acmePost(order, addr1, kidBody(kid))
		switch i {
		case 1:
			r.Method = "PUT"
		case 2:
			r.Header.Set("Content-Type", "application/json")
		}
		admitted(t, h, r)
	}
	refused(t, h, acmePost(order, addr1, kidBody("https://vault/6/"+id)))
	assert.NotContains(t, s.calls, "refund")
}
