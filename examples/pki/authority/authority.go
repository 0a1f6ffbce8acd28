// Package authority is a small certificate authority for examples and tests:
// it issues certificates, publishes a CRL and answers OCSP requests, all signed
// by one key that somebody else holds, such as an HSM. It keeps what it issued
// in memory and asks nobody whether a request is rightful: that is for the
// protocol in front of it.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"
)

// lifetime is how long what is issued here stays valid; backdated is how far
// it reaches back, for clients whose clock is behind.
const (
	lifetime  = 90 * 24 * time.Hour
	backdated = time.Hour
)

// Config says how to make an [Authority].
type Config struct {
	// Signer holds the issuing key. It must be safe for concurrent use.
	Signer crypto.Signer
	// KeyID becomes the subject key identifier of Issuer, by which what it
	// issues names it; nil derives it from the key.
	KeyID []byte
	// OCSP and CRL are the URLs that certificates name; empty for none.
	OCSP, CRL string
}

// Authority issues certificates and says what became of them. Every signature
// under a certificate, a CRL or an OCSP response is one call of the Signer. It is
// safe for concurrent use; its fields are read-only.
type Authority struct {
	// Root is self-signed. Its key signed Issuer and nothing after it, as one
	// that is kept offline would.
	Root *x509.Certificate
	// Issuer certifies the Signer's key.
	Issuer *x509.Certificate

	signer    crypto.Signer
	ocsp, crl string

	mu    sync.Mutex // guards known
	known map[string]*fate

	signing   sync.Mutex // held while a CRL is signed: they come out in order
	published atomic.Pointer[x509.RevocationList]
}

// fate is what became of one certificate. A zero revoked means nothing did.
type fate struct {
	serial  *big.Int
	revoked time.Time
	reason  int // RFC 5280, section 5.3.1
}

// New makes a root, has it certify the key of cfg.Signer, and publishes an
// empty CRL. The error is the Signer's, or that of the key's kind.
func New(cfg Config) (*Authority, error) {
	a := &Authority{signer: cfg.Signer, ocsp: cfg.OCSP, crl: cfg.CRL, known: map[string]*fate{}}
	offline, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	if a.Root, err = certify("weir example root", nil, offline, offline.Public(), nil); err != nil {
		return nil, fmt.Errorf("authority: root: %w", err)
	}
	if a.Issuer, err = certify("weir example issuer", a.Root, offline, cfg.Signer.Public(), cfg.KeyID); err != nil {
		return nil, fmt.Errorf("authority: issuer: %w", err)
	}
	if err := a.publish(time.Now()); err != nil {
		return nil, fmt.Errorf("authority: first CRL: %w", err)
	}
	return a, nil
}

// certify makes a CA certificate for key; parent nil makes it self-signed.
func certify(name string, parent *x509.Certificate, signer crypto.Signer, key crypto.PublicKey, keyID []byte) (*x509.Certificate, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{Organization: []string{"weir"}, CommonName: name},
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		SubjectKeyId:          keyID,
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// serial returns a positive random number of 127 bits (RFC 5280, section
// 4.1.2.2, allows 159).
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}

// Chain returns what a client needs besides its certificate to reach Root: the
// issuer. The slice is the caller's.
func (a *Authority) Chain() []*x509.Certificate { return []*x509.Certificate{a.Issuer} }

// Roots returns a new pool that holds Root alone.
func (a *Authority) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Root)
	return pool
}
