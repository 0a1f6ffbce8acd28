package jws

import (
	"net/http"
	"slices"
	"strings"
)

// mediaType is that of every ACME request with a body (RFC 8555 §6.2).
const mediaType = "application/jose+json"

// Account returns the account that r claims to come from: [KeyID] of what
// [Peek] reads within limit bytes. ok is false, and the body unread, unless r
// is a POST that calls its body application/jose+json: in any letter case (RFC
// 9110 §8.3.1), with parameters or without, in any of several Content-Type
// lines. Servers differ in which of these they take, and one that is taken
// without an account here would cost its owner nothing.
//
// A Content-Encoding is not looked at. Servers ignore it, and decompressing
// what a stranger sent is work that nobody asked for.
func Account(r *http.Request, limit int64) (kid string, ok bool) {
	kid, ok, _ = Claim(r, limit)
	return kid, ok
}

// Claim is [Account], and says of a request without one whether it is hidden: a
// body of the media type that is too long to look at, or that cannot be read
// here. A server might read it, and find an account. One that is signed by a
// new key ("jwk") hides nothing.
func Claim(r *http.Request, limit int64) (kid string, ok, hidden bool) {
	if r.Method != http.MethodPost || !slices.ContainsFunc(r.Header["Content-Type"], isJOSE) {
		return "", false, false
	}
	body, complete := Peek(r, limit)
	if !complete {
		return "", false, true
	}
	kid, ok = KeyID(body)
	return kid, ok, !ok && !hasKey(body)
}

// hasKey reports whether the protected header of a flattened JWS has a "jwk".
func hasKey(body []byte) bool {
	protected, ok := protectedHeader(body)
	if !ok {
		return false
	}
	header, ok := decodeBase64(nil, protected)
	if !ok {
		return false
	}
	found := false
	o := openObject(header)
	for o.next() {
		found = found || o.is("jwk")
	}
	return found && o.alone()
}

func isJOSE(line string) bool {
	line, _, _ = strings.Cut(line, ";")
	return strings.EqualFold(strings.TrimSpace(line), mediaType)
}
