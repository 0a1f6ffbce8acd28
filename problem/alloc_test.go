//go:build !race

// Under the race detector sync.Pool drops at random what it is given, so counts
// would mean nothing there.

package problem

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reusable is a ResponseWriter that costs nothing itself.
type reusable struct {
	header http.Header
	bytes  int
}

func (w *reusable) Header() http.Header         { return w.header }
func (w *reusable) WriteHeader(int)             {}
func (w *reusable) Write(p []byte) (int, error) { w.bytes += len(p); return len(p), nil }

var costs = []struct {
	name   string
	writer Writer
	allocs float64 // one header array, one string for the numbers, then what the format needs
}{
	{"ACME", ACME, 2},
	{"JSON", JSON, 2},
	{"OCSP", OCSP, 2},
	{"Plain", Plain, 2},
	{"EST", EST, 2},
	{"SCEP", SCEP, 2},
	{"Empty", Empty, 2},
	{"HTML", HTML, 3}, // the policy
	{"S3", S3, 4},     // the milliseconds and their slice; the request id is the one of the first run
}

func TestWritersAllocateLittle(t *testing.T) {
	rej := Rejection{Status: 429, Reason: ReasonLocked, Class: "acme_new_order", Tier: "address", RetryAfter: 1234 * time.Second}
	for _, tt := range costs {
		t.Run(tt.name, func(t *testing.T) {
			w := &reusable{header: http.Header{}}
			r := httptest.NewRequest(http.MethodPost, "/acme/new-order", nil)
			got := testing.AllocsPerRun(500, func() { tt.writer(w, r, rej) })
			require.LessOrEqual(t, got, tt.allocs)
		})
	}
}

func TestAHelpLinkCostsOneAllocation(t *testing.T) {
	w := &reusable{header: http.Header{}}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	rej := Rejection{RetryAfter: 1234 * time.Second, Help: "https://ca.example/limits", Nonce: "abc"}
	got := testing.AllocsPerRun(500, func() {
		delete(w.header, "Link")
		ACME(w, r, rej)
	})
	require.LessOrEqual(t, got, 3.0)
}

func TestChoosingByAcceptAllocatesNothing(t *testing.T) {
	lines := []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}
	require.Zero(t, testing.AllocsPerRun(500, func() { preferred(lines) }))
}

func BenchmarkWriters(b *testing.B) {
	rej := Rejection{Status: 429, Reason: ReasonRate, Class: "acme_new_order", Tier: "address", RetryAfter: 1234 * time.Second}
	for _, tt := range costs {
		b.Run("writer="+tt.name, func(b *testing.B) {
			w := &reusable{header: http.Header{}}
			r := httptest.NewRequest(http.MethodPost, "/acme/new-order", nil)
			b.ReportAllocs()
			for b.Loop() {
				tt.writer(w, r, rej)
			}
		})
	}
}

func BenchmarkAccept(b *testing.B) {
	for _, tt := range []struct{ name, accept string }{
		{"browser", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
		{"worst", strings.Repeat("text/html,", maxAccept/10)},
		{"refused", strings.Repeat("text/html,", 64<<10/10)},
	} {
		b.Run("field="+tt.name, func(b *testing.B) {
			lines := []string{tt.accept}
			b.ReportAllocs()
			for b.Loop() {
				preferred(lines)
			}
		})
	}
}
