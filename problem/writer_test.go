package problem

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"
)

var writers = []struct {
	name        string
	write       Writer
	contentType string
}{
	{"ACME", ACME, "application/problem+json"},
	{"JSON", JSON, "application/problem+json"},
	{"HTML", HTML, "text/html; charset=utf-8"},
	{"S3", S3, "application/xml"},
	{"OCSP", OCSP, "application/ocsp-response"},
	{"EST", EST, "text/plain; charset=utf-8"},
	{"SCEP", SCEP, "text/plain; charset=utf-8"},
	{"Plain", Plain, "text/plain; charset=utf-8"},
	{"Empty", Empty, ""},
}

var allReasons = []string{ReasonRate, ReasonQueueFull, ReasonTimeout, ReasonCanceled, ReasonDeadline, ReasonBackendShare, ReasonLocked,
	ReasonDenied, ReasonUnavailable, "", "a_word_of_the_user"}

// refused runs a writer and checks what holds for every refusal.
func refused(t *testing.T, write Writer, r *http.Request, rej Rejection) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	write(w, r, rej)
	h := w.Result().Header
	require.Equal(t, []string{strconv.FormatInt(RetryAfterSeconds(rej.RetryAfter), 10)}, h["Retry-After"])
	require.Equal(t, []string{"no-store"}, h["Cache-Control"])
	require.Equal(t, []string{"nosniff"}, h["X-Content-Type-Options"])
	require.Len(t, h["Content-Length"], 1)
	if r.Method == http.MethodHead {
		require.Zero(t, w.Body.Len())
	} else {
		require.Equal(t, strconv.Itoa(w.Body.Len()), h.Get("Content-Length"))
	}
	for key := range h {
		require.Equal(t, http.CanonicalHeaderKey(key), key)
	}
	return w
}

func get() *http.Request  { return httptest.NewRequest(http.MethodGet, "/bucket/key", nil) }
func post() *http.Request { return httptest.NewRequest(http.MethodPost, "/bucket/key", nil) }

func TestEveryWriterSendsItsTypeAndStatus(t *testing.T) {
	for _, tt := range writers {
		t.Run(tt.name, func(t *testing.T) {
			for _, status := range []int{429, 503} {
				w := refused(t, tt.write, get(), Rejection{Status: status, RetryAfter: 5 * time.Second})
				if tt.name == "S3" {
					status = 503
				}
				require.Equal(t, status, w.Code)
				require.Equal(t, tt.contentType, w.Result().Header.Get("Content-Type"))
			}
		})
	}
}

func TestStatusCode(t *testing.T) {
	for _, tt := range []struct {
		name         string
		status, want int
	}{
		{"none is 429", 0, 429},
		{"429 stays", 429, 429},
		{"503 stays", 503, 503},
		{"403 stays", 403, 403},
		{"success is not a refusal", 200, 429},
		{"an interim status is not a refusal", 103, 429},
		{"a redirect is not a refusal", 302, 429},
		{"below net/http's range does not panic", -1, 429},
		{"above net/http's range does not panic", 1000, 429},
		{"the edges count", 400, 400},
		{"the upper edge counts", 599, 599},
		{"past the upper edge does not", 600, 429},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, Rejection{Status: tt.status}.StatusCode())
			require.Equal(t, tt.want, refused(t, Plain, get(), Rejection{Status: tt.status}).Code)
		})
	}
}

func TestDetail(t *testing.T) {
	for _, tt := range []struct {
		name string
		rej  Rejection
		want string
	}{
		{"a spent rate", Rejection{Reason: ReasonRate, RetryAfter: 2 * time.Minute},
			"Too many requests. Please try again in 2 minutes."},
		{"a full queue", Rejection{Reason: ReasonQueueFull, RetryAfter: 3 * time.Second},
			"The service is busy. Please try again in 3 seconds."},
		{"no slot in time", Rejection{Reason: ReasonTimeout}, "The service is busy. Please try again in 1 second."},
		{"a lock", Rejection{Reason: ReasonLocked, RetryAfter: 15 * time.Minute},
			"Too many failed attempts, access is locked for now. Please try again in 15 minutes."},
		{"a denial without a wait does not invite back", Rejection{Reason: ReasonDenied, Status: 403},
			"This request is refused by policy."},
		{"nor does one with a wait", Rejection{Reason: ReasonDenied, RetryAfter: time.Hour},
			"This request is refused by policy."},
		{"a limiter that cannot decide", Rejection{Reason: ReasonUnavailable, Status: 503},
			"The service is temporarily unavailable. Please try again in 1 second."},
		{"a word of the user", Rejection{Reason: "maintenance"}, "The request was refused. Please try again in 1 second."},
		{"nothing said", Rejection{}, "Too many requests. Please try again in 1 second."},
		{"nothing said under a server error", Rejection{Status: 503},
			"The service is temporarily unavailable. Please try again in 1 second."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.rej.Detail())
			require.Equal(t, tt.want+"\n", refused(t, Plain, get(), tt.rej).Body.String())
		})
	}
}

