package jws

import (
	"net/http"
	"slices"
	"strings"
)

// mediaType is that of every ACME request with a body (RFC 8555 §6.2).
const mediaType = "application/jose+json"

// Claim is what an ACME request says of itself.
type Claim struct {
	Account  string // [KeyID]; "" if none
	Replaces string // the certificate that an order replaces; "" if none
	// Hidden says of a request without an account that a server might find one
	// in it: its body is too long to look at, or cannot be read here. One that
	// is signed by a new key ("jwk") hides nothing.
	Hidden bool
	Read   bool // the body was read to its end
}

// Read returns what r claims within the first limit bytes of its body. The
// body stays unread, and the claim empty, unless r is a POST that calls its
// body application/jose+json: in any letter case (RFC 9110 §8.3.1), with
// parameters or without, in any of several Content-Type lines. Servers differ
// in which of these they take, and one that is taken without an account here
// would cost its owner nothing. Replaces is looked for if order is true.
//
// A Content-Encoding is not looked at. Servers ignore it, and decompressing
// what a stranger sent is work that nobody asked for.
func Read(r *http.Request, limit int64, order bool) (c Claim) {
	if !Announced(r) {
		return c
	}
	body, complete := Peek(r, limit)
	if c.Read = complete; !complete {
		c.Hidden = true
		return c
	}
	var ok bool
	if c.Account, ok = KeyID(body); !ok {
		c.Hidden = !hasKey(body)
	} else if order {
		c.Replaces, _ = Replaces(body)
	}
	return c
}

// Announced reports whether r has a body that [Read] reads.
func Announced(r *http.Request) bool {
	return r.Method == http.MethodPost && slices.ContainsFunc(r.Header["Content-Type"], isJOSE)
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
