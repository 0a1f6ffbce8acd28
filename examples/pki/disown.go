package main

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/weir-go/weir"
)

// unproven are the problem types (RFC 8555, section 6.7) with which the
// authority answers before it knows that the request comes from the account it
// names: it cannot be read, its signature, nonce or URL is wrong, or there is
// no such account.
var unproven = []string{
	"urn:ietf:params:acme:error:malformed",
	"urn:ietf:params:acme:error:badNonce",
	"urn:ietf:params:acme:error:badSignatureAlgorithm",
	"urn:ietf:params:acme:error:accountDoesNotExist",
	"urn:ietf:params:acme:error:unauthorized",
}

// disownUnproven gives the token back that a request took from an account
// without proving to be that account's (requirement T9). The Limiter counts by
// the kid that a request claims, before anybody has looked at the signature;
// without this, junk that names a victim's kid would use up the victim's
// budget. The sender's address pays for the junk in any case.
//
// Some of these types are answered to the account's owner too, for an order
// that says nothing sensible; it is then the owner who gets the token back.
func disownUnproven(authority http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := problemReader{ResponseWriter: w}
		authority.ServeHTTP(&p, r)
		if slices.Contains(unproven, p.problemType()) {
			weir.Disown(r.Context())
		}
	})
}

// maxProblem is how many bytes of a problem document are looked at. Those of
// the authority have a few hundred.
const maxProblem = 4 << 10

// A problemReader keeps the beginning of an error's body on its way through.
type problemReader struct {
	http.ResponseWriter
	failed bool
	body   []byte
}

func (p *problemReader) WriteHeader(status int) {
	p.failed = status >= 400
	p.ResponseWriter.WriteHeader(status)
}

func (p *problemReader) Write(b []byte) (int, error) {
	if p.failed {
		p.body = append(p.body, b[:min(len(b), maxProblem-len(p.body))]...)
	}
	return p.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (p *problemReader) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *problemReader) problemType() string {
	var problem struct{ Type string }
	if !p.failed || json.Unmarshal(p.body, &problem) != nil {
		return ""
	}
	return problem.Type
}
