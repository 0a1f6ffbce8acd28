package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// A tap is an http.RoundTripper that keeps the body of the last newOrder sent.
type tap struct {
	next http.RoundTripper

	mu   sync.Mutex // guards body
	body []byte
}

func (p *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != acmeserver.PathNewOrder {
		return p.next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	p.mu.Lock()
	p.body = body
	p.mu.Unlock()
	return p.next.RoundTrip(r)
}

func (p *tap) lastOrder() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.body)
}

// tapped is an account at s whose orders are kept.
func tapped(t *testing.T, s *site, register registerFunc) (*clients.Account, *tap) {
	t.Helper()
	hc := s.Client()
	p := &tap{next: hc.Transport}
	hc.Transport = p
	account, err := register(t.Context(), s.DirectoryURL, hc)
	require.NoError(t, err)
	return account, p
}

// An answer is what came back, read to its end.
type answer struct {
	status      int
	problemType string // "" if it is no problem document
	header      http.Header
}

// send sends one request to s, signed or not as body has it.
func send(t *testing.T, s *site, method, path string, body []byte) answer {
	t.Helper()
	url := strings.TrimSuffix(s.DirectoryURL, acmeserver.PathDirectory) + path
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/jose+json")
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var problem struct{ Type string }
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") && len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &problem))
	}
	return answer{resp.StatusCode, problem.Type, resp.Header}
}
