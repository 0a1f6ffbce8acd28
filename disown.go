package weir

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
)

// unproven are the ACME problem types (RFC 8555, section 6.7) that are answered
// before it is known that a request comes from the account it names: it cannot
// be read, its nonce, signature or URL is wrong, or there is no such account.
//
// Some of them are answered to the account's owner too, for an order that makes
// no sense, say. It is then the owner who gets the token back; the address pays
// in any case.
var unproven = []string{
	"urn:ietf:params:acme:error:malformed",
	"urn:ietf:params:acme:error:badNonce",
	"urn:ietf:params:acme:error:badSignatureAlgorithm",
	"urn:ietf:params:acme:error:accountDoesNotExist",
	"urn:ietf:params:acme:error:unauthorized",
}

// maxProblem is how many bytes of a problem document are looked at. A longer
// one is unreadable.
const maxProblem = 4 << 10

// watch is the answer to a request whose account is only claimed: it goes
// through untouched, and its status and, for ACME, its problem document tell
// whether the account was proved (requirement T9).
type watch struct {
	http.ResponseWriter
	acme   bool
	status int
	body   []byte // the beginning of an error
}

// charged returns the account that the request has taken a token from.
func (v *visit) charged() (account string, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.account, v.spent.from != nil
}

// disown gives the token back unless the answer shows that the account was
// proved. One that the handler has verified is. answered is false for a handler
// that panicked, or wrote nothing because its client had left.
func (w *watch) disown(v *visit, account string, answered bool) {
	if answered && !w.unproven() {
		return
	}
	v.mu.Lock()
	claimed := v.account == account && !v.verified
	v.mu.Unlock()
	if claimed {
		v.disown()
	}
}

// unproven reports whether an answer leaves open who asked. A failure of the
// server, a guard that shed the request, or an error that cannot be read is no
// proof: a stranger could bring them about in a victim's name, while the worst
// of a wrong guess is that somebody gets a token back whose address has paid.
func (w *watch) unproven() bool {
	if w.status == http.StatusUnauthorized || w.status >= 500 {
		return true
	}
	if !w.reads() {
		return false
	}
	var problem struct {
		Type string `json:"type"`
	}
	err := json.Unmarshal(w.body[:min(len(w.body), maxProblem)], &problem)
	return err != nil || len(w.body) > maxProblem || slices.Contains(unproven, problem.Type)
}

// reads reports whether the body is to be looked at.
func (w *watch) reads() bool { return w.acme && w.status >= 400 }

// WriteHeader implements http.ResponseWriter.
func (w *watch) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watch) Write(b []byte) (int, error) {
	if w.reads() {
		w.body = append(w.body, b[:min(len(b), maxProblem+1-len(w.body))]...)
	}
	return w.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (w *watch) WriteString(s string) (int, error) {
	if w.reads() {
		return w.Write([]byte(s))
	}
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements io.ReaderFrom.
func (w *watch) ReadFrom(r io.Reader) (int64, error) {
	if w.reads() {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	return io.Copy(w.ResponseWriter, r)
}

// FlushError is for http.ResponseController.
func (w *watch) FlushError() error { return http.NewResponseController(w.ResponseWriter).Flush() }

// Flush implements http.Flusher.
func (w *watch) Flush() { _ = w.FlushError() }

// Unwrap is for http.ResponseController.
func (w *watch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watch) hijacked() {}
