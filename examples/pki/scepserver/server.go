// Package scepserver serves SCEP (RFC 8894) with MicroMDM's library, on an
// authority of the caller's.
package scepserver

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"

	kitlog "github.com/go-kit/kit/log"
	micromdm "github.com/micromdm/scep/v2/server"
	"github.com/smallstep/pkcs7"
	"github.com/smallstep/scep"

	"github.com/weir-go/weir/examples/pki/authority"
)

// Path is where it is served.
const Path = "/scep"

// By default the library encrypts its answers with single DES, which OpenSSL 3
// does not decrypt any more. The setting is the process's.
func init() { pkcs7.ContentEncryptionAlgorithm = pkcs7.EncryptionAlgorithmAES128CBC }

// Config says who may enrol, and where.
type Config struct {
	Authority *authority.Authority
	Challenge string // the challengePassword wanted in requests (RFC 8894, section 2.9)
}

// New returns a handler for GetCACaps, GetCACert and PKIOperation.
//
// Requests are decrypted, and answers signed, by a registration authority with
// an RSA key in memory, since the library takes no other; what it has the
// authority sign is the certificate.
func New(cfg Config) (http.Handler, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("scepserver: %w", err)
	}
	ra, err := cfg.Authority.IssueFor(key.Public(), &x509.CertificateRequest{
		Subject: pkix.Name{Organization: []string{"weir"}, CommonName: "weir example SCEP RA"},
	})
	if err != nil {
		return nil, fmt.Errorf("scepserver: %w", err)
	}
	issue := micromdm.CSRSignerContextFunc(func(_ context.Context, m *scep.CSRReqMessage) (*x509.Certificate, error) {
		return cfg.Authority.Issue(m.CSR)
	})
	svc, err := micromdm.NewService(ra, key, micromdm.StaticChallengeMiddleware(cfg.Challenge, issue),
		micromdm.WithAddlCA(cfg.Authority.Issuer))
	if err != nil {
		return nil, fmt.Errorf("scepserver: %w", err)
	}
	return micromdm.MakeHTTPHandler(micromdm.MakeServerEndpoints(svc), svc, kitlog.NewNopLogger()), nil
}
