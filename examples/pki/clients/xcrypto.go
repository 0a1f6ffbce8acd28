// Package clients obtains certificates with ACME clients that people really
// run, and tells what they did on the wire to get them: which requests, how
// many, and what they were answered. For EST, SCEP, OCSP and CRLs it has clients
// that never try again, so that each refusal is seen.
//
// The ACME clients differ most where a server refuses. That of x/crypto waits as
// long as it is told and goes on; lego gives the refusal to its caller.
package clients

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"

	"golang.org/x/crypto/acme"
)

// ObtainX obtains a certificate for names with golang.org/x/crypto/acme: a new
// account, one order, one http-01 challenge a name. It returns the chain, leaf
// first, without the root.
//
// The client keeps its own way of waiting: refused with 429 or 5xx it sleeps for
// Retry-After plus up to a second and signs the request anew, with no limit on
// the number of attempts. So ctx is what ends a run against a server that
// always refuses.
//
// The requests go through a copy of hc, which has to trust the server. The
// Stats are complete also when err is not nil. The challenge is accepted with
// nothing to back it up: the server must be one that takes any.
func ObtainX(ctx context.Context, dirURL string, hc *http.Client, names []string) ([]*x509.Certificate, Stats, error) {
	recorded, rec := record(hc)
	chain, err := obtainX(ctx, dirURL, recorded, names)
	if err != nil {
		err = fmt.Errorf("x/crypto/acme: %w", err)
	}
	return chain, rec.stats(), err
}

func obtainX(ctx context.Context, dirURL string, hc *http.Client, names []string) ([]*x509.Certificate, error) {
	client, err := registeredX(ctx, dirURL, hc)
	if err != nil {
		return nil, err
	}
	return orderX(ctx, client, names)
}

// registeredX returns a client of x/crypto that has an account.
func registeredX(ctx context.Context, dirURL string, hc *http.Client) (*acme.Client, error) {
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	client := &acme.Client{Key: accountKey, HTTPClient: hc, DirectoryURL: dirURL}
	if _, err := client.Register(ctx, &acme.Account{}, acme.AcceptTOS); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	return client, nil
}

// orderX goes from the order to the certificate.
func orderX(ctx context.Context, client *acme.Client, names []string) ([]*x509.Certificate, error) {
	order, err := readyX(ctx, client, names)
	if err != nil {
		return nil, err
	}
	csr, err := requestX(names)
	if err != nil {
		return nil, err
	}
	ders, _, err := client.CreateCertFromOrder(ctx, order, csr, true)
	if err != nil {
		return nil, fmt.Errorf("finalize: %w", err)
	}
	return parseChain(ders)
}

// authorize proves control of one name, unless that is proven already.
func authorize(ctx context.Context, client *acme.Client, authzURL string) error {
	authz, err := client.GetAuthorization(ctx, authzURL)
	if err != nil {
		return err
	}
	if authz.Status == acme.StatusValid {
		return nil
	}
	for _, challenge := range authz.Challenges {
		if challenge.Type != "http-01" {
			continue
		}
		if _, err := client.Accept(ctx, challenge); err != nil {
			return err
		}
		_, err := client.WaitAuthorization(ctx, authzURL)
		return err
	}
	return errors.New("no http-01 challenge offered") // a wildcard name, say
}

func parseChain(ders [][]byte) ([]*x509.Certificate, error) {
	chain := make([]*x509.Certificate, len(ders))
	for i, der := range ders {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain[i] = cert
	}
	return chain, nil
}
