//go:build e2e

package e2e

import (
	"crypto/x509"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/estserver"
)

const wait = "Too many requests. Please try again in 10 minutes."

func TestCurlFetchesACRL(t *testing.T) {
	soon := limits{class: weir.ClassCRL, every: 2 * time.Second, drain: once}
	long := limits{class: weir.ClassCRL, every: 10 * time.Minute, drain: once}
	for _, s := range []struct {
		name    string
		limits  limits
		options []string
		answers []int
		says    string // "" where it ends well
	}{
		{"held for its tokens", limits{class: weir.ClassCRL, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}, []string{"--fail"}, []int{200}, ""},
		{"429, --fail", long, []string{"--fail"}, []int{often}, "The requested URL returned error: 429"},
		{"429, --retry", soon, []string{"--fail", "--retry", "3"}, []int{often, 200}, ""},
		{"503, --retry", soon.with(busy), []string{"--fail", "--retry", "3"}, []int{busy, 200}, ""},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, s.limits)
			c := command{home: p.dir}
			said, err := c.run(t.Context(), "curl", append(s.options, "--silent", "--show-error", "--output", "list.crl", p.plain+"/crl")...)
			tell("curl", debian(t, "curl"), "CRL "+s.name, ended(said, err))
			assert.Equal(t, s.answers, p.answers.to("/crl"))
			if s.says != "" {
				require.Error(t, err)
				assert.Contains(t, said, s.says)
				return
			}
			require.NoError(t, err, said)
			der, err := os.ReadFile(p.file("list.crl"))
			require.NoError(t, err)
			list, err := x509.ParseRevocationList(der)
			require.NoError(t, err)
			assert.NoError(t, list.CheckSignatureFrom(p.Issuer))
		})
	}
}

func TestCurlEnrolsByEST(t *testing.T) {
	soon := limits{class: weir.ClassESTEnroll, every: 2 * time.Second, drain: once}
	long := limits{class: weir.ClassESTEnroll, every: 10 * time.Minute, drain: once}
	for _, s := range []struct {
		name    string
		limits  limits
		options []string
		answers []int
		says    string // "" where it ends well
	}{
		{"held for its tokens", limits{class: weir.ClassESTEnroll, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}, []string{"--fail"}, []int{200}, ""},
		{"429, --fail-with-body", long, []string{"--fail-with-body"}, []int{often}, wait},
		{"503, --fail-with-body", long.with(busy), []string{"--fail-with-body"}, []int{busy}, wait},
		{"429, --retry", soon, []string{"--fail", "--retry", "3"}, []int{often, 200}, ""},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := open(t, s.limits)
			c := command{home: p.dir}
			request(t, c)
			said, err := c.run(t.Context(), "curl", append(s.options, "--silent", "--show-error", "--cacert", "root.pem",
				"--user", user+":"+password, "--basic", "--header", "Content-Type: application/pkcs10",
				"--output", "answer.b64", "--data-binary", "@host.b64", p.secure+estserver.Prefix+"simpleenroll")...)
			tell("curl", debian(t, "curl"), "EST "+s.name, ended(said+read(p.file("answer.b64")), err))
			assert.Equal(t, s.answers, p.answers.to(estserver.Prefix+"simpleenroll"))
			if s.says != "" {
				require.Error(t, err)
				assert.Contains(t, read(p.file("answer.b64")), s.says)
				return
			}
			require.NoError(t, err, said)
			issued(t, c, "answer.b64")
		})
	}
}

// What is generous is what needs no credential: no limit on enrolment is met
// by whoever asks for the CA's certificates.
func TestCurlReadsCACertsWhereEnrolmentIsRefused(t *testing.T) {
	p := open(t, limits{class: weir.ClassESTEnroll, every: time.Hour, drain: always})
	said, err := command{home: p.dir}.run(t.Context(), "curl", "--fail", "--silent", "--show-error", "--cacert", "root.pem",
		p.secure+estserver.Prefix+"cacerts")
	require.NoError(t, err, said)
	assert.Equal(t, []int{http.StatusOK}, p.answers.to(estserver.Prefix))
}

// request has openssl make a key and a request for a certificate, in base64 as
// EST wants it.
func request(t *testing.T, c command) {
	t.Helper()
	said, err := c.all(t.Context(),
		[]string{"openssl", "req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", "new.key", "-out", "new.csr", "-outform", "DER",
			"-subj", "/CN=" + host},
		[]string{"openssl", "base64", "-in", "new.csr", "-out", "host.b64"})
	require.NoError(t, err, said)
}

// issued checks a certificate in PKCS #7, in base64, with openssl.
func issued(t *testing.T, c command, file string) {
	t.Helper()
	said, err := c.all(t.Context(),
		[]string{"openssl", "base64", "-d", "-in", file, "-out", "answer.p7"},
		[]string{"openssl", "pkcs7", "-inform", "DER", "-in", "answer.p7", "-print_certs", "-out", "new.pem"},
		[]string{"openssl", "verify", "-CAfile", "root.pem", "-untrusted", "issuer.pem", "new.pem"})
	require.NoError(t, err, said)
}

func (l limits) with(status int) limits { l.status = status; return l }

func ended(said string, err error) string {
	if err == nil {
		return "ends well"
	}
	return "fails, " + err.Error() + ": " + lineWith(said, "Too many requests", "error")
}
