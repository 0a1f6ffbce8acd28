package jws

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unescape resolves the escapes of RFC 8259 §7 in what is between the quotes of
// a valid JSON string. Half a surrogate pair becomes U+FFFD, as in
// encoding/json. It returns text itself where there is nothing to resolve, else
// it appends to dst, never more bytes than text has.
func unescape(dst, text []byte) []byte {
	at := bytes.IndexByte(text, '\\')
	if at < 0 {
		return text
	}
	dst = slices.Grow(dst, len(text))
	for ; at >= 0; at = bytes.IndexByte(text, '\\') {
		dst = append(dst, text[:at]...)
		c := text[at+1]
		text = text[at+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			var r rune
			r, text = codePoint(text)
			dst = utf8.AppendRune(dst, r)
		default: // '"', '\\' and '/' stand for themselves
			dst = append(dst, c)
		}
	}
	return append(dst, text...)
}

// codePoint reads the four hex digits behind a \u and, if they are the first
// half of a surrogate pair, the escape with the second half.
func codePoint(text []byte) (r rune, rest []byte) {
	r, rest = hex4(text), text[4:]
	if !utf16.IsSurrogate(r) || !bytes.HasPrefix(rest, []byte(`\u`)) {
		return r, rest // a lone half is encoded as U+FFFD by AppendRune
	}
	if pair := utf16.DecodeRune(r, hex4(rest[2:])); pair != utf8.RuneError {
		return pair, rest[6:]
	}
	return utf8.RuneError, rest // the second escape speaks for itself
}

// hex4 returns the value of the four hex digits that text begins with.
func hex4(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16)
	return rune(n)
}

// decodeBase64 appends to dst what text, the inside of a JSON string, encodes.
// RFC 7515 §2 asks for base64url without padding or line breaks, but servers
// were seen to accept more, and a header that they read must not be invisible
// here: '\r', '\n' and '=' are passed over wherever they are, and '+' and '/'
// are taken for '-' and '_'. ok is false for any other byte outside the
// alphabet and for a length that no bytes encode to.
func decodeBase64(dst, text []byte) (decoded []byte, ok bool) {
	var escaped, digits [512]byte
	text = unescape(escaped[:0], text)
	strict := slices.Grow(digits[:0], len(text))
	for _, c := range text {
		switch c {
		case '\r', '\n', '=':
		case '+':
			strict = append(strict, '-')
		case '/':
			strict = append(strict, '_')
		default:
			strict = append(strict, c)
		}
	}
	decoded, err := base64.RawURLEncoding.AppendDecode(dst, strict)
	return decoded, err == nil
}
