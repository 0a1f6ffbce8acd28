package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// classes names every resource's class, by the resource's word in the directory
// or in RFC 8555, section 7.1.
var classes = map[string]weir.Class{
	"directory":     weir.ClassACMEDirectory,
	"newNonce":      weir.ClassACMENewNonce,
	"newAccount":    weir.ClassACMENewAccount,
	"newOrder":      weir.ClassACMENewOrder,
	"authorization": weir.ClassACMEAuthz,
	"challenge":     weir.ClassACMEChallenge,
	"order":         weir.ClassACMEOrder,
	"finalize":      weir.ClassACMEFinalize,
	"certificate":   weir.ClassACMECertificate,
	"account":       weir.ClassACMEAccount,
	"orders":        weir.ClassACMEAccount,
	"keyChange":     weir.ClassACMEKeyChange,
	"revokeCert":    weir.ClassACMERevoke,
	"renewalInfo":   weir.ClassACMERenewalInfo,
}

// beginnings are the classes that the common tiers limit.
var beginnings = map[weir.Class]bool{
	weir.ClassACMENewAccount: true,
	weir.ClassACMENewOrder:   true,
	weir.ClassACMEKeyChange:  true,
	weir.ClassACMERevoke:     true,
	classOther:               true,
}

// classOf returns the class that a request gets.
func classOf(t *testing.T, cfg weir.Config, method, path string) (class weir.Class) {
	t.Helper()
	limiter, err := weir.New(cfg, poolSize(8), weir.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer limiter.Close()
	limiter.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		info, ok := weir.FromContext(r.Context())
		require.True(t, ok)
		class = info.Class
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "https://ca.example.test"+path, nil))
	return class
}

func TestEveryResourceHasItsClassWhateverTheMethod(t *testing.T) {
	t.Parallel()
	for _, e := range acmeserver.Endpoints() {
		path := e.Path
		if strings.HasSuffix(path, "/") {
			path += "some-id"
		}
		for _, method := range append(e.Methods, http.MethodDelete, http.MethodOptions) {
			require.Equal(t, classes[e.Resource], classOf(t, limits(), method, path), "%s %s", method, path)
		}
	}
}

func TestWhatTheAuthorityDoesNotServeIsLimitedToo(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/acme/new-order", "/dir/more", "/order-plz/more"} {
		require.Equal(t, classOther, classOf(t, limits(), http.MethodGet, path), path)
	}
}

func TestOnlyWhatBeginsSomethingSharesTheCommonTiers(t *testing.T) {
	t.Parallel()
	for _, e := range endpoints() {
		if beginnings[e.Class] {
			require.Empty(t, e.Limits, e.Class)
			continue
		}
		for _, tier := range []string{weir.TierGlobal, weir.TierPerIP} {
			require.Greater(t, e.Limits[tier].Burst, 100.0, "%s in %s", e.Class, tier)
		}
		account, named := e.Limits[weir.TierPerAccount]
		require.True(t, named, "%s spends from the account", e.Class)
		require.Zero(t, account, "%s spends from the account", e.Class)
	}
}

// The one advice is about proxies, of which these examples have none.
func TestTheLimitsAreSoundAndUnsuspicious(t *testing.T) {
	t.Parallel()
	for _, cfg := range []weir.Config{limits(), oneOrderAtATime(pace), held(limits(), pace)} {
		require.NoError(t, cfg.Validate())
		advice := cfg.Advise()
		require.Len(t, advice, 1)
		require.Equal(t, "client_ip.trusted_proxies", advice[0].Path)
	}
}
