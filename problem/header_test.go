package problem

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http/httpguts"
)

func TestSetHeaders(t *testing.T) {
	const help = "https://ca.example/limits"
	for _, tt := range []struct {
		name   string
		before http.Header
		rej    Rejection
		want   http.Header
	}{
		{"the zero Rejection waits a second", http.Header{}, Rejection{},
			http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"}}},
		{"all four", http.Header{},
			Rejection{RetryAfter: 90*time.Second + 1, Nonce: "aB3-_", Help: help},
			http.Header{"Retry-After": {"91"}, "Cache-Control": {"no-store"}, "Replay-Nonce": {"aB3-_"},
				"Link": {"<" + help + `>;rel="help"`}}},
		{"old values of ours give way",
			http.Header{"Retry-After": {"7", "8"}, "Cache-Control": {"public", "max-age=60"}, "Replay-Nonce": {"old"}},
			Rejection{RetryAfter: time.Minute, Nonce: "new"},
			http.Header{"Retry-After": {"60"}, "Cache-Control": {"no-store"}, "Replay-Nonce": {"new"}}},
		{"what would allow caching all the same goes",
			http.Header{"Etag": {`"x"`}, "Last-Modified": {"x"}, "Expires": {"x"}, "Age": {"1"},
				"Cdn-Cache-Control": {"max-age=60"}, "Surrogate-Control": {"max-age=60"}, "Server": {"kept"}},
			Rejection{},
			http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"}, "Server": {"kept"}}},
		{"links of others stay",
			http.Header{"Link": {`<https://ca.example/dir>;rel="index"`}},
			Rejection{Help: help},
			http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"},
				"Link": {`<https://ca.example/dir>;rel="index"`, "<" + help + `>;rel="help"`}}},
		{"a nonce outside the alphabet is left out", http.Header{}, Rejection{Nonce: "a\r\nSet-Cookie: b"},
			http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"}}},
		{"a help URL that breaks out is left out", http.Header{}, Rejection{Help: `https://x/>;rel="next"`},
			http.Header{"Retry-After": {"1"}, "Cache-Control": {"no-store"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.rej.SetHeaders(tt.before)
			require.Equal(t, tt.want, tt.before)
			tt.rej.SetHeaders(tt.before)
			require.Equal(t, tt.want, tt.before, "the second time")
		})
	}
}

// One array per response, but nobody can reach a neighbour through it.
func TestHeaderValuesDoNotShareMemoryThatCanBeWritten(t *testing.T) {
	rej := Rejection{Nonce: "n", Help: "https://ca.example/"}
	first, second := http.Header{}, http.Header{}
	rej.SetHeaders(first)
	rej.SetHeaders(second)
	want := second.Clone()

	for key := range first {
		require.Equal(t, len(first[key]), cap(first[key]), "%s has room to append into", key)
		first.Add(key, "appended")
		first[key][0] = "changed"
	}
	require.Equal(t, want, second)
	for key := range first {
		require.Equal(t, []string{"changed", "appended"}, first[key])
	}
}

// A slice with room behind it may belong to somebody; appending to it in place
// would write into their memory.
func TestLinksOfOthersAreCopiedBeforeGrowing(t *testing.T) {
	shared := []string{"<https://a.example/>;rel=\"index\"", "untouched"}
	h := http.Header{"Link": shared[:1]}
	Rejection{Help: "https://ca.example/"}.SetHeaders(h)
	require.Equal(t, "untouched", shared[1])
}

func TestFieldsGrowPastTheirFirstArray(t *testing.T) {
	h := http.Header{}
	f := fields{h: h, free: make([]string, 0, 1)}
	f.set("A", "1")
	f.set("B", "2")
	f.set("C", "3")
	require.Equal(t, http.Header{"A": {"1"}, "B": {"2"}, "C": {"3"}}, h)
}

func TestHeaderKeysAreCanonical(t *testing.T) {
	keys := slices.Concat(cachingFields[:], foreignFields[:], []string{keyRetryAfter, keyCacheControl,
		keyReplayNonce, keyLink, keyContentType, keyContentLength, keyNosniff, keyRequestID})
	for _, key := range keys {
		require.Equal(t, http.CanonicalHeaderKey(key), key)
	}
}

var helpURLs = map[string]bool{
	"https://ca.example":                        true,
	"https://ca.example/limits?from=acme&x='1'": true,
	"http://ca.example:8080/a%20b#c":            true,
	"HTTPS://CA.example/":                       true,
	"https://[2001:db8::1]/":                    true,
	"":                                          false,
	"https://":                                  false,
	"https:///path":                             false,
	"https://?x":                                false,
	"https:ca.example":                          false,
	"//ca.example/":                             false,
	"/limits":                                   false,
	"ftp://ca.example/":                         false,
	"mailto:ca@example.org":                     false,
	"javascript:alert(1)":                       false,
	"data:text/html,x":                          false,
	" https://ca.example/":                      false,
	"https://ca.example/ ":                      false,
	"https://ca.example/>;rel=\"next\"":         false,
	"https://ca.example/\"onclick=\"x":          false,
	"https://ca.example/\r\nSet-Cookie: a=b":    false,
	"https://ca.example/\x00":                   false,
	"https://ca.example/\\":                     false,
	"https://ca.example/{x}":                    false,
	"https://ca.exämple/":                       false,
}

func TestValidHelp(t *testing.T) {
	for _, s := range slices.Sorted(maps.Keys(helpURLs)) {
		require.Equal(t, helpURLs[s], ValidHelp(s), "%q", s)
	}
}

func FuzzHelpAndNonceAreSafeInAHeader(f *testing.F) {
	for s := range helpURLs {
		f.Add(s, "aB3-_")
	}
	for _, s := range hostile {
		f.Add("https://ca.example/"+s, s)
	}
	f.Fuzz(func(t *testing.T, help, nonce string) {
		h := http.Header{}
		Rejection{Help: help, Nonce: nonce}.SetHeaders(h)
		for key, values := range h {
			require.Len(t, values, 1)
			require.True(t, httpguts.ValidHeaderFieldValue(values[0]), "%s: %q", key, values[0])
		}
		if link := h.Get("Link"); link != "" {
			require.Equal(t, "<"+help+`>;rel="help"`, link)
			require.NotContains(t, help, ">")
		}
	})
}
