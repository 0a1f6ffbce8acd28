package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir"
)

// presets are the limits to choose from on the command line.
var presets = map[string]func() weir.Config{
	"small":    smallLimits,
	"default":  wholeLimits,
	"generous": generousLimits,
}

const presetNames = "small, default or generous"

// preset returns the limits of that name, with requests held for up to maxWait.
func preset(name string, maxWait time.Duration) (weir.Config, error) {
	limits, ok := presets[strings.ToLower(name)]
	if !ok {
		return weir.Config{}, fmt.Errorf("limits %q: write %s", name, presetNames)
	}
	cfg := held(limits(), maxWait)
	return cfg, cfg.Validate()
}

// smallLimits are such that a client meets them at its second certificate: an
// account has one order every five seconds, a name of EST's one enrolment. An
// address has three beginnings (an account, an order, an enrolment, …) at once and
// one more every two seconds.
func smallLimits() weir.Config {
	cfg := wholeLimits()
	cfg.Tiers.PerIP = weir.TierConfig{Rate: 0.5, Burst: 3}
	cfg.Tiers.PerAccount = weir.TierConfig{Rate: 0.2, Burst: 1}
	return cfg
}

// generousLimits are such that one address can load the HSM to its limit: what
// is refused is refused by the guard.
func generousLimits() weir.Config {
	cfg := wholeLimits()
	plenty := weir.Limit{Rate: 100_000, Burst: 100_000}
	cfg.Tiers.Global = weir.TierConfig{Rate: plenty.Rate, Burst: plenty.Burst}
	cfg.Tiers.PerIP = cfg.Tiers.Global
	cfg.Tiers.PerAccount = cfg.Tiers.Global
	for i := range cfg.Endpoints {
		for tier, limit := range cfg.Endpoints[i].Limits {
			if limit != (weir.Limit{}) {
				cfg.Endpoints[i].Limits[tier] = plenty
			}
		}
	}
	return cfg
}
