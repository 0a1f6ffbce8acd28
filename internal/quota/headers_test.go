package quota

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	noon = time.Unix(1_800_000_000, 0)

	legacy = Headers{Mode: Always}
	ietf   = Headers{Mode: Always, IETF: true}

	global  = Quota{Name: "global", Limit: 400, Remaining: 371.2, Rate: 200}
	perIP   = Quota{Name: "per_ip", Limit: 40, Remaining: 12.7, Rate: 20}
	subject = Quota{Name: "per_subject", Limit: 600, Remaining: 7, Window: time.Minute, Reset: 42 * time.Second}
)

// written is what Write leaves in a header that held before.
func written(h Headers, before http.Header, tightest Quota, all ...Quota) http.Header {
	header := before.Clone()
	if header == nil {
		header = http.Header{}
	}
	h.Write(header, noon, tightest, all)
	return header
}

func TestWrite(t *testing.T) {
	for _, tt := range []struct {
		name     string
		h        Headers
		tightest Quota
		all      []Quota
		want     http.Header
	}{
		{"off writes nothing", Headers{IETF: true}, perIP, []Quota{perIP}, http.Header{}},
		{"a request that met no quota is told nothing", ietf, Quota{}, nil, http.Header{}},
		{"a bucket", legacy, perIP, []Quota{global, perIP}, http.Header{
			"X-Ratelimit-Limit":     {"40"},
			"X-Ratelimit-Remaining": {"12"},
			"X-Ratelimit-Reset":     {"1800000002"},
		}},
		{"a window", Headers{Mode: Rejected}, subject, nil, http.Header{
			"X-Ratelimit-Limit":     {"600"},
			"X-Ratelimit-Remaining": {"7"},
			"X-Ratelimit-Reset":     {"1800000042"},
		}},
		{"all fields, all policies", ietf, subject, []Quota{global, perIP, subject}, http.Header{
			"X-Ratelimit-Limit":     {"600"},
			"X-Ratelimit-Remaining": {"7"},
			"X-Ratelimit-Reset":     {"1800000042"},
			"Ratelimit":             {`"per_subject";r=7;t=42`},
			"Ratelimit-Policy":      {`"global";q=400;w=2, "per_ip";q=40;w=2, "per_subject";q=600;w=60`},
		}},
		{"without a list the tightest is the only policy", ietf, perIP, nil, http.Header{
			"X-Ratelimit-Limit":     {"40"},
			"X-Ratelimit-Remaining": {"12"},
			"X-Ratelimit-Reset":     {"1800000002"},
			"Ratelimit":             {`"per_ip";r=12;t=1`},
			"Ratelimit-Policy":      {`"per_ip";q=40;w=2`},
		}},
		{"policies without a name are left out", ietf, perIP, []Quota{{Limit: 3}, perIP, {}}, http.Header{
			"X-Ratelimit-Limit":     {"40"},
			"X-Ratelimit-Remaining": {"12"},
			"X-Ratelimit-Reset":     {"1800000002"},
			"Ratelimit":             {`"per_ip";r=12;t=1`},
			"Ratelimit-Policy":      {`"per_ip";q=40;w=2`},
		}},
		{"a list of nameless policies is no list", ietf, perIP, []Quota{{Limit: 3}}, http.Header{
			"X-Ratelimit-Limit":     {"40"},
			"X-Ratelimit-Remaining": {"12"},
			"X-Ratelimit-Reset":     {"1800000002"},
			"Ratelimit":             {`"per_ip";r=12;t=1`},
			"Ratelimit-Policy":      {`"per_ip";q=40;w=2`},
		}},
		{"an unknown window has neither w nor t", ietf, Quota{Name: "daily", Limit: 5, Remaining: 4}, nil, http.Header{
			"X-Ratelimit-Limit":     {"5"},
			"X-Ratelimit-Remaining": {"4"},
			"X-Ratelimit-Reset":     {"1800000001"},
			"Ratelimit":             {`"daily";r=4`},
			"Ratelimit-Policy":      {`"daily";q=5`},
		}},
		{"a window that never ends is told as one of 136 years", ietf, Quota{Name: "x", Limit: 1, Window: 1<<63 - 1, Reset: 1<<63 - 1}, nil, http.Header{
			"X-Ratelimit-Limit":     {"1"},
			"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset":     {"6094967295"},
			"Ratelimit":             {`"x";r=0;t=4294967295`},
			"Ratelimit-Policy":      {`"x";q=1;w=4294967295`},
		}},
		{"numbers without sense", ietf, Quota{Name: "x", Limit: inf, Remaining: nan, Window: 1<<63 - 1, Reset: -1 << 63}, nil, http.Header{
			"X-Ratelimit-Limit":     {"999999999999999"},
			"X-Ratelimit-Remaining": {"0"},
			"X-Ratelimit-Reset":     {"1800000001"},
			"Ratelimit":             {`"x";r=0;t=1`},
			"Ratelimit-Policy":      {`"x";q=999999999999999;w=4294967295`},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, written(tt.h, nil, tt.tightest, tt.all...))
		})
	}
}

