package problem_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/weir-go/weir/problem"
)

// show answers a POST with a Writer and prints the status, the fields named and
// the document.
func show(write problem.Writer, rej problem.Rejection, keys ...string) {
	w := httptest.NewRecorder()
	write(w, httptest.NewRequest(http.MethodPost, "/bucket/key", nil), rej)
	fmt.Println(w.Code)
	for _, key := range keys {
		fmt.Println(key+":", w.Header().Get(key))
	}
	fmt.Print(w.Body)
}

func ExampleACME() {
	show(problem.ACME, problem.Rejection{
		Status:     http.StatusTooManyRequests,
		Reason:     problem.ReasonRate,
		RetryAfter: 2 * time.Minute,
		Nonce:      "oFvnlFP1wIhRlYS2jTaXbA",
		Help:       "https://ca.example/docs/limits",
	}, "Content-Type", "Retry-After", "Replay-Nonce", "Link")
	// Output:
	// 429
	// Content-Type: application/problem+json
	// Retry-After: 120
	// Replay-Nonce: oFvnlFP1wIhRlYS2jTaXbA
	// Link: <https://ca.example/docs/limits>;rel="help"
	// {"type":"urn:ietf:params:acme:error:rateLimited","detail":"Too many requests. Please try again in 2 minutes.","status":429}
}

func ExampleJSON() {
	show(problem.JSON, problem.Rejection{
		Status:     http.StatusServiceUnavailable,
		Reason:     problem.ReasonQueueFull,
		Class:      "sign",
		RetryAfter: 2 * time.Second,
	}, "Content-Type", "Retry-After", "Cache-Control")
	// Output:
	// 503
	// Content-Type: application/problem+json
	// Retry-After: 2
	// Cache-Control: no-store
	// {"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"The service is busy. Please try again in 2 seconds.","reason":"queue_full","class":"sign","retry_after_secs":2}
}

// A lockout speaks to clients that do not know RFC 9457 as well.
func ExampleJSON_lockout() {
	show(problem.JSON, problem.Rejection{Reason: problem.ReasonLocked, RetryAfter: 15 * time.Minute})
	// Output:
	// 429
	// {"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,"detail":"Too many failed attempts, access is locked for now. Please try again in 15 minutes.","reason":"locked","retry_after_secs":900,"ok":false,"error":"locked","message":"Too many failed attempts, access is locked for now. Please try again in 15 minutes."}
}

func ExampleHTML() {
	w := httptest.NewRecorder()
	problem.HTML(w, httptest.NewRequest(http.MethodGet, "/", nil), problem.Rejection{RetryAfter: time.Minute})
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	// Output:
	// 429 text/html; charset=utf-8
}

func ExampleS3() {
	w := httptest.NewRecorder()
	w.Header().Set("X-Amz-Request-Id", "4442587FB7D0A2F9") // else a random one
	problem.S3(w, httptest.NewRequest(http.MethodGet, "/bucket/a&b", nil), problem.Rejection{RetryAfter: 3 * time.Second})
	fmt.Println(w.Code, w.Header().Get("X-Amz-Retry-After"))
	fmt.Print(w.Body)
	// Output:
	// 503 3000
	// <?xml version="1.0" encoding="UTF-8"?>
	// <Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><Resource>/bucket/a&amp;b</Resource><RequestId>4442587FB7D0A2F9</RequestId></Error>
}

func ExampleOCSP() {
	w := httptest.NewRecorder()
	problem.OCSP(w, httptest.NewRequest(http.MethodPost, "/", nil), problem.Rejection{Status: http.StatusServiceUnavailable})
	fmt.Printf("%d %s % X\n", w.Code, w.Header().Get("Content-Type"), w.Body)
	// Output:
	// 503 application/ocsp-response 30 03 0A 01 03
}

