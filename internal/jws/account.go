package jws

import "net/http"

// Claim is what an ACME request says of itself.
type Claim struct {
	Account  string // [KeyID]; "" if none
	Replaces string // the certificate that an order replaces; "" if none
	// Hidden says of a request without an account that a server might find one
	// in it: its body is too long to look at, or cannot be read here. One that
	// is plainly signed by a new key ("jwk"), and names no other, hides nothing.
	Hidden bool
	Read   bool // the body was read to its end
}

// Read returns what r claims within the first limit bytes of its body, if it is
// a POST, or a PUT, which Vault takes for one. Content-Type is not looked at:
// most servers ask for application/jose+json (RFC 8555 §6.2), each in its own
// spellings, Vault for none, and one that is taken without an account here
// would cost its owner nothing. Replaces is looked for if order is true.
//
// A Content-Encoding is not looked at either. Servers ignore it, and
// decompressing what a stranger sent is work that nobody asked for.
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

// Announced reports whether r may have a body that [Read] reads.
func Announced(r *http.Request) bool {
	return (r.Method == http.MethodPost || r.Method == http.MethodPut) && r.Body != nil && r.Body != http.NoBody
}

// hasKey reports whether a flattened JWS is signed by the key in its protected
// header, to any decoder. One that ignores letter case finds no other member,
// and one that takes null for nothing, as go-jose does, finds the "jwk".
func hasKey(body []byte) bool {
	protected, ok := protectedHeader(body)
	if !ok || mentions(body, "header") {
		return false
	}
	header, ok := decodeBase64(nil, protected)
	if !ok || mentions(header, "kid") {
		return false
	}
	found := false
	o := openObject(header)
	for o.next() {
		if o.folds("jwk") {
			if found || !o.is("jwk") || o.value[0] != '{' {
				return false
			}
			found = true
		}
	}
	return found && o.alone()
}

// mentions reports whether an object has a member of that name in any letter
// case.
func mentions(text []byte, name string) bool {
	o := openObject(text)
	for o.next() {
		if o.folds(name) {
			return true
		}
	}
	return false
}
