package problem

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Header keys, all in canonical form: they index the map directly.
const (
	keyRetryAfter    = "Retry-After"
	keyCacheControl  = "Cache-Control"
	keyReplayNonce   = "Replay-Nonce"
	keyLink          = "Link"
	keyContentType   = "Content-Type"
	keyContentLength = "Content-Length"
	keyNosniff       = "X-Content-Type-Options"
)

// cachingFields would let a cache keep or revalidate a refusal in spite of
// no-store; the targeted ones (RFC 9213) outrank Cache-Control.
var cachingFields = [...]string{
	"Age", "Cdn-Cache-Control", "Etag", "Expires", "Last-Modified", "Surrogate-Control",
}

// SetHeaders sets what every refusal carries: Retry-After and Cache-Control:
// no-store, plus Replay-Nonce and Link where rej has a sound Nonce or Help. It
// removes fields that would allow caching all the same (ETag, Expires and their
// kin). Link is added to links already there; the rest replaces.
//
// Each Writer of this package calls it, and one of yours should, before
// WriteHeader. Calling it twice is the same as once. It does not touch
// Content-Type or Content-Length. A Writer for another protocol than ACME
// should clear rej.Nonce first.
func (rej Rejection) SetHeaders(h http.Header) {
	f := fields{h: h, free: make([]string, 0, 4)}
	rej.setFields(&f, strconv.FormatInt(RetryAfterSeconds(rej.RetryAfter), 10))
}

// setFields is SetHeaders with the wait already in digits.
func (rej *Rejection) setFields(f *fields, retryAfter string) {
	if len(f.h) > 0 {
		for _, key := range cachingFields {
			delete(f.h, key)
		}
	}
	f.set(keyRetryAfter, retryAfter)
	f.set(keyCacheControl, "no-store")
	if validNonce(rej.Nonce) {
		f.set(keyReplayNonce, rej.Nonce)
	}
	if ValidHelp(rej.Help) {
		f.addLink("<" + rej.Help + `>;rel="help"`)
	}
}

// fields sets single-valued header fields whose values share one backing array.
//
// The array is fresh for every response and each value is a slice of capacity
// one: whoever appends to a field copies it first, and nobody's write reaches
// another field or another response. A package-level []string{"no-store"} would
// save the array, and let one middleware's h["Cache-Control"][0] = … change all
// later refusals.
type fields struct {
	h    http.Header
	free []string // length is what is used; past its capacity append moves on to a new array
}

func (f *fields) set(key, value string) {
	f.free = append(f.free, value)
	n := len(f.free)
	f.h[key] = f.free[n-1 : n : n]
}

// addLink keeps the links that others have set: RFC 8555 section 7.1 wants an
// "index" link on ACME answers.
func (f *fields) addLink(link string) {
	links := f.h[keyLink]
	switch {
	case len(links) == 0:
		f.set(keyLink, link)
	case !slices.Contains(links, link):
		f.h[keyLink] = append(slices.Clip(links), link)
	}
}

// validNonce reports whether s may stand in Replay-Nonce: base64url characters
// only (RFC 8555 section 6.5.1). Clients must ignore any other value, so it is
// better left out.
func validNonce(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}

// ValidHelp reports whether s can be sent as [Rejection.Help]: an absolute
// http or https URL with a host, in the ASCII form of RFC 3986 (anything else
// percent-encoded). Nothing that passes can end the angle brackets of a Link
// field or the header line, or run as a script when clicked.
//
// Writers leave out a link that does not pass; check it where it is configured.
func ValidHelp(s string) bool {
	const web, secure = "http://", "https://"
	n := len(web)
	if len(s) >= len(secure) && strings.EqualFold(s[:len(secure)], secure) {
		n = len(secure)
	} else if len(s) < n || !strings.EqualFold(s[:n], web) {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && strings.IndexByte("-._~:/?#[]@!$&'()*+,;=%", s[i]) < 0 {
			return false
		}
	}
	return n < len(s) && strings.IndexByte("/?#:@", s[n]) < 0
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
