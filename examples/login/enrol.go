package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"io"
	"math/big"
	"net/http"
	"time"
)

// enrol is EST simpleenroll (RFC 7030, section 4.2): HTTP Basic, a PKCS #10
// request in, a certificate out. It knows nothing of the auth lock: the Limiter
// has let the attempt through, and takes 401 for a failure, 200 for a success.
func (s *site) enrol(w http.ResponseWriter, r *http.Request) {
	user, password, ok := r.BasicAuth()
	if !ok || !s.users.verify(user, password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="enrolment"`)
		http.Error(w, "A name and its password are needed.", http.StatusUnauthorized)
		return
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return
	}
	der, err := base64.StdEncoding.DecodeString(string(text))
	if err != nil {
		http.Error(w, "The body is not base64.", http.StatusBadRequest)
		return
	}
	answer, err := s.ca.issue(der, user)
	if err != nil {
		http.Error(w, "The request cannot be read.", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/pkcs7-mime; smime-type=certs-only")
	w.Header().Set("Content-Transfer-Encoding", "base64")
	_, _ = io.WriteString(w, base64.StdEncoding.EncodeToString(answer))
}

// An authority issues certificates under a key of its own.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Example CA"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &authority{key, cert}, err
}

// issue returns the certificate as a certs-only CMS message.
func (a *authority) issue(csr []byte, user string) ([]byte, error) {
	req, err := x509.ParseCertificateRequest(csr)
	if err != nil {
		return nil, err
	}
	if err := req.CheckSignature(); err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: user},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, req.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return certsOnly(der)
}

// certsOnly wraps a certificate in SignedData without a signer (RFC 5652,
// section 5.1; RFC 5272, section 3.1).
func certsOnly(der []byte) ([]byte, error) {
	type contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,optional,tag:0"`
	}
	type signedData struct {
		Version int
		Digests asn1.RawValue
		Content struct{ Type asn1.ObjectIdentifier }
		Certs   asn1.RawValue
		Signers asn1.RawValue
	}
	empty := asn1.RawValue{Tag: asn1.TagSet, IsCompound: true}
	data := signedData{
		Version: 1, Digests: empty, Signers: empty,
		Certs: asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: der},
	}
	data.Content.Type = asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}
	inner, err := asn1.Marshal(data)
	if err != nil {
		return nil, err
	}
	return asn1.Marshal(contentInfo{
		Type:    asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2},
		Content: asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: inner},
	})
}
