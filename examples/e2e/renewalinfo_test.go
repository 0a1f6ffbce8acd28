//go:build e2e

package e2e

import (
	"context"
	"crypto"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	legoacme "github.com/go-acme/lego/v5/acme"
	"github.com/go-acme/lego/v5/lego"
	acmezacme "github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// RFC 9773 (section 4.3.3) has a client that meets an error below 500 stay
// away for six hours. What asks again, and when, is up to whoever calls these
// libraries; what they do by themselves is here.
func TestRenewalInfoIsRefused(t *testing.T) {
	asks := []struct {
		name    string
		version func(*testing.T) string
		ask     func(ctx context.Context, t *testing.T, a *acmeCA, cert *x509.Certificate) error
		again   bool
	}{
		{"lego 5", moduled("github.com/go-acme/lego/v5"), legoRenewalInfo, false},
		{"acmez", moduled("github.com/mholt/acmez/v3"), acmezRenewalInfo, true},
	}
	for _, status := range []int{often, busy} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			for _, c := range asks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					a := acme(t, limits{class: weir.ClassACMERenewalInfo, every: time.Hour, drain: lifted, status: status})
					err := c.ask(t.Context(), t, a, leaf(t, a))
					answers := a.answers.to(acmeserver.PathRenewalInfo)
					result := fmt.Sprintf("answers %v; ends well", answers)
					if err != nil {
						result = fmt.Sprintf("answers %v; fails: %v", answers, err)
					}
					tell(c.name, c.version(t), fmt.Sprintf("renewal-info %d once, Retry-After: 3600", status), result)
					if c.again {
						require.NoError(t, err)
						assert.Equal(t, []int{status, 200}, answers)
						return
					}
					require.ErrorContains(t, err, "Too many requests. Please try again in 1 hour.")
					assert.Equal(t, []int{status}, answers)
				})
			}
		})
	}
}

// leaf is a certificate of the authority.
func leaf(t *testing.T, a *acmeCA) *x509.Certificate {
	t.Helper()
	chain, _, err := clients.ObtainX(t.Context(), a.DirectoryURL, a.Client(), []string{host})
	require.NoError(t, err)
	return chain[0]
}

func legoRenewalInfo(ctx context.Context, t *testing.T, a *acmeCA, cert *x509.Certificate) error {
	t.Helper()
	cfg := lego.NewConfig(stranger{newKey(t)})
	cfg.CADirURL = a.DirectoryURL
	cfg.HTTPClient = a.Client()
	client, err := lego.NewClient(cfg)
	require.NoError(t, err)
	_, err = client.Certificate.GetRenewalInfo(ctx, cert)
	return err
}

func acmezRenewalInfo(ctx context.Context, _ *testing.T, a *acmeCA, cert *x509.Certificate) error {
	client := acmezacme.Client{Directory: a.DirectoryURL, HTTPClient: a.Client()}
	_, err := client.GetRenewalInfo(ctx, cert)
	return err
}

// stranger has a key and no account: asking for renewal information takes none.
type stranger struct{ key crypto.Signer }

func (stranger) GetEmail() string                           { return "" }
func (stranger) GetRegistration() *legoacme.ExtendedAccount { return nil }
func (s stranger) GetPrivateKey() crypto.Signer             { return s.key }
