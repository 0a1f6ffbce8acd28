package clients

import (
	"net/http"
	"slices"
	"strings"
)

// An Exchange is one HTTP request and what came back.
type Exchange struct {
	Method string
	Path   string // as sent, with its identifiers
	Status int    // 0 where no response came
	// RetryAfter and Nonce tell whether the response had a Retry-After and a
	// Replay-Nonce (RFC 8555, section 6.5.1).
	RetryAfter, Nonce bool
}

// Stats is what a client did on the wire, in the order in which the responses
// came. The zero value is a client that did nothing.
type Stats struct {
	Exchanges []Exchange
}

// Count returns how many requests went to path. A path that ends in a slash
// takes in all below it, the rule of net/http.ServeMux. Given statuses, only
// requests answered with one of them count.
func (s Stats) Count(path string, statuses ...int) int {
	n := 0
	for _, e := range s.Exchanges {
		if !under(path, e.Path) || len(statuses) > 0 && !slices.Contains(statuses, e.Status) {
			continue
		}
		n++
	}
	return n
}

// Refused returns how many requests were answered 429 or 503.
func (s Stats) Refused() int {
	return s.Count("/", http.StatusTooManyRequests, http.StatusServiceUnavailable)
}

func under(pattern, path string) bool {
	if strings.HasSuffix(pattern, "/") {
		return strings.HasPrefix(path, pattern)
	}
	return path == pattern
}
