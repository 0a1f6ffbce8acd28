package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/authority"
	"github.com/weir-go/weir/examples/pki/estserver"
	"github.com/weir-go/weir/examples/pki/scepserver"
)

// A signer is what the PKI signs with, and how many signatures it can make at
// once: the size of the guard.
type signer struct {
	key      crypto.Signer
	sessions int
}

// wholeConfig says how to start a [whole].
type wholeConfig struct {
	signer signer
	limits weir.Config
	https  string // address for ACME and EST; "" is any port of loopback
	http   string // address for OCSP, CRL and SCEP; likewise
	log    *log.Logger
}

// A whole is a PKI behind one Limiter: ACME, EST, OCSP, CRL and SCEP, all on one
// authority. Close it.
type whole struct {
	authority *authority.Authority
	limiter   *weir.Limiter
	urls      urls
	tlsCert   *x509.Certificate // of the HTTPS server
	user      string            // of EST
	password  string
	challenge string // of SCEP

	servers []*http.Server
	serving chan error // what each server ended with
	closing sync.Once
}

// urls are where clients begin.
type urls struct{ directory, ocsp, crl, est, scep string }

// openWhole starts all of it.
func openWhole(cfg wholeConfig) (_ *whole, err error) {
	p := &whole{user: "device", password: rand.Text(), challenge: rand.Text(), serving: make(chan error, 2)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	p.limiter, err = weir.New(cfg.limits, poolSize(cfg.signer.sessions),
		weir.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, err
	}
	secure, err := listen(cfg.https)
	if err != nil {
		return nil, err
	}
	plain, err := listen(cfg.http)
	if err != nil {
		return nil, errors.Join(err, secure.Close())
	}
	p.urls = urlsOf(secure.Addr(), plain.Addr())

	both, public, err := p.routes(cfg)
	if err != nil {
		return nil, errors.Join(err, secure.Close(), plain.Close())
	}
	tlsConfig, err := p.tls()
	if err != nil {
		return nil, errors.Join(err, secure.Close(), plain.Close())
	}
	p.serve(&http.Server{Handler: p.limiter.Handler(both), TLSConfig: tlsConfig, ErrorLog: cfg.log}, secure)
	p.serve(&http.Server{Handler: p.limiter.Handler(public), ErrorLog: cfg.log}, plain)
	return p, nil
}

func listen(address string) (net.Listener, error) {
	if address == "" {
		address = "127.0.0.1:0"
	}
	return net.Listen("tcp", address)
}

// urlsOf names the servers by localhost, which their certificate is for.
func urlsOf(secure, plain net.Addr) urls {
	at := func(scheme string, addr net.Addr, path string) string {
		return fmt.Sprintf("%s://localhost:%d%s", scheme, addr.(*net.TCPAddr).Port, path)
	}
	return urls{
		directory: at("https", secure, acmeserver.PathDirectory),
		est:       at("https", secure, strings.TrimSuffix(estserver.Prefix, "/")),
		ocsp:      at("http", plain, pathOCSP),
		crl:       at("http", plain, pathCRL),
		scep:      at("http", plain, scepserver.Path),
	}
}

// serve serves until Close.
func (p *whole) serve(s *http.Server, ln net.Listener) {
	if s.ErrorLog == nil {
		s.ErrorLog = log.New(discard{}, "", 0)
	}
	s.ReadTimeout = 30 * time.Second // a client that sends slowly is not to hold a place for ever
	p.servers = append(p.servers, s)
	go func() {
		if s.TLSConfig != nil {
			p.serving <- s.ServeTLS(ln, "", "")
		} else {
			p.serving <- s.Serve(ln)
		}
	}()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Close lets the requests in flight end, for a few seconds, then stops all. Calls
// after the first do nothing.
func (p *whole) Close() { p.closing.Do(p.close) }

func (p *whole) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p.limiter != nil {
		_ = p.limiter.Close() // always nil
	}
	for _, s := range p.servers {
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
		<-p.serving
	}
}

// host is where the HTTPS server is, as host:port.
func (p *whole) host() string {
	u, err := url.Parse(p.urls.directory)
	if err != nil {
		panic(err) // urlsOf made it
	}
	return u.Host
}
