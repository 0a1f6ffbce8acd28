package clients

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
)

// An Account is a client that has registered and may order as often as it
// likes, also several orders at once. Each account has a key of its own.
type Account struct {
	name  string // of the library
	rec   *recorder
	order func(ctx context.Context, names []string) ([]*x509.Certificate, error)
}

// RegisterX registers an account with golang.org/x/crypto/acme. What [ObtainX]
// says of that library, of hc and of the server holds here too.
func RegisterX(ctx context.Context, dirURL string, hc *http.Client) (*Account, error) {
	recorded, rec := record(hc)
	client, err := registeredX(ctx, dirURL, recorded)
	if err != nil {
		return nil, fmt.Errorf("x/crypto/acme: %w", err)
	}
	order := func(ctx context.Context, names []string) ([]*x509.Certificate, error) {
		return orderX(ctx, client, names)
	}
	return &Account{"x/crypto/acme", rec, order}, nil
}

// RegisterLego registers an account with the library of lego v5. What
// [ObtainLego] says of that library, of hc and of the server holds here too.
func RegisterLego(ctx context.Context, dirURL string, hc *http.Client) (*Account, error) {
	recorded, rec := record(hc)
	client, err := registeredLego(ctx, dirURL, recorded)
	if err != nil {
		return nil, fmt.Errorf("lego: %w", err)
	}
	order := func(ctx context.Context, names []string) ([]*x509.Certificate, error) {
		return orderLego(ctx, client, names)
	}
	return &Account{"lego", rec, order}, nil
}

// Obtain places one order for names and sees it through. It returns the chain,
// leaf first, without the root.
func (a *Account) Obtain(ctx context.Context, names ...string) ([]*x509.Certificate, error) {
	chain, err := a.order(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	return chain, nil
}

// Stats returns what the account's client did on the wire up to now,
// registration included.
func (a *Account) Stats() Stats { return a.rec.stats() }
