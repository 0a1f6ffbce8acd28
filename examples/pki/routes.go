package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/http"
	"strings"

	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/authority"
	"github.com/weir-go/weir/examples/pki/estserver"
	"github.com/weir-go/weir/examples/pki/scepserver"
)

// Where the authority tells of what it issued.
const (
	pathOCSP = "/ocsp"
	pathCRL  = "/crl"
)

// routes builds the servers on an authority that signs with cfg.signer: all of
// them for HTTPS, and for plain HTTP those whose answers are signed themselves.
func (p *whole) routes(cfg wholeConfig) (all, public http.Handler, err error) {
	pebble, err := acmeserver.New(nil)
	if err != nil {
		return nil, nil, err
	}
	p.authority, err = authority.New(authority.Config{
		Signer: cfg.signer.key, KeyID: pebble.KeyID, OCSP: p.urls.ocsp, CRL: p.urls.crl,
	})
	if err != nil {
		return nil, nil, err
	}
	est := estserver.New(estserver.Config{Authority: p.authority, User: p.user, Password: p.password})
	scep, err := scepserver.New(scepserver.Config{Authority: p.authority, Challenge: p.challenge})
	if err != nil {
		return nil, nil, err
	}
	public = routes{
		{pathOCSP, p.authority.OCSP(pathOCSP)},
		{pathCRL, p.authority.CRL()},
		{scepserver.Path, scep},
	}
	all = append(public.(routes), route{estserver.Prefix, est}, route{"/", pebble.SignedBy(p.authority, cfg.log)})
	return all, public, nil
}

// routes are handlers by the beginning of the path, the first that fits. It is
// not http.ServeMux, for that would redirect an OCSP request in whose base64 two
// slashes meet.
type routes []route

type route struct {
	prefix  string
	handler http.Handler
}

func (s routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for _, to := range s {
		if rest, ok := strings.CutPrefix(r.URL.Path, to.prefix); ok &&
			(rest == "" || rest[0] == '/' || strings.HasSuffix(to.prefix, "/")) {
			to.handler.ServeHTTP(w, r)
			return
		}
	}
	http.NotFound(w, r)
}

// tls is for the HTTPS server: a certificate of the authority's own for a key in
// memory, and a request, not more, for the client's: EST re-enrolment has one.
func (p *whole) tls() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := p.authority.IssueFor(key.Public(), &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "localhost"},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
	if err != nil {
		return nil, err
	}
	p.tlsCert = cert
	return &tls.Config{
		Certificates: []tls.Certificate{{
			Certificate: [][]byte{cert.Raw, p.authority.Issuer.Raw}, PrivateKey: key, Leaf: cert,
		}},
		ClientAuth: tls.RequestClientCert,
	}, nil
}
