package softhsm

import (
	"crypto"
	"io"
	"sync/atomic"
)

// Key is a private key in the HSM. It counts what it is used for.
type Key struct {
	signer             crypto.Signer
	signed, failed     atomic.Int64
	atWork, mostAtOnce atomic.Int64
}

// Usage is what a Key has been used for.
type Usage struct {
	Signed, Failed int64 // signatures made, and those for which there was no session
	AtWork, Most   int64 // signatures that are being made or wait for a session, and the most at once
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
	signature, err := k.signer.Sign(rand, digest, opts)
	if err != nil {
		k.failed.Add(1)
		return nil, err
	}
	k.signed.Add(1)
	return signature, nil
}

// Usage returns what the key has been used for so far.
func (k *Key) Usage() Usage {
	return Usage{
		Signed: k.signed.Load(), Failed: k.failed.Load(),
		AtWork: k.atWork.Load(), Most: k.mostAtOnce.Load(),
	}
}
