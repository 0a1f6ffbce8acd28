package weir

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// The classes of [PKIEndpoints].
const (
	ClassACMEDirectory   Class = "acme_directory"
	ClassACMENewNonce    Class = "acme_new_nonce"
	ClassACMENewAccount  Class = "acme_new_account"
	ClassACMENewOrder    Class = "acme_new_order" // pre-authorization too (RFC 8555, section 7.4.1)
	ClassACMEOrder       Class = "acme_order"
	ClassACMEAuthz       Class = "acme_authz"
	ClassACMEChallenge   Class = "acme_challenge"
	ClassACMEFinalize    Class = "acme_finalize"
	ClassACMECertificate Class = "acme_certificate"
	ClassACMERevoke      Class = "acme_revoke"
	ClassACMEKeyChange   Class = "acme_key_change"
	ClassACMERenewalInfo Class = "acme_renewal_info"
	ClassACMEAccount     Class = "acme_account"
	ClassOCSP            Class = "ocsp"
	ClassCRL             Class = "crl"
	ClassCertDist        Class = "cert_dist" // EJBCA's other look-ups beside its CRLs
	ClassESTEnroll       Class = "est_enroll"
	ClassESTInfo         Class = "est_info"
	ClassSCEP            Class = "scep"    // PKIOperation, and whatever else is not certainly scep_ca
	ClassSCEPCA          Class = "scep_ca" // GetCACaps, GetCACert, GetNextCACert
)

// The layouts that [PKIEndpoints] knows: where a server has its resources
// unless it is told otherwise.
const (
	LayoutPlain   = "plain"   // the paths of the RFCs' examples: ACME below /acme, /ocsp, /crl, /scep, EST
	LayoutBoulder = "boulder" // ACME
	LayoutPebble  = "pebble"  // ACME, on paths that are unlike Boulder's on purpose
	LayoutStepCA  = "step-ca" // ACME and SCEP of any provisioner, CRL
	LayoutVault   = "vault"   // the PKI engine at any mount of one segment: ACME, OCSP, CRL; EST and SCEP of Enterprise
	LayoutEJBCA   = "ejbca"   // ACME, EST and SCEP with and without an alias, OCSP, CRL
)

// PKIEndpoints returns patterns and classes for the usual paths of a PKI, in
// the layouts of the servers that are named; without a name those of
// [LayoutPlain], [LayoutBoulder] and [LayoutPebble]. Layouts can be joined, but
// for those of the first two with that of [LayoutStepCA]: below /acme it has
// a provisioner where they have a resource, and [New] says so. An unknown
// layout panics: that is a mistake in the program, found when it starts.
//
// Change or extend the slice as needed; it is a fresh one each time. For a
// server with a path or a host before its own, put that before the patterns. No
// class has a guard yet: set Guard on those that reach an HSM
// ([ClassACMEFinalize], [ClassOCSP], [ClassESTEnroll], [ClassSCEP], …). The
// patterns name no method: a request with a wrong one costs the server
// something too, and RFC 8555 (section 6.3) has ACME servers take POST on
// every resource, new-nonce and directory included.
//
// An order is limited where it begins, at new-order (and new-account, revoke,
// key-change), by the common tiers. What follows for an order that was
// admitted (authorizations, challenges, finalize, polls, the certificate), and
// what every client needs first (directory, new-nonce), has generous buckets
// of its own and no account tier: most ACME clients take a refusal there as
// the end of their run (requirement R7), and an order for 100 names makes some
// 300 such requests within a second. So has SCEP's [ClassSCEPCA]: a client
// whose GetCACaps is refused goes on with the weakest ciphers. Windows know no
// classes: where they are in use, the paths of what must not be refused belong
// into [WindowsConfig].Exclude.
//
// Renewal information is refused with 503: after a 4xx clients do not ask for
// six hours (RFC 9773, section 4.3.3). An order that replaces a certificate may
// be exempted: see [WithRenewal].
func PKIEndpoints(layouts ...string) []Endpoint {
	if len(layouts) == 0 {
		layouts = []string{LayoutPlain, LayoutBoulder, LayoutPebble}
	}
	var list []Endpoint
	for _, name := range layouts {
		resources := pkiLayouts[name]
		if resources == nil {
			panic(fmt.Sprintf("weir: PKIEndpoints: no layout %q; there are: %s", name, names(pkiLayouts)))
		}
		for _, at := range resources() {
			e := pkiClass(at.class)
			e.Pattern, e.Query = at.pattern, at.query
			if !slices.ContainsFunc(list, func(f Endpoint) bool { return f.Pattern == e.Pattern && f.Query == e.Query }) {
				list = append(list, e)
			}
		}
	}
	return list
}

