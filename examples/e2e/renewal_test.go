//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	legoacme "github.com/go-acme/lego/v5/acme"
	"github.com/go-acme/lego/v5/acme/api"
	"github.com/go-acme/lego/v5/certcrypto"
	"github.com/go-acme/lego/v5/certificate"
	"github.com/go-acme/lego/v5/lego"
	"github.com/go-acme/lego/v5/registration"
	"github.com/mholt/acmez/v3"
	acmezacme "github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// books are what an authority knows of its certificates: whose each is.
type books struct {
	mu    sync.Mutex
	owner map[string]string // by certificate identifier (RFC 9773, section 4.1)
}

func (b *books) enter(t *testing.T, cert *x509.Certificate, account string) {
	t.Helper()
	id, err := acmezacme.ARIUniqueIdentifier(cert)
	require.NoError(t, err)
	at, err := url.Parse(account)
	require.NoError(t, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner[id] = at.Path
}

// vouch is a hook of weir.WithRenewal.
func (b *books) vouch(_ context.Context, r weir.Renewal) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return r.Account != "" && b.owner[r.CertID] == r.Account
}

// orders is a client with an account. It places an order that replaces a
// certificate, or none, and sees it through.
type orders struct {
	account string
	obtain  func(ctx context.Context, replaces *x509.Certificate) (*x509.Certificate, error)
}

// An account that has spent its budget still renews: its client says so in the
// order, and the authority's books bear it out.
func TestARenewalIsAdmittedWhereAnOrderIsNot(t *testing.T) {
	for _, c := range []struct {
		name     string
		version  func(*testing.T) string
		register func(*testing.T, *acmeCA) orders
	}{
		{"acmez", moduled("github.com/mholt/acmez/v3"), acmezOrders},
		{"lego 5", moduled("github.com/go-acme/lego/v5"), legoOrders},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := weir.DefaultConfig()
			cfg.Endpoints = weir.PKIEndpoints(weir.LayoutPebble)
			cfg.Tiers.PerAccount = weir.TierConfig{Rate: 1 / time.Hour.Seconds(), Burst: 1}
			b := &books{owner: map[string]string{}}
			a := acmeUnder(t, cfg, nil, weir.WithRenewal(b.vouch))

			mine, other := c.register(t, a), c.register(t, a)
			cert, err := mine.obtain(t.Context(), nil)
			require.NoError(t, err)
			b.enter(t, cert, mine.account)
			theirs, err := other.obtain(t.Context(), nil)
			require.NoError(t, err)
			b.enter(t, theirs, other.account)

			const detail = "Too many requests. Please try again in 1 hour."
			_, err = mine.obtain(t.Context(), nil)
			require.ErrorContains(t, err, detail)
			_, err = mine.obtain(t.Context(), theirs)
			require.ErrorContains(t, err, detail, "it replaces a certificate of somebody else")
			before := len(a.answers.to(acmeserver.PathNewOrder))
			next, err := mine.obtain(t.Context(), cert)
			require.NoError(t, err)
			assert.NotEqual(t, cert.SerialNumber, next.SerialNumber)
			assert.Equal(t, []int{http.StatusCreated}, a.answers.to(acmeserver.PathNewOrder)[before:])
			tell(c.name, c.version(t), "account out of tokens", fmt.Sprintf("order %d; renewal with replaces ends well", often))
		})
	}
}

func acmezOrders(t *testing.T, a *acmeCA) orders {
	t.Helper()
	client := &acmez.Client{
		Client:           &acmezacme.Client{Directory: a.DirectoryURL, HTTPClient: a.Client()},
		ChallengeSolvers: map[string]acmez.Solver{acmezacme.ChallengeTypeHTTP01: unattended{}},
	}
	account, err := client.NewAccount(t.Context(), acmezacme.Account{TermsOfServiceAgreed: true, PrivateKey: newKey(t)})
	require.NoError(t, err)
	csr, err := acmez.NewCSR(newKey(t), []string{host})
	require.NoError(t, err)
	order, err := acmez.OrderParametersFromCSR(account, csr)
	require.NoError(t, err)
	return orders{account.Location, func(ctx context.Context, replaces *x509.Certificate) (*x509.Certificate, error) {
		order.Replaces = replaces
		got, err := client.ObtainCertificate(ctx, order)
		if err != nil {
			return nil, err
		}
		return first(got[0].ChainPEM)
	}}
}

func legoOrders(t *testing.T, a *acmeCA) orders {
	t.Helper()
	who := &registered{stranger: stranger{newKey(t)}}
	cfg := lego.NewConfig(who)
	cfg.CADirURL = a.DirectoryURL
	cfg.HTTPClient = a.Client()
	client, err := lego.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Challenge.SetHTTP01Provider(legoUnattended{}))
	who.account, err = client.Registration.Register(t.Context(), registration.RegisterOptions{TermsOfServiceAgreed: true})
	require.NoError(t, err)
	return orders{who.account.Location, func(ctx context.Context, replaces *x509.Certificate) (*x509.Certificate, error) {
		order := certificate.ObtainRequest{Domains: []string{host}, KeyType: certcrypto.EC256}
		if replaces != nil {
			var err error
			if order.ReplacesCertID, err = api.MakeARICertID(replaces); err != nil {
				return nil, err
			}
		}
		got, err := client.Certificate.Obtain(ctx, order)
		if err != nil {
			return nil, err
		}
		return first(got.Certificate)
	}}
}

// registered is a stranger who has an account.
type registered struct {
	stranger
	account *legoacme.ExtendedAccount
}

func (r *registered) GetRegistration() *legoacme.ExtendedAccount { return r.account }

// legoUnattended is unattended in lego's terms.
type legoUnattended struct{}

func (legoUnattended) Present(context.Context, string, string, string) error { return nil }
func (legoUnattended) CleanUp(context.Context, string, string, string) error { return nil }

// first returns the first certificate of a chain.
func first(chain []byte) (*x509.Certificate, error) {
	certs, err := certcrypto.ParsePEMBundle(chain)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}
