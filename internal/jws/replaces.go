package jws

import (
	"bytes"
	"encoding/base64"
	"slices"
)

// maxKeyIdentifier and maxSerial bound the two parts of a certificate's
// identifier, in bytes. Key identifiers have 20 (RFC 5280 §4.2.1.2) or those of
// a longer hash, serial numbers 20 and a sign (§4.1.2.2).
const (
	maxKeyIdentifier = 64
	maxSerial        = 21
)

// Replaces returns the identifier of the certificate that a new order says it
// replaces: the "replaces" in the payload of a flattened JWS (RFC 9773 §5),
// AKI.serial in base64url (§4.1). It is safe for concurrent use, keeps nothing
// of body, and does work linear in its length.
//
// What it finds is a claim, and may become a privilege. So it is stricter than
// [KeyID], where a mistake on the side of nothing found is harmless too: no
// member may be there twice, or in another case (decoders that ignore it take
// "Replaces", and the last of several wins); payload and identifier must be
// written as the RFCs have them, without padding, line breaks, other alphabets
// or JSON escapes; and the identifier must be the only one of its certificate,
// with no bits left over and no zeros before the serial number.
func Replaces(body []byte) (certID string, ok bool) {
	encoded, ok := onlyString(body, "payload")
	if !ok {
		return "", false
	}
	var room [512]byte
	payload := slices.Grow(room[:0], base64.RawURLEncoding.DecodedLen(len(encoded)))
	payload, err := strictBase64.AppendDecode(payload, encoded)
	if err != nil || bytes.ContainsAny(encoded, "\r\n") { // which the decoder passes over
		return "", false
	}
	id, ok := onlyString(payload, "replaces")
	if !ok || !isCertID(id) {
		return "", false
	}
	return string(id), true
}

var strictBase64 = base64.RawURLEncoding.Strict()

// onlyString returns the value of the one member of an object that has a name
// in any case, if that is a string without escapes.
func onlyString(text []byte, name string) (value []byte, ok bool) {
	o := openObject(text)
	for o.next() {
		if !o.folds(name) {
			continue
		}
		inside, isString := o.stringValue()
		if ok || !isString || !o.is(name) || bytes.IndexByte(inside, '\\') >= 0 {
			return nil, false
		}
		value, ok = inside, true
	}
	return value, ok && o.alone()
}

// isCertID reports whether id is a certificate identifier in its one spelling.
func isCertID(id []byte) bool {
	aki, serial, found := bytes.Cut(id, []byte{'.'})
	if !found || len(aki) > base64.RawURLEncoding.EncodedLen(maxKeyIdentifier) || len(serial) > base64.RawURLEncoding.EncodedLen(maxSerial) || bytes.ContainsAny(id, "\r\n") {
		return false
	}
	var room [maxKeyIdentifier]byte
	if key, err := strictBase64.AppendDecode(room[:0], aki); err != nil || len(key) == 0 {
		return false
	}
	number, err := strictBase64.AppendDecode(room[:0], serial)
	if err != nil || len(number) == 0 || number[0] >= 0x80 { // negative
		return false
	}
	return number[0] != 0 || len(number) > 1 && number[1] >= 0x80 // DER: no more zeros than the sign needs
}
