package authority

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"time"
)

// Issue gives the certificate that csr asks for: its key, its subject and its
// names, for servers and clients alike. Whether the requester may have them,
// and whether csr proves possession of the key, is the caller's to know.
func (a *Authority) Issue(csr *x509.CertificateRequest) (*x509.Certificate, error) {
	return a.IssueFor(csr.PublicKey, csr)
}

// IssueFor is Issue for a key that is not the request's own (RFC 7030, section
// 4.4, has the server make it).
func (a *Authority) IssueFor(key crypto.PublicKey, csr *x509.CertificateRequest) (*x509.Certificate, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               csr.Subject,
		RawSubject:            csr.RawSubject, // to the byte: re-enrolment compares it (RFC 7030, section 4.2.2)
		DNSNames:              csr.DNSNames,
		IPAddresses:           csr.IPAddresses,
		EmailAddresses:        csr.EmailAddresses,
		URIs:                  csr.URIs,
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if _, ok := key.(*rsa.PublicKey); ok {
		template.KeyUsage |= x509.KeyUsageKeyEncipherment
	}
	if a.ocsp != "" {
		template.OCSPServer = []string{a.ocsp}
	}
	if a.crl != "" {
		template.CRLDistributionPoints = []string{a.crl}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Issuer, key, a.signer)
	if err != nil {
		return nil, fmt.Errorf("authority: issue: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority: issue: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[cert.SerialNumber.String()] = &fate{serial: cert.SerialNumber}
	return cert, nil
}
