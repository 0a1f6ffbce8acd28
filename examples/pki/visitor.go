package main

import (
	"crypto/tls"
	"net/http"
	"time"
)

// A visitor is an http.RoundTripper for a client somewhere else: it names an
// address of its own to a Limiter that trusts loopback as its proxy.
type visitor struct {
	http.RoundTripper
	address string // "" says nothing
}

func (v visitor) RoundTrip(r *http.Request) (*http.Response, error) {
	if v.address != "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-Forwarded-For", v.address)
	}
	return v.RoundTripper.RoundTrip(r)
}

// client returns a client that trusts the authority, presents certs to whoever
// asks, and comes from an address. Close its idle connections.
func (p *whole) client(address string, certs ...tls.Certificate) *http.Client {
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: p.authority.Roots(), Certificates: certs},
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
	return &http.Client{Transport: visitor{t, address}}
}

// CloseIdleConnections is what http.Client looks for.
func (v visitor) CloseIdleConnections() {
	if t, ok := v.RoundTripper.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}
