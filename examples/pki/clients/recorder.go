package clients

import (
	"net/http"
	"slices"
	"sync"
)

// A recorder is an http.RoundTripper that notes each exchange and changes
// none. It sits below the client library, so it sees the retries that the
// library hides from its caller. Safe for concurrent use.
type recorder struct {
	next http.RoundTripper

	mu        sync.Mutex // guards exchanges
	exchanges []Exchange
}

// record returns a copy of hc whose requests pass through the recorder. hc
// itself stays as it is: it is the caller's, and lego replaces the Transport of
// the client that it is given.
func record(hc *http.Client) (*http.Client, *recorder) {
	recorded := *hc
	r := &recorder{next: hc.Transport}
	if r.next == nil {
		r.next = http.DefaultTransport
	}
	recorded.Transport = r
	return &recorded, r
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	e := Exchange{Method: req.Method, Path: req.URL.Path}
	if err == nil {
		e.Status = resp.StatusCode
		e.RetryAfter = resp.Header.Get("Retry-After") != ""
		e.Nonce = resp.Header.Get("Replay-Nonce") != ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges = append(r.exchanges, e)
	return resp, err
}

// stats returns what was recorded up to now.
func (r *recorder) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Exchanges: slices.Clone(r.exchanges)}
}
