package clients

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/smallstep/pkcs7"
)

// EST asks an EST server, as the user of HTTP Basic (RFC 7030, section 3.2.3).
// It never tries again: an answer other than 200 is a *Refused.
type EST struct {
	URL            string // up to and without the operation
	User, Password string
	HTTP           *http.Client // has to trust the server
}

// Request returns a request for a certificate for a device of that name and its
// key, as Enrol wants it.
func Request(name string, key crypto.Signer) ([]byte, error) {
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
	}, key)
}

// CACerts returns the authority's certificates (RFC 7030, section 4.1).
func (c EST) CACerts(ctx context.Context) ([]*x509.Certificate, error) {
	answer, _, err := get(ctx, c.HTTP, c.URL+"/cacerts")
	if err != nil {
		return nil, fmt.Errorf("est: cacerts: %w", err)
	}
	return certsOnly(answer)
}

// CSRAttrs returns what the server wants to see in a request, in DER (RFC 7030,
// section 4.5.2).
func (c EST) CSRAttrs(ctx context.Context) ([]byte, error) {
	answer, _, err := get(ctx, c.HTTP, c.URL+"/csrattrs")
	if err != nil {
		return nil, fmt.Errorf("est: csrattrs: %w", err)
	}
	return decoded(answer)
}

// Enrol has csr signed (section 4.2.1).
func (c EST) Enrol(ctx context.Context, csr []byte) (*x509.Certificate, error) {
	return c.enrol(ctx, "simpleenroll", csr)
}

// Reenrol has csr signed in place of the certificate that HTTP presents to the
// server (section 4.2.2).
func (c EST) Reenrol(ctx context.Context, csr []byte) (*x509.Certificate, error) {
	return c.enrol(ctx, "simplereenroll", csr)
}

func (c EST) enrol(ctx context.Context, operation string, csr []byte) (*x509.Certificate, error) {
	answer, _, err := c.post(ctx, operation, csr)
	if err != nil {
		return nil, fmt.Errorf("est: %s: %w", operation, err)
	}
	return only(certsOnly(answer))
}

// ServerKeyGen asks for a key as well, with which csr has nothing to do but
// that it is signed (section 4.4).
func (c EST) ServerKeyGen(ctx context.Context, csr []byte) (key any, cert *x509.Certificate, err error) {
	answer, header, err := c.post(ctx, "serverkeygen", csr)
	if err != nil {
		return nil, nil, fmt.Errorf("est: serverkeygen: %w", err)
	}
	_, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return nil, nil, fmt.Errorf("est: serverkeygen: %w", err)
	}
	parts := multipart.NewReader(strings.NewReader(string(answer)), params["boundary"])
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(part.Header.Get("Content-Type"), "application/pkcs8") {
			var der []byte
			if der, err = decoded(body); err == nil {
				key, err = x509.ParsePKCS8PrivateKey(der)
			}
		} else {
			cert, err = only(certsOnly(body))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("est: serverkeygen: %w", err)
		}
	}
	if key == nil || cert == nil {
		return nil, nil, errors.New("est: serverkeygen: a key or a certificate is missing")
	}
	return key, cert, nil
}

func (c EST) post(ctx context.Context, operation string, csr []byte) ([]byte, http.Header, error) {
	body := []byte(base64.StdEncoding.EncodeToString(csr))
	return post(ctx, c.HTTP, c.URL+"/"+operation, "application/pkcs10", body,
		func(r *http.Request) { r.SetBasicAuth(c.User, c.Password) })
}

// certsOnly reads a PKCS #7 of certificates in base64.
func certsOnly(answer []byte) ([]*x509.Certificate, error) {
	der, err := decoded(answer)
	if err != nil {
		return nil, err
	}
	p7, err := pkcs7.Parse(der)
	if err != nil {
		return nil, err
	}
	return p7.Certificates, nil
}

// decoded decodes base64 in lines (RFC 8951, section 3).
func decoded(answer []byte) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(answer)), ""))
}

func only(certs []*x509.Certificate, err error) (*x509.Certificate, error) {
	if err != nil {
		return nil, err
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("%d certificates in place of one", len(certs))
	}
	return certs[0], nil
}
