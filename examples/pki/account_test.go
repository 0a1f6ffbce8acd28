package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

func TestTwoAccountsBehindOneAddressHaveABudgetEach(t *testing.T) {
	t.Parallel()
	s := opened(t, oneOrderAtATime(never))
	first, second := registered(t, s, clients.RegisterLego), registered(t, s, clients.RegisterLego)

	obtains(t, s, first, "a.example.test")
	_, err := first.Obtain(t.Context(), "b.example.test")
	require.ErrorContains(t, err, "rateLimited")
	obtains(t, s, second, "c.example.test")
	_, err = second.Obtain(t.Context(), "d.example.test")
	require.ErrorContains(t, err, "rateLimited")
	throttledBy(t, s, weir.TierPerAccount, 2)
}

// forged returns a copy of a signed request that says something else.
func forged(t *testing.T, body []byte) []byte {
	t.Helper()
	var jws map[string]string
	require.NoError(t, json.Unmarshal(body, &jws))
	jws["payload"] = "e30" // {}
	text, err := json.Marshal(jws)
	require.NoError(t, err)
	return text
}

func TestJunkInAnAccountsNameIsTurnedAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		junk        func(t *testing.T, order []byte) []byte
		problemType string
	}{
		{"and a wrong signature costs the account nothing", forged, "urn:ietf:params:acme:error:malformed"},
		{
			"and a request sent again costs the account nothing",
			func(_ *testing.T, order []byte) []byte { return order },
			"urn:ietf:params:acme:error:badNonce",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := oneOrderAtATime(never)
			cfg.Tiers.PerAccount.Burst = 2
			s := opened(t, cfg)
			victim, wire := tapped(t, s, clients.RegisterLego)
			obtains(t, s, victim, "a.example.test")
			junk := tc.junk(t, wire.lastOrder())

			for range 5 {
				got := send(t, s, http.MethodPost, acmeserver.PathNewOrder, junk)
				require.Equal(t, http.StatusBadRequest, got.status)
				require.Equal(t, tc.problemType, got.problemType)
			}
			obtains(t, s, victim, "b.example.test")
			_, err := victim.Obtain(t.Context(), "c.example.test")
			require.ErrorContains(t, err, "rateLimited", "the account has more than its budget")
			throttledBy(t, s, weir.TierPerAccount, 1)
		})
	}
}

func TestJunkInAnAccountsNameIsPaidForByItsAddress(t *testing.T) {
	t.Parallel()
	const newAccount, newOrder, junk = 1, 1, 3
	cfg := limits()
	cfg.Tiers.PerIP = weir.TierConfig{Rate: 1 / never.Seconds(), Burst: newAccount + newOrder + junk}
	s := opened(t, cfg)
	victim, wire := tapped(t, s, clients.RegisterX)
	obtains(t, s, victim, "a.example.test")
	body := forged(t, wire.lastOrder())

	var statuses []int
	for range junk + 1 {
		statuses = append(statuses, send(t, s, http.MethodPost, acmeserver.PathNewOrder, body).status)
	}
	require.Equal(t, []int{400, 400, 400, 429}, statuses)
	throttledBy(t, s, weir.TierPerIP, 1)
}

// The limit looks into the body of a newOrder before the authority does. That
// one larger than weir looks at reaches the authority too is for it to judge.
func TestABodyTooLargeToLookIntoReachesTheAuthorityAllTheSame(t *testing.T) {
	t.Parallel()
	s := opened(t, oneOrderAtATime(never))
	account, wire := tapped(t, s, clients.RegisterX)
	obtains(t, s, account, "a.example.test")
	padded := append(wire.lastOrder(), bytes.Repeat([]byte(" "), 100<<10)...)

	got := send(t, s, http.MethodPost, acmeserver.PathNewOrder, padded)
	require.Equal(t, "urn:ietf:params:acme:error:badNonce", got.problemType, "the authority read it to the end")
}
