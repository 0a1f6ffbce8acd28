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

// guards are those of a whole PKI. Their sizes come from the pool; see poolSizes.
func guards() map[string]weir.GuardConfig {
	return map[string]weir.GuardConfig{guardEnrol: {}, guardStatus: {}}
}

// poolSizes says how many of the HSM's sessions each guard may hold: together
// exactly as many as there are, so no signature ever waits for one. A single
// session is nobody's to share: both may then use it, and the pool's own queue
// decides.
func poolSizes(sessions int) []weir.Option {
	status := max(1, sessions/4)
	return []weir.Option{
		weir.WithPoolSize(guardStatus, func() int { return status }),
		weir.WithPoolSize(guardEnrol, func() int { return max(1, sessions-status) }),
	}
}
