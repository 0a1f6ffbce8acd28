//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	legolog "github.com/go-acme/lego/v5/log"
	"github.com/mholt/acmez/v3"
	acmezacme "github.com/mholt/acmez/v3/acme"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/clients"
)

func quiet() { legolog.SetDefault(slog.New(slog.DiscardHandler)) }

// module returns the version of a Go module in this test.
func module(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// xcrypto waits for as long as it is told, again and again, until its context
// ends. Here that happens as soon as it has read the third refusal.
func xcrypto(t *testing.T, a *acmeCA) outcome {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hc := a.Client()
	hc.Transport = &patience{next: hc.Transport, left: 3, end: cancel}
	chain, _, err := clients.ObtainX(ctx, a.DirectoryURL, hc, []string{host})
	return outcome{chain: inPEM(chain), said: message(err), err: err}
}

func lego5(t *testing.T, a *acmeCA) outcome {
	chain, _, err := clients.ObtainLego(t.Context(), a.DirectoryURL, a.Client(), []string{host})
	return outcome{chain: inPEM(chain), said: message(err), err: err}
}

func acmezLibrary(t *testing.T, a *acmeCA) outcome {
	client := acmez.Client{
		Client:           &acmezacme.Client{Directory: a.DirectoryURL, HTTPClient: a.Client()},
		ChallengeSolvers: map[string]acmez.Solver{acmezacme.ChallengeTypeHTTP01: unattended{}},
	}
	chain, err := obtainAcmez(t.Context(), &client)
	return outcome{chain: chain, said: message(err), err: err}
}

func obtainAcmez(ctx context.Context, client *acmez.Client) (string, error) {
	accountKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	hostKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	account, err := client.NewAccount(ctx, acmezacme.Account{TermsOfServiceAgreed: true, PrivateKey: accountKey})
	if err != nil {
		return "", err
	}
	got, err := client.ObtainCertificateForSANs(ctx, account, hostKey, []string{host})
	if err != nil {
		return "", err
	}
	return string(got[0].ChainPEM), nil
}

// unattended answers challenges by doing nothing, for an authority that does
// not come and look.
type unattended struct{}

func (unattended) Present(context.Context, acmezacme.Challenge) error { return nil }
func (unattended) CleanUp(context.Context, acmezacme.Challenge) error { return nil }

// patience calls end when the last of some refusals has been read to its end,
// so that what its client does next it does without time.
type patience struct {
	next http.RoundTripper
	left int
	end  func()
}

func (p *patience) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := p.next.RoundTrip(r)
	if err != nil || !refused(res.StatusCode) {
		return res, err
	}
	if p.left--; p.left > 0 {
		return res, nil
	}
	document, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	res.Body = &lastWords{bytes.NewReader(document), p.end}
	return res, nil
}

// lastWords is a body that calls end when it is closed.
type lastWords struct {
	io.Reader
	end func()
}

func (l *lastWords) Close() error { l.end(); return nil }

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func inPEM(chain []*x509.Certificate) string {
	var b bytes.Buffer
	for _, cert := range chain {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}) // a Buffer takes all
	}
	return b.String()
}
