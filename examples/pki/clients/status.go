package clients

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"

	"golang.org/x/crypto/ocsp"
)

// Status asks an OCSP responder about cert by POST (RFC 6960, appendix A.1) and
// verifies the answer. An answer other than 200 is a *Refused.
func Status(ctx context.Context, hc *http.Client, responder string, cert, issuer *x509.Certificate) (*ocsp.Response, error) {
	request, err := statusRequest(cert, issuer)
	if err != nil {
		return nil, fmt.Errorf("ocsp: %w", err)
	}
	answer, _, err := post(ctx, hc, responder, "application/ocsp-request", request)
	if err != nil {
		return nil, fmt.Errorf("ocsp: %w", err)
	}
	return ocsp.ParseResponseForCert(answer, cert, issuer)
}

// StatusByGet is Status in the form that caches can keep, and tells for how long
// by the header.
func StatusByGet(ctx context.Context, hc *http.Client, responder string, cert, issuer *x509.Certificate) (*ocsp.Response, http.Header, error) {
	request, err := statusRequest(cert, issuer)
	if err != nil {
		return nil, nil, fmt.Errorf("ocsp: %w", err)
	}
	answer, header, err := get(ctx, hc, responder+"/"+url.PathEscape(base64.StdEncoding.EncodeToString(request)))
	if err != nil {
		return nil, nil, fmt.Errorf("ocsp: %w", err)
	}
	response, err := ocsp.ParseResponseForCert(answer, cert, issuer)
	return response, header, err
}

func statusRequest(cert, issuer *x509.Certificate) ([]byte, error) {
	return ocsp.CreateRequest(cert, issuer, &ocsp.RequestOptions{Hash: crypto.SHA256})
}

// CRL fetches a list of revoked certificates and verifies it.
func CRL(ctx context.Context, hc *http.Client, from string, issuer *x509.Certificate) (*x509.RevocationList, error) {
	der, _, err := get(ctx, hc, from)
	if err != nil {
		return nil, fmt.Errorf("crl: %w", err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return nil, fmt.Errorf("crl: %w", err)
	}
	if err := list.CheckSignatureFrom(issuer); err != nil {
		return nil, fmt.Errorf("crl: %w", err)
	}
	return list, nil
}
