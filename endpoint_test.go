package weir

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// classFor is the class of a request, "" for none.
func classFor(t *testing.T, l *Limiter, r *http.Request) Class {
	t.Helper()
	class := Class("the handler was not reached")
	l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		info, ok := FromContext(r.Context())
		if !ok {
			t.Error("the handler knows nothing of its request")
		}
		class = info.Class
	})).ServeHTTP(httptest.NewRecorder(), r)
	return class
}

// notReached is what classFor says of a request that was refused.
const notReached Class = "the handler was not reached"

func TestClassOfARequest(t *testing.T) {
	cfg := noTiersBut(TierGlobal)
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{
		{Pattern: "POST /acme/new-order", Class: "order"},
		{Pattern: "GET /acme/new-nonce", Class: "nonce"},
		{Pattern: "/acme/order/{id...}", Class: "poll"},
		{Pattern: "GET /ocsp/{request...}", Class: "ocsp"},
		{Pattern: "/tree/", Class: "tree"},
		{Pattern: "ca.example/hosted", Class: "hosted"},
		{Pattern: "GET /exact/{$}", Class: "exact"},
	}
	for _, tc := range []struct {
		name, method, target string
		want                 Class
	}{
		{"the path and the method", "POST", "/acme/new-order", "order"},
		{"with a query", "POST", "/acme/new-order?x=/acme/new-nonce", "order"},
		{"with an empty query", "POST", "/acme/new-order?", "order"},
		{"another method has none", "GET", "/acme/new-order", ""},
		{"HEAD goes with GET", "HEAD", "/acme/new-nonce", "nonce"},
		{"a longer path has none", "POST", "/acme/new-order/1", ""},
		{"another letter case has none", "POST", "/ACME/new-order", ""},
		{"an unknown path has none", "GET", "/", ""},
		{"a wildcard", "POST", "/acme/order/1/2", "poll"},
		{"a wildcard's empty rest", "POST", "/acme/order/", "poll"},
		{"what a ServeMux would redirect to a wildcard", "POST", "/acme/order", "poll"},
		{"a double slash does not hide it", "POST", "//acme//new-order", "order"},
		{"a dot is refused, for servers differ in what they make of it", "POST", "/acme/./new-order", notReached},
		{"so are two", "POST", "/x/../acme/new-order", notReached},
		{"so are escaped ones", "POST", "/x/%2e%2E/acme/new-order", notReached},
		{"an escaped letter does not hide it", "POST", "/acme/new%2Dorder", "order"},
		{"nor does an escaped slash", "POST", "/acme%2Fnew-order", "order"},
		{"nor does an escaped slash before it", "POST", "/%2Facme/new-order", "order"},
		{"so is a cheap class as a cover for a dear one", "POST", "/acme/order/..%2Fnew-order", notReached},
		{"two classes without a dot", "GET", "/ocsp%2Fx/acme/new-nonce/..", notReached},
		{"the slashes of an OCSP request in base64", "GET", "/ocsp/MFEwTzBN+MEswSTAJ%2FBgUrDgMCGgUA/BBQ==", "ocsp"},
		{"a double slash inside an OCSP request", "GET", "/ocsp/MFEw//zBN", "ocsp"},
		{"a subtree", "GET", "/tree/a/b", "tree"},
		{"a subtree without its slash", "GET", "/tree", "tree"},
		{"a subtree under CONNECT", "CONNECT", "/tree", "tree"},
		{"a host", "GET", "http://ca.example/hosted", "hosted"},
		{"a host with a port", "GET", "http://ca.example:8080/hosted", "hosted"},
		{"a host in capital letters", "GET", "http://CA.Example/hosted", "hosted"},
		{"a host with the dot of the root", "GET", "http://ca.example./hosted", "hosted"},
		{"a host with both and a port", "GET", "http://CA.example.:443/hosted", "hosted"},
		{"another host has none", "GET", "http://other.example/hosted", ""},
		{"the exact path", "GET", "/exact/", "exact"},
		{"below the exact path there is none", "GET", "/exact/x", ""},
		{"a path of a megabyte", "GET", "/tree/" + strings.Repeat("x", 1<<20), "tree"},
		{"a path of a million dots", "GET", "/tree" + strings.Repeat("/.", 1<<19), notReached},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := classFor(t, newLimiter(t, cfg), request(tc.method, tc.target, addr1, "")); got != tc.want {
				t.Errorf("%s %.60s has class %q, want %q", tc.method, tc.target, got, tc.want)
			}
		})
	}
}

