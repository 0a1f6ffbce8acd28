package problem

import "net/http"

// Plain writes [Rejection.Detail] and a newline as text/plain.
func Plain(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce, rej.Help = "", ""
	b := newBody()
	b.buf = rej.appendDetail(b.buf)
	b.buf = append(b.buf, '\n')
	send(w, r, &rej, typeText, b)
}

// EST writes plain text, the form that RFC 7030 section 4.2.3 gives to an error
// that is not a CMC response. It is not a 202 with Retry-After: by the same
// section that says the request was accepted.
func EST(w http.ResponseWriter, r *http.Request, rej Rejection) {
	Plain(w, r, rej)
}

// SCEP writes plain text. A refusal in SCEP's own terms (pkiStatus FAILURE, RFC
// 8894 section 3.2.1.3) would be a message signed by the CA, so to middleware
// the HTTP status is the only voice; the text is for logs.
func SCEP(w http.ResponseWriter, r *http.Request, rej Rejection) {
	Plain(w, r, rej)
}

// Empty writes the header of a refusal and no document: the least that can be
// sent. Content-Length is 0 and there is no Content-Type.
func Empty(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce, rej.Help = "", ""
	send(w, r, &rej, "", newBody())
}