func ExampleEST() {
	show(problem.EST, problem.Rejection{Status: 503, Reason: problem.ReasonTimeout, RetryAfter: 5 * time.Second}, "Content-Type")
	// Output:
	// 503
	// Content-Type: text/plain; charset=utf-8
	// The service is busy. Please try again in 5 seconds.
}

func ExampleSCEP() {
	show(problem.SCEP, problem.Rejection{Reason: problem.ReasonRate, RetryAfter: time.Hour})
	// Output:
	// 429
	// Too many requests. Please try again in 1 hour.
}

func ExamplePlain() {
	show(problem.Plain, problem.Rejection{Reason: problem.ReasonDenied, Status: http.StatusForbidden})
	// Output:
	// 403
	// This request is refused by policy.
}

func ExampleEmpty() {
	show(problem.Empty, problem.Rejection{RetryAfter: 1500 * time.Millisecond}, "Content-Length", "Retry-After")
	// Output:
	// 429
	// Content-Length: 0
	// Retry-After: 2
}

func ExampleNegotiate() {
	write := problem.Negotiate(problem.HTML, problem.JSON, problem.Plain)
	for _, accept := range []string{"text/html,*/*;q=0.8", "text/html;q=0.1, application/json", "text/plain", "*/*"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		write(w, r, problem.Rejection{})
		fmt.Println(w.Header().Get("Content-Type"))
	}
	// Output:
	// text/html; charset=utf-8
	// application/problem+json
	// text/plain; charset=utf-8
	// application/problem+json
}

func ExampleByAccept() {
	write := problem.ByAccept(problem.HTML, problem.Empty)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "application/json")
	w := httptest.NewRecorder()
	write(w, r, problem.Rejection{})
	fmt.Println(w.Code, w.Body.Len(), w.Header().Get("Cache-Control"))
	// Output:
	// 429 0 no-store
}

// A renderer of your own: the shared header first, then a body that no HEAD
// request gets.
func ExampleWriter() {
	german := func(w http.ResponseWriter, r *http.Request, rej problem.Rejection) {
		rej.Nonce = "" // not an ACME endpoint
		rej.SetHeaders(w.Header())
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Content-Language", "de")
		w.WriteHeader(rej.StatusCode())
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, "Bitte in %d Sekunden noch einmal.\n", problem.RetryAfterSeconds(rej.RetryAfter))
		}
	}
	show(german, problem.Rejection{RetryAfter: 30 * time.Second}, "Retry-After")
	// Output:
	// 429
	// Retry-After: 30
	// Bitte in 30 Sekunden noch einmal.
}

func ExampleRetryAfterSeconds() {
	for _, wait := range []time.Duration{-time.Second, 0, 1001 * time.Millisecond, time.Hour, 1<<63 - 1} {
		fmt.Println(problem.RetryAfterSeconds(wait))
	}
	// Output:
	// 1
	// 1
	// 2
	// 3600
	// 4294967295
}

func ExampleRejection_SetHeaders() {
	h := http.Header{"Etag": {`"v1"`}, "Cache-Control": {"max-age=3600"}}
	problem.Rejection{RetryAfter: 90 * time.Second}.SetHeaders(h)
	fmt.Println(h)
	// Output:
	// map[Cache-Control:[no-store] Retry-After:[90]]
}

func ExampleRejection_StatusCode() {
	fmt.Println(problem.Rejection{}.StatusCode(), problem.Rejection{Status: 503}.StatusCode(), problem.Rejection{Status: 200}.StatusCode())
	// Output:
	// 429 503 429
}

func ExampleRejection_Detail() {
	fmt.Println(problem.Rejection{Reason: problem.ReasonTimeout, RetryAfter: 90 * time.Second}.Detail())
	// Output:
	// The service is busy. Please try again in 90 seconds.
}

func ExampleValidHelp() {
	fmt.Println(problem.ValidHelp("https://ca.example/limits"))
	fmt.Println(problem.ValidHelp("/limits"), problem.ValidHelp("javascript:alert(1)"))
	// Output:
	// true
	// false false
}
