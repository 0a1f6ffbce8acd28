package clients

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/go-acme/lego/v5/acme"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// betweenOrders returns what went over the wire between the refused newOrder
// and the one that was accepted.
func betweenOrders(t *testing.T, s Stats) []Exchange {
	t.Helper()
	refused := slices.IndexFunc(s.Exchanges, func(e Exchange) bool {
		return e.Path == acmeserver.PathNewOrder && e.Status == http.StatusTooManyRequests
	})
	accepted := slices.IndexFunc(s.Exchanges, func(e Exchange) bool {
		return e.Path == acmeserver.PathNewOrder && e.Status == http.StatusCreated
	})
	require.GreaterOrEqual(t, refused, 0, "no refused newOrder in %v", s.Exchanges)
	require.Greater(t, accepted, refused, "no newOrder accepted after the refusal in %v", s.Exchanges)
	return s.Exchanges[refused+1 : accepted]
}

// oneNewNonce is what a client does that has run out of nonces.
var oneNewNonce = []Exchange{{Method: http.MethodHead, Path: acmeserver.PathNewNonce, Status: http.StatusOK, Nonce: true}}

// A nonce on the refusal saves one request, no more: neither client fails for
// the lack of it.
func TestXCryptoWaitsOutA429(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		refusal *refusal
		between []Exchange
	}{
		{"and asks for a nonce where the refusal had none", &refusal{}, oneNewNonce},
		{"and signs with the nonce of the refusal where it had one", &refusal{withNonce: true}, []Exchange{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.refusal.path = acmeserver.PathNewOrder
			srv := start(t, tc.refusal.wrap)
			names := []string{"a.example.test"}

			chain, stats, err := ObtainX(t.Context(), srv.DirectoryURL, srv.Client(), names)
			require.NoError(t, err)
			verified(t, srv, chain, names)
			require.Equal(t, 1, stats.Refused())
			require.Equal(t, 2, stats.Count(acmeserver.PathNewOrder))
			require.Equal(t, 1+len(tc.between), stats.Count(acmeserver.PathNewNonce))
			require.Equal(t, tc.between, betweenOrders(t, stats))
		})
	}
}

func TestLegoGivesUpOnA429(t *testing.T) {
	t.Parallel()
	for _, withNonce := range []bool{false, true} {
		f := &refusal{path: acmeserver.PathNewOrder, withNonce: withNonce}
		srv := start(t, f.wrap)

		chain, stats, err := ObtainLego(t.Context(), srv.DirectoryURL, srv.Client(), []string{"a.example.test"})
		require.Empty(t, chain)

		limited, ok := errors.AsType[*acme.RateLimitedError](err)
		require.True(t, ok, "no RateLimitedError in %v", err)
		require.Equal(t, time.Second, limited.RetryAfter)
		require.Equal(t, http.StatusTooManyRequests, limited.HTTPStatus)
		require.Equal(t, "too many orders", limited.Detail)
		problem, ok := errors.AsType[*acme.ProblemDetails](err)
		require.True(t, ok, "no ProblemDetails in %v", err)
		require.Equal(t, acme.RateLimitedErrorType, problem.Type)

		// It stops there: no second order, no request for a nonce.
		last := stats.Exchanges[len(stats.Exchanges)-1]
		require.Equal(t, Exchange{
			Method: http.MethodPost, Path: acmeserver.PathNewOrder, Status: http.StatusTooManyRequests,
			RetryAfter: true, Nonce: withNonce,
		}, last)
		require.Equal(t, 1, stats.Count(acmeserver.PathNewNonce))
	}
}

// A program that holds on to its lego client and orders again after the wait.
func TestALegoClientOrdersAgainAfterA429(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		refusal *refusal
		between []Exchange
	}{
		{"with a new nonce where the refusal had none", &refusal{}, oneNewNonce},
		{"with the nonce of the refusal where it had one", &refusal{withNonce: true}, []Exchange{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.refusal.path = acmeserver.PathNewOrder
			srv := start(t, tc.refusal.wrap)
			names := []string{"a.example.test"}
			hc, rec := record(srv.Client())
			client, err := registeredLego(t.Context(), srv.DirectoryURL, hc)
			require.NoError(t, err)

			_, err = orderLego(t.Context(), client, names)
			require.Error(t, err)
			chain, err := orderLego(t.Context(), client, names)
			require.NoError(t, err)
			verified(t, srv, chain, names)
			require.Equal(t, tc.between, betweenOrders(t, rec.stats()))
		})
	}
}
