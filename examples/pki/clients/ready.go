package clients

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/crypto/acme"
)

// Orders places orders with x/crypto/acme and stops before the last step, so
// that many can be finalized at the same moment.
type Orders struct{ client *acme.Client }

// A ReadyOrder waits to be finalized.
type ReadyOrder struct {
	client acme.Client
	order  *acme.Order
	csr    []byte
}

// RegisterOrders registers an account to place orders with.
func RegisterOrders(ctx context.Context, dirURL string, hc *http.Client) (*Orders, error) {
	client, err := registeredX(ctx, dirURL, hc)
	if err != nil {
		return nil, fmt.Errorf("x/crypto/acme: %w", err)
	}
	return &Orders{client}, nil
}

// Prepare places an order and proves control of the name.
func (o *Orders) Prepare(ctx context.Context, name string) (*ReadyOrder, error) {
	order, err := readyX(ctx, o.client, []string{name})
	if err != nil {
		return nil, fmt.Errorf("x/crypto/acme: %w", err)
	}
	csr, err := requestX([]string{name})
	if err != nil {
		return nil, fmt.Errorf("x/crypto/acme: %w", err)
	}
	ready := &ReadyOrder{order: order, csr: csr}
	ready.client = acme.Client{
		Key: o.client.Key, KID: o.client.KID, HTTPClient: o.client.HTTPClient, DirectoryURL: o.client.DirectoryURL,
		// Negative: do not try again.
		RetryBackoff: func(int, *http.Request, *http.Response) time.Duration { return -1 },
	}
	// The directory is its first request; that is not to be part of the last step.
	if _, err := ready.client.Discover(ctx); err != nil {
		return nil, fmt.Errorf("x/crypto/acme: %w", err)
	}
	return ready, nil
}

// Finalize sees the order through: one attempt at each request. Refused, it
// returns an error that wraps an *acme.Error.
func (o *ReadyOrder) Finalize(ctx context.Context) ([]*x509.Certificate, error) {
	ders, _, err := o.client.CreateCertFromOrder(ctx, o.order, o.csr, true)
	if err != nil {
		return nil, fmt.Errorf("x/crypto/acme: finalize: %w", err)
	}
	return parseChain(ders)
}

// readyX goes from the order to where it can be finalized.
func readyX(ctx context.Context, client *acme.Client, names []string) (*acme.Order, error) {
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(names...))
	if err != nil {
		return nil, fmt.Errorf("order: %w", err)
	}
	for _, authzURL := range order.AuthzURLs {
		if err := authorize(ctx, client, authzURL); err != nil {
			return nil, fmt.Errorf("authorize: %w", err)
		}
	}
	if order, err = client.WaitOrder(ctx, order.URI); err != nil {
		return nil, fmt.Errorf("wait for the order: %w", err)
	}
	return order, nil
}

// requestX makes a request for a key of its own: an authority refuses a
// certificate for an account's key (RFC 8555, section 11.1).
func requestX(names []string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: names}, key)
}

// Revoke revokes a certificate that the account obtained, as one whose key is
// compromised (RFC 8555, section 7.6).
func (o *Orders) Revoke(ctx context.Context, cert *x509.Certificate) error {
	if err := o.client.RevokeCert(ctx, nil, cert.Raw, acme.CRLReasonKeyCompromise); err != nil {
		return fmt.Errorf("x/crypto/acme: revoke: %w", err)
	}
	return nil
}
