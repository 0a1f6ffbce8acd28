//go:build e2e

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/smallstep/pkcs7"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/authority"
	"github.com/weir-go/weir/examples/pki/estserver"
	"github.com/weir-go/weir/examples/pki/scepserver"
)

const (
	user, password = "device", "open sesame"
	challenge      = "hush"

	classCaps weir.Class = "scep_caps" // GetCACaps
	classCA   weir.Class = "scep_ca"   // GetCACert
)

// A pki is OCSP, CRL, EST and SCEP of one authority behind one Limiter. It is
// served at plain, and at secure for EST, with a certificate of its own.
type pki struct {
	*authority.Authority
	plain, secure string
	dir           string // has root.pem, issuer.pem, ra.pem of SCEP, and a server's host.pem and host.key
	answers       *answers
}

// theKey is one for all: RSA keys take long to find, and nobody trusts them.
var theKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// open starts a pki with these limits for l.class until t ends.
func open(t *testing.T, l limits) *pki {
	t.Helper()
	limiter, err := weir.New(l.whole(), append(l.options(), silent)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = limiter.Close() })

	p := &pki{dir: t.TempDir(), answers: &answers{}}
	var handler http.Handler
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) })
	plain := httptest.NewUnstartedServer(serve)
	secure := httptest.NewUnstartedServer(serve)
	p.plain = "http://" + plain.Listener.Addr().String()
	p.secure = "https://" + secure.Listener.Addr().String()

	key, err := theKey()
	require.NoError(t, err)
	p.Authority, err = authority.New(authority.Config{Signer: key, OCSP: p.plain + "/ocsp", CRL: p.plain + "/crl"})
	require.NoError(t, err)
	handler = p.answers.of(l.protected(t, limiter, p.handlers(t)))

	p.save(t, "root.pem", "CERTIFICATE", p.Root.Raw)
	p.save(t, "issuer.pem", "CERTIFICATE", p.Issuer.Raw)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{p.issueHost(t)}, ClientAuth: tls.RequestClientCert}
	plain.Start()
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	return p
}

// handlers are what serves each class.
func (p *pki) handlers(t *testing.T) map[weir.Class]http.Handler {
	t.Helper()
	est, err := estserver.New(estserver.Config{Authority: p.Authority, User: user, Password: password})
	require.NoError(t, err)
	scep, err := scepserver.New(scepserver.Config{Authority: p.Authority, Challenge: challenge})
	require.NoError(t, err)
	p.save(t, "ra.pem", "CERTIFICATE", registrar(t, scep).Raw)
	return map[weir.Class]http.Handler{
		weir.ClassOCSP:      p.OCSP("/ocsp"),
		weir.ClassCRL:       p.CRL(),
		weir.ClassESTEnroll: est,
		weir.ClassESTInfo:   est,
		weir.ClassSCEP:      scep,
		classCaps:           scep,
		classCA:             scep,
	}
}

// registrar asks a SCEP server whom requests are encrypted for.
func registrar(t *testing.T, scep http.Handler) *x509.Certificate {
	t.Helper()
	rec := httptest.NewRecorder()
	scep.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, scepserver.Path+"?operation=GetCACert", nil))
	bundle, err := pkcs7.Parse(rec.Body.Bytes())
	require.NoError(t, err)
	return bundle.Certificates[0]
}

// classOf tells classes apart here, so that SCEP's, which its query decides,
// can be refused one by one.
func classOf(r *http.Request) weir.Class {
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/ocsp"):
		return weir.ClassOCSP
	case strings.HasPrefix(path, "/crl"):
		return weir.ClassCRL
	case estserver.IsEnrolment(path):
		return weir.ClassESTEnroll
	case strings.HasPrefix(path, estserver.Prefix):
		return weir.ClassESTInfo
	}
	switch r.URL.Query().Get("operation") {
	case "GetCACaps":
		return classCaps
	case "GetCACert":
		return classCA
	}
	return weir.ClassSCEP
}

// whole is the usual treatment of all classes, with one under l.
func (l limits) whole() weir.Config {
	cfg := weir.DefaultConfig()
	for _, e := range []weir.Endpoint{
		{Class: weir.ClassOCSP, Kind: weir.KindOCSP},
		{Class: weir.ClassCRL, Kind: weir.KindCRL},
		{Class: weir.ClassESTEnroll, Kind: weir.KindEST},
		{Class: weir.ClassESTInfo, Kind: weir.KindEST},
		{Class: weir.ClassSCEP, Kind: weir.KindSCEP},
		{Class: classCaps, Kind: weir.KindSCEP},
		{Class: classCA, Kind: weir.KindSCEP},
	} {
		if e.Class == l.class {
			l.narrow(&e)
		}
		cfg.Endpoints = append(cfg.Endpoints, e)
	}
	return cfg
}

// protected puts the limiter in front of each class.
func (l limits) protected(t *testing.T, limiter *weir.Limiter, handlers map[weir.Class]http.Handler) http.Handler {
	t.Helper()
	for class, h := range handlers {
		handlers[class] = l.drained(limiter, limiter.Protect(class, nothing), limiter.Protect(class, h),
			func(*http.Request) bool { return class == l.class })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers[classOf(r)].ServeHTTP(w, r)
	})
}

// issueHost saves a certificate for this host, its issuer behind it.
func (p *pki) issueHost(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert, err := p.IssueFor(key.Public(), &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: host},
		DNSNames:    []string{host, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	p.save(t, "host.key", "PRIVATE KEY", der)
	p.save(t, "host.pem", "CERTIFICATE", cert.Raw, p.Issuer.Raw)
	return tls.Certificate{Certificate: [][]byte{cert.Raw, p.Issuer.Raw}, PrivateKey: key}
}

func (p *pki) save(t *testing.T, name, kind string, ders ...[]byte) {
	t.Helper()
	var content []byte
	for _, der := range ders {
		content = append(content, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})...)
	}
	require.NoError(t, os.WriteFile(p.file(name), content, 0o600))
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }
