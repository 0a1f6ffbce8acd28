package problem

import (
	"net/http"
	"time"
)

// A Rejection is one refusal, before it takes a form.
//
// The zero value is a valid refusal: 429, a wait of one second, nothing said
// about the cause. A Rejection holds no address, account or other caller's
// data by design; Class, Tier and Reason reach the document (escaped), so they
// must be words of the configuration and never of a request.
//
// Copy it freely. It is safe for concurrent use as long as nobody assigns to it.
type Rejection struct {
	// Status is the HTTP status: 429 for a rate or a lock, 503 for
	// concurrency. 0 means 429, as does anything outside 400…599: a refusal
	// must not be mistaken for an answer. See [Rejection.StatusCode].
	Status int

	// Reason is one of the Reason constants. Another word is passed on as it
	// is and described by the status alone. "" is rate_limited, or
	// unavailable under a 5xx status.
	Reason string

	// Class is the endpoint class, such as "acme_new_order"; "" leaves it out.
	Class string

	// Tier is the tier that refused; "" for the guard.
	Tier string

	// RetryAfter is the wait until the request would pass. It is rounded by
	// [RetryAfterSeconds]; zero and below count as one second.
	RetryAfter time.Duration

	// Nonce is a fresh ACME anti-replay nonce. Only [ACME] sends it, and only
	// in answer to a POST. "" for none; a value outside the base64url alphabet
	// (RFC 8555 section 6.5.1) is left out.
	Nonce string

	// Help is the http or https URL of a page for people. [ACME], [JSON] and
	// [HTML] send it as Link: <…>;rel="help", HTML also as a link in the page.
	// "" for none; a value that fails [ValidHelp] is left out.
	Help string
}

// A Writer answers r with rej. It calls WriteHeader exactly once, writes a body
// unless r is a HEAD request, and does not read the body of r. It must be safe
// for concurrent use. To write one, start from [Rejection.SetHeaders].
type Writer func(w http.ResponseWriter, r *http.Request, rej Rejection)

// StatusCode returns the status to send: Status where that is a client or
// server error (400…599), otherwise 429 Too Many Requests.
//
// A status of 200 in particular is never sent: RFC 5019 caches would keep an
// OCSP tryLater under it as if it were the answer.
func (rej Rejection) StatusCode() int {
	if rej.Status < 400 || rej.Status > 599 {
		return http.StatusTooManyRequests
	}
	return rej.Status
}

// Detail returns the refusal as English sentences for a person, with the wait
// in words: "Too many requests. Please try again in 2 minutes." The words never
// promise less than Retry-After. It allocates.
func (rej Rejection) Detail() string {
	var scratch [160]byte
	return string(rej.appendDetail(scratch[:0]))
}

// appendDetail appends what Detail returns. The text is free of characters that
// JSON, XML or HTML would escape, which a test holds: callers append it as is.
func (rej Rejection) appendDetail(dst []byte) []byte {
	dst = append(dst, rej.cause().sentence...)
	if rej.saysWhen() {
		dst = append(dst, " Please try again "...)
		dst = appendWait(dst, RetryAfterSeconds(rej.RetryAfter))
		dst = append(dst, '.')
	}
	return dst
}

// saysWhen reports whether the sentence names the wait. A denial is for good as
// far as the caller is concerned, so no sentence invites it back; its
// Retry-After is there to keep clients that return anyway from hammering.
func (rej Rejection) saysWhen() bool { return rej.Reason != ReasonDenied }
