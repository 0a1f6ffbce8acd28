package clients

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	legolog "github.com/go-acme/lego/v5/log"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

func TestMain(m *testing.M) {
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// A refusal answers the first request for one path with 429 and a Retry-After
// of one second, and lets everything else through.
type refusal struct {
	path         string
	afterHandler bool // the authority ran, and spent the nonce, before its answer was thrown away
	withNonce    bool // the refusal carries a Replay-Nonce
	made         atomic.Bool
}

func (f *refusal) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != f.path || f.made.Swap(true) {
			next.ServeHTTP(w, r)
			return
		}
		if f.afterHandler {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		if f.withNonce {
			w.Header().Set("Replay-Nonce", freshNonce(next))
		}
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","status":429,"detail":"too many orders"}`)
	})
}

// freshNonce asks the authority for a nonce of its own making: no other source
// could give one that it accepts.
func freshNonce(authority http.Handler) string {
	r := httptest.NewRequest(http.MethodHead, acmeserver.PathNewNonce, nil)
	r.Header.Set("User-Agent", "refusal")
	w := httptest.NewRecorder()
	authority.ServeHTTP(w, r)
	return w.Header().Get("Replay-Nonce")
}

// start serves an authority behind wrap until the test ends.
func start(t *testing.T, wrap func(http.Handler) http.Handler) *acmeserver.Server {
	t.Helper()
	srv, err := acmeserver.Start(acmeserver.Config{Wrap: wrap})
	require.NoError(t, err)
	t.Cleanup(srv.Close)
	return srv
}
