package weir

import (
	"cmp"
	"fmt"
	"net/http"
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

		{"SCEP capabilities", "GET", "/scep?operation=GetCACaps", ClassSCEPCA},
		{"SCEP capabilities by POST, whose body may say otherwise", "POST", "/scep?operation=GetCACaps", ClassSCEP},
		{"the next certificate of a SCEP authority", "GET", "/scep?operation=GetNextCACert&message=ca-1", ClassSCEPCA},
		{"SCEP by GET", "GET", "/scep?operation=PKIOperation&message=MIIB%2BA%3D", ClassSCEP},
		{"SCEP without an operation", "GET", "/scep", ClassSCEP},
		{"SCEP capabilities behind two slashes", "GET", "//scep?operation=GetCACaps", ClassSCEPCA},
		{"SCEP capabilities on an escaped path", "GET", "/%73cep?operation=GetCACaps", ClassSCEPCA},
		{"an operation hidden on an escaped path", "GET", "/%73cep?operation=GetCACaps&operation=PKIOperation", ClassSCEP},
		{"SCEP by POST", "POST", "/scep?operation=PKIOperation", ClassSCEP},
		{"SCEP by the path of an old client", "GET", "/scep/pkiclient.exe?operation=GetCACert", ClassSCEPCA},

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

		// Tomcat, Jetty and Undertow drop path parameters, IIS turns backslashes,
		// chi's StripSlashes and many a framework ignore a slash at the end.
		{"a path parameter", "POST", "/acme/new-order;jsessionid=1", ClassACMENewOrder},
		{"one in the middle", "POST", "/acme;a=b/new-order", ClassACMENewOrder},
		{"an escaped one", "POST", "/acme/new-order%3Bjsessionid=1", ClassACMENewOrder},
		{"one that is a segment", "POST", "/acme/;x/new-order", ClassACMENewOrder},
		{"one that holds a slash escaped", "POST", "/acme/new-order;x=%2Fy", ClassACMENewOrder},
		{"one that holds a slash escaped, behind a generous class", "POST", "/acme/order/1;x=%2F..%2F..%2Fnew-order", classOther},
		{"a step back with a parameter", "POST", "/ocsp/..;/acme/new-order", classOther},
		{"a step back with a parameter, escaped", "POST", "/ocsp/..%3Bx%2Facme/new-order", classOther},
		{"a step back out of a generous class", "POST", "/acme/order/..;x=y/new-order", classOther},
		{"a parameter that is all of a segment and a dot", "POST", "/acme/order/.;/x", classOther},
		{"OCSP with a parameter", "GET", "/ocsp/MFIw;x", ClassOCSP},
		{"a backslash", "POST", "/acme\\new-order", ClassACMENewOrder},
		{"a step back by backslashes", "POST", "/ocsp/..\\acme\\new-order", classOther},
		{"a slash at the end", "POST", "/acme/new-order/", ClassACMENewOrder},
		{"slashes at the end", "POST", "/acme/new-order//", ClassACMENewOrder},
		{"EST with a slash at the end", "POST", "/.well-known/est/simpleenroll/", ClassESTEnroll},
		{"SCEP with a path parameter that is named like its own", "GET", "/scep;operation=PKIOperation?operation=GetCACaps", ClassSCEPCA},

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
		ClassOCSP, ClassCRL, ClassESTEnroll, ClassESTInfo, ClassSCEP, ClassSCEPCA,
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
		case ClassACMENewAccount, ClassACMENewOrder, ClassACMERevoke, ClassACMEKeyChange, ClassESTEnroll, ClassSCEP, ClassCertDist:
			assert.Nil(t, e.Limits, "%s is limited by the common tiers", e.Class)
			continue
		}
		assert.Greater(t, cfg.limitFor(e, TierPerIP).Burst, cfg.Tiers.PerIP.Burst, "%s", e.Class)
		assert.Greater(t, cfg.limitFor(e, TierGlobal).Burst, cfg.Tiers.Global.Burst, "%s", e.Class)
		assert.False(t, cfg.limitFor(e, TierPerAccount).active(), "%s", e.Class)
	}
}

// allLayouts are the names of the layouts.
var allLayouts = []string{LayoutPlain, LayoutBoulder, LayoutPebble, LayoutStepCA, LayoutVault, LayoutEJBCA}

