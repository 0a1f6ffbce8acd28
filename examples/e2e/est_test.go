//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/estserver"
)

// strongswan enrols by EST, for the key of request, and returns what it was
// issued in PEM.
func strongswan(t *testing.T, p *pki) (string, error) {
	c := command{home: p.dir}
	request(t, c)
	return c.run(t.Context(), "pki", "--est", "--url", p.secure, "--in", "new.csr", "--outform", "pem",
		"--cacert", "root.pem", "--cacert", "issuer.pem", "--userpass", user+":"+password)
}

func TestStrongSwanEnrolsByEST(t *testing.T) {
	for _, s := range []struct {
		name   string
		limits limits
	}{
		{"not limited", limits{class: weir.ClassESTEnroll, every: time.Millisecond}},
		{"held for its tokens", limits{class: weir.ClassESTEnroll, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, s.limits, inOneLine)
			said, err := strongswan(t, p)
			tell("strongSwan pki --est", debian(t, "strongswan-pki"), "EST "+s.name, ended(said, err))
			require.NoError(t, err, said)
			_, cert, found := strings.Cut(said, "-----BEGIN CERTIFICATE-----")
			require.True(t, found, said)
			c := command{home: p.dir}
			c.write(t, "new.pem", "-----BEGIN CERTIFICATE-----"+cert, 0o600)
			said, err = c.run(t.Context(), "openssl", "verify", "-CAfile", "root.pem", "-untrusted", "issuer.pem", "new.pem")
			require.NoError(t, err, said)
			assert.Equal(t, []int{200}, p.answers.to(estserver.Prefix))
		})
	}
}

func TestStrongSwanIsRefusedByEST(t *testing.T) {
	for _, status := range []int{often, busy} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := open(t, limits{class: weir.ClassESTEnroll, every: time.Hour, drain: always, status: status})
			said, err := strongswan(t, p)
			tell("strongSwan pki --est", debian(t, "strongswan-pki"), fmt.Sprint("EST ", status), ended(said, err))
			require.Error(t, err)
			assert.Contains(t, said, fmt.Sprint("EST request failed: HTTP ", status))
			assert.Equal(t, []int{status}, p.answers.to(estserver.Prefix), "it came back")
		})
	}
}

// inOneLine takes the ends of lines out of EST's base64, which strongSwan
// before 5.9.11 takes for part of it (strongswan/strongswan#1616), although
// receivers are to skip them (RFC 8951, section 3.1). OpenSSL and libest cannot
// do without them.
func inOneLine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		body := rec.Body.Bytes()
		if rec.Header().Get("Content-Transfer-Encoding") == "base64" {
			body = bytes.ReplaceAll(body, []byte("\n"), nil)
		}
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(body)
	})
}
