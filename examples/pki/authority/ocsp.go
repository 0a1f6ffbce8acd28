package authority

import (
	"bytes"
	"crypto"
	_ "crypto/sha256" // hashes that a request may name its issuer by
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/crypto/ocsp"
)

const (
	// statusLifetime is the time from an OCSP response to its nextUpdate.
	statusLifetime = time.Hour
	// maxOCSPRequest is far above what one certificate's request comes to.
	maxOCSPRequest = 10 << 10
)

// OCSP answers requests for the status of a certificate, each with a signature
// of its own. It takes POST, and GET with the request in base64 behind
// prefix (RFC 6960, appendix A.1), and sets the header fields for caches of RFC
// 5019, section 6.2. It must see the path as it came: in base64 two slashes
// may meet, and http.ServeMux would redirect that.
func (a *Authority) OCSP(prefix string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, status := ocspRequest(r, prefix)
		if status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		now := time.Now().Truncate(time.Second)
		answer, err := a.status(request, now)
		if err != nil {
			answer = ocsp.InternalErrorErrorResponse
			if unsigned := (*ocspError)(nil); errors.As(err, &unsigned) {
				answer = unsigned.answer
			}
			w.Header().Set("Cache-Control", "no-store") // unsigned answers are nobody's to keep
		} else if r.Method == http.MethodGet {
			cacheable(w.Header(), answer, now)
		}
		w.Header().Set("Content-Type", "application/ocsp-response")
		w.Write(answer)
	})
}

// ocspRequest takes the DER of the request out of r, or says with which HTTP
// status to refuse it.
func ocspRequest(r *http.Request, prefix string) ([]byte, int) {
	switch r.Method {
	case http.MethodGet:
		encoded, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), prefix))
		if err != nil {
			return nil, http.StatusBadRequest
		}
		// Some clients leave the + of base64 as it is, and some hop has made a
		// space of it by then.
		request, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(strings.TrimPrefix(encoded, "/"), " ", "+"))
		if err != nil {
			return nil, http.StatusBadRequest
		}
		return request, http.StatusOK
	case http.MethodPost:
		if r.Header.Get("Content-Type") != "application/ocsp-request" {
			return nil, http.StatusUnsupportedMediaType
		}
		request, err := io.ReadAll(io.LimitReader(r.Body, maxOCSPRequest+1))
		if err != nil || len(request) > maxOCSPRequest {
			return nil, http.StatusRequestEntityTooLarge
		}
		return request, http.StatusOK
	}
	return nil, http.StatusMethodNotAllowed
}

// ocspError is an error that RFC 6960, section 2.3, has an unsigned answer for.
type ocspError struct {
	answer []byte
	reason string
}

func (e *ocspError) Error() string { return "authority: ocsp: " + e.reason }

// status returns the signed response to a request, as of now. The error is an
// *ocspError or the signer's.
func (a *Authority) status(der []byte, now time.Time) ([]byte, error) {
	request, err := ocsp.ParseRequest(der)
	if err != nil {
		return nil, &ocspError{ocsp.MalformedRequestErrorResponse, err.Error()}
	}
	if !a.asked(request) {
		return nil, &ocspError{ocsp.UnauthorizedErrorResponse, "a certificate of another issuer"}
	}
	template := ocsp.Response{
		Status:       ocsp.Unknown,
		SerialNumber: request.SerialNumber,
		ThisUpdate:   now,
		NextUpdate:   now.Add(statusLifetime),
		IssuerHash:   request.HashAlgorithm,
	}
	if f, ok := a.fateOf(request.SerialNumber); ok {
		template.Status = ocsp.Good
		if !f.revoked.IsZero() {
			template.Status, template.RevokedAt, template.RevocationReason = ocsp.Revoked, f.revoked, f.reason
		}
	}
	answer, err := ocsp.CreateResponse(a.Issuer, a.Issuer, template, a.signer)
	if err != nil {
		return nil, fmt.Errorf("authority: ocsp: %w", err)
	}
	return answer, nil
}

// fateOf returns what is known of a certificate.
func (a *Authority) fateOf(serial *big.Int) (fate, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if f := a.known[serial.String()]; f != nil {
		return *f, true
	}
	return fate{}, false
}

// asked reports whether the request is about a certificate of this issuer
// (RFC 6960, section 4.1.1: by hashes of its name and of its key).
func (a *Authority) asked(r *ocsp.Request) bool {
	return r.HashAlgorithm.Available() &&
		bytes.Equal(r.IssuerNameHash, hash(r.HashAlgorithm, a.Issuer.RawSubject)) &&
		bytes.Equal(r.IssuerKeyHash, hash(r.HashAlgorithm, keyBits(a.Issuer)))
}

func hash(by crypto.Hash, of []byte) []byte {
	h := by.New()
	h.Write(of)
	return h.Sum(nil)
}

// keyBits is the content of the certificate's subjectPublicKey BIT STRING.
func keyBits(cert *x509.Certificate) []byte {
	var info struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(cert.RawSubjectPublicKeyInfo, &info); err != nil {
		return nil // cannot be: the certificate has been parsed
	}
	return info.Key.RightAlign()
}

// cacheable sets what RFC 5019, section 6.2, wants on the answer to a GET.
func cacheable(h http.Header, answer []byte, now time.Time) {
	h.Set("Cache-Control", fmt.Sprintf("max-age=%d, public, no-transform, must-revalidate", int(statusLifetime/time.Second)))
	h.Set("Last-Modified", now.UTC().Format(http.TimeFormat))
	h.Set("Expires", now.Add(statusLifetime).UTC().Format(http.TimeFormat))
	h.Set("ETag", fmt.Sprintf(`"%x"`, hash(crypto.SHA256, answer)))
}
