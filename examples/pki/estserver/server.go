// Package estserver serves EST (RFC 7030) with GlobalSign's library, on an
// authority of the caller's.
package estserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/globalsign/est"

	"github.com/weir-go/weir/examples/pki/authority"
)

// Prefix is where EST lives on every host (RFC 7030, section 3.2.2).
const Prefix = "/.well-known/est/"

// Config says who may enrol, and where.
type Config struct {
	Authority      *authority.Authority
	User, Password string // HTTP Basic, wanted for whatever issues
}

// New returns a handler for cacerts, csrattrs, simpleenroll, simplereenroll and
// serverkeygen, each with and without a label. Re-enrolment wants a client
// certificate besides, so the server's tls.Config must request one.
//
// The library takes X-Forwarded-For at its word in what it logs: whatever
// decides by the client's address belongs in front of it.
func New(cfg Config) (http.Handler, error) {
	router, err := est.NewRouter(&est.ServerConfig{
		CA: ca{cfg.Authority},
		CheckBasicAuth: func(_ context.Context, _ *http.Request, _, user, password string) error {
			if !same(user, cfg.User) || !same(password, cfg.Password) {
				return errors.New("wrong user or password")
			}
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("estserver: %w", err)
	}
	return encoded(router), nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// encoded says of each enrolment that it is in base64, which it always is. RFC
// 8951, section 3.1, has clients leave the field out; the library answers 415
// to those.
func encoded(next http.Handler) http.Handler {
	const field = "Content-Transfer-Encoding"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get(field) == "" {
			r = r.Clone(r.Context())
			r.Header.Set(field, "base64")
		}
		next.ServeHTTP(w, r)
	})
}

// IsEnrolment reports whether a path of EST's has something signed.
func IsEnrolment(path string) bool {
	return strings.HasSuffix(path, "enroll") || strings.HasSuffix(path, "/serverkeygen")
}

// ca is the authority as the library wants it.
type ca struct{ *authority.Authority }

func (c ca) CACerts(context.Context, string, *http.Request) ([]*x509.Certificate, error) {
	return []*x509.Certificate{c.Issuer, c.Root}, nil
}

// CSRAttrs asks for keys on P-256 (RFC 7030, section 4.5.2).
func (c ca) CSRAttrs(context.Context, string, *http.Request) (est.CSRAttrs, error) {
	return est.CSRAttrs{Attributes: []est.Attribute{{
		Type:   asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1},                           // ecPublicKey
		Values: est.AttributeValueSET{asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}}, // P-256
	}}}, nil
}

func (c ca) Enroll(_ context.Context, csr *x509.CertificateRequest, _ string, _ *http.Request) (*x509.Certificate, error) {
	return c.Issue(csr)
}

func (c ca) Reenroll(_ context.Context, _ *x509.Certificate, csr *x509.CertificateRequest, _ string, _ *http.Request) (*x509.Certificate, error) {
	return c.Issue(csr)
}

// ServerKeyGen makes the key that the client has none of, in software: it is to
// be sent away.
func (c ca) ServerKeyGen(_ context.Context, csr *x509.CertificateRequest, _ string, _ *http.Request) (*x509.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	cert, err := c.IssueFor(key.Public(), csr)
	return cert, pkcs8, err
}

// TPMEnroll is GlobalSign's own, and not offered.
func (ca) TPMEnroll(context.Context, *x509.CertificateRequest, []*x509.Certificate, []byte, []byte, string, *http.Request) ([]byte, []byte, []byte, error) {
	return nil, nil, nil, notOffered{}
}

type notOffered struct{}

func (notOffered) StatusCode() int { return http.StatusNotImplemented }
func (notOffered) Error() string   { return "not offered here" }
func (notOffered) RetryAfter() int { return 0 }