// The paths are those that the servers' routers and manuals have, or that they
// put into their directories.
func TestLayoutsGiveEachRequestItsClass(t *testing.T) {
	type request struct {
		target string
		want   Class
	}
	acme := func(base, chall string) []request {
		return []request{
			{base + "directory", ClassACMEDirectory}, {base + "new-nonce", ClassACMENewNonce}, {base + "new-account", ClassACMENewAccount},
			{base + "new-order", ClassACMENewOrder}, {base + "new-authz", ClassACMENewOrder}, {base + "revoke-cert", ClassACMERevoke},
			{base + "account/a1", ClassACMEAccount}, {base + "order/o1", ClassACMEOrder},
			{base + "order/o1/finalize", ClassACMEFinalize}, {base + "challenge/z1/" + chall, ClassACMEChallenge},
		}
	}
	est := func(base string) []request {
		return []request{
			{base + "simpleenroll", ClassESTEnroll}, {base + "simplereenroll", ClassESTEnroll}, {base + "serverkeygen", ClassESTEnroll},
			{base + "fullcmc", ClassESTEnroll}, {base + "cacerts", ClassESTInfo}, {base + "csrattrs", ClassESTInfo},
		}
	}
	scep := func(base string) []request {
		return []request{
			{base + "?operation=GetCACaps&message=x", ClassSCEPCA}, {base + "?message=x&operation=GetCACert", ClassSCEPCA},
			{base + "?operation=GetNextCACert", ClassSCEPCA}, {base + "?operation=PKIOperation&message=MIIB", ClassSCEP},
			{base + "/pkiclient.exe?operation=GetCACaps", ClassSCEPCA}, {base + "/pkiclient.exe?operation=PKIOperation", ClassSCEP}, {base, ClassSCEP},
		}
	}
	for layout, lists := range map[string][][]request{
		LayoutPlain: {
			{{"/acme/order/o1/finalize", ClassACMEFinalize}, {"/acme/order/o1", ClassACMEOrder}, {"/acme/new-account", ClassACMENewAccount}},
			est("/.well-known/est/"), est("/.well-known/est/label/"), scep("/scep"),
		},
		LayoutBoulder: {{
			{"/directory", ClassACMEDirectory}, {"/acme/new-nonce", ClassACMENewNonce}, {"/acme/new-acct", ClassACMENewAccount},
			{"/acme/new-order", ClassACMENewOrder}, {"/acme/key-change", ClassACMEKeyChange}, {"/acme/revoke-cert", ClassACMERevoke},
			{"/acme/acct/17", ClassACMEAccount}, {"/acme/order/17/4", ClassACMEOrder}, {"/acme/authz/17/4", ClassACMEAuthz},
			{"/acme/chall/17/4/x_Y", ClassACMEChallenge}, {"/acme/finalize/17/4", ClassACMEFinalize}, {"/acme/cert/04ab", ClassACMECertificate},
			{"/get/cert/04ab", ClassACMECertificate}, {"/acme/renewal-info/a.b", ClassACMERenewalInfo}, {"/acme/renewal-info", ClassACMERenewalInfo},
			{"/acme/authz-v3/17", ClassACMEAuthz}, {"/acme/chall-v3/17/x_Y", ClassACMEChallenge}, {"/draft-ietf-acme-ari-03/renewalInfo/a.b", ClassACMERenewalInfo},
			{"/get/order/17/4", ClassACMEOrder}, {"/get/authz/17/4", ClassACMEAuthz}, {"/get/authz-v3/17", ClassACMEAuthz}, {"/get/chall-v3/17/x_Y", ClassACMEChallenge},
			{"/build", ""}, {"/ocsp", ""},
		}},
		LayoutPebble: {{
			{"/dir", ClassACMEDirectory}, {"/nonce-plz", ClassACMENewNonce}, {"/sign-me-up", ClassACMENewAccount}, {"/order-plz", ClassACMENewOrder},
			{"/my-account/1", ClassACMEAccount}, {"/list-orderz/1", ClassACMEAccount}, {"/my-order/1", ClassACMEOrder}, {"/finalize-order/1", ClassACMEFinalize},
			{"/authZ/1", ClassACMEAuthz}, {"/chalZ/1", ClassACMEChallenge}, {"/certZ/1/alternate/1", ClassACMECertificate}, {"/revoke-cert", ClassACMERevoke},
			{"/rollover-account-key", ClassACMEKeyChange}, {"/draft-ietf-acme-ari-03/renewalInfo/a.b", ClassACMERenewalInfo}, {"/roots/0", ""},
		}},
		LayoutStepCA: {
			acme("/acme/prov/", "c1"), acme("/2.0/acme/prov/", "c1"), scep("/scep/prov"),
			{
				{"/acme/prov/account/a1/orders", ClassACMEAccount}, {"/acme/prov/authz/z1", ClassACMEAuthz}, {"/acme/prov/certificate/c1", ClassACMECertificate},
				{"/acme/prov/key-change", ClassACMEKeyChange}, {"/crl", ClassCRL}, {"/1.0/crl", ClassCRL}, {"/acme/directory", ""}, {"/health", ""},
			},
		},
		LayoutVault: {
			acme("/v1/pki/acme/", "http-01"), acme("/v1/pki/roles/r/acme/", "dns-01"), acme("/v1/pki/issuer/default/acme/", "dns-01"),
			acme("/v1/pki/issuer/default/roles/r/acme/", "tls-alpn-01"), acme("/v1/pki/external-policy/acme/", "dns-01"),
			acme("/v1/pki/external-policy/p/acme/", "dns-01"), acme("/v1/pki/issuer/default/external-policy/acme/", "dns-01"), acme("/v1/pki/issuer/i/external-policy/p/acme/", "dns-01"), est("/.well-known/est/"), est("/.well-known/est/label/"),
			est("/v1/pki/est/"), est("/v1/pki/roles/r/est/"), scep("/v1/pki/scep"), scep("/v1/pki/roles/r/scep"),
			{
				{"/v1/pki/acme/orders", ClassACMEAccount}, {"/v1/pki/acme/order/o1/cert", ClassACMECertificate}, {"/v1/pki/acme/authorization/z1", ClassACMEAuthz},
				{"/v1/pki/ocsp", ClassOCSP}, {"/v1/pki/ocsp/MFEw/TzBN", ClassOCSP}, {"/v1/pki/unified-ocsp/MFEw", ClassOCSP},
				{"/v1/pki/crl", ClassCRL}, {"/v1/pki/crl/delta/pem", ClassCRL}, {"/v1/pki/unified-crl", ClassCRL}, {"/v1/pki/cert/crl", ClassCRL},
				{"/v1/pki/cert/delta-crl", ClassCRL}, {"/v1/pki/cert/unified-delta-crl", ClassCRL}, {"/v1/pki/cert/17-ab", ""}, {"/v1/pki/acme/new-eab", ""},
				{"/v1/pki/issuer/default/crl/der", ClassCRL}, {"/v1/pki/issuer/default/unified-crl/delta", ClassCRL},
				{"/v1/pki/issue/r", ""}, {"/v1/sys/health", ""},
			},
		},
		LayoutEJBCA: {
			est("/.well-known/est/"), est("/.well-known/est/alias/"), est("/ejbca/.well-known/est/"), est("/ejbca/.well-known/est/alias/"),
			scep("/ejbca/publicweb/apply/scep"), scep("/ejbca/publicweb/apply/scep/alias"),
			{
				{"/ejbca/acme/directory", ClassACMEDirectory}, {"/ejbca/acme/alias/directory", ClassACMEDirectory}, {"/ejbca/acme/directory?configurationId=alias", ClassACMEDirectory},
				{"/ejbca/acme/newNonce", ClassACMENewNonce}, {"/ejbca/acme/alias/newNonce", ClassACMENewNonce}, {"/ejbca/acme/alias/newAccount", ClassACMENewAccount},
				{"/ejbca/acme/newOrder", ClassACMENewOrder}, {"/ejbca/acme/alias/newOrder", ClassACMENewOrder}, {"/ejbca/acme/alias/newAuthz", ClassACMENewOrder},
				{"/ejbca/acme/alias/revokeCert", ClassACMERevoke}, {"/ejbca/acme/alias/keyChange", ClassACMEKeyChange},
				{"/ejbca/acme/alias/acct/a1", ClassACMEAccount}, {"/ejbca/acme/alias/acct/a1/orders", ClassACMEAccount},
				{"/ejbca/acme/alias/acct/a1/chall/c1", ClassACMEChallenge}, {"/ejbca/acme/alias/acct/a1/orders/o1", ClassACMEOrder},
				{"/ejbca/acme/alias/acct/a1/orders/o1/finalize", ClassACMEFinalize}, {"/ejbca/acme/alias/cert/c1", ClassACMECertificate},
				{"/ejbca/acme/acct/a1", ClassACMEAccount}, {"/ejbca/acme/acct/a1/orders", ClassACMEAccount}, {"/ejbca/acme/acct/a1/chall/c1", ClassACMEChallenge},
				{"/ejbca/acme/acct/a1/orders/o1", ClassACMEOrder}, {"/ejbca/acme/acct/a1/orders/o1/finalize", ClassACMEFinalize}, {"/ejbca/acme/cert/c1", ClassACMEAccount},
				{"/ejbca/publicweb/status/ocsp", ClassOCSP}, {"/ejbca/publicweb/status/ocsp/MFEw/TzBN", ClassOCSP}, {"/ejbca/publicweb/crls/search.cgi", ClassCRL},
				{"/ejbca/publicweb/webdist/certdist?cmd=crl&issuer=CN%3DRoot%2CO%3DExample+Inc%2CC%3DSE", ClassCRL},
				{"/ejbca/publicweb/webdist/certdist?cmd=deltacrl&issuer=CN%3dRoot&partition=", ClassCRL},
				{"/ejbca/publicweb/webdist/certdist?cmd=listcerts&subject=CN%3DA", ClassCertDist}, {"/ejbca/publicweb/webdist/certdist", ClassCertDist},
				{"/ejbca/adminweb/", ""},
			},
		},
	} {
		t.Run(layout, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Endpoints = PKIEndpoints(layout)
			l := newLimiter(t, cfg)
			for _, r := range slices.Concat(lists...) {
				assert.Equal(t, r.want, classFound(l, "GET", r.target), "%s", r.target)
				if r.want != ClassSCEPCA && r.want != ClassCRL { // which a POST may not be
					assert.Equal(t, r.want, classFound(l, "POST", r.target), "POST %s", r.target)
				}
			}
		})
	}
}

// Every set of layouts is a sound list of endpoints, unless it has both a
// provisioner and a resource right below /acme.
func TestLayoutsCanBeJoined(t *testing.T) {
	for set := range 1 << len(allLayouts) {
		var joined []string
		for i, name := range allLayouts {
			if set>>i&1 == 1 {
				joined = append(joined, name)
			}
		}
		cfg := DefaultConfig()
		cfg.Endpoints = PKIEndpoints(joined...)
		clash := slices.Contains(joined, LayoutStepCA) && (slices.Contains(joined, LayoutPlain) || slices.Contains(joined, LayoutBoulder))
		err := cfg.Validate()
		if !clash {
			require.NoError(t, err, "%q", joined)
			continue
		}
		for fault := range ConfigErrors(err) {
			assert.Equal(t, ReasonConflict, fault.Reason, "%q: %v", joined, fault)
		}
		assert.Error(t, err, "%q", joined)
	}
}

// To EJBCA a path without an alias may look like one with an alias, so that some
// of its patterns have wildcards only. None of them takes an operation in.
func TestNoSpellingOfEJBCAsOperationsIsGenerous(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Endpoints = PKIEndpoints(LayoutEJBCA)
	l := newLimiter(t, cfg)
	for _, operation := range []string{"newOrder", "newAccount", "newAuthz", "revokeCert", "keyChange"} {
		for _, form := range []string{
			"/ejbca/acme/%s;jsessionid=1", "/ejbca/acme/alias/%s;jsessionid=1", "/ejbca/acme/alias;x/%s", "/ejbca/acme/alias/;/%s", "/ejbca/acme/alias/%s/",
			"/ejbca/acme/alias/x/..;/%s", "/ejbca/acme/alias%%2F%s", "/ejbca/acme//alias/%s", "/ejbca;x/acme/%s", "/ejbca/acme/alias/%s;%%2F",
			"/ejbca/acme/alias/%s%%3Bx", "/ejbca/acme/alias\\%s", "/ejbca/acme/%%61lias/%s", "/ejbca/acme/%s?x=/acct/1", "/ejbca/acme/alias/acct/..%%2f%s",
		} {
			class := classFound(l, "POST", fmt.Sprintf(form, operation))
			assert.Contains(t, []Class{ClassACMENewOrder, ClassACMENewAccount, ClassACMERevoke, ClassACMEKeyChange, classOther}, class, form, operation)
		}
	}
}