func TestACMEDocument(t *testing.T) {
	const limited, unauthorized = "urn:ietf:params:acme:error:rateLimited", "urn:ietf:params:acme:error:unauthorized"
	for _, tt := range []struct {
		name       string
		rej        Rejection
		wantType   string
		wantStatus int
	}{
		{"a spent rate", Rejection{Status: 429, Reason: ReasonRate, RetryAfter: time.Minute}, limited, 429},
		{"an overloaded signer is rateLimited too", Rejection{Status: 503, Reason: ReasonQueueFull}, limited, 503},
		{"a lock", Rejection{Status: 429, Reason: ReasonLocked}, limited, 429},
		{"no status", Rejection{}, limited, 429},
		{"what no wait will change", Rejection{Status: 403, Reason: ReasonDenied}, unauthorized, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := refused(t, ACME, post(), tt.rej)
			var document map[string]any
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &document))
			require.Equal(t, map[string]any{"type": tt.wantType, "detail": tt.rej.Detail(), "status": float64(tt.wantStatus)}, document)
			require.Equal(t, tt.wantStatus, w.Code)
		})
	}
}

func TestNonceAndHelpGoOnlyWhereTheyMeanSomething(t *testing.T) {
	rej := Rejection{Nonce: "abc", Help: "https://ca.example/limits"}
	const link = `<https://ca.example/limits>;rel="help"`
	for _, tt := range writers {
		t.Run(tt.name, func(t *testing.T) {
			h := refused(t, tt.write, post(), rej).Result().Header
			nonce, help := "", ""
			if tt.name == "ACME" {
				nonce = "abc"
			}
			if tt.name == "ACME" || tt.name == "JSON" || tt.name == "HTML" {
				help = link
			}
			require.Equal(t, nonce, h.Get("Replay-Nonce"))
			require.Equal(t, help, h.Get("Link"))
		})
	}
	t.Run("a refused newNonce brings no nonce", func(t *testing.T) {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			h := refused(t, ACME, httptest.NewRequest(method, "/", nil), rej).Result().Header
			require.NotContains(t, h, "Replay-Nonce")
		}
	})
}

func TestJSONDocument(t *testing.T) {
	const iana = "https://iana.org/assignments/http-problem-types#"
	for _, tt := range []struct {
		name string
		rej  Rejection
		want string
	}{
		{"a spent quota", Rejection{Status: 429, Reason: ReasonRate, Class: "acme_new_order", Tier: "address", RetryAfter: 90 * time.Second},
			`{"type":"` + iana + `quota-exceeded","title":"Quota Exceeded","status":429,
			"detail":"Too many requests. Please try again in 90 seconds.",
			"reason":"rate_limited","class":"acme_new_order","violated-policies":["address"],"retry_after_secs":90}`},
		{"an overloaded service", Rejection{Status: 503, Reason: ReasonQueueFull, RetryAfter: 2 * time.Second},
			`{"type":"` + iana + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,
			"detail":"The service is busy. Please try again in 2 seconds.","reason":"queue_full","retry_after_secs":2}`},
		{"a lockout", Rejection{Status: 429, Reason: ReasonLocked, Class: "login", RetryAfter: 15 * time.Minute},
			`{"type":"` + iana + `abnormal-usage-detected","title":"Abnormal Usage Detected","status":429,
			"detail":"Too many failed attempts, access is locked for now. Please try again in 15 minutes.",
			"reason":"locked","class":"login","retry_after_secs":900,"ok":false,"error":"locked",
			"message":"Too many failed attempts, access is locked for now. Please try again in 15 minutes."}`},
		{"a limiter that cannot decide", Rejection{Status: 503, Reason: ReasonUnavailable},
			`{"type":"about:blank","title":"Service Unavailable","status":503,
			"detail":"The service is temporarily unavailable. Please try again in 1 second.",
			"reason":"unavailable","retry_after_secs":1}`},
		{"a status phrase with an apostrophe", Rejection{Status: 418, Reason: "tea"},
			`{"type":"about:blank","title":"I'm a teapot","status":418,
			"detail":"The request was refused. Please try again in 1 second.","reason":"tea","retry_after_secs":1}`},
		{"a status without a phrase", Rejection{Status: 499, Reason: "tea"},
			`{"type":"about:blank","title":"Refused","status":499,
			"detail":"The request was refused. Please try again in 1 second.","reason":"tea","retry_after_secs":1}`},
		{"the zero Rejection", Rejection{},
			`{"type":"` + iana + `quota-exceeded","title":"Quota Exceeded","status":429,
			"detail":"Too many requests. Please try again in 1 second.","retry_after_secs":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.JSONEq(t, tt.want, refused(t, JSON, get(), tt.rej).Body.String())
		})
	}
}