func TestNamesAreEscaped(t *testing.T) {
	for _, tt := range []struct{ name, given, want string }{
		{"a word stays", "per_ip", `"per_ip"`},
		{"so does punctuation", "a b;c=d,e", `"a b;c=d,e"`},
		{"quotes and backslashes get a backslash", `say "a\b"`, `"say \"a\\b\""`},
		{"a backslash at the end", `a\`, `"a\\"`},
		{"letters outside ASCII", "kärnten", `"k%C3%A4rnten"`},
		{"bytes that are no UTF-8", "a\xff", `"a%FF"`},
		{"line breaks cannot split the header", "a\r\nSet-Cookie: b", `"a%0D%0ASet-Cookie: b"`},
		{"zero and delete", "\x00\x7f", `"%00%7F"`},
		{"the percent sign, so that no two names meet", "a%0D", `"a%250D"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := written(ietf, nil, Quota{Name: tt.given, Limit: 1})
			require.Equal(t, tt.want+";r=0", header.Get("RateLimit"))
			require.Equal(t, tt.want+";q=1", header.Get("RateLimit-Policy"))
		})
	}
}

func TestKeysAreCanonical(t *testing.T) {
	for _, key := range []string{keyLimit, keyRemaining, keyReset, keyRateLimit, keyPolicy, keyRetryAfter} {
		require.Equal(t, http.CanonicalHeaderKey(key), key)
	}
	header := written(ietf, nil, perIP)
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"} {
		require.NotEmpty(t, header.Get(name), name)
	}
}

// The draft, section 6: Retry-After should not end before the effective window.
func TestRetryAfterBoundsTheEffectiveWindow(t *testing.T) {
	for _, tt := range []struct {
		name, retryAfter, want string
	}{
		{"earlier", "5", `"per_subject";r=7;t=5`},
		{"equal", "42", `"per_subject";r=7;t=42`},
		{"later", "300", `"per_subject";r=7;t=42`},
		{"zero is no bound", "0", `"per_subject";r=7;t=42`},
		{"a date is not compared", "Mon, 05 Aug 2019 09:27:05 GMT", `"per_subject";r=7;t=42`},
		{"what is nothing is not either", "soon", `"per_subject";r=7;t=42`},
		{"nor what is negative", "-1", `"per_subject";r=7;t=42`},
		{"nor what is past 64 bits", "99999999999999999999", `"per_subject";r=7;t=42`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header := written(ietf, http.Header{"Retry-After": {tt.retryAfter}}, subject)
			require.Equal(t, tt.want, header.Get("RateLimit"))
			require.Equal(t, "1800000042", header.Get("X-RateLimit-Reset"))
			require.Equal(t, tt.retryAfter, header.Get("Retry-After"))
		})
	}
}

func TestAHandlersOwnFieldsReplaceOurs(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-RateLimit-Remaining", "3")
		w.Header().Set("RateLimit", `"own";r=3`)
		w.WriteHeader(http.StatusNotModified)
	})
	limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ietf.Write(w.Header(), noon, perIP, []Quota{perIP})
		handler(w, r)
	})
	w := httptest.NewRecorder()
	limited(w, httptest.NewRequest(http.MethodHead, "/", nil))
	require.Equal(t, http.Header{
		"X-Ratelimit-Limit":     {"40"},
		"X-Ratelimit-Remaining": {"3"},
		"X-Ratelimit-Reset":     {"1800000002"},
		"Ratelimit":             {`"own";r=3`},
		"Ratelimit-Policy":      {`"per_ip";q=40;w=2`},
	}, w.Result().Header)
}

func TestNoValueIsSharedWithAnotherFieldOrResponse(t *testing.T) {
	first := written(ietf, nil, perIP, global, perIP)
	second := first.Clone()
	for key, value := range written(ietf, nil, perIP, global, perIP) {
		require.Equal(t, 1, cap(value), "room to append in %s would be another field's", key)
		value[0] = "changed by a handler"
	}
	for key, value := range first {
		first[key] = append(value, "added by a handler")
		for other, value := range first {
			if other != key {
				require.Equal(t, second[other][0], value[0])
			}
		}
	}
}

func TestOtherFieldsStayAsTheyAre(t *testing.T) {
	before := http.Header{"Etag": {`"x"`}, "Retry-After": {"7"}, "Cache-Control": {"no-store"}, "X-Ratelimit-Used": {"1"}}
	after := written(ietf, before, perIP)
	for key, value := range before {
		require.Equal(t, value, after[key], key)
	}
	require.Len(t, after, len(before)+5)
}
