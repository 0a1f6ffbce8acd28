package main

import (
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// classOther is what the authority has no resource for, and answers with 404.
const classOther weir.Class = "other"

// endpoints returns the endpoint table of the authority: its own paths, each
// treated as weir.PKIEndpoints treats the same resource on its usual path. The
// common tiers are for what begins something (newAccount, newOrder, revokeCert,
// keyChange); directory, newNonce and the steps of an order that was admitted
// have generous buckets of their own.
//
// Where an account pays, Disown gives its token back if the authority answers
// that the request does not prove to be the account's: its kid is anybody's to
// write, and junk that names a victim's must not use up the victim's budget.
//
// No pattern names a method. Pebble serves the directory, newNonce and
// renewalInfo to a signed POST too (RFC 8555, section 6.3), and a request that
// matches no pattern is not limited.
func endpoints() []weir.Endpoint {
	treatment := map[weir.Class]weir.Endpoint{}
	for _, e := range weir.PKIEndpoints() {
		treatment[e.Class] = e
	}
	table := []weir.Endpoint{{Pattern: "/", Class: classOther, Kind: weir.KindACME, Disown: true}}
	for _, at := range []struct {
		path  string
		class weir.Class
	}{
		{acmeserver.PathDirectory, weir.ClassACMEDirectory},
		{acmeserver.PathNewNonce, weir.ClassACMENewNonce},
		{acmeserver.PathNewAccount, weir.ClassACMENewAccount},
		{acmeserver.PathNewOrder, weir.ClassACMENewOrder},
		{acmeserver.PathAuthz, weir.ClassACMEAuthz},
		{acmeserver.PathChallenge, weir.ClassACMEChallenge},
		{acmeserver.PathOrder, weir.ClassACMEOrder},
		{acmeserver.PathFinalize, weir.ClassACMEFinalize},
		{acmeserver.PathCertificate, weir.ClassACMECertificate},
		{acmeserver.PathAccount, weir.ClassACMEAccount},
		{acmeserver.PathOrders, weir.ClassACMEAccount},
		{acmeserver.PathKeyChange, weir.ClassACMEKeyChange},
		{acmeserver.PathRevokeCert, weir.ClassACMERevoke},
		{acmeserver.PathRenewalInfo, weir.ClassACMERenewalInfo},
	} {
		e := treatment[at.class]
		e.Pattern = at.path
		if e.Class == weir.ClassACMEFinalize {
			e.Guard = guardHSM
		}
		table = append(table, e)
	}
	return table
}
