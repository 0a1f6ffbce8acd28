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
// one is none.
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

// disown gives the token back if the answer says so. An account that the
// handler has verified meanwhile is another one, or one that is proved.
func (w *watch) disown(v *visit, account string) {
	if !w.unproven() {
		return
	}
	if now, _ := v.charged(); now == account {
		v.disown()
	}
}

func (w *watch) unproven() bool {
	if w.status == http.StatusUnauthorized {
		return true
	}
	var problem struct {
		Type string `json:"type"`
	}
	return len(w.body) > 0 && len(w.body) <= maxProblem && json.Unmarshal(w.body, &problem) == nil && slices.Contains(unproven, problem.Type)
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
