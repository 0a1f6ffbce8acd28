package weir

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// wrapped is a ResponseWriter of ours around the server's. It has what a
// handler may ask the server's for: to flush (HTTP/1.1 and HTTP/2), to send a
// file (io.ReaderFrom), and Unwrap for what http.ResponseController does. Only
// hijacking is not a thing that every connection can do; see writerFor.
type wrapped interface {
	http.ResponseWriter
	http.Flusher
	FlushError() error
	io.ReaderFrom
	io.StringWriter
	Unwrap() http.ResponseWriter
	hijacked() // is told when the handler has taken the connection over
}

var _ = []wrapped{(*signIn)(nil), (*watch)(nil)}

// writerFor returns w, with http.Hijacker if what it wraps has it: handlers
// find out whether they can hijack by asking for the interface.
func writerFor(w wrapped) http.ResponseWriter {
	if canHijack(w.Unwrap()) {
		return hijackable{w}
	}
	return w
}

type hijackable struct{ wrapped }

// Hijack implements http.Hijacker.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.wrapped.Unwrap()).Hijack()
	if err == nil {
		h.hijacked()
	}
	return conn, rw, err
}

// canHijack walks the wrappers down to the server's own ResponseWriter.
func canHijack(w http.ResponseWriter) bool {
	for {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}
