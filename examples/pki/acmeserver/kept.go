package acmeserver

import (
	"bytes"
	"io"
	"maps"
	"net/http"
)

// kept is an answer that has not been sent yet.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newKept() *kept { return &kept{header: http.Header{}, status: http.StatusOK} }

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }

func (k *kept) sendTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), k.header)
	w.WriteHeader(k.status)
	w.Write(k.body.Bytes())
}

// failed answers in place of a kept answer. Its header goes on, for the nonce
// in it is good; what describes its body does not.
func failed(w http.ResponseWriter, header http.Header) {
	maps.Copy(w.Header(), header)
	w.Header().Del("Location")
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusInternalServerError)
	io.WriteString(w, `{"type":"urn:ietf:params:acme:error:serverInternal","detail":"the signer failed","status":500}`)
}
