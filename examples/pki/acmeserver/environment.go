package acmeserver

import (
	"errors"
	"os"
	"sync"
)

// determinism holds the variables that Pebble's constructors read, and nothing
// reads after them. Its constructors have no parameters for these.
var determinism = map[string]string{
	"PEBBLE_VA_ALWAYS_VALID": "1", // challenges are met without a connection to the name
	"PEBBLE_VA_NOSLEEP":      "1", // by default each validation sleeps up to 5 s
	"PEBBLE_WFE_NONCEREJECT": "0", // by default 5 % of good nonces are answered badNonce
	"PEBBLE_AUTHZREUSE":      "0", // by default half the valid authorizations are reused
}

// environmentMu serializes withDeterminism: two Starts that interleave could
// each take the other's values for the ones to put back.
var environmentMu sync.Mutex

// withDeterminism runs build with the variables of determinism set, and then
// puts the environment back, also if build panics. build does not run if the
// environment refuses a variable. The environment belongs to the process:
// another goroutine that lists it meanwhile sees these values.
func withDeterminism(build func()) (err error) {
	environmentMu.Lock()
	defer environmentMu.Unlock()

	for name, value := range determinism {
		before, wasSet := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return err
		}
		defer func() {
			if wasSet {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	build()
	return nil
}