// pkiClass is how the requests of a class are treated, wherever they are found.
func pkiClass(class Class) Endpoint {
	kind, _, _ := strings.Cut(string(class), "_")
	e := Endpoint{Class: class, Kind: Kind(kind)}
	switch class {
	case ClassACMEDirectory, ClassACMENewNonce, ClassSCEPCA:
		e.Limits = map[string]Limit{TierGlobal: {1000, 2000}, TierPerIP: {100, 200}, TierPerAccount: {}}
	case ClassACMEAccount, ClassACMEOrder, ClassACMEAuthz, ClassACMEChallenge, ClassACMEFinalize, ClassACMECertificate:
		e.Limits = map[string]Limit{TierGlobal: {1000, 2000}, TierPerIP: {100, 500}, TierPerAccount: {}}
	case ClassACMERenewalInfo, ClassOCSP, ClassCRL, ClassESTInfo:
		e.Limits = map[string]Limit{TierGlobal: {2000, 4000}, TierPerIP: {50, 200}, TierPerAccount: {}}
	case ClassACMENewOrder:
		e.Renewals = true
	case ClassCertDist:
		e.Kind = KindCRL
	}
	if class == ClassACMERenewalInfo {
		e.Status = http.StatusServiceUnavailable
	}
	// Where an account pays, nobody else shall be able to spend for it.
	e.Disown = e.Limits == nil && (e.Kind == KindACME || e.Kind == KindEST)
	return e
}

// resource is where a server has the requests of one class.
type resource struct {
	class   Class
	pattern string
	query   string
}

// pkiLayouts are the layouts by name. The paths were read in the servers'
// routers; those of EJBCA's ACME and of Vault's EST and SCEP, which are not
// public, in their manuals.
var pkiLayouts = map[string]func() []resource{
	LayoutPlain:   plainLayout,
	LayoutBoulder: boulderLayout,
	LayoutPebble:  pebbleLayout,
	LayoutStepCA:  stepLayout,
	LayoutVault:   vaultLayout,
	LayoutEJBCA:   ejbcaLayout,
}

// below puts a path before the patterns of a list.
func below(base string, list []resource) []resource {
	list = slices.Clone(list)
	for i := range list {
		list[i].pattern = base + list[i].pattern
	}
	return list
}

// firstSteps are the resources of a directory, as RFC 8555 spells its
// examples, and as most servers do.
var firstSteps = []resource{
	{class: ClassACMEDirectory, pattern: "directory"},
	{class: ClassACMENewNonce, pattern: "new-nonce"},
	{class: ClassACMENewAccount, pattern: "new-account"},
	{class: ClassACMENewOrder, pattern: "new-order"},
	{class: ClassACMENewOrder, pattern: "new-authz"},
	{class: ClassACMERevoke, pattern: "revoke-cert"},
	{class: ClassACMEKeyChange, pattern: "key-change"},
}

