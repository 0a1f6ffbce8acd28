package acmeserver

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
)

// revoke lets Pebble decide, and tells the issuer of what it agreed to.
func (s *reissuer) revoke(w http.ResponseWriter, r *http.Request) {
	body, ok := whole(w, r)
	if !ok {
		return
	}
	answer := newKept()
	s.authority.Handler.ServeHTTP(answer, r)
	if answer.status == http.StatusOK {
		if err := s.tell(body); err != nil {
			if s.log != nil {
				s.log.Print("revoke: ", err)
			}
			failed(w, answer.header)
			return
		}
	}
	answer.sendTo(w)
}

// tell reads what a request that Pebble has verified revokes (RFC 8555, section
// 7.6).
func (s *reissuer) tell(jws []byte) error {
	var outer struct{ Payload string }
	if err := json.Unmarshal(jws, &outer); err != nil {
		return err
	}
	payload, err := base64.RawURLEncoding.DecodeString(outer.Payload)
	if err != nil {
		return err
	}
	var revocation struct {
		Certificate string
		Reason      int
	}
	if err := json.Unmarshal(payload, &revocation); err != nil {
		return err
	}
	der, err := base64.RawURLEncoding.DecodeString(revocation.Certificate)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	return s.issuer.Revoke(cert.SerialNumber, revocation.Reason)
}
