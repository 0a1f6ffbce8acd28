package softhsm

import (
	"crypto"
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// ErrNoSession is that none came free in time, for a Key with a latency. Without
// one the error is the library's own.
var ErrNoSession = errors.New("softhsm: no session came free")

// Key is a private key in the HSM. It counts what it is used for.
type Key struct {
	signer  crypto.Signer
	wait    time.Duration
	latency time.Duration
	// sessions stands for the pool where there is a latency: the pool's own
	// sessions are back before that is over.
	sessions chan struct{}

	signed, failed     atomic.Int64
	atWork, mostAtOnce atomic.Int64
}

// Usage is what a Key has been used for.
type Usage struct {
	Signed, Failed int64 // signatures made, and those for which there was no session
	AtWork, Most   int64 // those being made or waiting for a session now, and the most at once
}

// Public returns the public key.
func (k *Key) Public() crypto.PublicKey { return k.signer.Public() }

// Sign signs in a session of the pool; see crypto.Signer.
func (k *Key) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	now := k.atWork.Add(1)
	defer k.atWork.Add(-1)
	for most := k.mostAtOnce.Load(); most < now && !k.mostAtOnce.CompareAndSwap(most, now); {
		most = k.mostAtOnce.Load()
	}
	signature, err := k.sign(rand, digest, opts)
	if err != nil {
		k.failed.Add(1)
		return nil, err
	}
	k.signed.Add(1)
	return signature, nil
}

func (k *Key) sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if k.latency == 0 {
		return k.signer.Sign(rand, digest, opts)
	}
	patience := time.NewTimer(k.wait)
	defer patience.Stop()
	select {
	case k.sessions <- struct{}{}:
	case <-patience.C:
		return nil, ErrNoSession
	}
	defer func() { <-k.sessions }()
	answered := time.NewTimer(k.latency)
	defer answered.Stop()
	signature, err := k.signer.Sign(rand, digest, opts)
	<-answered.C
	return signature, err
}

// Usage returns what the key has been used for so far.
func (k *Key) Usage() Usage {
	return Usage{
		Signed: k.signed.Load(), Failed: k.failed.Load(),
		AtWork: k.atWork.Load(), Most: k.mostAtOnce.Load(),
	}
}