func plainLayout() []resource {
	return slices.Concat(
		below("/acme/", firstSteps),
		[]resource{
			{class: ClassACMEAccount, pattern: "/acme/acct/{id...}"},
			{class: ClassACMEOrder, pattern: "/acme/order/{id...}"},
			{class: ClassACMEFinalize, pattern: "/acme/order/{id}/finalize"},
			{class: ClassACMEAuthz, pattern: "/acme/authz/{id...}"},
			{class: ClassACMEChallenge, pattern: "/acme/chall/{id...}"},
			{class: ClassACMEFinalize, pattern: "/acme/finalize/{id...}"},
			{class: ClassACMECertificate, pattern: "/acme/cert/{id...}"},
			{class: ClassACMERenewalInfo, pattern: "/acme/renewal-info/{id...}"},
		},
		ocspAt("/ocsp"), crlAt("/crl"), scepAt("/scep"), estAt("/.well-known/est/"), estAt("/.well-known/est/{label}/"),
	)
}

// boulderLayout is that of letsencrypt/boulder, package wfe2, with the paths that
// authorizations, challenges and renewal information had before.
func boulderLayout() []resource {
	return []resource{
		{class: ClassACMEDirectory, pattern: "/directory"},
		{class: ClassACMENewNonce, pattern: "/acme/new-nonce"},
		{class: ClassACMENewAccount, pattern: "/acme/new-acct"},
		{class: ClassACMENewOrder, pattern: "/acme/new-order"},
		{class: ClassACMERevoke, pattern: "/acme/revoke-cert"},
		{class: ClassACMEKeyChange, pattern: "/acme/key-change"},
		{class: ClassACMEAccount, pattern: "/acme/acct/{id...}"},
		{class: ClassACMEOrder, pattern: "/acme/order/{id...}"},
		{class: ClassACMEAuthz, pattern: "/acme/authz/{id...}"},
		{class: ClassACMEChallenge, pattern: "/acme/chall/{id...}"},
		{class: ClassACMEFinalize, pattern: "/acme/finalize/{id...}"},
		{class: ClassACMECertificate, pattern: "/acme/cert/{id...}"},
		{class: ClassACMERenewalInfo, pattern: "/acme/renewal-info/{id...}"},
		{class: ClassACMEAuthz, pattern: "/acme/authz-v3/{id...}"},
		{class: ClassACMEChallenge, pattern: "/acme/chall-v3/{id...}"},
		{class: ClassACMERenewalInfo, pattern: "/draft-ietf-acme-ari-03/renewalInfo/{id...}"},
		{class: ClassACMEOrder, pattern: "/get/order/{id...}"}, // GET, for what is no longer new
		{class: ClassACMEAuthz, pattern: "/get/authz/{id...}"},
		{class: ClassACMEAuthz, pattern: "/get/authz-v3/{id...}"},
		{class: ClassACMEChallenge, pattern: "/get/chall/{id...}"},
		{class: ClassACMEChallenge, pattern: "/get/chall-v3/{id...}"},
		{class: ClassACMECertificate, pattern: "/get/cert/{id...}"},
	}
}

// pebbleLayout is that of letsencrypt/pebble, package wfe.
func pebbleLayout() []resource {
	return []resource{
		{class: ClassACMEDirectory, pattern: "/dir"},
		{class: ClassACMENewNonce, pattern: "/nonce-plz"},
		{class: ClassACMENewAccount, pattern: "/sign-me-up"},
		{class: ClassACMENewOrder, pattern: "/order-plz"},
		{class: ClassACMERevoke, pattern: "/revoke-cert"},
		{class: ClassACMEKeyChange, pattern: "/rollover-account-key"},
		{class: ClassACMEAccount, pattern: "/my-account/{id...}"},
		{class: ClassACMEAccount, pattern: "/list-orderz/{id...}"},
		{class: ClassACMEOrder, pattern: "/my-order/{id...}"},
		{class: ClassACMEAuthz, pattern: "/authZ/{id...}"},
		{class: ClassACMEChallenge, pattern: "/chalZ/{id...}"},
		{class: ClassACMEFinalize, pattern: "/finalize-order/{id...}"},
		{class: ClassACMECertificate, pattern: "/certZ/{id...}"},
		{class: ClassACMERenewalInfo, pattern: "/draft-ietf-acme-ari-03/renewalInfo/{id...}"},
	}
}

