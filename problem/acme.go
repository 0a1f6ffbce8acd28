package problem

import (
	"net/http"
	"strconv"
)

// ACME error types, RFC 8555 section 6.7.
const (
	acmeRateLimited  = "urn:ietf:params:acme:error:rateLimited"
	acmeUnauthorized = "urn:ietf:params:acme:error:unauthorized"
)

// ACME writes the problem document of RFC 8555 section 6.7: type, detail and
// status, where status equals the HTTP status and detail tells a person how
// long to wait.
//
// The type is rateLimited (requirement R2) under 503 too. serverInternal would
// do by the letter, and ACME clients were seen to treat the two alike; but
// rateLimited is what the largest public CA sends with "service busy", and
// client libraries hand out Retry-After by this type whatever the status. Only
// 401 and 403, which no wait will change, are unauthorized.
//
// Replay-Nonce is sent in answer to POST only: with a nonce in hand, clients
// take a refused newNonce (HEAD or GET) for a granted one and hurry on.
func ACME(w http.ResponseWriter, r *http.Request, rej Rejection) {
	if r.Method != http.MethodPost {
		rej.Nonce = ""
	}
	status := rej.StatusCode()
	acmeType := acmeRateLimited
	if status == http.StatusUnauthorized || status == http.StatusForbidden {
		acmeType = acmeUnauthorized
	}

	b := newBody()
	b.buf = append(b.buf, `{"type":"`...)
	b.buf = append(b.buf, acmeType...)
	b.buf = append(b.buf, `","detail":"`...)
	b.buf = rej.appendDetail(b.buf)
	b.buf = append(b.buf, `","status":`...)
	b.buf = strconv.AppendInt(b.buf, int64(status), 10)
	b.buf = append(b.buf, "}\n"...)
	send(w, r, &rej, typeProblemJSON, b)
}
