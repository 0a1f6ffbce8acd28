package weir

import (
	"cmp"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pkiConfig is DefaultConfig with the endpoints of a PKI.
func pkiConfig() Config {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints()
	return cfg
}

func TestPKIEndpointsGiveEachRequestItsClass(t *testing.T) {
	l, cfg := newLimiter(t, pkiConfig()), pkiConfig()
	cfg.DefaultClass = "rest"
	withRest := newLimiter(t, cfg)
	for _, tt := range []struct {
		name, method, target string
		want                 Class
	}{
		{"the directory", "GET", "/acme/directory", ClassACMEDirectory},
		{"the directory at the root", "GET", "/directory", ClassACMEDirectory},
		{"the directory with a query", "GET", "/acme/directory?x=1", ClassACMEDirectory},
		{"a nonce by HEAD, as most clients ask", "HEAD", "/acme/new-nonce", ClassACMENewNonce},
		{"a nonce by GET", "GET", "/acme/new-nonce", ClassACMENewNonce},
		{"a new account", "POST", "/acme/new-account", ClassACMENewAccount},
		{"a new account by the short path", "POST", "/acme/new-acct", ClassACMENewAccount},
		{"a new order", "POST", "/acme/new-order", ClassACMENewOrder},
		{"a revocation", "POST", "/acme/revoke-cert", ClassACMERevoke},
		{"a change of key", "POST", "/acme/key-change", ClassACMEKeyChange},
		{"an account", "POST", "/acme/acct/17", ClassACMEAccount},
		{"the orders of an account", "POST", "/acme/acct/17/orders", ClassACMEAccount},
		{"an order by POST-as-GET", "POST", "/acme/order/17", ClassACMEOrder},
		{"an order by plain GET", "GET", "/acme/order/17", ClassACMEOrder},
		{"an order below its account", "POST", "/acme/order/17/4", ClassACMEOrder},
		{"an authorization", "POST", "/acme/authz/17", ClassACMEAuthz},
		{"a challenge", "POST", "/acme/chall/17/http-01", ClassACMEChallenge},
		{"a finalization", "POST", "/acme/finalize/17", ClassACMEFinalize},
		{"a certificate", "POST", "/acme/cert/abc", ClassACMECertificate},
		{"renewal information (RFC 9773)", "GET", "/acme/renewal-info/aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE", ClassACMERenewalInfo},

		{"OCSP by POST", "POST", "/ocsp", ClassOCSP},
		{"OCSP by POST to a URL that ends in a slash", "POST", "/ocsp/", ClassOCSP},
		{"OCSP by GET", "GET", "/ocsp/MFIwUDBOMEwwSjAJBgUrDgMCGgUABBQ", ClassOCSP},
		{"OCSP by GET with base64 that is escaped", "GET", "/ocsp/MFIw%2FUDBO%2B%3D%3D", ClassOCSP},
		{"OCSP by GET with a slash in base64", "GET", "/ocsp/MFIw/UDBO+w==", ClassOCSP},
		{"OCSP by GET with two slashes in base64", "GET", "/ocsp/MFIw//UDBO", ClassOCSP},
		{"OCSP by GET with two escaped slashes", "GET", "/ocsp/MFIw%2F%2FUDBO", ClassOCSP},
		{"OCSP by GET with base64 that begins with a slash", "GET", "/ocsp//MFIw", ClassOCSP},
		{"OCSP by GET with nothing", "GET", "/ocsp/", ClassOCSP},
		{"OCSP by HEAD", "HEAD", "/ocsp/MFIw", ClassOCSP},

		{"the CRL", "GET", "/crl", ClassCRL},
		{"a CRL by name", "GET", "/crl/issuing-ca-1.crl", ClassCRL},
		{"a CRL in a folder", "HEAD", "/crl/2026/shard/7.crl", ClassCRL},

		{"EST enrolment", "POST", "/.well-known/est/simpleenroll", ClassESTEnroll},
		{"EST enrolment with a label", "POST", "/.well-known/est/factory-7/simpleenroll", ClassESTEnroll},
		{"EST renewal", "POST", "/.well-known/est/simplereenroll", ClassESTEnroll},
		{"EST key generation with a label", "POST", "/.well-known/est/factory-7/serverkeygen", ClassESTEnroll},
		{"EST full CMC", "POST", "/.well-known/est/fullcmc", ClassESTEnroll},
		{"EST CA certificates", "GET", "/.well-known/est/cacerts", ClassESTInfo},
		{"EST CA certificates with a label", "GET", "/.well-known/est/factory-7/cacerts", ClassESTInfo},
		{"EST attributes", "GET", "/.well-known/est/csrattrs", ClassESTInfo},
		{"EST with an escape in the label", "GET", "/.well-known/est/a%2Fb/cacerts", ClassESTInfo},

		{"SCEP capabilities", "GET", "/scep?operation=GetCACaps", ClassSCEP},
		{"SCEP by POST", "POST", "/scep?operation=PKIOperation", ClassSCEP},
		{"SCEP by the path of an old client", "GET", "/scep/pkiclient.exe?operation=GetCACert", ClassSCEP},

		// A server behind may clean or decode the path before it serves it, so
		// no spelling of a path may lead round the limits of what it names.
		{"two slashes", "POST", "/acme//new-order", ClassACMENewOrder},
		{"two slashes in front", "POST", "//acme/new-order", ClassACMENewOrder},
		{"a dot", "POST", "/acme/./new-order", classOther},
		{"a step back", "POST", "/acme/directory/../new-order", classOther},
		{"a step back with an escaped slash", "POST", "/acme/directory/..%2fnew-order", classOther},
		{"a step back from a generous class", "POST", "/acme/order/..%2Fnew-order", classOther},
		{"an escaped step back", "POST", "/acme/directory/%2e%2e/new-order", classOther},
		{"an escaped slash", "POST", "/acme%2Fnew-order", ClassACMENewOrder},
		{"an escaped letter", "POST", "/acme/new%2Dorder", ClassACMENewOrder},
		{"steps back beyond the root", "POST", "/../../acme/new-order", classOther},

		{"the root", "GET", "/", ""},
		{"another path", "GET", "/healthz", ""},
		{"a path below one that has nothing below it", "POST", "/acme/new-order/17", ""},
		{"a path that only begins like one", "POST", "/acme/new-orders", ""},
		{"another letter case", "POST", "/ACME/new-order", ""},
		{"a method that the server refuses", "DELETE", "/acme/new-order", ClassACMENewOrder},
		{"a new nonce by POST", "POST", "/acme/new-nonce", ClassACMENewNonce},
		{"the directory by POST-as-GET", "POST", "/acme/directory", ClassACMEDirectory},
		{"a twice escaped slash", "POST", "/acme%252Fnew-order", ""},
		{"EST with two labels", "POST", "/.well-known/est/a/b/simpleenroll", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, classFound(l, tt.method, tt.target))
			assert.Equal(t, cmp.Or(tt.want, "rest"), classFound(withRest, tt.method, tt.target), "with a default class")
		})
	}
}

