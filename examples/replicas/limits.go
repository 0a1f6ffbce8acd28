package main

import (
	"time"

	"github.com/weir-go/weir"
)

const (
	replicas = 3

	// What one address may do, whichever replica it comes to.
	perAddressRate  = 10
	perAddressBurst = 20
)

// limits is the same in every replica.
func limits() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = []weir.Endpoint{
		{Pattern: "POST /acme/new-order", Class: weir.ClassACMENewOrder, Kind: weir.KindACME},
		{Pattern: "POST /acme/finalize/{id}", Class: weir.ClassACMEFinalize, Kind: weir.KindACME, Guard: "hsm"},
	}
	cfg.Tiers.Global = weir.TierConfig{Rate: 400, Burst: 400}
	cfg.Tiers.PerIP = weir.TierConfig{Rate: perAddressRate, Burst: perAddressBurst}

	// A guard is each replica's own: it protects what is behind that one.
	cfg.Guards = map[string]weir.GuardConfig{
		"hsm": {MaxInFlight: 1, MaxQueue: 2, AcquireTimeout: weir.Duration(250 * time.Millisecond)},
	}

	// The counts are in Redis, under the same secret everywhere. Both come from
	// the environment, as they would in a deployment.
	cfg.Store.Backend = "redis"
	cfg.Store.Redis.DSN = "${WEIR_REDIS_DSN}"
	cfg.Store.KeySecret = "${WEIR_KEY_SECRET}"

	// While Redis is away, each replica counts for itself with its part.
	cfg.Store.Replicas = replicas

	// The balancer runs on this host, and names the client.
	cfg.ClientIP.TrustedProxies = []string{"127.0.0.1"}
	return cfg
}
