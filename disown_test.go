package weir

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answering is a handler that answers with a status and a body, in many
// writes of several kinds.
func answering(status int, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Served", "yes")
		w.WriteHeader(status)
		for i, part := range strings.SplitAfter(body, `"`) {
			switch i % 3 {
			case 0:
				_, _ = w.Write([]byte(part))
			case 1:
				_, _ = io.WriteString(w, part)
			default:
				_, _ = io.Copy(w, strings.NewReader(part))
			}
		}
	})
}

// Requirement T9, without a line of code in the program.
func TestATokenGoesBackWhereTheAnswerShowsNoProof(t *testing.T) {
	problem := func(word string) string { return fmt.Sprintf(`{"type":"urn:ietf:params:acme:error:%s"}`, word) }
	for _, tt := range []struct {
		name   string
		kind   Kind
		off    bool
		status int
		body   string
		back   bool
	}{
		{"not for an order that was placed", KindACME, false, 201, `{"status":"pending"}`, false},
		{"not for a success that reads like a problem", KindACME, false, 200, problem("malformed"), false},
		{"for a signature that does not verify", KindACME, false, 400, problem("malformed"), true},
		{"for a nonce that is not good", KindACME, false, 400, problem("badNonce"), true},
		{"for an algorithm that is not taken", KindACME, false, 400, problem("badSignatureAlgorithm"), true},
		{"for an account that does not exist", KindACME, false, 400, problem("accountDoesNotExist"), true},
		{"for a URL that was not signed", KindACME, false, 403, problem("unauthorized"), true},
		{"not for a name that is not certified", KindACME, false, 400, problem("rejectedIdentifier"), false},
		{"for a failure of the server", KindACME, false, 500, problem("serverInternal"), true},
		{"for an error that is no problem document", KindACME, false, 404, "<h1>Not Found</h1>", true},
		{"for a problem too large to read", KindACME, false, 400, strings.Repeat(" ", maxProblem) + problem("rejectedIdentifier"), true},
		{"not for a problem of the owner's", KindACME, false, 400, problem("rejectedIdentifier"), false},
		{"not where it is switched off", KindACME, true, 400, problem("malformed"), false},
		{"for an EST client with a wrong password", KindEST, false, 401, "", true},
		{"not for an EST client that is not allowed", KindEST, false, 403, "", false},
		{"not for what only ACME says", KindEST, false, 400, problem("malformed"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := noTiers()
			cfg.DefaultClass = ""
			cfg.Tiers.PerAccount = perHour(1)
			cfg.Endpoints = []Endpoint{{Pattern: "/", Class: "sign", Kind: tt.kind, Disown: !tt.off}}
			h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(answering(tt.status, tt.body))
			w := admitted(t, h, claiming("victim", addr1))
			if w.Code != tt.status || w.Body.String() != tt.body {
				t.Errorf("the answer did not go through as it is: %d %q", w.Code, w.Body)
			}
			if tt.back {
				admitted(t, h, claiming("victim", addr1))
			} else {
				refused(t, h, claiming("victim", addr1))
			}
		})
	}
}

// An account that the handler has verified is proved, whatever the answer.
func TestAProvedAccountPaysForItsMistakes(t *testing.T) {
	cfg := noTiers()
	cfg.DefaultClass = ""
	cfg.Tiers.PerAccount = perHour(1)
	cfg.Endpoints = []Endpoint{{Pattern: "/", Class: "sign", Kind: KindACME, Disown: true}}
	h := newLimiter(t, cfg, WithAccount(byHeader("Account"))).Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetAccount(r.Context(), "owner")
		answering(400, `{"type":"urn:ietf:params:acme:error:malformed"}`).ServeHTTP(w, r)
	}))
	admitted(t, h, claiming("alias", addr1))
	refused(t, h, claiming("owner", addr1))
}

func TestPKIEndpointsDisownWhereAnAccountPays(t *testing.T) {
	for _, e := range PKIEndpoints() {
		pays := e.Limits == nil && (e.Kind == KindACME || e.Kind == KindEST)
		if e.Disown != pays {
			t.Errorf("%s: disown is %v", e.Pattern, e.Disown)
		}
	}
}

// What does not pay for an account is not looked at: its handler gets the
// server's own ResponseWriter.
func TestOnlyAnswersThatMatterAreWrapped(t *testing.T) {
	cfg := lockLimits(nil)
	cfg.Tiers.PerAccount = perHour(1000)
	cfg.Endpoints[5].Disown = true
	l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
	for _, tt := range []struct {
		name    string
		request *http.Request
		wrapped bool
	}{
		{"a class with neither", request("GET", "/elsewhere", addr1, ""), false},
		{"a class that disowns, without an account", request("GET", "/open", addr1, ""), false},
		{"a class that disowns, with an account", withHeader(request("GET", "/open", addr1, ""), "Account", "bob"), true},
		{"a class of the auth lock", request("GET", "/form", addr1, ""), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got http.ResponseWriter
			h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
			if w := send(h, tt.request.WithContext(context.Background())); (got != http.ResponseWriter(w)) != tt.wrapped {
				t.Errorf("wrapped is %v", !tt.wrapped)
			}
		})
	}
}
