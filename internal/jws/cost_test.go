package jws

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

// newOrder returns the text of a request like those that clients send, padded
// in its payload to size bytes: 600 for one name, 14000 for the CSR of 100.
func newOrder(size int) []byte {
	head := `{"alg":"ES256","kid":"https://ca.example/acme/acct/1234567","nonce":"bm9uY2Utb2YtMzItYnl0ZXMtb3Itc28tMDEyMzQ1Njc","url":"https://ca.example/acme/new-order"}`
	before, after := `{"protected":"`+encode(head)+`","payload":"`, `","signature":"`+strings.Repeat("s", 86)+`"}`
	return []byte(before + strings.Repeat("p", size-len(before)-len(after)) + after)
}

// rewinding is a body that a test reads over and over.
type rewinding struct{ bytes.Reader }

func (*rewinding) Close() error { return nil }

// replay returns a function that asks for the account of a request with the
// given text, as if it had just come in.
func replay(text []byte) func() (string, bool) {
	body := new(rewinding)
	r := &http.Request{Method: http.MethodPost, ContentLength: int64(len(text)), Header: http.Header{"Content-Type": {mediaType}}}
	return func() (string, bool) {
		body.Reset(text)
		r.Body = body
		return account(r, 64<<10)
	}
}

func BenchmarkAccount(b *testing.B) {
	for name, text := range map[string][]byte{"body=600B": newOrder(600), "body=14KB": newOrder(14_000)} {
		b.Run(name, func(b *testing.B) {
			account := replay(text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := account(); !ok {
					b.Fatal("no account")
				}
			}
		})
	}
}

func BenchmarkKeyID(b *testing.B) {
	bodies := map[string][]byte{"body=600B": newOrder(600), "body=14KB": newOrder(14_000)}
	for name, text := range hostileBodies(64 << 10) {
		bodies["hostile="+strings.ReplaceAll(name, " ", "_")] = []byte(text)
	}
	for name, text := range bodies {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				KeyID(text)
			}
		})
	}
}
