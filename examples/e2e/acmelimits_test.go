//go:build e2e

package e2e

import (
	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// pebble is the usual treatment of Pebble's paths, with one class under l.
func (l limits) pebble() weir.Config {
	treatment := map[weir.Class]weir.Endpoint{}
	for _, e := range weir.PKIEndpoints() {
		treatment[e.Class] = e
	}
	cfg := weir.DefaultConfig()
	for _, at := range pebblePaths {
		e := treatment[at.class]
		e.Pattern = at.path
		if at.path == l.path() {
			l.narrow(&e)
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	return cfg
}

var pebblePaths = []struct {
	path  string
	class weir.Class
}{
	{acmeserver.PathNewOrder, weir.ClassACMENewOrder},
	{acmeserver.PathDirectory, weir.ClassACMEDirectory},
	{acmeserver.PathNewNonce, weir.ClassACMENewNonce},
	{acmeserver.PathNewAccount, weir.ClassACMENewAccount},
	{acmeserver.PathAccount, weir.ClassACMEAccount},
	{acmeserver.PathOrder, weir.ClassACMEOrder},
	{acmeserver.PathFinalize, weir.ClassACMEFinalize},
	{acmeserver.PathAuthz, weir.ClassACMEAuthz},
	{acmeserver.PathChallenge, weir.ClassACMEChallenge},
	{acmeserver.PathCertificate, weir.ClassACMECertificate},
	{acmeserver.PathRenewalInfo, weir.ClassACMERenewalInfo},
}

// path is the path of the class, of which all requests begin with it.
func (l limits) path() string {
	for _, at := range pebblePaths {
		if at.class == l.class {
			return at.path
		}
	}
	return acmeserver.PathNewOrder
}
