package main

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

type registerFunc func(context.Context, string, *http.Client) (*clients.Account, error)

// The pace at which tests have orders admitted: soon is worth waiting for, and
// far longer than the client takes to place the next one; never is just that.
const (
	soon  = time.Second
	never = 24 * time.Hour
)

// opened is a site that stays open until the test ends.
func opened(t *testing.T, cfg weir.Config, opts ...siteOption) *site {
	t.Helper()
	s, err := open(cfg, opts...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// registered is an account at s.
func registered(t *testing.T, s *site, register registerFunc) *clients.Account {
	t.Helper()
	account, err := register(t.Context(), s.DirectoryURL, s.Client())
	require.NoError(t, err)
	return account
}

// obtains fails the test unless the account gets a certificate for name.
func obtains(t *testing.T, s *site, account *clients.Account, name string) {
	t.Helper()
	chain, err := account.Obtain(t.Context(), name)
	require.NoError(t, err)
	verified(t, s, chain, name)
}

// verified fails the test unless chain proves name against the authority's root.
func verified(t *testing.T, s *site, chain []*x509.Certificate, name string) {
	t.Helper()
	require.NotEmpty(t, chain)
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{DNSName: name, Roots: s.Roots(), Intermediates: intermediates})
	require.NoError(t, err)
}

// answers returns the statuses of one path's exchanges, in order.
func answers(stats clients.Stats, path string) (statuses []int) {
	for _, e := range stats.Exchanges {
		if e.Path == path {
			statuses = append(statuses, e.Status)
		}
	}
	return statuses
}

// onlyOrdersRefused fails the test if the client was refused anything but a
// newOrder: a refused directory or newNonce would have ended most clients' runs.
func onlyOrdersRefused(t *testing.T, s *site, stats clients.Stats) {
	t.Helper()
	refusals := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	require.Equal(t, stats.Refused(), stats.Count(acmeserver.PathNewOrder, refusals...), "in %v", stats.Exchanges)
	for _, c := range s.limiter.Snapshot().Classes {
		if c.Class == weir.ClassACMENewOrder {
			continue
		}
		for tier, n := range c.Throttled {
			require.Zero(t, n, "%s by %s", c.Class, tier)
		}
		for reason, n := range c.Shed {
			require.Zero(t, n, "%s: %s", c.Class, reason)
		}
	}
}

// throttledBy fails the test unless tier, and no other, refused n newOrders.
func throttledBy(t *testing.T, s *site, tier string, n int) {
	t.Helper()
	for by, count := range s.counted(weir.ClassACMENewOrder).Throttled {
		want := 0
		if by == tier {
			want = n
		}
		require.EqualValues(t, want, count, by)
	}
}

// betweenOrders returns what went over the wire between the refused newOrder
// and the one after it.
func betweenOrders(t *testing.T, stats clients.Stats) []clients.Exchange {
	t.Helper()
	isOrder := func(e clients.Exchange) bool { return e.Path == acmeserver.PathNewOrder }
	refused := slices.IndexFunc(stats.Exchanges, func(e clients.Exchange) bool {
		return isOrder(e) && e.Status == http.StatusTooManyRequests
	})
	require.GreaterOrEqual(t, refused, 0, "no refused newOrder in %v", stats.Exchanges)
	after := stats.Exchanges[refused+1:]
	next := slices.IndexFunc(after, isOrder)
	require.GreaterOrEqual(t, next, 0, "no newOrder after the refused one in %v", stats.Exchanges)
	return after[:next]
}

func TestLimitsThatAreNotSoundOpenNothing(t *testing.T) {
	t.Parallel()
	cfg := limits()
	cfg.Tiers.PerIP.Burst = -1
	_, err := open(cfg)
	require.ErrorContains(t, err, "tiers.per_ip.burst")
}
