package jws

import (
	"io"
	"math"
	"net/http"
	"sync/atomic"
)

const (
	// firstRead is the most memory, in bytes, that a body gets on the strength
	// of its announced length alone. From there on the buffer doubles, so a
	// client that announces much and sends little holds little. Most ACME
	// bodies are below 1 KiB.
	firstRead = 4 << 10

	// maxEmptyReads bounds how often a body may answer a read with nothing at
	// all before Peek gives up on it, as bufio does.
	maxEmptyReads = 100
)

// Peek reads the body of r up to limit bytes and puts back one that yields the
// same bytes, then the same error, and then whatever the original goes on to
// say. Nothing else in r changes. A negative limit counts as 0.
//
// complete is true if body is the whole of it. It is false if there are more
// than limit bytes (one byte past limit is read to tell) or if a read failed
// before the end; body is then the beginning. A body whose announced length is
// above limit is left unread, and body is nil: the answer is known.
//
// body shares memory with the body that was put back, and must not be written
// to. Reading waits for the client and, where r expects it, sends 100 Continue
// (RFC 9110 §10.1.1): call Peek only after the checks that need no body, and
// hold nothing scarce meanwhile. Deadlines are the server's (ReadTimeout).
//
// Closing the new body closes the original, which may happen during a Read, as
// http.Transport does it; a Read after that returns http.ErrBodyReadAfterClose.
func Peek(r *http.Request, limit int64) (body []byte, complete bool) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	limit = min(max(limit, 0), math.MaxInt64-1)
	if r.ContentLength > limit {
		return nil, false
	}
	read, err := readSome(r.Body, limit+1, r.ContentLength)
	r.Body = &replayed{read: read, err: err, rest: r.Body, whole: err == io.EOF}
	if n := min(int64(len(read)), limit); n < int64(len(read)) {
		return read[:n:n], false
	}
	return read[:len(read):len(read)], err == io.EOF
}

// readSome reads from body until most bytes are there or a read says anything
// but nil, which it returns. announced is the likely length, unknown if < 1.
// It is no io.ReadAll of an io.LimitReader, as that cannot tell a body that
// ends from one that is cut off.
func readSome(body io.Reader, most, announced int64) (read []byte, err error) {
	size := int64(512)
	if announced > 0 {
		size = min(announced+1, firstRead) // one to spare for the read that finds the end
	}
	read = make([]byte, 0, min(size, most))
	for empty := 0; int64(len(read)) < most && empty < maxEmptyReads; {
		if len(read) == cap(read) {
			grown := make([]byte, len(read), min(2*int64(cap(read)), most))
			copy(grown, read)
			read = grown
		}
		n, err := body.Read(read[len(read):cap(read)])
		read = read[:len(read)+n]
		if err != nil {
			return read, err
		}
		if n > 0 {
			empty = 0
		} else {
			empty++
		}
	}
	return read, nil
}

// Over reports whether r has no body, or one that [Peek] has read to its end:
// the server has nothing to read then.
func Over(r *http.Request) bool {
	b, ok := r.Body.(*replayed)
	return r.Body == nil || r.Body == http.NoBody || ok && b.whole
}

// replayed is a body of which some was read ahead.
//
// Read, like that of any reader, is for one goroutine at a time and owns read
// and err. Close may come from another while Read waits for the client, so the
// two share only an atomic: with a mutex, Close would wait for the client too.
type replayed struct {
	read   []byte // bytes ahead of rest
	err    error  // what rest said behind them; nil if it was not asked, or told
	rest   io.ReadCloser
	whole  bool // rest was read to its end
	closed atomic.Bool
}

func (b *replayed) Read(p []byte) (n int, err error) {
	switch {
	case b.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case len(b.read) > 0:
		n = copy(p, b.read)
		if b.read = b.read[n:]; len(b.read) == 0 {
			b.read = nil // let go of the memory: the handler may go on for long
		}
		return n, nil
	case b.err != nil:
		// Told once: whether an error stays is for the original to say.
		err, b.err = b.err, nil
		return 0, err
	default:
		return b.rest.Read(p)
	}
}

func (b *replayed) Close() error {
	b.closed.Store(true)
	return b.rest.Close()
}
