package clients

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// direct calls a handler in place of the network, so that the whole exchange
// can happen in a synctest bubble: a goroutine that waits for a socket would
// keep the bubble's clock from moving.
type direct struct{ handler http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	// Only a request line without a host gives the RequestURI of a real one,
	// which the authority compares with the URL that the client signed.
	served := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), r.Body)
	served.Host = r.URL.Host
	served.TLS = &tls.ConnectionState{} // or the authority hands out http URLs
	served.Header = r.Header.Clone()
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, served)
	return w.Result(), nil
}

func TestXCryptoWaitsForRetryAfterAndAtMostASecondMore(t *testing.T) {
	t.Parallel()
	// Outside the bubble, for the validator's goroutine never ends.
	srv := start(t, nil)
	synctest.Test(t, func(t *testing.T) {
		var ordered []time.Time
		f := &refusal{path: acmeserver.PathNewOrder}
		handler := f.wrap(srv.Handler)
		noting := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == acmeserver.PathNewOrder {
				ordered = append(ordered, time.Now())
			}
			handler.ServeHTTP(w, r)
		})

		_, _, err := ObtainX(t.Context(), srv.DirectoryURL, &http.Client{Transport: direct{noting}}, []string{"a.example.test"})
		require.NoError(t, err)
		require.Len(t, ordered, 2)
		waited := ordered[1].Sub(ordered[0])
		require.GreaterOrEqual(t, waited, time.Second)
		require.LessOrEqual(t, waited, 2*time.Second)
	})
}
