// Package softhsm opens a SoftHSM2 token through PKCS#11, as a program would
// open the HSM of its CA: a key that never leaves it, and a small pool of
// sessions to use it with. It needs cgo and the Debian package softhsm2.
package softhsm

import (
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ThalesGroup/crypto11"
)

// Config says how to open an [HSM]. Zero values mean the defaults.
type Config struct {
	// Sessions is how many signatures can be made at once. Default 8.
	Sessions int
	// Bits is the size of the RSA key. Default 4096, which on one core comes to
	// a hundred signatures a second or two: about what a network HSM does.
	Bits int
	// Wait is how long a signature waits for a session before it fails.
	// Default 1s.
	Wait time.Duration
	// Latency is how long a signature keeps its session at least, as the way to a
	// network HSM makes it. SoftHSM2 takes all its time from the processor, so
	// without this a crowd of clients on the same machine slows it down. Default
	// none.
	Latency time.Duration
}

// HSM is an open token: one key, and the sessions to use it with. It is safe for
// concurrent use. Close it, once nothing signs any more.
type HSM struct {
	// Key signs, each signature in a session of the pool. If none comes free in
	// time it fails: PKCS#11 knows no queue, and the library's has no bound
	// but time.
	Key *Key

	context  *crypto11.Context
	sessions int
}

// Open makes a token in a temporary folder, or joins that which this process
// has already, and a new RSA key in it. Each HSM has its own sessions. The error
// says what is missing if SoftHSM2 is not installed.
func Open(cfg Config) (_ *HSM, err error) {
	if cfg.Sessions == 0 {
		cfg.Sessions = 8
	}
	if cfg.Bits == 0 {
		cfg.Bits = 4096
	}
	if cfg.Wait == 0 {
		cfg.Wait = time.Second
	}
	t, err := acquire()
	if err != nil {
		return nil, fmt.Errorf("softhsm: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("softhsm: %w", errors.Join(err, release()))
		}
	}()
	context, err := crypto11.Configure(&crypto11.Config{
		Path:       t.library,
		TokenLabel: label,
		Pin:        t.pin,
		// crypto11 keeps one session for itself, to stay logged in.
		MaxSessions: cfg.Sessions + 1,
		// Zero would be to wait for ever.
		PoolWaitTimeout: cfg.Wait,
	})
	if err != nil {
		return nil, err
	}
	pair, err := context.GenerateRSAKeyPair([]byte(rand.Text()), cfg.Bits)
	if err != nil {
		return nil, errors.Join(err, context.Close())
	}
	key := &Key{signer: pair, wait: cfg.Wait, latency: cfg.Latency}
	if cfg.Latency > 0 {
		key.sessions = make(chan struct{}, cfg.Sessions)
	}
	return &HSM{Key: key, context: context, sessions: cfg.Sessions}, nil
}

// Sessions returns how many signatures can be made at once: the size for a guard
// in front of it.
func (h *HSM) Sessions() int { return h.sessions }

// Close waits for the sessions in use and closes them all. The last Close of
// the process removes the token.
func (h *HSM) Close() error {
	return errors.Join(h.context.Close(), release())
}

var _ crypto.Signer = (*Key)(nil)
