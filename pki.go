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
// reach an HSM ([ClassACMEFinalize], [ClassOCSP], [ClassESTEnroll], …).
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
		{Class: ClassACMEDirectory, Kind: KindACME, Limits: first, Pattern: "GET /acme/directory"},
		{Class: ClassACMEDirectory, Kind: KindACME, Limits: first, Pattern: "GET /directory"},
		{Class: ClassACMENewNonce, Kind: KindACME, Limits: first, Pattern: "GET /acme/new-nonce"},
		{Class: ClassACMENewAccount, Kind: KindACME, Pattern: "POST /acme/new-account"},
		{Class: ClassACMENewAccount, Kind: KindACME, Pattern: "POST /acme/new-acct"},
		{Class: ClassACMENewOrder, Kind: KindACME, Pattern: "POST /acme/new-order"},
		{Class: ClassACMERevoke, Kind: KindACME, Pattern: "POST /acme/revoke-cert"},
		{Class: ClassACMEKeyChange, Kind: KindACME, Pattern: "POST /acme/key-change"},
		{Class: ClassACMEAccount, Kind: KindACME, Limits: steps, Pattern: "POST /acme/acct/{id...}"},
		{Class: ClassACMEOrder, Kind: KindACME, Limits: steps, Pattern: "/acme/order/{id...}"},
		{Class: ClassACMEAuthz, Kind: KindACME, Limits: steps, Pattern: "/acme/authz/{id...}"},
		{Class: ClassACMEChallenge, Kind: KindACME, Limits: steps, Pattern: "/acme/chall/{id...}"},
		{Class: ClassACMEFinalize, Kind: KindACME, Limits: steps, Pattern: "POST /acme/finalize/{id...}"},
		{Class: ClassACMECertificate, Kind: KindACME, Limits: steps, Pattern: "/acme/cert/{id...}"},
		{Class: ClassACMERenewalInfo, Kind: KindACME, Limits: reads, Pattern: "GET /acme/renewal-info/{id}"},
		{Class: ClassOCSP, Kind: KindOCSP, Limits: reads, Pattern: "POST /ocsp"},
		{Class: ClassOCSP, Kind: KindOCSP, Limits: reads, Pattern: "POST /ocsp/{$}"},
		{Class: ClassOCSP, Kind: KindOCSP, Limits: reads, Pattern: "GET /ocsp/{request...}"},
		{Class: ClassCRL, Kind: KindCRL, Limits: reads, Pattern: "GET /crl"},
		{Class: ClassCRL, Kind: KindCRL, Limits: reads, Pattern: "GET /crl/{name...}"},
		{Class: ClassSCEP, Kind: KindSCEP, Pattern: "/scep"},
		{Class: ClassSCEP, Kind: KindSCEP, Pattern: "/scep/{path...}"},
	}
	for _, base := range []string{"/.well-known/est/", "/.well-known/est/{label}/"} {
		for _, op := range []string{"simpleenroll", "simplereenroll", "serverkeygen", "fullcmc"} {
			list = append(list, Endpoint{Class: ClassESTEnroll, Kind: KindEST, Pattern: "POST " + base + op})
		}
		for _, op := range []string{"cacerts", "csrattrs"} {
			list = append(list, Endpoint{Class: ClassESTInfo, Kind: KindEST, Limits: reads, Pattern: "GET " + base + op})
		}
	}
	for i := range list {
		list[i].Limits = maps.Clone(list[i].Limits) // to edit those of one endpoint edits no other's
	}
	return list
}