// classFound returns the class that a request has, "" for none.
func classFound(l *Limiter, method, target string) Class {
	r := httptest.NewRequest(method, "/", nil)
	u, err := url.Parse("http://ca.example" + target) // as it is: r.URL.Parse would resolve dots
	if err != nil {
		panic(err)
	}
	r.URL, r.Host, r.RequestURI = u, u.Host, target
	if c := l.policy.Load().endpoints.of(r); c != nil {
		return c.name
	}
	return ""
}

func TestPKIEndpointsAreSound(t *testing.T) {
	cfg := pkiConfig()
	require.NoError(t, cfg.Validate())
	advises(t, cfg, noProxies)

	classes := map[Class]bool{}
	for _, e := range cfg.Endpoints {
		classes[e.Class] = true
		assert.NotEmpty(t, e.Pattern)
		assert.NotEmpty(t, e.Kind)
		assert.Empty(t, e.Guard)
	}
	all := []Class{
		ClassACMEDirectory, ClassACMENewNonce, ClassACMENewAccount, ClassACMENewOrder, ClassACMEOrder, ClassACMEAuthz, ClassACMEChallenge,
		ClassACMEFinalize, ClassACMECertificate, ClassACMERevoke, ClassACMEKeyChange, ClassACMERenewalInfo, ClassACMEAccount,
		ClassOCSP, ClassCRL, ClassESTEnroll, ClassESTInfo, ClassSCEP,
	}
	for _, class := range all {
		assert.True(t, classes[class], "no endpoint has the class %s", class)
	}
	assert.Len(t, classes, len(all))
}

// A refused directory or new-nonce ends nearly every client's run (requirement
// R7), so what comes before and after an order has more room than the order.
func TestPKIEndpointsAreGenerousToWhatAClientCannotDoWithout(t *testing.T) {
	cfg := pkiConfig()
	for _, e := range cfg.Endpoints {
		switch e.Class {
		case ClassACMENewAccount, ClassACMENewOrder, ClassACMERevoke, ClassACMEKeyChange, ClassESTEnroll, ClassSCEP:
			assert.Nil(t, e.Limits, "%s is limited by the common tiers", e.Class)
			continue
		}
		assert.Greater(t, cfg.limitFor(e, TierPerIP).Burst, cfg.Tiers.PerIP.Burst, "%s", e.Class)
		assert.Greater(t, cfg.limitFor(e, TierGlobal).Burst, cfg.Tiers.Global.Burst, "%s", e.Class)
		assert.False(t, cfg.limitFor(e, TierPerAccount).active(), "%s", e.Class)
	}
}

func TestPKIEndpointsAreFreshOnesEachTime(t *testing.T) {
	first, second, reference := PKIEndpoints(), PKIEndpoints(), PKIEndpoints()
	for i := range first {
		eachValue(reflect.ValueOf(&first[i]).Elem(), func(v reflect.Value) {
			switch v.Kind() {
			case reflect.String:
				v.SetString("changed")
			case reflect.Float64:
				v.SetFloat(-1)
			case reflect.Map:
				if v.Len() > 0 {
					clear(v.Interface().(map[string]Limit))
				}
			}
		})
	}
	assert.Equal(t, reference, second)
	assert.Equal(t, reference, PKIEndpoints())
	assert.NotEqual(t, reference, first)
}

// To change the limits of one class must not change another's that happens to
// begin with the same ones, or a program that edits one endpoint edits many.
func TestTheLimitsOfOnePKIEndpointAreItsOwn(t *testing.T) {
	list := PKIEndpoints()
	i := slices.IndexFunc(list, func(e Endpoint) bool { return e.Class == ClassCRL })
	list[i].Limits[TierPerIP] = Limit{1, 1}
	for j, e := range list {
		if j != i && e.Limits != nil {
			assert.NotEqual(t, Limit{1, 1}, e.Limits[TierPerIP], "%s changed with it", e.Pattern)
		}
	}
}
