package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// A client speaks to the site from an address of its own.
type client struct {
	base, addr string
	http       *http.Client
}

func newClient(base, addr string) *client {
	return &client{base: base, addr: addr, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// An answer is what the client was told.
type answer struct {
	status     int
	retryAfter string
	session    bool
	body       string
}

func (c *client) post(ctx context.Context, path, contentType string, body []byte, prepare func(*http.Request)) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("X-Forwarded-For", c.addr)
	req.Header.Set("Content-Type", contentType)
	prepare(req)
	res, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header.Get("Retry-After"), len(res.Cookies()) > 0, string(text)}, err
}

// signIn sends the login form, as a browser would.
func (c *client) signIn(ctx context.Context, user, password string) (answer, error) {
	form := url.Values{"user": {user}, "password": {password}}.Encode()
	return c.post(ctx, "/login", "application/x-www-form-urlencoded", []byte(form), func(r *http.Request) {
		r.Header.Set("Accept", "text/html")
	})
}

// enrol asks for a certificate over EST.
func (c *client) enrol(ctx context.Context, user, password string) (answer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return answer{}, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return answer{}, err
	}
	return c.post(ctx, "/.well-known/est/simpleenroll", "application/pkcs10", []byte(base64.StdEncoding.EncodeToString(csr)), func(r *http.Request) {
		r.SetBasicAuth(user, password)
	})
}

// A guess is one attempt of a crowd.
type guess struct {
	addr, user, password string
	enrol                bool
}

// A tally counts what a crowd was told.
type tally struct{ wrong, in, refused int }

// guessAll makes all guesses, up to 64 at once.
func guessAll(ctx context.Context, base string, guesses []guess) (t tally, err error) {
	var mu sync.Mutex // guards t and err
	var wg sync.WaitGroup
	places := make(chan struct{}, 64)
	for _, g := range guesses {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			c := newClient(base, g.addr)
			try := c.signIn
			if g.enrol {
				try = c.enrol
			}
			a, failed := try(ctx, g.user, g.password)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case failed != nil:
				err = failed
			case a.status == http.StatusUnauthorized:
				t.wrong++
			case a.status == http.StatusTooManyRequests:
				t.refused++
			case a.status < 400:
				t.in++
			default:
				err = fmt.Errorf("a guess was answered %d: %s", a.status, strings.TrimSpace(a.body))
			}
		})
	}
	wg.Wait()
	return t, err
}
