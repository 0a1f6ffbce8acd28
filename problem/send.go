package problem

import (
	"net/http"
	"strconv"
	"sync"
)

const (
	typeProblemJSON = "application/problem+json"
	typeText        = "text/plain; charset=utf-8"
)

// foreignFields describe a body, or the way it is sent, that is not the one of
// the refusal. A handler that refuses half-way may have set them; RFC 7030
// servers set Content-Transfer-Encoding early. net/http removes Content-Encoding
// before the errors of ServeContent for the same reason.
//
// http.Error spares Content-Encoding for compressors that set it before they
// know the answer (golang/go#66343). Those break on the Content-Length below
// anyway, and an OCSP or ACME client given a wrong encoding can read nothing.
var foreignFields = [...]string{
	"Content-Encoding", "Content-Range", "Accept-Ranges",
	"Content-Disposition", "Content-Language", "Content-Location",
	"Content-Transfer-Encoding", "Transfer-Encoding", "Trailer",
	"Content-Digest", "Repr-Digest", "Digest", "Content-Md5",
}

// A body collects a document, so that Content-Length is known before the header
// goes out.
type body struct{ buf []byte }

var bodies = sync.Pool{New: func() any { return &body{buf: make([]byte, 0, 1024)} }}

// maxPooled bounds what a pooled buffer keeps: one refusal with an overlong path
// must not hold its memory for ever.
const maxPooled = 16 << 10

func newBody() *body {
	return bodies.Get().(*body)
}

func (b *body) release() {
	if cap(b.buf) > maxPooled {
		return
	}
	b.buf = b.buf[:0]
	bodies.Put(b)
}

// send is the way out of every Writer: header, then document, in one Write. It
// takes b over. An empty contentType means that there is no document.
//
// A failing or panicking Write loses b to the collector, which is all the
// cleaning up that is needed; its error has nobody to go to.
func send(w http.ResponseWriter, r *http.Request, rej *Rejection, contentType string, b *body) {
	h := w.Header()
	if len(h) > 0 { // it is empty on most refusals, and misses cost too
		for _, key := range foreignFields {
			delete(h, key)
		}
	}

	// Both numbers share one string: one allocation instead of two.
	var scratch [40]byte
	digits := strconv.AppendInt(scratch[:0], RetryAfterSeconds(rej.RetryAfter), 10)
	cut := len(digits)
	digits = strconv.AppendInt(digits, int64(len(b.buf)), 10)
	numbers := string(digits)

	f := fields{h: h, free: make([]string, 0, 7)}
	rej.setFields(&f, numbers[:cut])
	f.set(keyContentLength, numbers[cut:])
	f.set(keyNosniff, "nosniff")
	if contentType == "" {
		delete(h, keyContentType)
	} else {
		f.set(keyContentType, contentType)
	}

	w.WriteHeader(rej.StatusCode())
	if len(b.buf) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(b.buf)
	}
	b.release()
}
