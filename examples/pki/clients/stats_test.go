package clients

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatsCountsByPathAndStatus(t *testing.T) {
	stats := Stats{Exchanges: []Exchange{
		{Method: "HEAD", Path: "/nonce", Status: 200},
		{Method: "POST", Path: "/order", Status: 429},
		{Method: "POST", Path: "/order", Status: 201},
		{Method: "POST", Path: "/order/7", Status: 200},
		{Method: "POST", Path: "/order/7/cert", Status: 503},
		{Method: "POST", Path: "/orders", Status: 0},
	}}
	for _, tc := range []struct {
		name     string
		path     string
		statuses []int
		want     int
	}{
		{"a path without a slash at its end stands for itself", "/order", nil, 2},
		{"a path with a slash at its end stands for all below it", "/order/", nil, 2},
		{"the root stands for everything", "/", nil, 6},
		{"a path that nobody asked for counts none", "/dir", nil, 0},
		{"one status narrows the count", "/order", []int{201}, 1},
		{"several statuses add up", "/", []int{200, 201}, 3},
		{"a request without a response has status 0", "/orders", []int{0}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, stats.Count(tc.path, tc.statuses...))
		})
	}
	require.Equal(t, 2, stats.Refused(), "429 and 503 are refusals")
	require.Zero(t, Stats{}.Refused())
}

// answer is a RoundTripper that returns the same thing every time.
type answer struct {
	resp *http.Response
	err  error
}

func (a answer) RoundTrip(*http.Request) (*http.Response, error) { return a.resp, a.err }

func TestRecorderNotesEachExchangeAndChangesNone(t *testing.T) {
	refused := &http.Response{
		StatusCode: http.StatusTooManyRequests,
		Header:     http.Header{"Retry-After": {"1"}, "Replay-Nonce": {"n"}},
		Body:       http.NoBody,
	}
	broken := errors.New("connection reset")
	for _, tc := range []struct {
		name   string
		answer answer
		want   Exchange
	}{
		{"a response with its status and headers", answer{resp: refused}, Exchange{"POST", "/order", 429, true, true}},
		{"a failure to get one, as status 0", answer{err: broken}, Exchange{Method: "POST", Path: "/order"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hc, rec := record(&http.Client{Transport: tc.answer})
			resp, err := hc.Transport.RoundTrip(httptest.NewRequest("POST", "https://ca.example/order?q", nil))
			require.Same(t, tc.answer.resp, resp)
			require.Equal(t, tc.answer.err, err)
			require.Equal(t, []Exchange{tc.want}, rec.stats().Exchanges)
		})
	}
}
