package estserver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/smallstep/pkcs7"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/authority"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func newAuthority(t *testing.T) *authority.Authority {
	t.Helper()
	a, err := authority.New(authority.Config{Signer: newKey(t)})
	require.NoError(t, err)
	return a
}

// csr is a request for that name, in DER.
func csr(t *testing.T, name string) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
	}, newKey(t))
	require.NoError(t, err)
	return der
}

// enrolment is a request to an operation from somebody who has the password.
func enrolment(operation string, body []byte) *http.Request {
	r := httptest.NewRequest(http.MethodPost, Prefix+operation, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/pkcs10")
	r.SetBasicAuth("device", "secret")
	return r
}

func inLines(der []byte) []byte { return []byte(encoded(der)) }

func answerTo(a *authority.Authority, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	New(Config{Authority: a, User: "device", Password: "secret"}).ServeHTTP(w, r)
	return w
}

// certs reads the certificates of an answer.
func certs(t *testing.T, w *httptest.ResponseRecorder) []*x509.Certificate {
	t.Helper()
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Equal(t, mimeCerts, w.Header().Get("Content-Type"))
	der, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(w.Body.String(), "\n", ""))
	require.NoError(t, err)
	p7, err := pkcs7.Parse(der)
	require.NoError(t, err)
	return p7.Certificates
}

func TestAnEnrolmentIsAnsweredWithOneCertificateUnderAnyLabel(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	for _, operation := range []string{"simpleenroll", "factory/simpleenroll"} {
		got := certs(t, answerTo(a, enrolment(operation, inLines(csr(t, "device.example.test")))))
		require.Len(t, got, 1, operation)
		require.NoError(t, got[0].CheckSignatureFrom(a.Issuer))
		require.Equal(t, []string{"device.example.test"}, got[0].DNSNames)
	}
	got := certs(t, answerTo(a, httptest.NewRequest(http.MethodGet, Prefix+"factory/cacerts", nil)))
	require.Len(t, got, 2)
}

func TestWhatCannotBeServedIsToldWhy(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	good := inLines(csr(t, "device.example.test"))
	edited := func(edit func(*http.Request)) *http.Request {
		r := enrolment("simpleenroll", good)
		edit(r)
		return r
	}
	forged := csr(t, "device.example.test")
	forged[len(forged)-1] ^= 1
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
	}{
		{"no password", edited(func(r *http.Request) { r.Header.Del("Authorization") }), http.StatusUnauthorized},
		{"a wrong password", edited(func(r *http.Request) { r.SetBasicAuth("device", "guess") }), http.StatusUnauthorized},
		{"a wrong user", edited(func(r *http.Request) { r.SetBasicAuth("other", "secret") }), http.StatusUnauthorized},
		{"another type", edited(func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), http.StatusUnsupportedMediaType},
		{"another method", edited(func(r *http.Request) { r.Method = http.MethodGet }), http.StatusMethodNotAllowed},
		{"no such operation", enrolment("fullcmc", good), http.StatusNotFound},
		{"a label too many", enrolment("a/b/simpleenroll", good), http.StatusNotFound},
		{"no base64", enrolment("simpleenroll", []byte("!")), http.StatusBadRequest},
		{"no request", enrolment("simpleenroll", inLines([]byte("junk"))), http.StatusBadRequest},
		{"a forged request", enrolment("simpleenroll", inLines(forged)), http.StatusBadRequest},
		{"too long a body", enrolment("simpleenroll", make([]byte, maxRequest+1)), http.StatusRequestEntityTooLarge},
		{"enrolling again without a certificate", enrolment("simplereenroll", good), http.StatusForbidden},
	} {
		w := answerTo(a, tt.r)
		require.Equal(t, tt.status, w.Code, tt.name)
		require.Contains(t, w.Header().Get("Content-Type"), "text/plain", tt.name)
	}
}

func TestOnlyACertificateFromHereIsRenewedAndOnlyForItsNames(t *testing.T) {
	t.Parallel()
	a, other := newAuthority(t), newAuthority(t)
	again := func(has *authority.Authority, name string) int {
		key := newKey(t)
		cert, err := has.IssueFor(key.Public(), &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "device.example.test"}, DNSNames: []string{"device.example.test"},
		})
		require.NoError(t, err)
		r := enrolment("simplereenroll", inLines(csr(t, name)))
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		return answerTo(a, r).Code
	}
	require.Equal(t, http.StatusOK, again(a, "device.example.test"))
	require.Equal(t, http.StatusBadRequest, again(a, "other.example.test"))
	require.Equal(t, http.StatusForbidden, again(other, "device.example.test"))
}
