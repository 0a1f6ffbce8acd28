package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// withAndWithout are the two ways to refuse.
var withAndWithout = []struct {
	nonce string // of a test, as part of a sentence
	opts  []siteOption
	// between is what x/crypto/acme does between a refusal and its next try.
	between []clients.Exchange
}{
	{"without a nonce", nil, []clients.Exchange{
		{Method: http.MethodHead, Path: acmeserver.PathNewNonce, Status: http.StatusOK, Nonce: true},
	}},
	{"with a nonce", []siteOption{withNonces()}, []clients.Exchange{}},
}

func TestARefusalSpendsOneRequestForANonceOrNone(t *testing.T) {
	t.Parallel()
	for _, tc := range withAndWithout {
		t.Run("refused "+tc.nonce+", x/crypto/acme asks for what it lacks and goes on", func(t *testing.T) {
			t.Parallel()
			cfg := limits()
			cfg.Tiers.PerIP = weir.TierConfig{Rate: 1 / soon.Seconds(), Burst: 1} // newAccount takes it
			s := opened(t, cfg, tc.opts...)
			account := registered(t, s, clients.RegisterX)
			obtains(t, s, account, "a.example.test")

			stats := account.Stats()
			require.Equal(t, []int{http.StatusTooManyRequests, http.StatusCreated}, answers(stats, acmeserver.PathNewOrder))
			require.Equal(t, tc.between, betweenOrders(t, stats))
			onlyOrdersRefused(t, s, stats)
		})
	}
}

// The Limiter refuses before the authority has seen the request, so the nonce
// in it is as good as before.
func TestTheSameBytesAreAcceptedAfterARefusal(t *testing.T) {
	t.Parallel()
	for _, tc := range withAndWithout {
		t.Run("though it came "+tc.nonce, func(t *testing.T) {
			t.Parallel()
			cfg := oneOrderAtATime(never)
			s := opened(t, cfg, tc.opts...)
			account, wire := tapped(t, s, clients.RegisterLego)
			obtains(t, s, account, "a.example.test")
			_, err := account.Obtain(t.Context(), "b.example.test")
			require.ErrorContains(t, err, "rateLimited")

			// A refill within a microsecond spares the test the wait.
			cfg.Tiers.PerAccount = weir.TierConfig{Rate: 1e6, Burst: 1e6}
			require.NoError(t, s.limiter.Reload(cfg))
			got := send(t, s, http.MethodPost, acmeserver.PathNewOrder, wire.lastOrder())
			require.Equal(t, http.StatusCreated, got.status)
			got = send(t, s, http.MethodPost, acmeserver.PathNewOrder, wire.lastOrder())
			require.Equal(t, "urn:ietf:params:acme:error:badNonce", got.problemType, "now it is spent")
		})
	}
}

// With one, x/crypto/acme and acme.sh would take the refusal for an answer.
func TestARefusedNewNonceCarriesNoNonce(t *testing.T) {
	t.Parallel()
	for _, tc := range withAndWithout {
		t.Run("where refusals come "+tc.nonce, func(t *testing.T) {
			t.Parallel()
			cfg := limits()
			for i := range cfg.Endpoints {
				if cfg.Endpoints[i].Class == weir.ClassACMENewNonce {
					cfg.Endpoints[i].Limits = map[string]weir.Limit{weir.TierPerIP: {Rate: 1 / never.Seconds(), Burst: 1}}
				}
			}
			s := opened(t, cfg, tc.opts...)
			got := send(t, s, http.MethodHead, acmeserver.PathNewNonce, nil)
			require.Equal(t, http.StatusOK, got.status)
			require.NotEmpty(t, got.header.Get("Replay-Nonce"))

			for _, method := range []string{http.MethodHead, http.MethodGet} {
				got = send(t, s, method, acmeserver.PathNewNonce, nil)
				require.Equal(t, http.StatusTooManyRequests, got.status)
				require.NotEmpty(t, got.header.Get("Retry-After"))
				require.Empty(t, got.header.Get("Replay-Nonce"))
			}
		})
	}
}

func TestAnAuthorityThatGivesNoNonceMakesARefusalWithoutOne(t *testing.T) {
	t.Parallel()
	source := nonces{authority: http.NotFoundHandler()}
	require.Empty(t, source.fresh(orderBy()))
}

func TestDirectoryAndNewNonceAreNeverRefusedForWhatElseTheAddressDid(t *testing.T) {
	t.Parallel()
	once := weir.TierConfig{Rate: 1 / never.Seconds(), Burst: 1}
	cfg := limits()
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = once, once, once
	s := opened(t, cfg)
	require.Equal(t, http.StatusBadRequest, send(t, s, http.MethodPost, acmeserver.PathNewOrder, []byte("{}")).status)
	require.Equal(t, http.StatusTooManyRequests, send(t, s, http.MethodPost, acmeserver.PathNewOrder, []byte("{}")).status)

	for range 50 {
		require.Equal(t, http.StatusOK, send(t, s, http.MethodGet, acmeserver.PathDirectory, nil).status)
		require.Equal(t, http.StatusOK, send(t, s, http.MethodHead, acmeserver.PathNewNonce, nil).status)
	}
	require.Equal(t, http.StatusTooManyRequests, send(t, s, http.MethodPost, acmeserver.PathNewAccount, []byte("{}")).status)
}

// orderBy is a newOrder that names the account /my-account/1, or says it does.
func orderBy() *http.Request {
	const body = `{"protected":"eyJraWQiOiJodHRwczovL2NhLmV4YW1wbGUudGVzdC9teS1hY2NvdW50LzEifQ","payload":"","signature":""}`
	r := httptest.NewRequest(http.MethodPost, "https://ca.example.test"+acmeserver.PathNewOrder, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/jose+json")
	return r
}
