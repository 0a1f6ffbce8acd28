package acmeserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/acme"
)

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	srv, err := Start(cfg)
	require.NoError(t, err)
	t.Cleanup(srv.Close)
	return srv
}

// impatientClient is an ACME client that never sends a request twice.
func impatientClient(t *testing.T, srv *Server) *acme.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return &acme.Client{
		Key:          key,
		HTTPClient:   srv.Client(),
		DirectoryURL: srv.DirectoryURL,
		RetryBackoff: func(int, *http.Request, *http.Response) time.Duration { return 0 },
	}
}

func TestWrapStandsBetweenTheListenerAndTheAuthority(t *testing.T) {
	var wrapped, served atomic.Int32
	srv := start(t, Config{Wrap: func(next http.Handler) http.Handler {
		wrapped.Add(1)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			if r.TLS == nil || r.ProtoMajor != 2 || r.URL.Path != PathDirectory {
				http.Error(w, "not as it came off the wire", http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	for range 3 {
		resp, err := srv.Client().Get(srv.DirectoryURL)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	require.EqualValues(t, 1, wrapped.Load(), "Wrap is called once")
	require.EqualValues(t, 3, served.Load())
}

func TestTheListenerIsOnLoopback(t *testing.T) {
	srv := start(t, Config{})
	u, err := url.Parse(srv.DirectoryURL)
	require.NoError(t, err)
	require.Equal(t, "https", u.Scheme)
	require.True(t, net.ParseIP(u.Hostname()).IsLoopback())
}

func TestEachClientIsTheCallersOwn(t *testing.T) {
	srv := start(t, Config{})
	first := srv.Client()
	first.Transport = nil
	require.NotNil(t, srv.Client().Transport)
}

func TestClosedTwiceTheServerIsStillClosed(t *testing.T) {
	srv := start(t, Config{})
	srv.Close()
	srv.Close()
	_, err := srv.Client().Get(srv.DirectoryURL)
	require.Error(t, err)
}

func TestTwoServersHaveNothingInCommon(t *testing.T) {
	a, b := start(t, Config{}), start(t, Config{})
	require.NotEqual(t, a.DirectoryURL, b.DirectoryURL)
	require.False(t, a.Root.Equal(b.Root))
	require.False(t, a.Roots().Equal(b.Roots()))
}

func TestOnlyAnswersAboutChallengesNameATimeToWait(t *testing.T) {
	srv := start(t, Config{})
	for _, e := range Endpoints() {
		r := httptest.NewRequest(http.MethodPost, "https://ca.example.test"+e.Path, nil)
		r.Header.Set("User-Agent", "server test")
		w := httptest.NewRecorder()
		srv.Handler.ServeHTTP(w, r)
		want := ""
		if e.Path == PathChallenge {
			want = "1"
		}
		require.Equal(t, want, w.Header().Get("Retry-After"), e.Path)
	}
}