// stepLayout is that of smallstep/certificates, packages acme/api, scep/api and
// ca. Its ACME and SCEP begin with the name of a provisioner.
func stepLayout() []resource {
	acme := slices.Concat(firstSteps, []resource{
		{class: ClassACMEAccount, pattern: "account/{id}"},
		{class: ClassACMEAccount, pattern: "account/{id}/orders"},
		{class: ClassACMEOrder, pattern: "order/{id}"},
		{class: ClassACMEFinalize, pattern: "order/{id}/finalize"},
		{class: ClassACMEAuthz, pattern: "authz/{id}"},
		{class: ClassACMEChallenge, pattern: "challenge/{authz}/{id}"},
		{class: ClassACMECertificate, pattern: "certificate/{id}"},
	})
	return slices.Concat(
		below("/acme/{provisioner}/", acme), below("/2.0/acme/{provisioner}/", acme),
		scepAt("/scep/{provisioner}"),
		[]resource{{class: ClassCRL, pattern: "/crl"}, {class: ClassCRL, pattern: "/1.0/crl"}},
	)
}

// vaultLayout is that of hashicorp/vault, package builtin/logical/pki.
func vaultLayout() []resource {
	const mount, role, issuer = "/v1/{mount}/", "roles/{role}/", "issuer/{issuer}/"
	acme := slices.Concat(firstSteps, []resource{
		{class: ClassACMEAccount, pattern: "account/{id}"},
		{class: ClassACMEAccount, pattern: "orders"},
		{class: ClassACMEOrder, pattern: "order/{id}"},
		{class: ClassACMEFinalize, pattern: "order/{id}/finalize"},
		{class: ClassACMECertificate, pattern: "order/{id}/cert"},
		{class: ClassACMEAuthz, pattern: "authorization/{id}"},
		{class: ClassACMEChallenge, pattern: "challenge/{authz}/{type}"},
	})
	list := slices.Concat(estAt("/.well-known/est/"), estAt("/.well-known/est/{label}/"))
	// An external policy is Enterprise's, in the place of a role.
	for _, base := range []string{mount, mount + issuer} {
		for _, by := range []string{"", role, "external-policy/", "external-policy/{policy}/"} {
			list = append(list, below(base+by+"acme/", acme)...)
		}
	}
	for _, base := range []string{mount, mount + role} {
		list = append(list, slices.Concat(estAt(base+"est/"), scepAt(base+"scep"))...)
	}
	for _, base := range []string{mount, mount + issuer} {
		list = append(list, slices.Concat(crlAt(base+"crl"), crlAt(base+"unified-crl"))...)
	}
	for _, name := range []string{"crl", "delta-crl", "unified-crl", "unified-delta-crl"} {
		list = append(list, resource{class: ClassCRL, pattern: mount + "cert/" + name})
	}
	return append(list, slices.Concat(ocspAt(mount+"ocsp"), ocspAt(mount+"unified-ocsp"))...)
}

