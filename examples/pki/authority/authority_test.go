package authority

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := New(Config{Signer: newKey(t), OCSP: "http://ocsp.example.test", CRL: "http://crl.example.test"})
	require.NoError(t, err)
	return a
}

func issued(t *testing.T, a *Authority, name string) *x509.Certificate {
	t.Helper()
	cert, err := a.IssueFor(newKey(t).Public(), &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
	})
	require.NoError(t, err)
	return cert
}

// asks is a request about the certificate of that serial number.
func asks(t *testing.T, a *Authority, serial *big.Int, hash crypto.Hash) []byte {
	t.Helper()
	der, err := ocsp.CreateRequest(&x509.Certificate{SerialNumber: serial}, a.Issuer, &ocsp.RequestOptions{Hash: hash})
	require.NoError(t, err)
	return der
}

// answers returns what the responder says to r.
func answers(t *testing.T, a *Authority, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	a.OCSP("/ocsp").ServeHTTP(w, r)
	return w
}

func post(body []byte) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/ocsp", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/ocsp-request")
	return r
}

func TestACertificateVerifiesAndSaysWhereToAskAboutIt(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert := issued(t, a, "www.example.test")
	intermediates := x509.NewCertPool()
	intermediates.AddCert(a.Chain()[0])
	_, err := cert.Verify(x509.VerifyOptions{DNSName: "www.example.test", Roots: a.Roots(), Intermediates: intermediates})
	require.NoError(t, err)
	require.Equal(t, []string{"http://ocsp.example.test"}, cert.OCSPServer)
	require.Equal(t, []string{"http://crl.example.test"}, cert.CRLDistributionPoints)
}

func TestTheIssuerIsNamedByTheKeyIDThatItWasGiven(t *testing.T) {
	t.Parallel()
	a, err := New(Config{Signer: newKey(t), KeyID: []byte("a key of somebody's")})
	require.NoError(t, err)
	require.Equal(t, []byte("a key of somebody's"), a.Issuer.SubjectKeyId)
	require.Equal(t, []byte("a key of somebody's"), issued(t, a, "www.example.test").AuthorityKeyId)
}

func TestTheResponderAnswersInWhateverHashItIsAsked(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert := issued(t, a, "www.example.test")
	for _, hash := range []crypto.Hash{crypto.SHA1, crypto.SHA256, crypto.SHA384, crypto.SHA512} {
		w := answers(t, a, post(asks(t, a, cert.SerialNumber, hash)))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "application/ocsp-response", w.Header().Get("Content-Type"))
		require.Empty(t, w.Header().Get("Cache-Control"), "no cache keeps the answer to a POST")
		response, err := ocsp.ParseResponseForCert(w.Body.Bytes(), cert, a.Issuer)
		require.NoError(t, err)
		require.Equal(t, ocsp.Good, response.Status)
		require.Equal(t, hash, response.IssuerHash)
	}
}

// http.ServeMux would redirect it to a path with one slash.
func TestARequestInWhoseBase64SlashesMeetIsAnswered(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	serial := new(big.Int).SetBytes(bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 4))
	encoded := base64.StdEncoding.EncodeToString(asks(t, a, serial, crypto.SHA1))
	require.Contains(t, encoded, "//")
	for name, path := range map[string]string{
		"as it is":          encoded,
		"escaped":           strings.NewReplacer("/", "%2F", "+", "%2B", "=", "%3D").Replace(encoded),
		"spaces for pluses": strings.ReplaceAll(encoded, "+", "%20"),
	} {
		w := answers(t, a, httptest.NewRequest(http.MethodGet, "/ocsp/"+path, nil))
		require.Equal(t, http.StatusOK, w.Code, name)
		response, err := ocsp.ParseResponse(w.Body.Bytes(), a.Issuer)
		require.NoError(t, err, name)
		require.Equal(t, ocsp.Unknown, response.Status, name)
		require.Zero(t, serial.Cmp(response.SerialNumber), name)
	}
}

