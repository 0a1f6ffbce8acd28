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

	// classCaps is GetCACaps here, so that it can be refused by itself.
	classCaps weir.Class = "scep_caps"
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

// open starts a pki with these limits for l.class until t ends, with wraps
// around its servers.
func open(t *testing.T, l limits, wraps ...func(http.Handler) http.Handler) *pki {
	t.Helper()
	limiter, err := weir.New(l.whole(), silent)
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
	servers := p.servers(t)
	for _, wrap := range wraps {
		servers = wrap(servers)
	}
	handler = p.answers.of(l.protected(limiter, servers))

	p.save(t, "root.pem", "CERTIFICATE", p.Root.Raw)
	p.save(t, "issuer.pem", "CERTIFICATE", p.Issuer.Raw)
	secure.TLS = &tls.Config{
		Certificates: []tls.Certificate{p.issueHost(t)}, ClientAuth: tls.RequestClientCert,
		DynamicRecordSizingDisabled: true, // strongSwan 5.9.8 does not wait for a second record
	}
	plain.Start()
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	return p
}

// servers are all servers of the authority, each below its path.
func (p *pki) servers(t *testing.T) http.Handler {
	t.Helper()
	scep, err := scepserver.New(scepserver.Config{Authority: p.Authority, Challenge: challenge})
	require.NoError(t, err)
	p.save(t, "ra.pem", "CERTIFICATE", registrar(t, scep).Raw)
	below := map[string]http.Handler{
		"/ocsp":          p.OCSP("/ocsp"),
		"/crl":           p.CRL(),
		scepserver.Path:  scep,
		estserver.Prefix: estserver.New(estserver.Config{Authority: p.Authority, User: user, Password: password}),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for prefix, h := range below {
			if strings.HasPrefix(r.URL.Path, prefix) {
				h.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	})
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

// whole is the usual treatment of all classes, with one under l.
func (l limits) whole() weir.Config {
	endpoints := weir.PKIEndpoints(weir.LayoutPlain)
	for i := range endpoints {
		if endpoints[i].Query == "operation=GetCACaps" {
			endpoints[i].Class = classCaps
		}
	}
	return l.on(endpoints)
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