// ejbcaLayout is that of Keyfactor/ejbca-ce, its web modules, and of the
// Enterprise edition's ACME.
//
// ACME and EST may or may not have an alias before the resource, so that
// /ejbca/acme/acct/newOrder would be an account to the one and a new order of
// the alias acct to the other. What is written with an alias goes first; what
// is without one, and would be in its way, has a pattern of wildcards only.
func ejbcaLayout() []resource {
	first := []resource{
		{class: ClassACMEDirectory, pattern: "directory"},
		{class: ClassACMENewNonce, pattern: "newNonce"},
		{class: ClassACMENewAccount, pattern: "newAccount"},
		{class: ClassACMENewOrder, pattern: "newOrder"},
		{class: ClassACMENewOrder, pattern: "newAuthz"},
		{class: ClassACMERevoke, pattern: "revokeCert"},
		{class: ClassACMEKeyChange, pattern: "keyChange"},
	}
	steps := []resource{
		{class: ClassACMEAccount, pattern: "acct/{account}"},
		{class: ClassACMEChallenge, pattern: "acct/{account}/chall/{id}"},
		{class: ClassACMEAuthz, pattern: "acct/{account}/authz/{id}"},
		{class: ClassACMEOrder, pattern: "acct/{account}/orders/{id}"},
		{class: ClassACMEFinalize, pattern: "acct/{account}/orders/{id}/finalize"},
		{class: ClassACMECertificate, pattern: "cert/{id}"},
		{class: ClassACMERenewalInfo, pattern: "renewalInfo/{id}"},
	}
	return slices.Concat(
		below("/ejbca/acme/", first), below("/ejbca/acme/{alias}/", first), below("/ejbca/acme/{alias}/", steps),
		below("/ejbca/acme/", []resource{
			{class: ClassACMEAccount, pattern: "{resource}/{id}"}, // acct/ and cert/
			{class: ClassACMEAccount, pattern: "{acct}/{account}/{orders}"},
			{class: ClassACMEAccount, pattern: "{a}/{b}/{c}/{d}"}, // the orders of an alias's account
			{class: ClassACMEChallenge, pattern: "{acct}/{account}/chall/{id}"},
			{class: ClassACMEAuthz, pattern: "{acct}/{account}/authz/{id}"},
			{class: ClassACMEOrder, pattern: "{acct}/{account}/orders/{id}"},
			{class: ClassACMEFinalize, pattern: "{acct}/{account}/{orders}/{id}/{finalize}"},
		}),
		estAt("/.well-known/est/"), estAt("/.well-known/est/{label}/"), estAt("/ejbca/.well-known/est/"), estAt("/ejbca/.well-known/est/{label}/"),
		scepAt("/ejbca/publicweb/apply/scep"),
		ocspAt("/ejbca/publicweb/status/ocsp"), crlAt("/ejbca/publicweb/crls"),
		[]resource{
			{class: ClassCertDist, pattern: "/ejbca/publicweb/webdist/certdist"},
			{class: ClassCRL, pattern: "/ejbca/publicweb/webdist/certdist", query: "cmd=crl"},
			{class: ClassCRL, pattern: "/ejbca/publicweb/webdist/certdist", query: "cmd=deltacrl"},
		},
	)
}

// ocspAt is a responder: POST to its URL, GET with the request behind it (RFC
// 6960, appendix A.1).
func ocspAt(path string) []resource {
	return []resource{{class: ClassOCSP, pattern: path}, {class: ClassOCSP, pattern: path + "/{request...}"}}
}

func crlAt(path string) []resource {
	return []resource{{class: ClassCRL, pattern: path}, {class: ClassCRL, pattern: path + "/{name...}"}}
}

// scepAt is a SCEP server: what is asked for stands in the query (RFC 8894,
// section 4.1).
func scepAt(path string) (list []resource) {
	for _, pattern := range []string{path, path + "/{path...}"} {
		list = append(list, resource{class: ClassSCEP, pattern: pattern})
		for _, op := range []string{"GetCACaps", "GetCACert", "GetNextCACert"} {
			list = append(list, resource{class: ClassSCEPCA, pattern: pattern, query: "operation=" + op})
		}
	}
	return list
}

// estAt is an EST server's six operations (RFC 7030, section 3.2.2).
func estAt(base string) (list []resource) {
	for _, op := range []string{"simpleenroll", "simplereenroll", "serverkeygen", "fullcmc"} {
		list = append(list, resource{class: ClassESTEnroll, pattern: base + op})
	}
	for _, op := range []string{"cacerts", "csrattrs"} {
		list = append(list, resource{class: ClassESTInfo, pattern: base + op})
	}
	return list
}
