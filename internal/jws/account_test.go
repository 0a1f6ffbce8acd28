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

func TestAccount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		method string
		types  []string
		want   bool // and the body is read
	}{
		{"a POST of the media type", "POST", []string{"application/jose+json"}, true},
		{"the media type in capitals", "POST", []string{"Application/JOSE+JSON"}, true},
		{"the media type with a charset", "POST", []string{"application/jose+json; charset=utf-8"}, true},
		{"the media type with a semicolon", "POST", []string{"application/jose+json;"}, true},
		{"plain JSON", "POST", []string{"application/json"}, false},
		{"a compact JWS", "POST", []string{"application/jose"}, false},
		{"a longer media type", "POST", []string{"application/jose+json2"}, false},
		{"an empty media type", "POST", []string{""}, false},
		{"no media type", "POST", nil, false},
		{"two media types in one field", "POST", []string{"application/jose+json, application/jose+json"}, false},
		{"two media type fields", "POST", []string{"application/jose+json", "application/jose+json"}, true},
		{"another media type field before it", "POST", []string{"x/y", "application/jose+json"}, true},
		{"GET", "GET", []string{"application/jose+json"}, false},
		{"HEAD", "HEAD", []string{"application/jose+json"}, false},
		{"PUT", "PUT", []string{"application/jose+json"}, false},
		{"post in small letters", "post", []string{"application/jose+json"}, false},
		{"no method", "", []string{"application/jose+json"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := byKID(quoted(own))
			body := strings.NewReader(text)
			r := posting(body)
			r.Method, r.Header["Content-Type"] = tt.method, tt.types

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