// A path that two layouts have is of the same class in both.
func TestLayoutsAgree(t *testing.T) {
	classes := map[string]Class{}
	for _, name := range allLayouts {
		for _, e := range PKIEndpoints(name) {
			at := e.Pattern + "?" + e.Query
			if class, ok := classes[at]; ok {
				assert.Equal(t, class, e.Class, "%s in %s", at, name)
			}
			classes[at] = e.Class
		}
	}
}

func TestAnUnknownLayoutPanics(t *testing.T) {
	assert.PanicsWithValue(t, "weir: PKIEndpoints: no layout \"stepca\"; there are: boulder, ejbca, pebble, plain, step-ca, vault", func() { PKIEndpoints("stepca") })
}

// GetCACaps is answered while PKIOperation, and what could be one, is not.
func TestSCEPCapabilitiesPassWhereOperationsDoNot(t *testing.T) {
	cfg := pkiConfig()
	cfg.Tiers.PerIP = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	admitted(t, h, request("POST", "/scep?operation=PKIOperation", addr1, "x"))
	for range 100 {
		admitted(t, h, request("GET", "/scep?operation=GetCACaps", addr1, ""))
	}
	refused(t, h, request("GET", "/scep?operation=PKIOperation&message=MIIB", addr1, ""))
	refused(t, h, request("POST", "/scep?operation=GetCACaps", addr1, "operation=PKIOperation"))
	refused(t, h, request("GET", "/scep?operation=GetCACaps&operation=PKIOperation", addr1, ""))
}

