package jws

import (
	"net/http"
	"strings"
)

// mediaType is that of every ACME request with a body (RFC 8555 §6.2).
const mediaType = "application/jose+json"

// Account returns the account that r claims to come from: [KeyID] of what
// [Peek] reads within limit bytes. ok is false, and the body unread, unless r
// is a POST with one Content-Type field that is application/jose+json, in any
// letter case (RFC 9110 §8.3.1) and without parameters: none are registered
// (RFC 7515 §9.2.1), and servers answer 415, for which no body need be read.
//
// A Content-Encoding is not looked at. Servers ignore it, and decompressing
// what a stranger sent is work that nobody asked for.
func Account(r *http.Request, limit int64) (kid string, ok bool) {
	if r.Method != http.MethodPost {
		return "", false
	}
	if types := r.Header["Content-Type"]; len(types) != 1 || !strings.EqualFold(types[0], mediaType) {
		return "", false
	}
	body, complete := Peek(r, limit)
	if !complete {
		return "", false
	}
	return KeyID(body)
}
