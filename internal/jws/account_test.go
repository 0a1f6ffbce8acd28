package jws

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// account is the account that a request claims.
func account(r *http.Request, limit int64) (kid string, ok bool) {
	c := Read(r, limit, false)
	return c.Account, c.Account != ""
}

// mediaType is that of every ACME request with a body (RFC 8555 §6.2).
const mediaType = "application/jose+json"

func TestAccount(t *testing.T) {
	for _, tt := range []struct {
		name      string
		method    string
		mediaType string
		want      bool // and the body is read
	}{
		{"a POST of the media type", "POST", mediaType, true},
		{"plain JSON, which Vault takes", "POST", "application/json", true},
		{"a form", "POST", "application/x-www-form-urlencoded", true},
		{"an empty media type", "POST", "", true},
		{"PUT, which Vault takes for POST", "PUT", mediaType, true},
		{"GET", "GET", mediaType, false},
		{"HEAD", "HEAD", mediaType, false},
		{"PATCH", "PATCH", mediaType, false},
		{"post in small letters", "post", mediaType, false},
		{"no method", "", mediaType, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := byKID(quoted(own))
			body := strings.NewReader(text)
			r := posting(body)
			r.Method, r.Header["Content-Type"] = tt.method, []string{tt.mediaType}

			kid, ok := account(r, 1<<16)
			assert.Equal(t, tt.want, ok)
			if tt.want {
				assert.Equal(t, ownPath, kid)
			} else {
				assert.Empty(t, kid)
				assert.Equal(t, len(text), body.Len(), "the body was read for nothing")
			}
			whole, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Equal(t, text, string(whole))
		})
	}
}

// What names no account hides none only if it is plainly signed by a new key:
// to go-jose a "jwk" that is null is none, and encoding/json takes "KID" for "kid".
func TestHidden(t *testing.T) {
	protected := func(members string) string { return `"protected":"` + encode(header(members)) + `"` }
	for _, tt := range []struct {
		name string
		body string
		want bool
	}{
		{"a new key", signed(header(anyJWK)), false},
		{"a new key, and other members", `{"x":1,` + protected(`"a":{"kid":1},`+anyJWK) + `,"payload":"e30"}`, false},
		{"an account", byKID(quoted(own)), false},
		{"a null for a key, beside a kid", signed(header(`"kid":` + quoted(own) + `,"jwk":null`)), true},
		{"a key beside a kid", signed(header(`"kid":` + quoted(own) + `,` + anyJWK)), true},
		{"a key beside a KID", signed(header(`"KID":` + quoted(own) + `,` + anyJWK)), true},
		{"a key beside a kid in escapes", signed(header(`"\u006bid":` + quoted(own) + `,` + anyJWK)), true},
		{"a key, then a null", signed(header(anyJWK + `,"jwk":null`)), true},
		{"a key, then a null in capitals", signed(header(anyJWK + `,"JWK":null`)), true},
		{"a null for a key", signed(header(`"jwk":null`)), true},
		{"a text for a key", signed(header(`"jwk":"x"`)), true},
		{"only a JWK", signed(header(`"JWK":{}`)), true},
		{"an unprotected header", `{` + protected(anyJWK) + `,"header":{"kid":` + quoted(own) + `}}`, true},
		{"a second protected header in capitals", `{` + protected(anyJWK) + `,"PROTECTED":"` + encode(header(`"kid":`+quoted(own))) + `"}`, true},
		{"signatures", `{` + protected(anyJWK) + `,"signatures":[]}`, true},
		{"a form", "protected=x&payload=y", true},
		{"nothing", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, Read(posting(strings.NewReader(tt.body)), 1<<16, false).Hidden)
		})
	}
}

// Junk ahead of the header hides the account only where the limit is below what
// the server reads, and then the request is one without an account.
func TestAccountBehindJunk(t *testing.T) {
	protected := byKID(quoted(own))[1:]
	for _, tt := range []struct {
		name string
		junk string
		want bool
	}{
		{"60 KiB of a member", `{"x":"` + strings.Repeat("x", 60<<10) + `",`, true},
		{"60 KiB of spaces", strings.Repeat(" ", 60<<10) + "{", true},
		{"70 KiB of a member", `{"x":"` + strings.Repeat("x", 70<<10) + `",`, false},
		{"70 KiB of spaces", strings.Repeat(" ", 70<<10) + "{", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := posting(strings.NewReader(tt.junk + protected))
			_, ok := account(r, 64<<10)
			assert.Equal(t, tt.want, ok)
			whole, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Equal(t, tt.junk+protected, string(whole))
		})
	}
}

func TestAccountAtItsLimit(t *testing.T) {
	text := byKID(quoted(own))
	for delta, want := range map[int64]bool{-1: false, 0: true, 1: true} {
		_, ok := account(posting(strings.NewReader(text)), int64(len(text))+delta)
		assert.Equal(t, want, ok, "%+d bytes", delta)
	}
}

// A beginning that would make a whole JWS is not taken for one.
func TestAccountOfACutBody(t *testing.T) {
	text := byKID(quoted(own))
	r := posting(io.MultiReader(strings.NewReader(text), failing{}))
	_, ok := account(r, 1<<16)
	assert.False(t, ok, "the line broke before the end")

	r = posting(strings.NewReader(text + strings.Repeat(" ", 100)))
	_, ok = account(r, int64(len(text)))
	assert.False(t, ok, "the limit cut off the rest")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errBroken }

func TestAccountDoesNotDecompress(t *testing.T) {
	r := posting(strings.NewReader(byKID(quoted(own))))
	r.Header.Set("Content-Encoding", "gzip")
	_, ok := account(r, 1<<16)
	assert.True(t, ok, "servers read a plain body whatever Content-Encoding says")

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = io.WriteString(w, byKID(quoted(own)))
	assert.NoError(t, w.Close())
	r = posting(&packed)
	r.Header.Set("Content-Encoding", "gzip")
	_, ok = account(r, 1<<16)
	assert.False(t, ok)
}

func TestAccountWithoutABody(t *testing.T) {
	r := posting(nil)
	r.Body = http.NoBody
	_, ok := account(r, 1<<16)
	assert.False(t, ok)
}
