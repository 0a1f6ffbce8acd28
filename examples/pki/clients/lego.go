package clients

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net/http"

	"github.com/go-acme/lego/v5/acme"
	"github.com/go-acme/lego/v5/certcrypto"
	"github.com/go-acme/lego/v5/certificate"
	"github.com/go-acme/lego/v5/lego"
	"github.com/go-acme/lego/v5/registration"
)

// ObtainLego obtains a certificate for names with the library of lego v5: a new
// account, one order, one http-01 challenge a name. It returns the chain, leaf
// first, without the root.
//
// lego does not wait. A 429 ends the run on any step up to and including
// finalize; only an order being issued, and its certificate, are asked for
// again, every half second. If the 429 has a problem document of type
// rateLimited, a *acme.RateLimitedError (of lego's acme package) stands in the
// tree of the error, and its RetryAfter is the time that the server asked for.
// Waiting that long is up to whoever runs lego, most often a timer. A refused
// HEAD for a nonce has no body and thus no type: lego then tells a JSON error.
//
// As for ObtainX, the requests go through a copy of hc, the Stats are complete
// also when err is not nil, and the server must take any challenge. ctx does
// not cover the first request, for the directory. lego writes to a logger that
// belongs to the process (see its log package), by default to standard output.
func ObtainLego(ctx context.Context, dirURL string, hc *http.Client, names []string) ([]*x509.Certificate, Stats, error) {
	recorded, rec := record(hc)
	chain, err := obtainLego(ctx, dirURL, recorded, names)
	if err != nil {
		err = fmt.Errorf("lego: %w", err)
	}
	return chain, rec.stats(), err
}

func obtainLego(ctx context.Context, dirURL string, hc *http.Client, names []string) ([]*x509.Certificate, error) {
	client, err := registeredLego(ctx, dirURL, hc)
	if err != nil {
		return nil, err
	}
	return orderLego(ctx, client, names)
}

// registeredLego returns a lego client that has an account.
func registeredLego(ctx context.Context, dirURL string, hc *http.Client) (*lego.Client, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	user := &legoUser{key: key}
	cfg := lego.NewConfig(user)
	cfg.CADirURL = dirURL
	cfg.HTTPClient = hc
	client, err := lego.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	if err := client.Challenge.SetHTTP01Provider(unattended{}); err != nil {
		return nil, err
	}
	user.account, err = client.Registration.Register(ctx, registration.RegisterOptions{TermsOfServiceAgreed: true})
	if err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	return client, nil
}

// orderLego goes from the order to the certificate.
func orderLego(ctx context.Context, client *lego.Client, names []string) ([]*x509.Certificate, error) {
	res, err := client.Certificate.Obtain(ctx, certificate.ObtainRequest{
		Domains: names,
		KeyType: certcrypto.EC256,
		Bundle:  true,
	})
	if err != nil {
		return nil, fmt.Errorf("obtain: %w", err)
	}
	return certcrypto.ParsePEMBundle(res.Certificate)
}

// legoUser is an account in the shape in which lego wants it.
type legoUser struct {
	key     crypto.Signer
	account *acme.ExtendedAccount // nil until registered
}

func (u *legoUser) GetEmail() string                       { return "" }
func (u *legoUser) GetRegistration() *acme.ExtendedAccount { return u.account }
func (u *legoUser) GetPrivateKey() crypto.Signer           { return u.key }

// unattended answers http-01 challenges by doing nothing, for an authority
// that does not come and look.
type unattended struct{}

func (unattended) Present(context.Context, string, string, string) error { return nil }
func (unattended) CleanUp(context.Context, string, string, string) error { return nil }
