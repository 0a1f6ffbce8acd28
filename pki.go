package weir

import "maps"

// The classes of [PKIEndpoints].
const (
	ClassACMEDirectory   Class = "acme_directory"
	ClassACMENewNonce    Class = "acme_new_nonce"
	ClassACMENewAccount  Class = "acme_new_account"
	ClassACMENewOrder    Class = "acme_new_order"
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
	ClassESTEnroll       Class = "est_enroll"
	ClassESTInfo         Class = "est_info"
	ClassSCEP            Class = "scep"
)

// PKIEndpoints returns patterns and classes for the usual paths of a PKI: ACME
// below /acme, OCSP at /ocsp, CRLs at /crl, EST at its well-known place with
// and without a label, SCEP at /scep. Change or extend the slice as needed; it
// is a fresh one each time. No class has a guard yet: set Guard on those that
// reach an HSM ([ClassACMEFinalize], [ClassOCSP], [ClassESTEnroll], …). The
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
// 300 such requests within a second.
func PKIEndpoints() []Endpoint {
	var (
		first = map[string]Limit{TierGlobal: {1000, 2000}, TierPerIP: {100, 200}, TierPerAccount: {}}
		steps = map[string]Limit{TierGlobal: {1000, 2000}, TierPerIP: {100, 500}, TierPerAccount: {}}
		reads = map[string]Limit{TierGlobal: {2000, 4000}, TierPerIP: {50, 200}, TierPerAccount: {}}
	)
	list := []Endpoint{
		{Class: ClassACMEDirectory, Kind: KindACME, Limits: first, Pattern: "/acme/directory"},
		{Class: ClassACMEDirectory, Kind: KindACME, Limits: first, Pattern: "/directory"},
		{Class: ClassACMENewNonce, Kind: KindACME, Limits: first, Pattern: "/acme/new-nonce"},
		{Class: ClassACMENewAccount, Kind: KindACME, Pattern: "/acme/new-account"},
		{Class: ClassACMENewAccount, Kind: KindACME, Pattern: "/acme/new-acct"},
		{Class: ClassACMENewOrder, Kind: KindACME, Pattern: "/acme/new-order"},
		{Class: ClassACMERevoke, Kind: KindACME, Pattern: "/acme/revoke-cert"},
		{Class: ClassACMEKeyChange, Kind: KindACME, Pattern: "/acme/key-change"},
		{Class: ClassACMEAccount, Kind: KindACME, Limits: steps, Pattern: "/acme/acct/{id...}"},
		{Class: ClassACMEOrder, Kind: KindACME, Limits: steps, Pattern: "/acme/order/{id...}"},
		{Class: ClassACMEAuthz, Kind: KindACME, Limits: steps, Pattern: "/acme/authz/{id...}"},
		{Class: ClassACMEChallenge, Kind: KindACME, Limits: steps, Pattern: "/acme/chall/{id...}"},
		{Class: ClassACMEFinalize, Kind: KindACME, Limits: steps, Pattern: "/acme/finalize/{id...}"},
		{Class: ClassACMECertificate, Kind: KindACME, Limits: steps, Pattern: "/acme/cert/{id...}"},
		{Class: ClassACMERenewalInfo, Kind: KindACME, Limits: reads, Pattern: "/acme/renewal-info/{id}"},
		{Class: ClassOCSP, Kind: KindOCSP, Limits: reads, Pattern: "/ocsp"},
		{Class: ClassOCSP, Kind: KindOCSP, Limits: reads, Pattern: "/ocsp/{request...}"},
		{Class: ClassCRL, Kind: KindCRL, Limits: reads, Pattern: "/crl"},
		{Class: ClassCRL, Kind: KindCRL, Limits: reads, Pattern: "/crl/{name...}"},
		{Class: ClassSCEP, Kind: KindSCEP, Pattern: "/scep"},
		{Class: ClassSCEP, Kind: KindSCEP, Pattern: "/scep/{path...}"},
	}
	for _, base := range []string{"/.well-known/est/", "/.well-known/est/{label}/"} {
		for _, op := range []string{"simpleenroll", "simplereenroll", "serverkeygen", "fullcmc"} {
			list = append(list, Endpoint{Class: ClassESTEnroll, Kind: KindEST, Pattern: "" + base + op})
		}
		for _, op := range []string{"cacerts", "csrattrs"} {
			list = append(list, Endpoint{Class: ClassESTInfo, Kind: KindEST, Limits: reads, Pattern: "" + base + op})
		}
	}
	for i := range list {
		// Where an account pays, nobody else shall be able to spend for it.
		list[i].Disown = list[i].Limits == nil && (list[i].Kind == KindACME || list[i].Kind == KindEST)
		list[i].Limits = maps.Clone(list[i].Limits) // to edit those of one endpoint edits no other's
	}
	return list
}
