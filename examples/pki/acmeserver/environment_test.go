package acmeserver

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/acme"
)

// unset removes a variable until the test ends.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // has the test put back what was there
	require.NoError(t, os.Unsetenv(name))
}

func TestStartPutsTheEnvironmentBack(t *testing.T) {
	for name := range determinism {
		unset(t, name)
	}
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "99")
	start(t, Config{})

	require.Equal(t, "99", os.Getenv("PEBBLE_WFE_NONCEREJECT"))
	for name := range determinism {
		if name == "PEBBLE_WFE_NONCEREJECT" {
			continue
		}
		_, isSet := os.LookupEnv(name)
		require.False(t, isSet, name)
	}
}

func TestAPanicDuringConstructionPutsTheEnvironmentBackToo(t *testing.T) {
	unset(t, "PEBBLE_AUTHZREUSE")
	require.Panics(t, func() { _ = withDeterminism(func() { panic("no entropy") }) })
	_, isSet := os.LookupEnv("PEBBLE_AUTHZREUSE")
	require.False(t, isSet)
}

func TestTheCallersEnvironmentDoesNotMakeTheAuthorityRandom(t *testing.T) {
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "100")
	t.Setenv("PEBBLE_VA_ALWAYS_VALID", "0")
	t.Setenv("PEBBLE_AUTHZREUSE", "100")
	client := impatientClient(t, start(t, Config{}))
	ctx := t.Context()
	_, err := client.Register(ctx, &acme.Account{}, acme.AcceptTOS)
	require.NoError(t, err, "a good nonce was refused")

	for range 2 { // reuse would need a first order to reuse from
		order, err := client.AuthorizeOrder(ctx, acme.DomainIDs("a.example.test"))
		require.NoError(t, err)
		require.Equal(t, acme.StatusPending, order.Status, "an authorization was reused")
		authz, err := client.GetAuthorization(ctx, order.AuthzURLs[0])
		require.NoError(t, err)
		_, err = client.Accept(ctx, authz.Challenges[0])
		require.NoError(t, err)
		_, err = client.WaitAuthorization(ctx, authz.URI)
		require.NoError(t, err, "a challenge was looked at")
	}
}
