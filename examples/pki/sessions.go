package main

import (
	"github.com/weir-go/weir"
)

// The guards share the HSM's sessions out, so that neither a flood of enrolments
// nor one of status requests can take all: who checks certificates is not to
// suffer from those who want some, nor the reverse (requirement G9).
const (
	guardEnrol  = "enrol"  // finalize, revokeCert, EST and SCEP enrolment
	guardStatus = "status" // OCSP
)

// guarded puts a guard before each class that has something signed. Their sizes
// come from the pool; see poolSizes.
func guarded(cfg weir.Config) weir.Config {
	return guardedBy(cfg, guardEnrol, guardStatus)
}

// crowded is guarded with one guard for all: sessions go to whoever comes first.
func crowded(cfg weir.Config) weir.Config {
	return guardedBy(cfg, guardHSM, guardHSM)
}

// unguarded leaves it to the session pool.
func unguarded(cfg weir.Config) weir.Config { return guardedBy(cfg, "", "") }

func guardedBy(cfg weir.Config, enrol, status string) weir.Config {
	for i := range cfg.Endpoints {
		switch e := &cfg.Endpoints[i]; e.Class {
		case weir.ClassACMEFinalize, weir.ClassACMERevoke, weir.ClassESTEnroll, weir.ClassSCEP:
			e.Guard = enrol
		case weir.ClassOCSP:
			e.Guard = status
		}
	}
	cfg.Guards = map[string]weir.GuardConfig{}
	for _, name := range []string{enrol, status} {
		if name != "" {
			cfg.Guards[name] = weir.GuardConfig{}
		}
	}
	return cfg
}

// poolSizes says how many of the HSM's sessions each guard may hold: those of
// guarded together exactly as many as there are, a quarter of them for status
// requests, so no signature ever waits for a session. There must be two at least.
func poolSizes(sessions int) []weir.Option {
	status := max(1, sessions/4)
	return []weir.Option{
		weir.WithPoolSize(guardStatus, func() int { return status }),
		weir.WithPoolSize(guardEnrol, func() int { return sessions - status }),
		weir.WithPoolSize(guardHSM, func() int { return sessions }),
	}
}
