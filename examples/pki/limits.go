package main

import (
	"time"

	"github.com/weir-go/weir"
)

// limits returns the configuration that a real authority would start from:
// weir's defaults, on this authority's paths, and an HSM with a few sessions.
func limits() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = endpoints()
	cfg.Guards = map[string]weir.GuardConfig{guardHSM: {MaxInFlight: 4}}
	return cfg
}

// oneOrderAtATime returns limits under which an account places one order, and
// another only after every has passed.
func oneOrderAtATime(every time.Duration) weir.Config {
	cfg := limits()
	cfg.Tiers.PerAccount = weir.TierConfig{Rate: 1 / every.Seconds(), Burst: 1}
	return cfg
}

// held returns cfg with requests held for the tokens they lack, at most so long
// (requirement T15), before they are refused.
func held(cfg weir.Config, longest time.Duration) weir.Config {
	cfg.Tiers.MaxWait = weir.Duration(longest)
	return cfg
}
