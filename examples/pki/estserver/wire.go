package estserver

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/smallstep/pkcs7"
)

const (
	mimeCerts = "application/pkcs7-mime; smime-type=certs-only"
	// maxRequest is far above the size of a request for a certificate.
	maxRequest = 64 << 10
)

// request reads a PKCS #10 in base64, whatever Content-Transfer-Encoding says
// (RFC 8951, section 3.1). If there is none it answers, and returns nil.
func request(w http.ResponseWriter, r *http.Request) *x509.CertificateRequest {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/pkcs10" {
		http.Error(w, "write Content-Type: application/pkcs10", http.StatusUnsupportedMediaType)
		return nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, "the body is cut off or too long", http.StatusRequestEntityTooLarge)
		return nil
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(body)), ""))
	if err != nil {
		http.Error(w, "the body is not base64", http.StatusBadRequest)
		return nil
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil || csr.CheckSignature() != nil {
		http.Error(w, "the body is not a PKCS #10 signed by its key", http.StatusBadRequest)
		return nil
	}
	return csr
}

var oidSubjectAltName = asn1.ObjectIdentifier{2, 5, 29, 17}

// names returns the subject's alternative names, encoded; nil for none.
func names(extensions []pkix.Extension) []byte {
	for _, e := range extensions {
		if e.Id.Equal(oidSubjectAltName) {
			return e.Value
		}
	}
	return nil
}

// certsOnly puts certificates into a PKCS #7 that signs nothing (RFC 5652,
// section 5.1).
func certsOnly(certs ...*x509.Certificate) []byte {
	var raw []byte
	for _, cert := range certs {
		raw = append(raw, cert.Raw...)
	}
	der, err := pkcs7.DegenerateCertificate(raw)
	if err != nil {
		panic(err) // the certificates are parsed ones
	}
	return der
}

// encoded is DER in base64, in lines: RFC 8951, section 3, allows for them, and
// OpenSSL's decoder wants them.
func encoded(der []byte) string {
	const line = 76
	text := base64.StdEncoding.EncodeToString(der)
	var lines strings.Builder
	for len(text) > line {
		lines.WriteString(text[:line] + "\n")
		text = text[line:]
	}
	return lines.String() + text + "\n"
}

// The field says nothing, but some clients want it.
const (
	transferEncoding = "Content-Transfer-Encoding"
	inBase64         = "base64"
)

func answer(w http.ResponseWriter, kind string, der []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set(transferEncoding, inBase64)
	io.WriteString(w, encoded(der))
}

type part struct {
	kind string
	der  []byte
}

// answerParts answers with a multipart/mixed body (RFC 7030, section 4.4.2).
func answerParts(w http.ResponseWriter, parts ...part) {
	body := multipart.NewWriter(w)
	w.Header().Set("Content-Type", "multipart/mixed; boundary="+body.Boundary())
	for _, p := range parts {
		header := textproto.MIMEHeader{"Content-Type": {p.kind}, transferEncoding: {inBase64}}
		if to, err := body.CreatePart(header); err == nil {
			io.WriteString(to, encoded(p.der))
		}
	}
	body.Close()
}

// failed answers that the signer failed, and not how.
func failed(w http.ResponseWriter) {
	http.Error(w, "the authority failed", http.StatusInternalServerError)
}
