//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// An acmeCA is Pebble behind a Limiter, with a record of its answers.
type acmeCA struct {
	*acmeserver.Server
	limiter *weir.Limiter
	trust   string // a PEM file with the certificate of the listener
	answers *answers
}

var silent = weir.WithLogger(slog.New(slog.DiscardHandler))

// acme starts one with these limits for l.class until t ends.
func acme(t *testing.T, l limits, opts ...weir.Option) *acmeCA {
	t.Helper()
	return acmeUnder(t, l.pebble(), l.protected, opts...)
}

// acmeUnder starts one with this Config until t ends. protect puts the Limiter
// before the authority; nil does nothing else.
func acmeUnder(t *testing.T, cfg weir.Config, protect func(*weir.Limiter, http.Handler) http.Handler, opts ...weir.Option) *acmeCA {
	t.Helper()
	if protect == nil {
		protect = (*weir.Limiter).Handler
	}
	limiter, err := weir.New(cfg, append(opts, silent)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = limiter.Close() })
	a := &acmeCA{limiter: limiter, answers: &answers{}}
	a.Server, err = acmeserver.Start(acmeserver.Config{Wrap: func(ca http.Handler) http.Handler {
		return a.answers.of(protect(limiter, knownChallenges(ca)))
	}})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	a.trust = listenerCertificate(t, a.DirectoryURL)
	return a
}

// knownChallenges leaves challenges without a token out of authorizations. RFC
// 8555 (section 8) allows them and has clients ignore the types that they do not
// know; Pebble offers one, in an order that differs from run to run, and uacme
// gives up if it meets that first.
func knownChallenges(ca http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, acmeserver.PathAuthz) {
			ca.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		ca.ServeHTTP(rec, r)
		document := rec.Body.Bytes()
		var authz map[string]any
		if err := json.Unmarshal(document, &authz); err == nil {
			if all, ok := authz["challenges"].([]any); ok {
				authz["challenges"] = slices.DeleteFunc(all, func(c any) bool {
					challenge, _ := c.(map[string]any)
					return challenge["token"] == nil
				})
				document, _ = json.Marshal(authz) // it has just been decoded
			}
		}
		maps.Copy(w.Header(), rec.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		_, _ = w.Write(document)
	})
}

// held returns how many new orders waited for their tokens.
func (a *acmeCA) held() uint64 {
	for _, c := range a.limiter.Snapshot().Classes {
		if c.Class == weir.ClassACMENewOrder {
			return c.Held
		}
	}
	return 0
}

// listenerCertificate saves the certificate that a server shows, for clients
// that take what they trust from a file.
func listenerCertificate(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{InsecureSkipVerify: true}) // to learn it is the point
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return saveCertificate(t, conn.ConnectionState().PeerCertificates[0])
}

func saveCertificate(t *testing.T, cert *x509.Certificate) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "trust.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	require.NoError(t, os.WriteFile(file, block, 0o600))
	return file
}
