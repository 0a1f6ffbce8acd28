package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"

	"github.com/globalsign/est"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/clients"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// inMemory is a signer for tests that are not about the HSM. All share a key.
var inMemory = sync.OnceValue(func() signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return signer{key, 8}
})

// openedWhole is a PKI that stays open until the test ends.
func openedWhole(t *testing.T, by signer, cfg weir.Config) *whole {
	t.Helper()
	p, err := openWhole(wholeConfig{signer: by, limits: cfg})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// visits is a client of p whose connections end with the test.
func visits(t *testing.T, p *whole, certs ...tls.Certificate) *http.Client {
	t.Helper()
	hc := p.client("", certs...)
	t.Cleanup(hc.CloseIdleConnections)
	return hc
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// issuedBy fails the test unless p issued cert, for that name.
func issuedBy(t *testing.T, p *whole, cert *x509.Certificate, name string) {
	t.Helper()
	intermediates := x509.NewCertPool()
	intermediates.AddCert(p.authority.Issuer)
	_, err := cert.Verify(x509.VerifyOptions{
		DNSName: name, Roots: p.authority.Roots(), Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	require.NoError(t, err)
}

// enrolled is a certificate that p issued over EST.
func enrolled(t *testing.T, p *whole, name string, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	csr, err := clients.Request(name, key)
	require.NoError(t, err)
	cert, err := estOf(p, visits(t, p)).Enrol(t.Context(), csr)
	require.NoError(t, err)
	return cert
}

func estOf(p *whole, hc *http.Client) clients.EST {
	return clients.EST{URL: p.urls.est, User: p.user, Password: p.password, HTTP: hc}
}

func TestEveryProtocolIssuesFromTheHSM(t *testing.T) {
	t.Parallel()
	hsm, err := softhsm.Open(softhsm.Config{Bits: 2048})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hsm.Close()) })
	p := openedWhole(t, signer{hsm.Key, hsm.Sessions()}, wholeLimits())

	signed := func(what string, n int64, do func()) {
		before := hsm.Key.Usage().Signed
		do()
		require.Equal(t, n, hsm.Key.Usage().Signed-before, "signatures for %s", what)
	}
	var cert *x509.Certificate
	signed("ACME", 1, func() {
		chain, _, err := clients.ObtainX(t.Context(), p.urls.directory, visits(t, p), []string{"www.example.test"})
		require.NoError(t, err)
		require.Len(t, chain, 2)
		require.Equal(t, p.authority.Issuer.Raw, chain[1].Raw)
		issuedBy(t, p, chain[0], "www.example.test")
	})
	signed("EST", 1, func() {
		cert = enrolled(t, p, "device.example.test", newKey(t))
		issuedBy(t, p, cert, "device.example.test")
	})
	signed("SCEP", 1, func() {
		request, err := clients.PrepareSCEP(t.Context(), p.urls.scep, p.challenge, "phone.example.test")
		require.NoError(t, err)
		cert, err := request.Enrol(t.Context())
		require.NoError(t, err)
		issuedBy(t, p, cert, "phone.example.test")
	})
	signed("OCSP", 1, func() {
		response, err := clients.Status(t.Context(), visits(t, p), p.urls.ocsp, cert, p.authority.Issuer)
		require.NoError(t, err)
		require.Equal(t, ocsp.Good, response.Status)
	})
	signed("a CRL that is published already", 0, func() {
		list, err := clients.CRL(t.Context(), visits(t, p), p.urls.crl, p.authority.Issuer)
		require.NoError(t, err)
		require.Empty(t, list.RevokedCertificateEntries)
	})
	require.Zero(t, hsm.Key.Usage().Failed)
	for _, g := range p.limiter.Snapshot().Guards {
		require.Equal(t, hsm.Sessions(), g.Slots, g.Lane)
		require.Equal(t, map[string]int{laneStatus: statusReserve}[g.Lane], g.Reserve, g.Lane)
	}
	require.Len(t, p.limiter.Snapshot().Guards, 3, "the guard and its two lanes")
}

func TestARevokedCertificateIsSoInOCSPAndInTheCRL(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	hc := visits(t, p)
	account, err := clients.RegisterOrders(t.Context(), p.urls.directory, hc)
	require.NoError(t, err)
	order, err := account.Prepare(t.Context(), "www.example.test")
	require.NoError(t, err)
	chain, err := order.Finalize(t.Context())
	require.NoError(t, err)
	other := enrolled(t, p, "other.example.test", newKey(t))
	before, err := clients.CRL(t.Context(), hc, p.urls.crl, p.authority.Issuer)
	require.NoError(t, err)

	require.NoError(t, account.Revoke(t.Context(), chain[0]))

	response, err := clients.Status(t.Context(), hc, p.urls.ocsp, chain[0], p.authority.Issuer)
	require.NoError(t, err)
	require.Equal(t, ocsp.Revoked, response.Status)
	require.Equal(t, ocsp.KeyCompromise, response.RevocationReason)
	response, err = clients.Status(t.Context(), hc, p.urls.ocsp, other, p.authority.Issuer)
	require.NoError(t, err)
	require.Equal(t, ocsp.Good, response.Status)
	list, err := clients.CRL(t.Context(), hc, p.urls.crl, p.authority.Issuer)
	require.NoError(t, err)
	require.Len(t, list.RevokedCertificateEntries, 1)
	require.Zero(t, chain[0].SerialNumber.Cmp(list.RevokedCertificateEntries[0].SerialNumber))
	require.Equal(t, ocsp.KeyCompromise, list.RevokedCertificateEntries[0].ReasonCode)
	require.Equal(t, 1, list.Number.Cmp(before.Number), "the number of the CRL grows")
}

func TestGlobalSignsClientEnrolsAndEnrolsAgain(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	key := newKey(t)
	der, err := clients.Request("device.example.test", key)
	require.NoError(t, err)
	csr, err := x509.ParseCertificateRequest(der)
	require.NoError(t, err)
	client := &est.Client{
		Host: p.host(), ExplicitAnchor: p.authority.Roots(),
		Username: p.user, Password: p.password,
	}
	cas, err := client.CACerts(t.Context())
	require.NoError(t, err)
	require.Len(t, cas, 2)
	cert, err := client.Enroll(t.Context(), csr)
	require.NoError(t, err)
	issuedBy(t, p, cert, "device.example.test")

	client.Certificates, client.PrivateKey = []*x509.Certificate{cert, p.authority.Issuer}, key
	again, err := client.Reenroll(t.Context(), csr)
	require.NoError(t, err)
	issuedBy(t, p, again, "device.example.test")
	require.NotZero(t, cert.SerialNumber.Cmp(again.SerialNumber))

	der, err = clients.Request("other.example.test", key)
	require.NoError(t, err)
	csr, err = x509.ParseCertificateRequest(der)
	require.NoError(t, err)
	_, err = client.Reenroll(t.Context(), csr)
	require.Error(t, err, "for another name")
}

func TestTheServerMakesAKeyForADeviceThatCannot(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	mine := newKey(t)
	csr, err := clients.Request("sensor.example.test", mine)
	require.NoError(t, err)
	key, cert, err := estOf(p, visits(t, p)).ServerKeyGen(t.Context(), csr)
	require.NoError(t, err)
	issuedBy(t, p, cert, "sensor.example.test")
	made := key.(*ecdsa.PrivateKey)
	require.True(t, made.PublicKey.Equal(cert.PublicKey))
	require.False(t, mine.PublicKey.Equal(cert.PublicKey))
}

func TestESTAsksForP256Keys(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	der, err := estOf(p, visits(t, p)).CSRAttrs(t.Context())
	require.NoError(t, err)
	want, err := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	require.NoError(t, err)
	require.Contains(t, string(der), string(want))
}

func TestAWrongSecretGetsNoCertificate(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	csr, err := clients.Request("device.example.test", newKey(t))
	require.NoError(t, err)
	stranger := estOf(p, visits(t, p))
	stranger.Password = "guess"
	_, err = stranger.Enrol(t.Context(), csr)
	require.Equal(t, http.StatusUnauthorized, statusOf(err), "%v", err)

	request, err := clients.PrepareSCEP(t.Context(), p.urls.scep, "guess", "phone.example.test")
	require.NoError(t, err)
	_, err = request.Enrol(t.Context())
	require.ErrorContains(t, err, "failInfo")
}

func TestAnOCSPAnswerByGetSaysHowLongItKeeps(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	hc := visits(t, p)
	for range 8 { // serial numbers differ, and with them where slashes stand in base64
		cert := enrolled(t, p, "device.example.test", newKey(t))
		response, header, err := clients.StatusByGet(t.Context(), hc, p.urls.ocsp, cert, p.authority.Issuer)
		require.NoError(t, err)
		require.Equal(t, ocsp.Good, response.Status)
		require.Equal(t, "max-age=3600, public, no-transform, must-revalidate", header.Get("Cache-Control"))
		require.Equal(t, response.NextUpdate.UTC().Format(http.TimeFormat), header.Get("Expires"))
		require.Equal(t, response.ThisUpdate.UTC().Format(http.TimeFormat), header.Get("Last-Modified"))
		require.NotEmpty(t, header.Get("ETag"))
	}
}

func TestOCSPByGetIsAnsweredAlsoWhereSlashesMeet(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	never := &x509.Certificate{SerialNumber: new(big.Int).SetBytes(bytes.Repeat([]byte{0x7f, 0xff, 0xff, 0xff}, 4))}
	request, err := ocsp.CreateRequest(never, p.authority.Issuer, nil)
	require.NoError(t, err)
	encoded := base64.StdEncoding.EncodeToString(request)
	require.Contains(t, encoded, "//")
	resp, err := visits(t, p).Get(p.urls.ocsp + "/" + encoded)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", answer)
	response, err := ocsp.ParseResponse(answer, p.authority.Issuer)
	require.NoError(t, err)
	require.Equal(t, ocsp.Unknown, response.Status)
	for _, c := range p.limiter.Snapshot().Classes {
		if c.Class == weir.ClassOCSP {
			require.EqualValues(t, 1, c.Admitted)
		}
	}
}

func TestOCSPKnowsNothingOfACertificateThatWasNeverIssued(t *testing.T) {
	t.Parallel()
	p := openedWhole(t, inMemory(), wholeLimits())
	never := &x509.Certificate{SerialNumber: big.NewInt(7)}
	response, err := clients.Status(t.Context(), visits(t, p), p.urls.ocsp, never, p.authority.Issuer)
	require.NoError(t, err)
	require.Equal(t, ocsp.Unknown, response.Status)

	_, err = clients.Status(t.Context(), visits(t, p), p.urls.ocsp, never, p.authority.Root)
	require.ErrorContains(t, err, "unauthorized", "an issuer that is not this one")
}
