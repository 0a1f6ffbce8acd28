package problem

import (
	"net/http"
	"strconv"
)

// JSON writes an RFC 9457 problem document for API clients.
//
// Its type tells a spent quota, an overloaded service and a lock apart, by the
// identifiers of the IETF RateLimit draft (quota-exceeded,
// temporary-reduced-capacity, abnormal-usage-detected); other reasons are
// about:blank. Members beyond the standard ones:
//
//	reason             one of the Reason constants; absent if unknown
//	class              endpoint class; absent if unknown
//	violated-policies  a list with the tier that refused; absent if there is none
//	retry_after_secs   the number in Retry-After
//
// A lockout (ReasonLocked) carries three more for clients that know nothing of
// RFC 9457: "ok": false, "error": "locked" and "message", equal to detail.
func JSON(w http.ResponseWriter, r *http.Request, rej Rejection) {
	rej.Nonce = ""
	b := newBody()
	b.buf = rej.appendProblem(b.buf)
	send(w, r, &rej, typeProblemJSON, b)
}

func (rej *Rejection) appendProblem(dst []byte) []byte {
	c, status := rej.cause(), rej.StatusCode()

	dst = append(dst, `{"type":"`...)
	dst = append(dst, c.problem...)
	dst = append(dst, `","title":`...)
	dst = appendJSON(dst, c.titleFor(status)) // "I'm a teapot"
	dst = append(dst, `,"status":`...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(dst, `,"detail":"`...)
	dst = rej.appendDetail(dst)
	dst = append(dst, '"')
	if rej.Reason != "" {
		dst = append(dst, `,"reason":`...)
		dst = appendJSON(dst, rej.Reason)
	}
	if rej.Class != "" {
		dst = append(dst, `,"class":`...)
		dst = appendJSON(dst, rej.Class)
	}
	if rej.Tier != "" {
		// The hyphen is the draft's own, against the advice of RFC 9457.
		dst = append(dst, `,"violated-policies":[`...)
		dst = appendJSON(dst, rej.Tier)
		dst = append(dst, ']')
	}
	dst = append(dst, `,"retry_after_secs":`...)
	dst = strconv.AppendInt(dst, RetryAfterSeconds(rej.RetryAfter), 10)
	if rej.Reason == ReasonLocked {
		dst = append(dst, `,"ok":false,"error":"locked","message":"`...) // requirement L7
		dst = rej.appendDetail(dst)
		dst = append(dst, '"')
	}
	return append(dst, "}\n"...)
}
