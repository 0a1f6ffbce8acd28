//go:build e2e

package e2e

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"

	"github.com/weir-go/weir"
)

func TestOpenSSLAsksForAStatus(t *testing.T) {
	for _, s := range []struct {
		name   string
		limits limits
		fails  bool
		says   string
	}{
		{"not limited", limits{class: weir.ClassOCSP, every: time.Millisecond}, false, "host.pem: good"},
		{"held for its tokens", limits{class: weir.ClassOCSP, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}, false, "host.pem: good"},
		{"429", limits{class: weir.ClassOCSP, every: time.Hour, drain: once}, true, "429"},
		{"503", limits{class: weir.ClassOCSP, every: time.Hour, drain: once, status: busy}, true, "503"},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, s.limits)
			said, err := command{home: p.dir}.run(t.Context(), "openssl", "ocsp", "-issuer", "issuer.pem", "-cert", "host.pem",
				"-CAfile", "root.pem", "-url", p.plain+"/ocsp")
			tell("openssl ocsp", debian(t, "openssl"), "OCSP "+s.name, lineWith(said, s.says))
			assert.Equal(t, s.fails, err != nil, said)
			assert.Contains(t, said, s.says)
		})
	}
}

// A program that reads the body whatever the status finds a reason in it.
func TestGoReadsTryLater(t *testing.T) {
	for _, status := range []int{often, busy} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			p := open(t, limits{class: weir.ClassOCSP, every: time.Hour, drain: once, status: status})
			request, err := ocsp.CreateRequest(p.Issuer, p.Root, nil)
			require.NoError(t, err)
			res, err := http.Post(p.plain+"/ocsp", "application/ocsp-request", bytes.NewReader(request))
			require.NoError(t, err)
			defer func() { _ = res.Body.Close() }()
			document, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			assert.Equal(t, status, res.StatusCode)
			_, err = ocsp.ParseResponse(document, p.Issuer)
			require.ErrorContains(t, err, "try later")
			tell("x/crypto/ocsp", module(t, "golang.org/x/crypto"), "OCSP "+strings.ToLower(http.StatusText(status)), err.Error())
		})
	}
}
