package quota

import (
	"net/http"
	"strconv"
	"time"
)

// Header keys, all in the canonical form that they have in the map; on the wire
// case does not matter.
const (
	keyLimit      = "X-Ratelimit-Limit"
	keyRemaining  = "X-Ratelimit-Remaining"
	keyReset      = "X-Ratelimit-Reset"
	keyRateLimit  = "Ratelimit"
	keyPolicy     = "Ratelimit-Policy"
	keyRetryAfter = "Retry-After"
)

// Headers says which fields go into which responses. It is a plain value; the
// zero Headers writes nothing.
type Headers struct {
	Mode Mode
	IETF bool // RateLimit and RateLimit-Policy as well
}

// Wanted reports whether a response carries the fields, so that a caller who
// would have to gather quotas for [Headers.Write] need not.
func (h Headers) Wanted(refused bool) bool {
	return h.Mode == Always || h.Mode == Rejected && refused
}

// Write sets X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset for
// tightest and, with IETF, RateLimit for tightest and RateLimit-Policy for all
// quotas, tightest among them; for tightest alone if all is empty. now is the
// wall clock. It writes nothing if the Mode is Off or tightest has no name,
// that is, if the request met no quota. It retains neither header nor all.
//
// It is for before the handler runs: what a handler then sets itself replaces
// it. On a refusal it comes after Retry-After, which bounds the effective
// window.
//
// Fields that stand already are those of an outer limiter, which the client
// meets first. The three X-RateLimit fields change together or not at all:
// they stay unless X-RateLimit-Remaining is a number, and more than ours; the
// response then tells of the quota that is used up first. RateLimit goes with
// them: it is replaced if they are, and left as it is, or left out, if they
// stay; alone, it stays. The policies hold either way, so RateLimit-Policy gets
// ours as a further line (RFC 9651, section 3.1), unless it stands there or
// what stands is no list of names: older drafts of the same field would become
// unreadable. Writing twice is the same as once.
func (h Headers) Write(header http.Header, now time.Time, tightest Quota, all []Quota) {
	if h.Mode == Off || tightest.Name == "" {
		return
	}
	var (
		room  [256]byte // enough for five short policies
		text  = room[:0]
		parts parts
		outer = compare(header, tightest.remaining())
	)
	if outer != tighter {
		text = strconv.AppendInt(text, tightest.limit(), 10)
		parts.end(keyLimit, text)
		text = strconv.AppendInt(text, tightest.remaining(), 10)
		parts.end(keyRemaining, text)
		text = strconv.AppendInt(text, resetTime(now, tightest.reset()), 10)
		parts.end(keyReset, text)
	}
	if h.IETF {
		if outer == looser || outer == absent && len(header[keyRateLimit]) == 0 {
			text = tightest.appendServiceLimit(text, retryAfter(header))
			parts.end(keyRateLimit, text)
		}
		begin := len(text)
		if text = appendPolicies(text, all); len(text) == begin {
			text = tightest.appendPolicy(text)
		}
		parts.end(keyPolicy, text)
	}
	parts.set(header, string(text))
}

// parts are the values of one response as parts of one text, so that all of
// them cost two allocations: the text and one array of values.
type parts struct {
	keys [5]string
	ends [5]int // where each value ends
	n    int
}

// end makes what text has grown by the value of key.
func (p *parts) end(key string, text []byte) {
	p.keys[p.n], p.ends[p.n] = key, len(text)
	p.n++
}

// set puts the values into header. The array is fresh for each response, and
// each value is a slice of capacity one: whoever appends to a field copies it
// first, and nobody's write reaches another field or another response.
func (p *parts) set(header http.Header, text string) {
	values := make([]string, p.n)
	begin := 0
	for i, key := range p.keys[:p.n] {
		values[i] = text[begin:p.ends[i]]
		begin = p.ends[i]
		value := values[i : i+1 : i+1]
		if key == keyPolicy {
			value = join(header[key], value)
		}
		header[key] = value
	}
}
