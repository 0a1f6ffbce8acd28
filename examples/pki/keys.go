package main

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"time"

	"github.com/weir-go/weir/examples/pki/softhsm"
)

// keyConfig says where the issuing key is.
type keyConfig struct {
	in       string // "hsm" or "memory"
	sessions int
	bits     int           // of RSA
	latency  time.Duration // of a signature in the HSM, at least
}

// openKeys opens the place and makes a key there. Call the function that it
// returns when nothing signs any more.
func openKeys(cfg keyConfig) (signer, func(), error) {
	switch cfg.in {
	case "hsm":
		hsm, err := softhsm.Open(softhsm.Config{Sessions: cfg.sessions, Bits: cfg.bits, Latency: cfg.latency})
		if err != nil {
			return signer{}, nil, err
		}
		return signer{hsm.Key, hsm.Sessions()}, func() { _ = hsm.Close() }, nil
	case "memory":
		key, err := rsa.GenerateKey(rand.Reader, cfg.bits)
		return signer{key, cfg.sessions}, func() {}, err
	}
	return signer{}, nil, fmt.Errorf("keys in %q: write hsm or memory", cfg.in)
}
