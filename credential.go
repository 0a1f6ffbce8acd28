package weir

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Where the credential of a request is found; see [Endpoint].Auth.
const (
	AuthNone    = "none"    // there is none: requests of the class are no attempts
	AuthBasic   = "basic"   // the user of HTTP Basic (RFC 7617)
	AuthSigV4   = "sigv4"   // the access key id of an S3 request, signed in a header or in the URL
	AuthBearer  = "bearer"  // the token (RFC 6750), by its hash
	AuthHandler = "handler" // the handler finds it and calls [Limiter.Attempt], as a login form does
)

// Credential says what is about to be checked. Both ids leave the request as
// keyed hashes only. Spellings that differ in case, in surrounding space, in
// width or by invisible characters are one id; a directory that takes more
// spellings for the same user needs the id that it resolves the name to. An id
// that is not UTF-8, or longer than 256 bytes after that, is none.
type Credential struct {
	// ID is the credential: a user name, an access key id, the hash of a token.
	// With AddressLockConfig.PerCredential each has a count of its own at each
	// address.
	ID string
	// Account is whose account it proves, whether or not there is such an
	// account: what an unknown name is answered must not tell that it is one.
	// Empty: only the address counts.
	Account string
}

// credentialOf finds the credential that a request brings. ok is false where
// there is none that could be checked: such a request teaches its sender
// nothing, so it is no attempt (requirement L5).
func credentialOf(auth string, r *http.Request) (c Credential, ok bool) {
	switch auth {
	case AuthBasic:
		user, ok := basicUser(r)
		if user, ok = folded(user, ok); ok {
			return Credential{ID: user, Account: user}, true
		}
	case AuthSigV4:
		return signedBy(r)
	case AuthBearer:
		scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
		if token = strings.TrimSpace(token); found && token != "" && strings.EqualFold(scheme, "Bearer") {
			sum := sha256.Sum256([]byte(token))
			return Credential{ID: hex.EncodeToString(sum[:])}, true
		}
	}
	return Credential{}, false
}

// signedBy returns the access key id of an S3 request. One that names several
// is counted for its address without an id, since which of them is checked is
// not known here.
func signedBy(r *http.Request) (Credential, bool) {
	var ids []string
	if value := r.Header.Get("Authorization"); value != "" {
		if id, ok := accessKey(value); ok {
			ids = append(ids, id)
		}
	}
	ids = append(ids, presigned(r.URL.RawQuery)...)
	if len(ids) == 0 {
		return Credential{}, false
	}
	for _, id := range ids[1:] {
		if id != ids[0] {
			return Credential{}, true
		}
	}
	id, ok := folded(ids[0], true)
	return Credential{ID: id}, ok
}

// presigned returns the access key ids in the query of a presigned URL, if it
// has a signature.
func presigned(query string) (ids []string) {
	signed := false
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if len(name) > 64 { // longer than any of these in full escape
			continue
		}
		name, _ = url.QueryUnescape(name)
		switch value, _ = url.QueryUnescape(value); name {
		case "X-Amz-Credential":
			if id, ok := scopedKey(value); ok {
				ids = append(ids, id)
			}
		case "AWSAccessKeyId": // version 2
			if value != "" {
				ids = append(ids, value)
			}
		case "X-Amz-Signature", "Signature":
			signed = signed || value != ""
		}
	}
	if !signed {
		return nil
	}
	return ids
}

// accessKey reads an Authorization field: signature version 4 and 4A,
//
//	AWS4-HMAC-SHA256 Credential=ID/20261130/region/s3/aws4_request, SignedHeaders=…, Signature=…
//
// or version 2,
//
//	AWS ID:signature
func accessKey(value string) (id string, ok bool) {
	scheme, rest, _ := strings.Cut(value, " ")
	if scheme == "AWS" {
		id, signature, ok := strings.Cut(strings.TrimSpace(rest), ":")
		return id, ok && id != "" && signature != ""
	}
	if !strings.HasPrefix(scheme, "AWS4-") {
		return "", false
	}
	signed := false
	for field := range strings.SplitSeq(rest, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(field), "="); name {
		case "Credential":
			if id, ok = scopedKey(value); !ok {
				return "", false
			}
		case "Signature":
			signed = value != ""
		}
	}
	return id, ok && signed
}

// scopedKey returns the id in ID/date/region/service/aws4_request, a scope that
// has no region in version 4A. An id may itself contain slashes.
func scopedKey(scope string) (id string, ok bool) {
	const terminator = "/aws4_request"
	if id, ok = strings.CutSuffix(scope, terminator); !ok {
		return "", false
	}
	for range 3 { // service, region, date
		i := strings.LastIndexByte(id, '/')
		if i <= 0 {
			break
		}
		id = id[:i]
	}
	return id, id != "" && len(id) < len(scope)-len(terminator)-1
}

// maxID bounds an id, in bytes.
const maxID = 256

// folded returns the one spelling that stands for all spellings of an id. It
// is at least as coarse as what directories commonly do: two users that share
// a count are a nuisance, one that has two counts is a hole (Vault
// CVE-2025-6004, Authelia CVE-2026-47203).
func folded(id string, ok bool) (string, bool) {
	if !ok {
		return "", false
	}
	if !plain(id) {
		if !utf8.ValidString(id) {
			return "", false
		}
		id = strings.TrimSpace(strings.Map(foldRune, id))
	}
	return id, id != "" && len(id) <= maxID
}

// plain reports whether an id is its own fold: printable ASCII, no capitals, no
// blanks.
func plain(id string) bool {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// foldRune maps a character to the least of those that differ from it by case,
// and drops what cannot be seen: a NUL, a zero-width space, a soft hyphen.
func foldRune(r rune) rune {
	switch {
	case 0xFF01 <= r && r <= 0xFF5E: // full-width forms of ASCII
		r -= 0xFEE0
	case unicode.IsSpace(r):
		return ' '
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return -1
	}
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	if 'A' <= least && least <= 'Z' { // so that plain ids stay as they are
		return least + ('a' - 'A')
	}
	return least
}