// A spent quota, a saturated signer and a limiter without its store must not
// look the same to a program.
func TestCausesHaveDifferentProblemTypes(t *testing.T) {
	seen := map[string]string{}
	for _, reason := range []string{ReasonRate, ReasonQueueFull, ReasonLocked, ReasonUnavailable} {
		uri := Rejection{Reason: reason}.cause().problem
		require.Empty(t, seen[uri], "%s and %s share %s", reason, seen[uri], uri)
		seen[uri] = reason
		_, err := url.Parse(uri)
		require.NoError(t, err)
	}
}

type s3Error struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	Resource  string
	RequestID string `xml:"RequestId"`
}

func TestS3Document(t *testing.T) {
	t.Run("a spent rate is 503 SlowDown", func(t *testing.T) {
		w := refused(t, S3, get(), Rejection{Status: 429, RetryAfter: 1500 * time.Millisecond})
		var document s3Error
		require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &document))
		require.Equal(t, 503, w.Code)
		require.Equal(t, "SlowDown", document.Code)
		require.Equal(t, "/bucket/key", document.Resource)
		require.Regexp(t, `^[0-9A-F]{16}$`, document.RequestID)
		require.Equal(t, document.RequestID, w.Header().Get("X-Amz-Request-Id"))
		require.Equal(t, "2000", w.Header().Get("X-Amz-Retry-After"))
	})
	t.Run("a denial is AccessDenied", func(t *testing.T) {
		w := refused(t, S3, get(), Rejection{Status: 401, Reason: ReasonDenied})
		var document s3Error
		require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &document))
		require.Equal(t, 403, w.Code)
		require.Equal(t, "AccessDenied", document.Code)
	})
	t.Run("the longest wait does not overflow in milliseconds", func(t *testing.T) {
		w := refused(t, S3, get(), Rejection{RetryAfter: 1<<63 - 1})
		require.Equal(t, "4294967295000", w.Header().Get("X-Amz-Retry-After"))
	})
	t.Run("a request id from outside is kept", func(t *testing.T) {
		w := httptest.NewRecorder()
		w.Header().Set("X-Amz-Request-Id", "<id>")
		S3(w, get(), Rejection{})
		var document s3Error
		require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &document))
		require.Equal(t, "<id>", document.RequestID)
		require.Equal(t, []string{"<id>"}, w.Header()["X-Amz-Request-Id"])
	})
	t.Run("a long path is not sent back whole", func(t *testing.T) {
		r := get()
		r.URL.Path = "/" + strings.Repeat("ü", 50000)
		w := refused(t, S3, r, Rejection{})
		var document s3Error
		require.NoError(t, xml.Unmarshal(w.Body.Bytes(), &document))
		require.LessOrEqual(t, len(document.Resource), maxResource)
		require.True(t, strings.HasSuffix(document.Resource, "ü"), "a character was cut in two")
	})
	t.Run("a request without a URL does not panic", func(t *testing.T) {
		refused(t, S3, &http.Request{Method: http.MethodGet}, Rejection{})
	})
}