// After a 4xx clients of renewal information are silent for six hours (RFC
// 9773, section 4.3.3).
func TestRenewalInfoIsRefusedWith503(t *testing.T) {
	cfg := pkiConfig()
	for i := range cfg.Endpoints {
		if cfg.Endpoints[i].Class == ClassACMERenewalInfo {
			cfg.Endpoints[i].Limits = map[string]Limit{TierPerIP: {1.0 / 3600, 1}}
		}
	}
	h := newLimiter(t, cfg).Handler(served)
	admitted(t, h, request("GET", "/acme/renewal-info/a.b", addr1, ""))
	w := send(h, request("GET", "/acme/renewal-info/a.b", addr1, ""))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotZero(t, retryAfter(t, w))
	assert.Contains(t, w.Body.String(), `"urn:ietf:params:acme:error:rateLimited"`)
	assert.Contains(t, w.Body.String(), `"status":503`)
}

// A class that chooses 503 has it in every protocol, and nothing else changes.
func TestAClassChoosesTheStatusOfItsRefusals(t *testing.T) {
	for _, kind := range kinds {
		for _, status := range []int{0, 429, 503} {
			if kind == KindS3 && status == 429 {
				continue // a fault
			}
			cfg := noTiers()
			cfg.DefaultClass = ""
			cfg.Endpoints = []Endpoint{{Pattern: "/a", Class: "a", Kind: kind, Status: status}, {Pattern: "/b", Class: "b", Kind: kind, Status: status}}
			cfg.Tiers.Global = perHour(1)
			cfg.Deny.Networks = []string{"198.51.100.0/24"}
			h := newLimiter(t, cfg).Handler(served)
			admitted(t, h, request("GET", "/a", addr1, ""))
			w := send(h, request("GET", "/b", addr1, ""))
			want := cmp.Or(status, http.StatusTooManyRequests)
			if kind == KindS3 {
				want = http.StatusServiceUnavailable
			}
			assert.Equal(t, want, w.Code, "%s, %d", kind, status)
			assert.EqualValues(t, 3600, retryAfter(t, w))
			assert.Equal(t, http.StatusForbidden, send(h, request("GET", "/b", "198.51.100.7", "")).Code, "a denial stays what it is")
		}
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
			case reflect.Int:
				v.SetInt(-1)
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
