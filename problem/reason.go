package problem

import "net/http"

// The reasons for a refusal: a closed, low-cardinality list, the same words in
// documents, metric labels and logs.
const (
	ReasonRate         = "rate_limited"  // a tier, window or ceiling is spent
	ReasonQueueFull    = "queue_full"    // the guard's queue has no place left
	ReasonTimeout      = "timeout"       // no slot came free within the queue timeout
	ReasonCanceled     = "canceled"      // the caller left while it waited
	ReasonDeadline     = "deadline"      // no slot could come in time, so it did not wait for one
	ReasonBackendShare = "backend_share" // the guard's slots for one backend are taken
	ReasonLocked       = "locked"        // too many failed authentications
	ReasonDenied       = "denied"        // refused by policy, whatever the rate
	ReasonUnavailable  = "unavailable"   // the limiter cannot decide and is told to refuse
)

// Problem types of draft-ietf-httpapi-ratelimit-headers section 5. They are
// used rather than URNs of our own because a client library can know them; the
// draft asks IANA for these very URIs. A type is an identifier (RFC 9457
// section 3.1.1), nobody needs to fetch it.
const (
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeAbnormal = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
	typeBlank    = "about:blank" // RFC 9457 section 4.2.1: no more than the status says
)

// A cause is what the documents say about a reason. All strings are plain ASCII
// without markup, so that no writer has to escape them.
type cause struct {
	problem  string // RFC 9457 type
	title    string // RFC 9457 title: the same for every occurrence of the type; "" is the status text
	sentence string // what happened, without the wait
	heading  string // the same as the headline of a page
	text     string // and what the page says below it
}

// Read-only after initialisation.
var (
	causeQuota = cause{typeQuota, "Quota Exceeded",
		"Too many requests.",
		"Too many requests", "This service limits how many requests it takes in a given time, and the limit is reached."}
	causeBusy = cause{typeCapacity, "Temporary Reduced Capacity",
		"The service is busy.",
		"The service is busy", "It has more work than it can take right now."}
	causeLocked = cause{typeAbnormal, "Abnormal Usage Detected",
		"Too many failed attempts, access is locked for now.",
		"Locked for now", "There were too many failed attempts."}
	causeDenied = cause{typeBlank, "",
		"This request is refused by policy.",
		"Request refused", "The rules of this service do not allow this request."}
	causeUnavailable = cause{typeBlank, "",
		"The service is temporarily unavailable.",
		"Temporarily unavailable", "The service cannot take this request right now."}
	causeOther = cause{typeBlank, "",
		"The request was refused.",
		"Request refused", "The service did not take this request."}
)

// cause finds what to say. Quota, overload, lockout and a limiter that cannot
// decide are told apart, because a client should do different things: slow
// down, just wait, ask a person, report an outage.
func (rej Rejection) cause() *cause {
	switch rej.Reason {
	case ReasonRate:
		return &causeQuota
	case ReasonQueueFull, ReasonTimeout, ReasonCanceled, ReasonDeadline, ReasonBackendShare:
		return &causeBusy
	case ReasonLocked:
		return &causeLocked
	case ReasonDenied:
		return &causeDenied
	case ReasonUnavailable:
		return &causeUnavailable
	case "":
		if rej.StatusCode() >= 500 {
			return &causeUnavailable
		}
		return &causeQuota
	}
	return &causeOther
}

// titleFor returns the RFC 9457 title under a status. With about:blank it is
// the status phrase (RFC 9457 section 4.2.1).
func (c *cause) titleFor(status int) string {
	if c.title != "" {
		return c.title
	}
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Refused"
}
