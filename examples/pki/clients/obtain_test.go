package clients

import (
	"context"
	"crypto/x509"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

type obtainFunc func(context.Context, string, *http.Client, []string) ([]*x509.Certificate, Stats, error)

// verified fails the test unless chain proves every name against the
// authority's root.
func verified(t *testing.T, srv *acmeserver.Server, chain []*x509.Certificate, names []string) {
	t.Helper()
	require.NotEmpty(t, chain)
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	for _, name := range names {
		_, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: srv.Roots(), Intermediates: intermediates})
		require.NoError(t, err, "the chain for %s", name)
	}
}

func TestAnUnhinderedClientObtainsACertificate(t *testing.T) {
	t.Parallel()
	one, three := []string{"a.example.test"}, []string{"a.example.test", "b.example.test", "c.example.test"}
	for _, tc := range []struct {
		name   string
		obtain obtainFunc
		names  []string
		// lego reads its authorizations in parallel, 1/18 s apart; one that
		// has to wait for its answer leaves no nonce for the next.
		mostNonces int
		// At least; more where the authority takes its time. lego does not poll
		// an authorization whose challenge was met by the time it was accepted.
		authzPerName, orderPolls int
	}{
		{"x/crypto/acme for one name polls the order before and after finalize", ObtainX, one, 1, 2, 2},
		{"x/crypto/acme for three names makes one order", ObtainX, three, 1, 2, 2},
		{"lego for one name polls the order after finalize only", ObtainLego, one, 1, 1, 1},
		{"lego for three names makes one order", ObtainLego, three, 3, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, nil)
			chain, stats, err := tc.obtain(t.Context(), srv.DirectoryURL, srv.Client(), tc.names)
			require.NoError(t, err)
			verified(t, srv, chain, tc.names)

			for path, want := range map[string]int{
				acmeserver.PathDirectory:   1,
				acmeserver.PathNewAccount:  1,
				acmeserver.PathNewOrder:    1,
				acmeserver.PathChallenge:   len(tc.names),
				acmeserver.PathFinalize:    1,
				acmeserver.PathCertificate: 1,
				acmeserver.PathAccount:     0,
				acmeserver.PathOrders:      0,
				acmeserver.PathRenewalInfo: 0,
			} {
				require.Equal(t, want, stats.Count(path), "requests for %s in %v", path, stats.Exchanges)
			}
			require.LessOrEqual(t, stats.Count(acmeserver.PathNewNonce), tc.mostNonces)
			require.GreaterOrEqual(t, stats.Count(acmeserver.PathAuthz), tc.authzPerName*len(tc.names))
			require.GreaterOrEqual(t, stats.Count(acmeserver.PathOrder), tc.orderPolls)
			require.Zero(t, stats.Refused())
			require.Equal(t, len(stats.Exchanges), stats.Count("/", http.StatusOK, http.StatusCreated))
		})
	}
}

func TestObtainLeavesTheCallersClientAsItWas(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	for name, obtain := range map[string]obtainFunc{"x/crypto/acme": ObtainX, "lego": ObtainLego} {
		hc := srv.Client()
		before := *hc
		_, _, err := obtain(t.Context(), srv.DirectoryURL, hc, []string{"a.example.test"})
		require.NoError(t, err, name)
		require.Equal(t, before, *hc, name)
	}
}

func TestObtainFailsWithStatsWhereTheServerIsNotTrusted(t *testing.T) {
	t.Parallel()
	srv := start(t, nil)
	for name, obtain := range map[string]obtainFunc{"x/crypto/acme": ObtainX, "lego": ObtainLego} {
		chain, stats, err := obtain(t.Context(), srv.DirectoryURL, &http.Client{}, []string{"a.example.test"})
		require.Error(t, err, name)
		require.Empty(t, chain, name)
		require.Equal(t, []Exchange{{Method: http.MethodGet, Path: acmeserver.PathDirectory}}, stats.Exchanges, name)
	}
}
