package clients

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/http"
	"time"

	kitlog "github.com/go-kit/kit/log"
	micromdm "github.com/micromdm/scep/v2/client"
	"github.com/micromdm/scep/v2/cryptoutil/x509util"
	"github.com/smallstep/scep"
)

// SCEP is a SCEP enrolment, ready to be sent: the signed and encrypted request
// of a device (RFC 8894, section 3.3.1).
type SCEP struct {
	url  string
	key  *rsa.PrivateKey
	self *x509.Certificate // the device's own, by which it signs until it has another
	ca   []*x509.Certificate
	raw  []byte
}

// PrepareSCEP asks the server for its certificates with MicroMDM's client and
// makes the request of a device of that name. The client uses
// http.DefaultClient.
func PrepareSCEP(ctx context.Context, url, challenge, name string) (*SCEP, error) {
	s := &SCEP{url: url}
	client, err := micromdm.New(url, kitlog.NewNopLogger())
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	answer, n, err := client.GetCACert(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("scep: GetCACert: %w", err)
	}
	if n > 1 {
		s.ca, err = scep.CACerts(answer)
	} else {
		s.ca, err = x509.ParseCertificates(answer)
	}
	if err != nil {
		return nil, fmt.Errorf("scep: GetCACert: %w", err)
	}
	if s.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	der, err := x509util.CreateCertificateRequest(rand.Reader, &x509util.CertificateRequest{
		CertificateRequest: x509.CertificateRequest{
			Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			SignatureAlgorithm: x509.SHA256WithRSA,
		},
		ChallengePassword: challenge,
	}, s.key)
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	if s.self, err = selfSigned(name, s.key); err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	message, err := scep.NewCSRRequest(csr, &scep.PKIMessage{
		MessageType:   scep.PKCSReq,
		Recipients:    s.ca,
		SignerKey:     s.key,
		SignerCert:    s.self,
		CSRReqMessage: &scep.CSRReqMessage{ChallengePassword: challenge},
	}, scep.WithCertsSelector(scep.EnciphermentCertsSelector()))
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	s.raw = message.Raw
	return s, nil
}

// Enrol sends the request as MicroMDM's client does, by POST if GetCACaps
// offers that, and returns the certificate.
func (s *SCEP) Enrol(ctx context.Context) (*x509.Certificate, error) {
	client, err := micromdm.New(s.url, kitlog.NewNopLogger())
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	answer, err := client.PKIOperation(ctx, s.raw)
	if err != nil {
		return nil, fmt.Errorf("scep: PKIOperation: %w", err)
	}
	return s.read(answer)
}

// Post is Enrol by a single POST through hc: it asks for no capabilities, and an
// answer other than 200 is a *Refused.
func (s *SCEP) Post(ctx context.Context, hc *http.Client) (*x509.Certificate, error) {
	answer, _, err := post(ctx, hc, s.url+"?operation=PKIOperation", "application/x-pki-message", s.raw)
	if err != nil {
		return nil, fmt.Errorf("scep: PKIOperation: %w", err)
	}
	return s.read(answer)
}

// read takes the certificate out of an answer (RFC 8894, section 3.3.2).
func (s *SCEP) read(answer []byte) (*x509.Certificate, error) {
	reply, err := scep.ParsePKIMessage(answer, scep.WithCACerts(s.ca))
	if err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	if reply.PKIStatus != scep.SUCCESS {
		return nil, fmt.Errorf("scep: pkiStatus %s, failInfo %s", reply.PKIStatus, reply.FailInfo)
	}
	if err := reply.DecryptPKIEnvelope(s.self, s.key); err != nil {
		return nil, fmt.Errorf("scep: %w", err)
	}
	return reply.CertRepMessage.Certificate, nil
}

func selfSigned(name string, key *rsa.PrivateKey) (*x509.Certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
