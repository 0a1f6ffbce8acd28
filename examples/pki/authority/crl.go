package authority

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"strconv"
	"time"
)

// crlLifetime is the time from one CRL to its nextUpdate. A program that runs
// longer without revoking anything would have to publish in between.
const crlLifetime = 7 * 24 * time.Hour

// Revoke revokes the certificate of that serial number, for a reason of RFC
// 5280, section 5.3.1, and publishes a new CRL. It is an error if this authority
// did not issue it or the CRL cannot be signed; in the second case OCSP tells of
// the revocation all the same. Revoking again changes nothing.
func (a *Authority) Revoke(serial *big.Int, reason int) error {
	now := time.Now()
	a.mu.Lock()
	f := a.known[serial.String()]
	first := f != nil && f.revoked.IsZero()
	if first {
		f.revoked, f.reason = now, reason
	}
	a.mu.Unlock()
	if f == nil {
		return fmt.Errorf("authority: revoke: no certificate %x", serial)
	}
	if !first {
		return nil
	}
	if err := a.publish(now); err != nil {
		return fmt.Errorf("authority: revoke %x: %w", serial, err)
	}
	return nil
}

// publish signs the CRL as of now.
func (a *Authority) publish(now time.Time) error {
	a.signing.Lock()
	defer a.signing.Unlock()
	template := &x509.RevocationList{
		Number:     big.NewInt(1),
		ThisUpdate: now.Add(-backdated),
		NextUpdate: now.Add(crlLifetime),
	}
	if last := a.published.Load(); last != nil {
		template.Number.Add(last.Number, template.Number)
	}
	a.mu.Lock()
	for _, f := range a.known {
		if !f.revoked.IsZero() {
			template.RevokedCertificateEntries = append(template.RevokedCertificateEntries,
				x509.RevocationListEntry{SerialNumber: f.serial, RevocationTime: f.revoked, ReasonCode: f.reason})
		}
	}
	a.mu.Unlock()
	der, err := x509.CreateRevocationList(rand.Reader, template, a.Issuer, a.signer)
	if err != nil {
		return err
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return err
	}
	a.published.Store(list)
	return nil
}

// CRL serves the list as it was last published, in DER (RFC 5280, section 4.2.1.13),
// and answers conditional requests. It signs nothing.
func (a *Authority) CRL() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := a.published.Load()
		h := w.Header()
		h.Set("Content-Type", "application/pkix-crl") // RFC 2585, section 4.2
		h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(list.Raw)))
		h.Set("Cache-Control", "public, max-age="+strconv.Itoa(int(crlMaxAge/time.Second)))
		http.ServeContent(w, r, "", list.ThisUpdate, bytes.NewReader(list.Raw))
	})
}

// crlMaxAge is how long a cache may keep a CRL: a revocation is to be seen long
// before nextUpdate.
const crlMaxAge = 5 * time.Minute
