package main

import "github.com/weir-go/weir"

// guardHSM stands before whatever has something signed. Its slots are the HSM's
// sessions.
const guardHSM = "hsm"

// laneStatus is OCSP's part of the guard. Its reserve is for OCSP whatever
// enrolment does, so who checks certificates does not suffer from those who want
// some; the other sessions are for both, so none is idle while somebody wants it
// but those two (requirement G9). At 20 ms a signature two are good for a hundred
// answers a second.
const (
	laneStatus    = "status"
	statusReserve = 2
)

// guarded puts one guard before each class that has something signed, with a lane
// for OCSP. The CRL has neither: it is signed when something is revoked, not when
// it is asked for.
func guarded(cfg weir.Config) weir.Config {
	return guardedBy(cfg, guardHSM, weir.GuardConfig{
		Lanes: map[string]weir.LaneConfig{laneStatus: {Classes: []weir.Class{weir.ClassOCSP}, Reserve: statusReserve}},
	})
}

// crowded is guarded without lanes: all wait in one queue.
func crowded(cfg weir.Config) weir.Config { return guardedBy(cfg, guardHSM, weir.GuardConfig{}) }

// unguarded leaves it to the session pool.
func unguarded(cfg weir.Config) weir.Config { return guardedBy(cfg, "", weir.GuardConfig{}) }

// guardedBy has the size of the guard left to poolSize.
func guardedBy(cfg weir.Config, name string, guard weir.GuardConfig) weir.Config {
	for i := range cfg.Endpoints {
		switch e := &cfg.Endpoints[i]; e.Class {
		case weir.ClassACMEFinalize, weir.ClassACMERevoke, weir.ClassESTEnroll, weir.ClassSCEP, weir.ClassOCSP:
			e.Guard = name
		}
	}
	cfg.Guards = nil
	if name != "" {
		cfg.Guards = map[string]weir.GuardConfig{name: guard}
	}
	return cfg
}

// poolSize gives the guard as many slots as there are sessions, so no signature
// ever waits for one. A pool of two has a reserve of one: some slot is for all.
func poolSize(sessions int) weir.Option {
	return weir.WithPoolSize(guardHSM, func() int { return sessions })
}