// Whatever spelling of a path a server behind understands, it costs a token:
// the muxes and routers of the PKI servers match the escaped or the decoded
// path, cleaned or not.
func TestNoSpellingOfAPathIsFree(t *testing.T) {
	routers := map[string]func(served http.Handler) http.Handler{
		"net/http": func(h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /acme/new-order", h)
			return mux
		},
		"one that matches URL.Path": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "POST" && r.URL.Path == "/acme/new-order" {
					h.ServeHTTP(w, r)
				}
			})
		},
		"one that cleans first": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var kept []string
				for seg := range strings.SplitSeq(r.URL.Path, "/") {
					switch {
					case seg == ".." && len(kept) > 0:
						kept = kept[:len(kept)-1]
					case seg != "" && seg != "." && seg != "..":
						kept = append(kept, seg)
					}
				}
				if r.Method == "POST" && strings.Join(kept, "/") == "acme/new-order" {
					h.ServeHTTP(w, r)
				}
			})
		},
	}
	spellings := []string{
		"/acme/new-order", "/acme/new-order?", "//acme/new-order", "/acme//new-order", "/./acme/new-order", "/acme/../acme/new-order",
		"/acme/%6eew-order", "/acme%2Fnew-order", "/%2e/acme/new-order", "/x/%2e%2e/acme/new-order", "/x%2F..%2Facme%2Fnew-order",
		"/acme/order/%2e%2e/new-order", "/acme/order/..%2Fnew-order", "/acme%2F%2Fnew-order", "http://ca.example/acme/new-order",
		"http://CA.example:443/acme/new-order", "/acme/new-order#fragment",
	}
	for name, router := range routers {
		t.Run(name, func(t *testing.T) {
			cfg := noTiersBut(TierPerIP)
			cfg.Tiers.PerIP = perHour(1)
			cfg.DefaultClass = ""
			cfg.Endpoints = []Endpoint{
				{Pattern: "POST /acme/new-order", Class: "order"},
				{Pattern: "/acme/order/{id...}", Class: "poll", Limits: map[string]Limit{TierPerIP: {}}},
			}
			l := newLimiter(t, cfg)
			h := l.Handler(router(served))
			admitted(t, h, request("POST", "/acme/new-order", addr1, ""))
			for _, target := range spellings {
				if send(h, request("POST", target, addr1, "")).Header().Get("Served") != "" {
					t.Errorf("%s got through with the bucket empty", target)
				}
			}
		})
	}
}

func TestUnmatchedPathPassesUnlessThereIsADefaultClass(t *testing.T) {
	for _, tc := range []struct {
		name    string
		def     Class
		other   int // requests of an unmatched path that pass
		matched int // of the endpoint, afterwards
	}{
		{"without one it is not limited", "", 20, 2},
		{"with one it spends from the common buckets", "rest", 2, 0},
		{"the default may be an endpoint's class", "order", 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := noTiersBut(TierPerIP)
			cfg.Tiers.PerIP = perHour(2)
			cfg.Endpoints = []Endpoint{{Pattern: "/order", Class: "order"}}
			cfg.DefaultClass = tc.def
			l := newLimiter(t, cfg)
			h := l.Handler(served)
			if got := admits(h, 20, func() *http.Request { return from(addr1) }); got != tc.other {
				t.Errorf("%d of 20 passed, want %d", got, tc.other)
			}
			if got := classFor(t, l, from("192.0.2.99")); got != tc.def {
				t.Errorf("the class is %q, want %q", got, tc.def)
			}
			left(t, h, tc.matched, func() *http.Request { return request("GET", "/order", addr1, "") })
		})
	}
}

