package acmeserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/acme"
)

// An office signs with a key of its own, or does not.
type office struct {
	key    *ecdsa.PrivateKey
	issuer *x509.Certificate
	before func() error // asked before each signature; nil agrees

	mu      sync.Mutex // guards what follows
	revoked map[string]int
}

func (o *office) Issue(csr *x509.CertificateRequest) (*x509.Certificate, error) {
	if o.before != nil {
		if err := o.before(); err != nil {
			return nil, err
		}
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}, o.issuer, csr.PublicKey, o.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func (o *office) Chain() []*x509.Certificate {
	if o.issuer == nil {
		return nil
	}
	return []*x509.Certificate{o.issuer}
}

func (o *office) Revoke(serial *big.Int, reason int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revoked[serial.String()] = reason
	return nil
}

// renewalInfoURL is where RFC 9773, section 4.1, has the information about cert.
func renewalInfoURL(client *acme.Client, cert *x509.Certificate) string {
	id := base64.RawURLEncoding.EncodeToString(cert.AuthorityKeyId) + "." +
		base64.RawURLEncoding.EncodeToString(cert.SerialNumber.Bytes())
	return strings.TrimSuffix(client.DirectoryURL, PathDirectory) + PathRenewalInfo + id
}

// reissuing is an authority whose certificates o signs, and a client with an
// account there that never tries again.
func reissuing(t *testing.T, o *office) *acme.Client {
	t.Helper()
	pebble, err := New(nil)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "office"}, SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, SubjectKeyId: pebble.KeyID,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	o.key, o.revoked = key, map[string]int{}
	o.issuer, err = x509.ParseCertificate(der)
	require.NoError(t, err)

	srv := httptest.NewTLSServer(pebble.SignedBy(o, nil))
	t.Cleanup(srv.Close)
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	client := &acme.Client{
		Key: accountKey, HTTPClient: srv.Client(), DirectoryURL: srv.URL + PathDirectory,
		RetryBackoff: func(int, *http.Request, *http.Response) time.Duration { return -1 },
	}
	_, err = client.Register(t.Context(), &acme.Account{}, acme.AcceptTOS)
	require.NoError(t, err)
	return client
}

// ordered is an order that waits to be finalized, and the request to do so with.
func ordered(t *testing.T, client *acme.Client) (*acme.Order, []byte) {
	t.Helper()
	order, err := client.AuthorizeOrder(t.Context(), acme.DomainIDs("www.example.test"))
	require.NoError(t, err)
	for _, url := range order.AuthzURLs {
		authz, err := client.GetAuthorization(t.Context(), url)
		require.NoError(t, err)
		_, err = client.Accept(t.Context(), authz.Challenges[0])
		require.NoError(t, err)
		_, err = client.WaitAuthorization(t.Context(), url)
		require.NoError(t, err)
	}
	order, err = client.WaitOrder(t.Context(), order.URI)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{"www.example.test"}}, key)
	require.NoError(t, err)
	return order, csr
}

func TestWhatIsIssuedIsSignedByTheIssuerAndCanBeRevokedAndRenewed(t *testing.T) {
	t.Parallel()
	o := new(office)
	client := reissuing(t, o)
	order, csr := ordered(t, client)
	ders, _, err := client.CreateCertFromOrder(t.Context(), order, csr, true)
	require.NoError(t, err)
	require.Len(t, ders, 2)
	require.Equal(t, o.issuer.Raw, ders[1])
	cert, err := x509.ParseCertificate(ders[0])
	require.NoError(t, err)
	require.NoError(t, cert.CheckSignatureFrom(o.issuer))

	info, err := client.HTTPClient.Get(renewalInfoURL(client, cert))
	require.NoError(t, err)
	require.NoError(t, info.Body.Close())
	require.Equal(t, http.StatusOK, info.StatusCode, "renewal information knows the issuer and the certificate")

	require.NoError(t, client.RevokeCert(t.Context(), nil, ders[0], acme.CRLReasonSuperseded))
	require.Equal(t, map[string]int{cert.SerialNumber.String(): int(acme.CRLReasonSuperseded)}, o.revoked)
}

// While the issuer signs, Pebble's own certificate is there already, and the
// order says where.
func TestWhatPebbleSignedIsGivenToNobody(t *testing.T) {
	t.Parallel()
	var client *acme.Client
	var order *acme.Order
	var fetched error
	o := new(office)
	o.before = func() error {
		if order == nil {
			return nil
		}
		early, err := client.GetOrder(context.Background(), order.URI)
		if err != nil {
			return err
		}
		_, fetched = client.FetchCert(context.Background(), early.CertURL, true)
		return nil
	}
	client = reissuing(t, o)
	ready, csr := ordered(t, client)
	order = ready
	_, _, err := client.CreateCertFromOrder(t.Context(), ready, csr, true)
	require.NoError(t, err)
	var problem *acme.Error
	require.ErrorAs(t, fetched, &problem)
	require.Equal(t, http.StatusNotFound, problem.StatusCode)
}

func TestAnIssuerThatFailsIsAnErrorOfTheServers(t *testing.T) {
	t.Parallel()
	o := &office{before: func() error { return errors.New("no session") }}
	client := reissuing(t, o)
	order, csr := ordered(t, client)
	_, _, err := client.CreateCertFromOrder(t.Context(), order, csr, true)
	var problem *acme.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, http.StatusInternalServerError, problem.StatusCode)
	require.Equal(t, "urn:ietf:params:acme:error:serverInternal", problem.ProblemType)
	require.NotEmpty(t, problem.Header.Get("Replay-Nonce"))
	require.NotContains(t, problem.Detail, "session")
}

func TestABodyThatIsTooLongIsRefused(t *testing.T) {
	t.Parallel()
	pebble, err := New(nil)
	require.NoError(t, err)
	for _, path := range []string{PathRevokeCert, PathAuthz + "1", PathNewOrder, PathFinalize + "1"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(strings.Repeat(" ", maxJWS+1)))
		pebble.SignedBy(new(office), nil).ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestEntityTooLarge, w.Code, path)
	}
}

// Without turns they come to wait for each other, if not at each run.
func TestOrdersAndTheirAuthorizationsAtOnceAllComeToAnEnd(t *testing.T) {
	t.Parallel()
	client := reissuing(t, new(office))
	order, err := client.AuthorizeOrder(t.Context(), acme.DomainIDs("www.example.test"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 5 {
				_, err := client.AuthorizeOrder(t.Context(), acme.DomainIDs("www.example.test"))
				assert.NoError(t, err)
			}
		})
		wg.Go(func() {
			for range 20 {
				_, err := client.GetAuthorization(t.Context(), order.AuthzURLs[0])
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
}
