package weir

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// signedRequest is a request for an object with that Authorization.
func signedRequest(authorization, query string) *http.Request {
	r := httptest.NewRequest("GET", "/s3/bucket/key?"+query, nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

const sigV4Rest = "/20261130/eu-central-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=fe5f80"

func TestTheCredentialOfARequestIsFound(t *testing.T) {
	const none = "\x00" // no credential
	scope := url.QueryEscape("AKIAEXAMPLE/20261130/eu-central-1/s3/aws4_request")
	for _, tt := range []struct {
		name, auth string
		r          *http.Request
		id         string
	}{
		{"the user of HTTP Basic", AuthBasic, signedRequest("Basic Ym9iOnNlY3JldA==", ""), "bob"},
		{"the user of HTTP Basic with no password", AuthBasic, signedRequest("Basic Ym9iOg==", ""), "bob"},
		{"no header", AuthBasic, signedRequest("", ""), none},
		{"broken base64", AuthBasic, signedRequest("Basic %%%", ""), none},
		{"no colon", AuthBasic, signedRequest("Basic Ym9i", ""), none},
		{"an empty user", AuthBasic, signedRequest("Basic OnNlY3JldA==", ""), none},
		{"another scheme", AuthBasic, signedRequest("Digest username=bob", ""), none},
		{"a user of a megabyte", AuthBasic, basic(strings.Repeat("x", 1<<20)), none},
		{"a user that is no text", AuthBasic, basic("b\xffb"), none},

		{"a signature in the header", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest, ""), "akiaexample"},
		{"without blanks", AuthSigV4, signedRequest(strings.ReplaceAll("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest, ", ", ","), ""), "akiaexample"},
		{"with a key over all regions (4A)", AuthSigV4, signedRequest("AWS4-ECDSA-P256-SHA256 Credential=AKIAEXAMPLE/20261130/s3/aws4_request, SignedHeaders=host, Signature=30", ""), "akiaexample"},
		{"with a slash in the id", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=team/bob"+sigV4Rest, ""), "team/bob"},
		{"version 2", AuthSigV4, signedRequest("AWS AKIAEXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", ""), "akiaexample"},
		{"a presigned URL", AuthSigV4, signedRequest("", "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+scope+"&X-Amz-Signature=fe5f80"), "akiaexample"},
		{"a presigned URL with an escaped name", AuthSigV4, signedRequest("", "X%2DAmz%2DCredential="+scope+"&X-Amz-Signature=fe5f80"), "akiaexample"},
		{"a presigned URL, version 2", AuthSigV4, signedRequest("", "AWSAccessKeyId=AKIAEXAMPLE&Expires=1&Signature=vj"), "akiaexample"},
		{"one id in two places", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest, "X-Amz-Credential="+scope+"&X-Amz-Signature=fe"), "akiaexample"},
		{"two ids count for the address alone", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=ANOTHER"+sigV4Rest, "X-Amz-Credential="+scope+"&X-Amz-Signature=fe"), ""},
		{"no signature", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20261130/eu/s3/aws4_request", ""), none},
		{"a presigned URL without a signature", AuthSigV4, signedRequest("", "X-Amz-Credential="+scope), none},
		{"no scope", AuthSigV4, signedRequest("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE, Signature=fe", ""), none},
		{"nothing", AuthSigV4, signedRequest("", "prefix=a&list-type=2"), none},

		{"a token", AuthBearer, signedRequest("Bearer abc.def", ""), "d4e8e4f4"},
		{"a token, the scheme in capitals", AuthBearer, signedRequest("BEARER abc.def", ""), "d4e8e4f4"},
		{"an empty token", AuthBearer, signedRequest("Bearer ", ""), none},
		{"another scheme than a token's", AuthBearer, signedRequest("Basic Ym9iOnNlY3JldA==", ""), none},

		{"what only the handler knows", AuthHandler, signedRequest("Basic Ym9iOnNlY3JldA==", ""), none},
		{"what is no attempt", AuthNone, signedRequest("Basic Ym9iOnNlY3JldA==", ""), none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, ok := credentialOf(tt.auth, tt.r)
			if tt.auth == AuthBearer && ok { // the token itself is never told
				if len(c.ID) != 64 || strings.Contains(c.ID, "abc") {
					t.Fatalf("the id of a token is %q", c.ID)
				}
				return
			}
			if ok != (tt.id != none) || ok && c.ID != tt.id {
				t.Errorf("%q, %v, want %q", c.ID, ok, tt.id)
			}
			if want := map[bool]string{true: tt.id}[ok && tt.auth == AuthBasic]; c.Account != want {
				t.Errorf("account %q, want %q", c.Account, want)
			}
		})
	}
}

func basic(user string) *http.Request {
	r := signedRequest("", "")
	r.SetBasicAuth(user, "secret")
	return r
}

// Scenario M8: one user, one counter, however the name is spelt.
func TestSpellingsOfOneNameAreOne(t *testing.T) {
	for _, tt := range []struct {
		name string
		ids  []string
	}{
		{"case", []string{"bob", "BOB", "Bob"}},
		{"case beyond ASCII", []string{"jürgen", "JÜRGEN", "Jürgen"}},
		{"case that has three forms", []string{"σίσυφος", "ΣΊΣΥΦΟΣ", "σίσυφοσ"}},
		{"the Kelvin sign", []string{"kim", "\u212aim", "KIM"}},
		{"space around", []string{"bob", " bob ", "bob\t", "\u00a0bob", "\u3000bob"}},
		{"width", []string{"bob@example.org", "ｂｏｂ＠ｅｘａｍｐｌｅ．ｏｒｇ"}},
		{"what cannot be seen", []string{"bob", "b\u200bob", "bo\u00adb", "\ufeffbob", "bob\u200d", "bob\ufe0f", "bob\u034f"}},
		{"control characters", []string{"bob", "bob\x00", "bob\x00\x00\x00", "\x1bbob"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want, ok := folded(tt.ids[0], true)
			if !ok {
				t.Fatalf("%q is no id", tt.ids[0])
			}
			for _, id := range tt.ids[1:] {
				if got, ok := folded(id, true); got != want || !ok {
					t.Errorf("%q folds to %q, %v, want %q like %q", id, got, ok, want, tt.ids[0])
				}
			}
		})
	}
	for _, pair := range [][2]string{{"bob", "rob"}, {"bob", "bo b"}, {"b.ob", "bob"}, {"bob", "bob@example.org"}, {"müller", "muller"}} {
		a, _ := folded(pair[0], true)
		if b, _ := folded(pair[1], true); a == b {
			t.Errorf("%q and %q are one", pair[0], pair[1])
		}
	}
	for _, none := range []string{"", " ", "\x00", "\u200b", "b\xff", strings.Repeat("x", 257), strings.Repeat("ü", 129)} {
		if got, ok := folded(none, true); ok {
			t.Errorf("%.20q is the id %.20q", none, got)
		}
	}
	if got, ok := folded(strings.Repeat("x", 256)+strings.Repeat(" ", 5000), true); !ok || len(got) != 256 {
		t.Errorf("256 bytes and blanks: %d bytes, %v", len(got), ok)
	}
}

// A fold of a fold is the same, is bounded, and nothing panics.
func FuzzFold(f *testing.F) {
	for _, id := range []string{"bob", "BOB", "ｂｏｂ", "b\u200bob", "σίσυφος", "\u212a", "\xff", "İ", "ǅ", "ß"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		once, ok := folded(id, true)
		if !ok {
			return
		}
		if len(once) > maxID || once == "" {
			t.Errorf("%q folds to %q", id, once)
		}
		if twice, ok := folded(once, true); !ok || twice != once {
			t.Errorf("%q folds to %q, and that to %q", id, once, twice)
		}
	})
}

// The parsers never panic, and find an id only where there is a signature.
func FuzzSignedBy(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest, "")
	f.Add("AWS a:b", "X-Amz-Credential=a%2Fb%2Fc%2Fd%2Faws4_request&X-Amz-Signature=1")
	f.Add("", "AWSAccessKeyId=a&Signature=b")
	f.Fuzz(func(t *testing.T, authorization, query string) {
		r := &http.Request{Header: http.Header{"Authorization": {authorization}}, URL: &url.URL{RawQuery: query}}
		c, ok := signedBy(r)
		if ok && !strings.Contains(strings.ToLower(authorization+query), "sign") && !strings.HasPrefix(authorization, "AWS ") && !strings.Contains(query, "%") {
			t.Errorf("%q and %q are signed by %q", authorization, query, c.ID)
		}
		if len(c.ID) > maxID || c.Account != "" {
			t.Errorf("%+v", c)
		}
	})
}
