package clients

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

type registerFunc func(context.Context, string, *http.Client) (*Account, error)

var libraries = []struct {
	name     string
	register registerFunc
}{
	{"x/crypto/acme", RegisterX},
	{"lego", RegisterLego},
}

func TestAnAccountRegistersOnceHoweverOftenItOrders(t *testing.T) {
	t.Parallel()
	for _, lib := range libraries {
		t.Run(lib.name, func(t *testing.T) {
			t.Parallel()
			srv := start(t, nil)
			account, err := lib.register(t.Context(), srv.DirectoryURL, srv.Client())
			require.NoError(t, err)
			require.Zero(t, account.Stats().Count(acmeserver.PathNewOrder))
			for _, name := range []string{"a.example.test", "b.example.test"} {
				chain, err := account.Obtain(t.Context(), name)
				require.NoError(t, err)
				verified(t, srv, chain, []string{name})
			}
			require.Equal(t, 1, account.Stats().Count(acmeserver.PathNewAccount))
			require.Equal(t, 2, account.Stats().Count(acmeserver.PathNewOrder))
		})
	}
}

func TestAnAccountSaysWhichClientFailed(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, lib := range libraries {
		srv := start(t, nil)
		account, err := lib.register(t.Context(), srv.DirectoryURL, srv.Client())
		require.NoError(t, err)
		_, err = account.Obtain(gone, "a.example.test")
		require.ErrorContains(t, err, lib.name)

		_, err = lib.register(t.Context(), srv.DirectoryURL, &http.Client{})
		require.ErrorContains(t, err, lib.name, "the server's certificate is not trusted")
	}
}
