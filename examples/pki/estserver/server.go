// Package estserver serves EST (RFC 7030, with the corrections of RFC 8951) on
// an authority of the caller's: cacerts, csrattrs, simpleenroll, simplereenroll
// and serverkeygen, each with and without a label.
package estserver

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/weir-go/weir/examples/pki/authority"
)

// Prefix is where EST lives on every host (RFC 7030, section 3.2.2).
const Prefix = "/.well-known/est/"

// Config says who may enrol, and where.
type Config struct {
	Authority      *authority.Authority
	User, Password string // HTTP Basic, wanted for whatever issues
}

// server answers for one authority.
type server struct {
	Config
	operations map[string]operation
}

// operation is one of EST's, by the last part of its path.
type operation struct {
	method string
	serve  http.HandlerFunc
}

// New returns the handler. What issues wants the user and the password; to enrol
// again wants the certificate besides, so the server's tls.Config must request
// one. Errors are told in plain text (RFC 7030, section 4.2.3).
func New(cfg Config) http.Handler {
	s := &server{Config: cfg}
	s.operations = map[string]operation{
		"cacerts":        {http.MethodGet, s.caCerts},
		"csrattrs":       {http.MethodGet, s.csrAttrs},
		"simpleenroll":   {http.MethodPost, s.known(s.enrol)},
		"simplereenroll": {http.MethodPost, s.known(s.enrolAgain)},
		"serverkeygen":   {http.MethodPost, s.known(s.serverKeyGen)},
	}
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if label, rest, ok := strings.Cut(name, "/"); ok && label != "" {
		name = rest // one authority under every label
	}
	op, ok := s.operations[name]
	switch {
	case !ok:
		http.NotFound(w, r)
	case r.Method != op.method:
		w.Header().Set("Allow", op.method)
		http.Error(w, "write "+op.method, http.StatusMethodNotAllowed)
	default:
		op.serve(w, r)
	}
}

// known lets only those in who have the password.
func (s *server) known(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		// Both are compared in any case, in a time that tells nothing.
		if same(user, s.User)&same(password, s.Password) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="est"`)
			http.Error(w, "user or password wrong", http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func same(a, b string) int { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) }
