package estserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/asn1"
	"net/http"
)

// caCerts tells the authority's certificates (RFC 7030, section 4.1).
func (s *server) caCerts(w http.ResponseWriter, _ *http.Request) {
	answer(w, mimeCerts, certsOnly(s.Authority.Issuer, s.Authority.Root))
}

// csrAttrs asks for keys on P-256 (RFC 7030, section 4.5.2).
func (s *server) csrAttrs(w http.ResponseWriter, _ *http.Request) {
	type attribute struct {
		Type   asn1.ObjectIdentifier
		Values []asn1.ObjectIdentifier `asn1:"set"`
	}
	der, err := asn1.Marshal([]attribute{{
		Type:   asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1},        // ecPublicKey
		Values: []asn1.ObjectIdentifier{{1, 2, 840, 10045, 3, 1, 7}}, // P-256
	}})
	if err != nil {
		failed(w)
		return
	}
	answer(w, "application/csrattrs", der)
}

// enrol issues what is asked for (RFC 7030, section 4.2.1).
func (s *server) enrol(w http.ResponseWriter, r *http.Request) {
	if csr := request(w, r); csr != nil {
		s.issue(w, csr)
	}
}

// enrolAgain issues to who has such a certificate already: the request must be for
// the same subject and the same names (RFC 7030, section 4.2.2).
func (s *server) enrolAgain(w http.ResponseWriter, r *http.Request) {
	csr := request(w, r)
	if csr == nil {
		return
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		http.Error(w, "no client certificate: enrol first", http.StatusForbidden)
		return
	}
	has := r.TLS.PeerCertificates[0]
	// The handshake has proved that the client holds the key, and nothing else.
	intermediates := x509.NewCertPool()
	intermediates.AddCert(s.Authority.Issuer)
	_, err := has.Verify(x509.VerifyOptions{
		Roots: s.Authority.Roots(), Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		http.Error(w, "the client certificate is not from here", http.StatusForbidden)
		return
	}
	if !bytes.Equal(csr.RawSubject, has.RawSubject) || !bytes.Equal(names(csr.Extensions), names(has.Extensions)) {
		http.Error(w, "the subject or its alternative names are not those of the client certificate", http.StatusBadRequest)
		return
	}
	s.issue(w, csr)
}

func (s *server) issue(w http.ResponseWriter, csr *x509.CertificateRequest) {
	cert, err := s.Authority.Issue(csr)
	if err != nil {
		failed(w)
		return
	}
	answer(w, mimeCerts, certsOnly(cert))
}

// serverKeyGen makes the key that the client has none of, and sends it in clear
// inside TLS (RFC 7030, section 4.4). It is made in software, for it is to be
// sent away.
func (s *server) serverKeyGen(w http.ResponseWriter, r *http.Request) {
	csr := request(w, r)
	if csr == nil {
		return
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		failed(w)
		return
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		failed(w)
		return
	}
	cert, err := s.Authority.IssueFor(key.Public(), csr)
	if err != nil {
		failed(w)
		return
	}
	answerParts(w, part{"application/pkcs8", pkcs8}, part{mimeCerts, certsOnly(cert)})
}
