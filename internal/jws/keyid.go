package jws

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// KeyID returns the account that body names: the "kid" in the protected header
// of a flattened JWS (RFC 8555 §6.2, RFC 7515 §7.2.2), as [AccountPath] has it.
// It is safe for concurrent use, keeps nothing of body, and does work linear in
// its length whatever it holds.
//
// Names are compared byte for byte after JSON escapes are resolved, so
// "\u0070rotected" is the protected header. Decoders that fold letter case, as
// encoding/json does, take "KID" for "kid" and the last of several wins: Vault
// reads its headers so. What has one of the names in two spellings names two
// accounts, and a stranger could have a victim pay for what the server takes
// for the stranger's own.
//
// ok is false, and kid empty, for anything but one unambiguous claim:
//   - body is not exactly one JSON object: a compact JWS, a byte order mark, a
//     second value, nesting beyond 64 levels;
//   - it has "signatures" (a general JWS), or not exactly one "protected", in
//     any letter case;
//   - the header is not base64 of exactly one JSON object;
//   - the header has any "jwk", or not exactly one "kid", in any letter case,
//     that is a non-empty string;
//   - the kid holds U+FFFD. Decoders put that in the place of invalid UTF-8 and
//     of half a surrogate pair, which would make one account of many names.
//
// The payload is never looked into: there lie the inner JWS of a key change,
// whose signer is the new key (RFC 8555 §7.3.5), and that of an external
// account binding, whose kid belongs to another namespace (§7.3.4). The
// unprotected "header" is ignored too; ACME forbids it. Payload and signature
// may even be missing: asking for them would hinder nobody, as any bytes serve.
func KeyID(body []byte) (kid string, ok bool) {
	protected, ok := protectedHeader(body)
	if !ok {
		return "", false
	}
	// Room for an ordinary header and kid on the stack; longer ones move to the heap.
	var headerRoom [512]byte
	var nameRoom [128]byte
	header, ok := decodeBase64(headerRoom[:0], protected)
	if !ok {
		return "", false
	}
	value, ok := keyIDMember(header)
	if !ok {
		return "", false
	}
	name := unescape(nameRoom[:0], value)
	if len(name) == 0 || !utf8.Valid(name) || bytes.ContainsRune(name, utf8.RuneError) {
		return "", false
	}
	return AccountPath(string(name)), true
}

// protectedHeader returns what is between the quotes of the one "protected"
// member of a flattened JWS, JSON escapes and all.
func protectedHeader(body []byte) (protected []byte, ok bool) {
	o := openObject(body)
	for o.next() {
		switch {
		case o.folds("signatures"):
			return nil, false
		case o.folds("protected"):
			text, isString := o.stringValue()
			if ok || !isString || !o.is("protected") {
				return nil, false
			}
			protected, ok = text, true
		}
	}
	return protected, ok && o.alone()
}

// keyIDMember returns what is between the quotes of the "kid" of a protected
// header that has no "jwk" (RFC 8555 §6.2: exactly one of the two).
func keyIDMember(header []byte) (kid []byte, ok bool) {
	o := openObject(header)
	for o.next() {
		switch {
		case o.folds("jwk"):
			return nil, false
		case o.folds("kid"):
			text, isString := o.stringValue()
			if ok || !isString || !o.is("kid") {
				return nil, false
			}
			kid, ok = text, true
		}
	}
	return kid, ok && o.alone()
}

// AccountPath reduces an account URL to its path, as it is written: no
// percent-decoding and no cleaning, because servers compare account URLs as
// strings. Anything that does not begin with "scheme://" is returned whole, but
// for what follows.
//
// Some servers look only at what is behind the last slash of a kid: Vault
// whatever is before it, step-ca (path.Base, slashes at the end too) for accounts
// older than its check of their whole URL. /a/ID, /b/ID and ID are one account
// to them, and would be as many here as somebody cares to write. So an ID that
// is the only one of its kind wherever it stands, 128 random bits or more, is
// the whole name: a UUID (Vault), or 32 letters and digits of more than one kind
// (step-ca).
//
// A path that ends in a number loses the zeros and the plus sign before it.
// Some servers compare what is before that number, and the number by its value
// (strconv.ParseInt): /acme/acct/17, 017 and +17 are one account to them. No
// server gives two accounts such names: ids that are numbers are counted up and
// written without zeros, and random ones that may happen to be all digits have
// one length, so that they stay apart without their zeros.
//
// Servers that build their own prefix from the Host header (RFC 9110 §7.2)
// accept one account under as many authorities as a caller cares to send; with
// the authority kept, each would be an account of its own. Query and fragment
// go for the same reason. An empty path is "/" (RFC 3986 §6.2.3).
//
// net/url is not asked: it refuses some texts (a stray '%', a space) that would
// then be returned with their authority.
func AccountPath(kid string) string {
	if id := lastSegment(kid); isUnique(id) {
		return id
	}
	path := kid
	if scheme, rest, found := strings.Cut(kid, "://"); found && isScheme(scheme) {
		if end := strings.IndexAny(rest, "?#"); end >= 0 {
			rest = rest[:end]
		}
		path = "/"
		if start := strings.IndexByte(rest, '/'); start >= 0 {
			path = rest[start:]
		}
	} else if !strings.HasPrefix(kid, "/") {
		return kid
	}
	if id := lastSegment(path); isUnique(id) {
		return id
	}
	return plainNumber(path)
}

// lastSegment returns what is behind the last slash, slashes at the end apart.
func lastSegment(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// isUnique reports whether an id has the form of one that no two accounts have,
// wherever they are: a UUID, or 32 letters and digits that are not all of one
// kind, small, capital or digit.
func isUnique(id string) bool {
	if len(id) != 32 && len(id) != 36 {
		return false
	}
	var small, capital, digit bool
	for i := range len(id) {
		switch c := id[i]; {
		case len(id) == 36 && (i == 8 || i == 13 || i == 18 || i == 23):
			if c != '-' {
				return false
			}
		case '0' <= c && c <= '9':
			digit = true
		case len(id) == 36 && c|0x20 > 'f':
			return false
		case 'a' <= c && c <= 'z':
			small = true
		case 'A' <= c && c <= 'Z':
			capital = true
		default:
			return false
		}
	}
	return len(id) == 36 || small && capital || small && digit || capital && digit
}

// plainNumber writes the number that a path may end in without sign and zeros.
func plainNumber(path string) string {
	at := strings.LastIndexByte(path, '/') + 1
	digits := strings.TrimPrefix(path[at:], "+")
	if digits == "" || strings.ContainsFunc(digits, func(c rune) bool { return c < '0' || '9' < c }) {
		return path
	}
	number := strings.TrimLeft(digits, "0")
	if number == "" {
		number = "0"
	}
	if len(number) == len(path)-at {
		return path
	}
	return path[:at] + number
}

// isScheme reports whether s is a URI scheme (RFC 3986 §3.1).
func isScheme(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}