func TestWhatIsNoRequestIsRefused(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	other := newAuthority(t)
	wrongType := post(asks(t, a, big.NewInt(1), crypto.SHA1))
	wrongType.Header.Set("Content-Type", "text/plain")
	for _, tt := range []struct {
		name   string
		r      *http.Request
		status int
		answer []byte
	}{
		{"junk", post([]byte("junk")), http.StatusOK, ocsp.MalformedRequestErrorResponse},
		{"nothing", httptest.NewRequest(http.MethodGet, "/ocsp", nil), http.StatusOK, ocsp.MalformedRequestErrorResponse},
		{"another issuer's", post(asks(t, other, big.NewInt(1), crypto.SHA1)), http.StatusOK, ocsp.UnauthorizedErrorResponse},
		{"no base64", httptest.NewRequest(http.MethodGet, "/ocsp/!", nil), http.StatusBadRequest, nil},
		{"another type", wrongType, http.StatusUnsupportedMediaType, nil},
		{"too long", post(make([]byte, maxOCSPRequest+1)), http.StatusRequestEntityTooLarge, nil},
		{"another method", httptest.NewRequest(http.MethodPut, "/ocsp", nil), http.StatusMethodNotAllowed, nil},
	} {
		w := answers(t, a, tt.r)
		require.Equal(t, tt.status, w.Code, tt.name)
		if tt.answer != nil {
			require.Equal(t, tt.answer, w.Body.Bytes(), tt.name)
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"), tt.name)
		}
	}
}

func TestTheCRLVerifiesAndIsNotSentTwice(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	cert := issued(t, a, "www.example.test")
	require.NoError(t, a.Revoke(cert.SerialNumber, ocsp.KeyCompromise))
	require.NoError(t, a.Revoke(cert.SerialNumber, ocsp.Superseded), "again")

	w := httptest.NewRecorder()
	a.CRL().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/crl", nil))
	require.Equal(t, "application/pkix-crl", w.Header().Get("Content-Type"))
	list, err := x509.ParseRevocationList(w.Body.Bytes())
	require.NoError(t, err)
	require.NoError(t, list.CheckSignatureFrom(a.Issuer))
	require.Zero(t, list.Number.Cmp(big.NewInt(2)), "one at the start, one for the revocation")
	require.Len(t, list.RevokedCertificateEntries, 1)
	require.Equal(t, ocsp.KeyCompromise, list.RevokedCertificateEntries[0].ReasonCode)

	r := httptest.NewRequest(http.MethodGet, "/crl", nil)
	r.Header.Set("If-None-Match", w.Header().Get("ETag"))
	again := httptest.NewRecorder()
	a.CRL().ServeHTTP(again, r)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Error(t, a.Revoke(big.NewInt(7), 0), "a certificate that was never issued")
}

// moody is a key that at times has no session to be used in.
type moody struct {
	crypto.Signer
	err error
}

func (m *moody) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if m.err != nil {
		return nil, m.err
	}
	return m.Signer.Sign(rand, digest, opts)
}

func TestWithoutASessionNothingIsSignedAndEverythingSaysSo(t *testing.T) {
	t.Parallel()
	none := errors.New("no session")
	_, err := New(Config{Signer: &moody{newKey(t), none}})
	require.ErrorIs(t, err, none, "the first CRL")

	key := &moody{Signer: newKey(t)}
	a, err := New(Config{Signer: key})
	require.NoError(t, err)
	cert := issued(t, a, "www.example.test")
	key.err = none

	_, err = a.IssueFor(newKey(t).Public(), &x509.CertificateRequest{DNSNames: []string{"other.example.test"}})
	require.ErrorIs(t, err, none)
	w := answers(t, a, post(asks(t, a, cert.SerialNumber, crypto.SHA1)))
	require.Equal(t, ocsp.InternalErrorErrorResponse, w.Body.Bytes())
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.ErrorIs(t, a.Revoke(cert.SerialNumber, 0), none)
}