func TestProtectNeedsNoPattern(t *testing.T) {
	cfg := noTiersBut(TierPerIP)
	cfg.Tiers.PerIP = perHour(2)
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{
		{Class: "signing", Kind: KindOCSP, Cost: 2},
		{Pattern: "/order", Class: "order", Limits: map[string]Limit{TierPerIP: {Rate: 1.0 / 3600, Burst: 5}}},
	}
	l := newLimiter(t, cfg)
	t.Run("its class says kind and cost", func(t *testing.T) {
		h := l.Protect("signing", served)
		admitted(t, h, from(addr1))
		if w := refused(t, h, from(addr1)); w.Header().Get("Content-Type") != "application/ocsp-response" {
			t.Errorf("the refusal is %s", w.Header().Get("Content-Type"))
		}
	})
	t.Run("the path does not matter", func(t *testing.T) {
		refused(t, l.Protect("signing", served), request("GET", "/order", addr1, ""))
		left(t, l.Protect("order", served), 5, func() *http.Request { return request("GET", "/anything", addr1, "") })
	})
}

// The class holds for the guard too, where the outer stage found another.
func TestGuardOfAProtectedClassGoesByThatClass(t *testing.T) {
	cfg := noTiersBut(TierPerIP)
	cfg.DefaultClass = "page"
	cfg.Endpoints = []Endpoint{{Class: "page", Kind: KindPage}, {Class: "signing", Kind: KindOCSP, Guard: "hsm", Mode: ModeFail}}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg)
	release, err := l.Guard("hsm").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	w := send(l.Handler(l.Protect("signing", served)), from(addr1)) // would wait 5 s by the page's mode
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Type") != "application/ocsp-response" {
		t.Errorf("the answer is %d %s, want 503 in OCSP's terms", w.Code, w.Header().Get("Content-Type"))
	}
	if got := classOf(t, l, "signing").Shed["queue_full"]; got != 1 {
		t.Errorf("%d counted as shed from the class, want 1", got)
	}
}

// The patterns of PKIEndpoints give the usual requests of a PKI the class that
// is meant for them.
func TestPKIEndpointsKnowTheUsualRequests(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints()
	l := newLimiter(t, cfg)
	for _, tc := range []struct {
		method, target string
		want           Class
	}{
		{"GET", "/acme/directory", ClassACMEDirectory},
		{"HEAD", "/acme/new-nonce", ClassACMENewNonce},
		{"GET", "/acme/new-nonce", ClassACMENewNonce},
		{"POST", "/acme/new-account", ClassACMENewAccount},
		{"POST", "/acme/new-order", ClassACMENewOrder},
		{"POST", "/acme/order/1/2", ClassACMEOrder},
		{"POST", "/acme/authz/1", ClassACMEAuthz},
		{"POST", "/acme/chall/1/x", ClassACMEChallenge},
		{"POST", "/acme/finalize/1", ClassACMEFinalize},
		{"POST", "/acme/cert/1", ClassACMECertificate},
		{"POST", "/acme/revoke-cert", ClassACMERevoke},
		{"POST", "/acme/key-change", ClassACMEKeyChange},
		{"POST", "/acme/acct/1", ClassACMEAccount},
		{"GET", "/acme/renewal-info/aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE", ClassACMERenewalInfo},
		{"POST", "/ocsp", ClassOCSP},
		{"GET", "/ocsp/MFQwUjBQME4wTDAJBgUrDgMCGgUABBQ%2FjA", ClassOCSP},
		{"GET", "/ocsp/MFQw//jBQ+E4w==", ClassOCSP},
		{"GET", "/crl/root.crl", ClassCRL},
		{"POST", "/.well-known/est/simpleenroll", ClassESTEnroll},
		{"POST", "/.well-known/est/tls-server/simplereenroll", ClassESTEnroll},
		{"GET", "/.well-known/est/cacerts", ClassESTInfo},
		{"GET", "/scep?operation=GetCACaps", ClassSCEPCA},
		{"POST", "/scep/pkiclient.exe?operation=PKIOperation", ClassSCEP},
	} {
		if got := classFor(t, l, request(tc.method, tc.target, addr1, "")); got != tc.want {
			t.Errorf("%s %s has class %q, want %q", tc.method, tc.target, got, tc.want)
		}
	}
}
