package main

import (
	"maps"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/scepserver"
)

// classSCEPInfo is what a SCEP client reads before it enrols. Refused GetCACaps,
// a client goes on with the weakest ciphers there are, so it has generous limits
// and no guard.
const classSCEPInfo weir.Class = "scep_info"

// wholeLimits returns the configuration of a whole PKI: the ACME server's
// endpoints, those of the other protocols as weir.PKIEndpoints has them, and a
// guard on each class that has something signed.
func wholeLimits() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = endpoints()
	var reads map[string]weir.Limit
	for _, e := range weir.PKIEndpoints() {
		switch e.Class {
		case weir.ClassCRL:
			reads = e.Limits
		case weir.ClassOCSP, weir.ClassESTEnroll, weir.ClassESTInfo:
		default:
			continue
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	cfg.Endpoints = append(cfg.Endpoints,
		weir.Endpoint{Class: weir.ClassSCEP, Kind: weir.KindSCEP}, // by Protect; see limited
		weir.Endpoint{Pattern: scepserver.Path, Class: classSCEPInfo, Kind: weir.KindSCEP, Limits: maps.Clone(reads)},
	)
	return guarded(cfg)
}
