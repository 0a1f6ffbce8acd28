package problem

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"unicode/utf8"
)

// maxResource bounds the Resource element, in bytes. A bucket and a key fit
// (63 + 1024 and their slashes); a caller that sends a longer path does not get
// all of it back.
const maxResource = 1200

const keyRequestID = "X-Amz-Request-Id"

// S3 writes the error document of the S3 REST API: 503 with the code SlowDown,
// which is how S3 itself says "too fast" and what its client libraries retry,
// so a Rejection of 429 leaves as 503 too (requirement L7). Only 401 and 403
// stay what they are, both as 403 AccessDenied. The message of a lockout names
// it and says how long it lasts.
//
// The wait goes out twice, in seconds as Retry-After and in milliseconds as
// x-amz-retry-after, the one that recent AWS libraries read. The request id is
// the X-Amz-Request-Id already in the response header, or a random one that is
// then set there. Resource is the path of the request, escaped and cut to
// 1200 bytes.
func S3(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce, rej.Help = "", ""
	code, message := "SlowDown", "Please reduce your request rate."
	switch rej.StatusCode() {
	case http.StatusUnauthorized, http.StatusForbidden:
		rej.Status, code, message = http.StatusForbidden, "AccessDenied", "Access Denied"
	default:
		rej.Status = http.StatusServiceUnavailable
	}

	h := w.Header()
	id := h.Get(keyRequestID)
	if id == "" {
		id = requestID()
		h.Set(keyRequestID, id)
	}
	h.Set("X-Amz-Retry-After", strconv.FormatInt(RetryAfterSeconds(rej.RetryAfter)*1000, 10))

	b := newBody()
	b.buf = append(b.buf, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>"...)
	b.buf = append(b.buf, code...)
	b.buf = append(b.buf, "</Code><Message>"...)
	if rej.Reason == ReasonLocked {
		b.buf = rej.appendDetail(b.buf) // requirement L7: names the lock and its length
	} else {
		b.buf = append(b.buf, message...)
	}
	b.buf = append(b.buf, "</Message><Resource>"...)
	if r.URL != nil {
		b.buf = appendMarkup(b.buf, cutText(r.URL.Path, maxResource))
	}
	b.buf = append(b.buf, "</Resource><RequestId>"...)
	b.buf = appendMarkup(b.buf, id)
	b.buf = append(b.buf, "</RequestId></Error>\n"...)
	send(w, r, &rej, "application/xml", b)
}

// requestID returns 16 hexadecimal digits, the form S3 uses. It only has to be
// findable in a log: nothing trusts it, so it costs no entropy.
func requestID() string {
	const digits = "0123456789ABCDEF"
	var id [16]byte
	n := rand.Uint64()
	for i := range id {
		id[i] = digits[n&0xF]
		n >>= 4
	}
	return string(id[:])
}

// cutText returns at most limit bytes of s and does not split a character.
func cutText(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for n := limit; n > limit-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:limit] // not UTF-8 to begin with
}
