package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"

	"golang.org/x/crypto/ocsp"

	"github.com/weir-go/weir/examples/pki/clients"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// eachProtocol asks for something over each protocol, and tells how many
// signatures that took.
func eachProtocol(ctx context.Context, w io.Writer, hsm *softhsm.HSM) error {
	p, err := openWhole(wholeConfig{signer: signer{hsm.Key, hsm.Sessions()}, limits: wholeLimits()})
	if err != nil {
		return err
	}
	defer p.Close()
	hc := p.client("")
	defer hc.CloseIdleConnections()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	csr, err := clients.Request("device.example.test", key)
	if err != nil {
		return err
	}
	est := clients.EST{URL: p.urls.est, User: p.user, Password: p.password, HTTP: hc}
	var enrolled *x509.Certificate
	for _, step := range []struct {
		protocol string
		do       func() (string, error)
	}{
		{"ACME", func() (string, error) {
			chain, _, err := clients.ObtainX(ctx, p.urls.directory, hc, []string{"www.example.test"})
			if err != nil {
				return "", err
			}
			return "certificate for " + chain[0].DNSNames[0], nil
		}},
		{"EST", func() (_ string, err error) {
			if enrolled, err = est.Enrol(ctx, csr); err != nil {
				return "", err
			}
			return "certificate for " + enrolled.DNSNames[0], nil
		}},
		{"SCEP", func() (string, error) {
			request, err := clients.PrepareSCEP(ctx, p.urls.scep, p.challenge, "phone.example.test")
			if err != nil {
				return "", err
			}
			cert, err := request.Enrol(ctx)
			if err != nil {
				return "", err
			}
			return "certificate for " + cert.DNSNames[0], nil
		}},
		{"OCSP", func() (string, error) {
			response, err := clients.Status(ctx, hc, p.urls.ocsp, enrolled, p.authority.Issuer)
			if err != nil {
				return "", err
			}
			if response.Status != ocsp.Good {
				return "", fmt.Errorf("status %d", response.Status)
			}
			return "the EST certificate is good", nil
		}},
		{"CRL", func() (string, error) {
			list, err := clients.CRL(ctx, hc, p.urls.crl, p.authority.Issuer)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("number %v, %d revoked", list.Number, len(list.RevokedCertificateEntries)), nil
		}},
	} {
		before := hsm.Key.Usage().Signed
		result, err := step.do()
		if err != nil {
			return fmt.Errorf("%s: %w", step.protocol, err)
		}
		fmt.Fprintf(w, "   %-5s %-36s signatures: %d\n", step.protocol, result, hsm.Key.Usage().Signed-before)
	}
	return nil
}