func TestCutText(t *testing.T) {
	for _, tt := range []struct {
		name, s string
		limit   int
		want    string
	}{
		{"short text stays", "abc", 3, "abc"},
		{"long text is cut", "abcd", 3, "abc"},
		{"a character in the way goes whole", "ab\u20acd", 4, "ab"},
		{"a character that fits stays", "ab\u20acd", 5, "ab\u20ac"},
		{"continuation bytes without end are cut anywhere", strings.Repeat("\x80", 9), 6, strings.Repeat("\x80", 6)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, cutText(tt.s, tt.limit))
		})
	}
}

func TestOCSPIsTryLaterToARealParser(t *testing.T) {
	for _, status := range []int{429, 503} {
		w := refused(t, OCSP, get(), Rejection{Status: status})
		require.Equal(t, []byte{0x30, 0x03, 0x0A, 0x01, 0x03}, w.Body.Bytes())
		_, err := ocsp.ParseResponse(w.Body.Bytes(), nil)
		require.Equal(t, ocsp.ResponseError{Status: ocsp.TryLater}, err)
		require.Equal(t, status, w.Code)
	}
}

func TestEmptyHasNoBodyAndNoType(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	Empty(w, get(), Rejection{})
	require.Zero(t, w.Body.Len())
	require.Equal(t, "0", w.Header().Get("Content-Length"))
	require.NotContains(t, w.Header(), "Content-Type")
}

func TestFieldsOfAnotherBodyAreReplacedOrRemoved(t *testing.T) {
	for _, tt := range writers {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			for _, key := range append(append([]string{keyContentType, keyContentLength, keyRetryAfter, keyCacheControl, keyNosniff},
				cachingFields[:]...), foreignFields[:]...) {
				w.Header()[key] = []string{"stale", "stale"}
			}
			w.Header().Set("Server", "kept")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			tt.write(w, get(), Rejection{})
			for key, values := range w.Result().Header {
				require.NotContains(t, values, "stale", key)
				require.Len(t, values, 1, key)
			}
			require.Equal(t, "kept", w.Result().Header.Get("Server"))
			require.Equal(t, "*", w.Result().Header.Get("Access-Control-Allow-Origin"))
		})
	}
}

// Over a real connection, where net/http would complain about or repair a wrong
// Content-Length, and a client sees what HEAD and GET say.
func TestHEADHasTheHeaderOfGETAndNoBody(t *testing.T) {
	rej := Rejection{Reason: ReasonRate, Class: "crl", Tier: "address", RetryAfter: 90 * time.Second, Help: "https://ca.example/"}
	for _, tt := range writers {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { tt.write(w, r, rej) }))
			defer server.Close()
			exchange := func(method string) (http.Header, int64, []byte) {
				request, err := http.NewRequest(method, server.URL+"/some/path", nil)
				require.NoError(t, err)
				response, err := server.Client().Do(request)
				require.NoError(t, err)
				defer response.Body.Close()
				document, err := io.ReadAll(response.Body)
				require.NoError(t, err)
				response.Header.Del("Date")
				if id := response.Header.Get("X-Amz-Request-Id"); id != "" {
					response.Header.Set("X-Amz-Request-Id", strings.Repeat("x", len(id)))
				}
				return response.Header, response.ContentLength, document
			}
			getHeader, getLength, getBody := exchange(http.MethodGet)
			headHeader, headLength, headBody := exchange(http.MethodHead)
			require.Equal(t, getHeader, headHeader)
			require.Equal(t, getLength, headLength)
			require.Equal(t, int64(len(getBody)), getLength)
			require.Empty(t, headBody)
		})
	}
}

// Pooled buffers must not leak one refusal's words into another.
func TestConcurrentRefusalsDoNotMix(t *testing.T) {
	var group sync.WaitGroup
	for i := range 8 {
		class := strings.Repeat(string(rune('a'+i)), 10*(i+1))
		group.Go(func() {
			for range 200 {
				w := httptest.NewRecorder()
				JSON(w, get(), Rejection{Class: class})
				var document struct{ Class string }
				if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || document.Class != class {
					t.Errorf("class %q in %s (%v)", class, w.Body, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestAnOverlongBufferIsNotKept(t *testing.T) {
	b := &body{buf: make([]byte, 0, maxPooled+1)}
	b.buf = append(b.buf, 'x')
	b.release()
	require.Len(t, b.buf, 1, "the buffer went back to the pool")
}
