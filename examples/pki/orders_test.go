package main

import (
	"errors"
	"net/http"
	"testing"
	"time"

	legoacme "github.com/go-acme/lego/v5/acme"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// tight is limits under which one tier admits all but the last of the orders
// that a new account places at once: an account's second one, or the first of an
// address that has just spent its only token on newAccount.
type tight struct {
	name   string // of a test, as a sentence
	tier   string
	orders int
	cfg    func(every time.Duration) weir.Config
}

var tights = []tight{
	{"by its account's limit", weir.TierPerAccount, 2, oneOrderAtATime},
	{"by its address's limit, which newAccount spends from too", weir.TierPerIP, 1, func(every time.Duration) weir.Config {
		cfg := limits()
		cfg.Tiers.PerIP = weir.TierConfig{Rate: 1 / every.Seconds(), Burst: 1}
		return cfg
	}},
	{"by the limit of all, which newAccount spends from too", weir.TierGlobal, 1, func(every time.Duration) weir.Config {
		cfg := limits()
		cfg.Tiers.Global = weir.TierConfig{Rate: 1 / every.Seconds(), Burst: 1}
		return cfg
	}},
}

// place has the account place its orders, all at once.
func (l tight) place(t *testing.T, account *clients.Account) error {
	t.Helper()
	return atOnce(t.Context(), account, []string{"a.example.test", "b.example.test"}[:l.orders]...)
}

func TestUnderTheDefaultLimitsNobodyIsRefused(t *testing.T) {
	t.Parallel()
	for _, lib := range []struct {
		name     string
		register registerFunc
	}{
		{"x/crypto/acme obtains its certificates", clients.RegisterX},
		{"lego obtains its certificates", clients.RegisterLego},
	} {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			s := opened(t, limits())
			account := registered(t, s, lib.register)
			obtains(t, s, account, "a.example.test")
			obtains(t, s, account, "b.example.test")

			require.Zero(t, account.Stats().Refused())
			onlyOrdersRefused(t, s, account.Stats())
			counted := s.counted(weir.ClassACMENewOrder)
			require.EqualValues(t, 2, counted.Admitted)
			require.Zero(t, counted.Held)

			// What the client did and what the Limiter counted, request by request.
			for _, e := range acmeserver.Endpoints() {
				if e.Resource == "account" || e.Resource == "orders" { // one class
					continue
				}
				require.EqualValues(t, account.Stats().Count(e.Path), s.counted(classes[e.Resource]).Admitted, e.Resource)
			}
		})
	}
}

func TestXCryptoIsRefusedAnOrderAndPlacesItAgainWhenItWasToldTo(t *testing.T) {
	t.Parallel()
	s := opened(t, oneOrderAtATime(soon))
	account := registered(t, s, clients.RegisterX)
	require.NoError(t, atOnce(t.Context(), account, "a.example.test", "b.example.test"))

	stats := account.Stats()
	require.Equal(t, 2, stats.Count(acmeserver.PathCertificate, http.StatusOK))
	// Once: the Retry-After was long enough, and the client honoured it.
	require.Equal(t, 1, stats.Count(acmeserver.PathNewOrder, http.StatusTooManyRequests))
	statuses := answers(stats, acmeserver.PathNewOrder)
	require.Len(t, statuses, 3)
	require.Equal(t, http.StatusCreated, statuses[2])
	for _, e := range stats.Exchanges {
		require.True(t, e.Status != http.StatusTooManyRequests || e.RetryAfter)
	}
	throttledBy(t, s, weir.TierPerAccount, 1)
	onlyOrdersRefused(t, s, stats)
}

func TestLegoIsRefusedAnOrder(t *testing.T) {
	t.Parallel()
	for _, limit := range tights {
		t.Run(limit.name+" and tells why and for how long", func(t *testing.T) {
			t.Parallel()
			s := opened(t, limit.cfg(never))
			account := registered(t, s, clients.RegisterLego)
			err := limit.place(t, account)

			limited, ok := errors.AsType[*legoacme.RateLimitedError](err)
			require.True(t, ok, "no RateLimitedError in %v", err)
			require.Equal(t, legoacme.RateLimitedErrorType, limited.Type)
			require.Equal(t, http.StatusTooManyRequests, limited.HTTPStatus)
			require.Greater(t, limited.RetryAfter, never/2)
			require.LessOrEqual(t, limited.RetryAfter, never)

			stats := account.Stats()
			require.Equal(t, limit.orders-1, stats.Count(acmeserver.PathCertificate, http.StatusOK))
			require.Equal(t, 1, stats.Count(acmeserver.PathNewOrder, http.StatusTooManyRequests))
			require.Equal(t, limit.orders-1, stats.Count(acmeserver.PathNewOrder, http.StatusCreated))
			throttledBy(t, s, limit.tier, 1)
			onlyOrdersRefused(t, s, stats)
		})
	}
}

func TestLegoIsHeldInstead(t *testing.T) {
	t.Parallel()
	for _, limit := range tights[:2] { // they wait in earnest; the third would show no more
		t.Run(limit.name+" and never learns of it", func(t *testing.T) {
			t.Parallel()
			s := opened(t, held(limit.cfg(soon), time.Minute))
			account := registered(t, s, clients.RegisterLego)
			require.NoError(t, limit.place(t, account))

			stats := account.Stats()
			require.Zero(t, stats.Refused())
			require.Equal(t, limit.orders, stats.Count(acmeserver.PathCertificate, http.StatusOK))
			counted := s.counted(weir.ClassACMENewOrder)
			require.EqualValues(t, limit.orders, counted.Admitted)
			require.EqualValues(t, 1, counted.Held)
			throttledBy(t, s, limit.tier, 0)
			onlyOrdersRefused(t, s, stats)
			require.Zero(t, s.limiter.Snapshot().Holding)
		})
	}
}

func TestAnOrderThatWouldBeHeldTooLongIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	s := opened(t, held(oneOrderAtATime(never), time.Hour))
	account := registered(t, s, clients.RegisterLego)
	obtains(t, s, account, "a.example.test")
	_, err := account.Obtain(t.Context(), "b.example.test")

	_, ok := errors.AsType[*legoacme.RateLimitedError](err)
	require.True(t, ok, "no RateLimitedError in %v", err)
	require.Zero(t, s.counted(weir.ClassACMENewOrder).Held)
	throttledBy(t, s, weir.TierPerAccount, 1)
}
