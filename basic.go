package weir

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
)

// basicUser returns the user of HTTP Basic (RFC 7617) as the request's BasicAuth
// does, of the first Authorization field. It decodes on the stack: the password
// is copied nowhere that lasts, and half of the allocations are spared where each
// request asks twice, for its account and for the auth lock.
func basicUser(r *http.Request) (user string, ok bool) {
	const scheme = "Basic "
	field := r.Header.Get("Authorization")
	if len(field) < len(scheme) || !strings.EqualFold(field[:len(scheme)], scheme) {
		return "", false
	}
	encoded := field[len(scheme):]
	var room [384]byte
	if base64.StdEncoding.DecodedLen(len(encoded)) > len(room) {
		user, _, ok = r.BasicAuth()
		return user, ok
	}
	n, err := base64.StdEncoding.Decode(room[:], []byte(encoded))
	if err != nil {
		return "", false
	}
	colon := bytes.IndexByte(room[:n], ':')
	if colon < 0 {
		return "", false
	}
	return string(room[:colon]), true
}
