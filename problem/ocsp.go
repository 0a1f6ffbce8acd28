package problem

import "net/http"

// tryLater is OCSPResponse { responseStatus tryLater(3) } in DER, RFC 6960
// section 4.2.1. It needs no signature and has no responseBytes. A string, so
// that no ResponseWriter can change it for the next response.
const tryLater = "\x30\x03\x0A\x01\x03"

// OCSP writes the unsigned tryLater response of RFC 6960 section 2.3 as
// application/ocsp-response: five bytes, never HTML or JSON, which relying
// parties would report as a broken responder.
//
// The status stays 429 or 503 although RFC 6960 would let it travel under 200.
// Servers that staple then see a failure in the status as well and keep the
// good response they hold, and caches do not take it for the answer.
func OCSP(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce, rej.Help = "", ""
	b := newBody()
	b.buf = append(b.buf, tryLater...)
	send(w, r, &rej, "application/ocsp-response", b)
}
