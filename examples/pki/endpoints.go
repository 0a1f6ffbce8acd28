package main

import "github.com/weir-go/weir"

// classOther is what the authority has no resource for, and answers with 404.
const classOther weir.Class = "other"

// endpoints returns the endpoint table of the authority: Pebble's paths, each
// treated as weir.PKIEndpoints has it. The common tiers are for what begins
// something (newAccount, newOrder, revokeCert, keyChange); directory, newNonce
// and the steps of an order that was admitted have generous buckets of their own.
//
// Where an account pays, Disown gives its token back if the authority answers
// that the request does not prove to be the account's: its kid is anybody's to
// write, and junk that names a victim's must not use up the victim's budget.
//
// No pattern names a method. Pebble serves the directory, newNonce and
// renewalInfo to a signed POST too (RFC 8555, section 6.3), and a request that
// matches no pattern is not limited.
func endpoints() []weir.Endpoint {
	table := []weir.Endpoint{{Pattern: "/", Class: classOther, Kind: weir.KindACME, Disown: true}}
	for _, e := range weir.PKIEndpoints(weir.LayoutPebble) {
		if e.Class == weir.ClassACMEFinalize {
			e.Guard = guardHSM
		}
		table = append(table, e)
	}
	return table
}

// wholeEndpoints adds the other protocols, which are on the paths of the RFCs'
// examples. SCEP has one path for all that it does; of its requests only those
// that surely read have the class scep_ca, by their query.
func wholeEndpoints() []weir.Endpoint {
	table := endpoints()
	for _, e := range weir.PKIEndpoints(weir.LayoutPlain) {
		if e.Kind != weir.KindACME {
			table = append(table, e)
		}
	}
	return table
}
