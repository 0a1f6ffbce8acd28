package main

import (
	"time"

	"github.com/weir-go/weir"
)

// limits is the auth lock with its defaults: an address locks for ten minutes
// after 100 failures in five, an account for an hour after ten in one.
func limits() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = []weir.Endpoint{
		// The login form carries the name in its body, so the handler makes the
		// attempt.
		{Pattern: "POST /login", Class: "login", Kind: weir.KindPage, Auth: weir.AuthHandler},
		// An EST client brings name and password in the header; the Limiter
		// finds them there and learns the verdict from the status.
		{Pattern: "POST /.well-known/est/simpleenroll", Class: weir.ClassESTEnroll, Kind: weir.KindEST, Auth: weir.AuthBasic},
	}
	cfg.AuthLock.Enabled = true

	// To check a password costs the server something. No more are checked at
	// once than may still fail.
	cfg.AuthLock.ReserveAlways = true

	// The owner's own client must not give the crowd new attempts each time it
	// signs in.
	cfg.AuthLock.Account.ClearSameAddress = true

	// The rates of this example are not its point, and neither is patience: a
	// real site would keep its failed answers back for up to 5s.
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = weir.TierConfig{}, weir.TierConfig{}, weir.TierConfig{}
	cfg.AuthLock.Delay.Max = weir.Duration(200 * time.Millisecond)

	// The clients play the proxy, to have an address each.
	cfg.ClientIP.TrustedProxies = []string{"127.0.0.1"}
	return cfg
}
