package weir

import (
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// signIn is the answer to a request of a class that the auth lock applies to:
// the ResponseWriter that the handler writes to. It lets the answer through,
// keeps it back until its delay has been served, or drops it for a refusal.
// The stage serves delay and refusal when the handler has returned and its
// guard's slot is free: nobody waits for a guesser.
type signIn struct {
	http.ResponseWriter
	l      *Limiter
	r      *http.Request
	v      *visit
	c      *classPolicy // nil: none
	before http.Header  // as the handler found the header

	status int // 0: no header yet
	mode   answerMode
	taken  bool // hijacked
	kept   []byte

	mu      sync.Mutex // guards what follows; never held while an attempt is settled
	attempt *Attempt   // that the stage began
	claimed bool       // by the handler
	delay   time.Duration
	locked  *LockedError
}

// answerMode is what becomes of what the handler writes.
type answerMode uint8

const (
	passOn answerMode = iota
	keep              // until the delay has been served
	drop              // a refusal takes its place
)

// maxKept bounds the body of an answer that is kept back. A longer one, like
// one that is flushed, is a stream: it goes out at once.
const maxKept = 64 << 10

// The stage and attempts tell the answer what they know. All of it does
// nothing on a nil signIn: an attempt outside the stage.

// withhold has a refusal take the place of the answer.
func (s *signIn) withhold(err *LockedError) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked = err
}

// slow has the answer kept back.
func (s *signIn) slow(d time.Duration) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = max(s.delay, d)
}

// accept lets the answer go as it is: of several credentials that a handler has
// tried, one is right.
func (s *signIn) accept() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locked, s.delay = nil, 0
}

// claim hands the stage's attempt over to the handler.
func (s *signIn) claim() *Attempt {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = true
	return s.attempt
}

// takeBack ends the stage's attempt: the handler makes its own.
func (s *signIn) takeBack() {
	if s == nil {
		return
	}
	s.mu.Lock()
	a := s.attempt
	s.mu.Unlock()
	a.Ignore()
}

// ours returns the stage's attempt, unless it is the handler's.
func (s *signIn) ours() *Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed {
		return nil
	}
	return s.attempt
}

func (s *signIn) verdict() (*LockedError, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.locked, s.delay
}

// classify takes the status of the answer for the outcome of the stage's
// attempt (requirement L5): a handler that knows better settles it first.
func classify(status int) store.Outcome {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return store.Failed
	case status >= 200 && status < 300, status == http.StatusSwitchingProtocols:
		return store.Succeeded
	}
	return store.Ignored
}

// begin decides, with the first header, what becomes of the answer.
func (s *signIn) begin(status int) {
	if s.status != 0 {
		return
	}
	s.status = status
	_ = s.ours().settle(classify(status))
	locked, delay := s.verdict()
	switch refusing := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable; {
	case locked != nil && refusing: // in the handler's own words
		if h := s.Header(); h.Get("Retry-After") == "" {
			rejection := problem.Rejection{RetryAfter: locked.RetryAfter}
			rejection.SetHeaders(h)
		}
	case locked != nil:
		s.mode = drop
	case delay > 0:
		s.mode = keep
	}
}

// WriteHeader implements http.ResponseWriter.
func (s *signIn) WriteHeader(status int) {
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		s.ResponseWriter.WriteHeader(status) // not the answer yet
		return
	}
	if s.begin(status); s.mode == passOn { // a second one is the server's to log
		s.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (s *signIn) Write(b []byte) (int, error) {
	s.begin(http.StatusOK)
	switch s.mode {
	case drop:
		return len(b), nil
	case keep:
		if len(s.kept)+len(b) <= maxKept {
			s.kept = append(s.kept, b...)
			return len(b), nil
		}
		s.stream()
	}
	return s.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (s *signIn) WriteString(text string) (int, error) {
	if s.begin(http.StatusOK); s.mode == passOn {
		return io.WriteString(s.ResponseWriter, text)
	}
	return s.Write([]byte(text))
}

// ReadFrom implements io.ReaderFrom, so that a file still goes out by sendfile.
func (s *signIn) ReadFrom(r io.Reader) (int64, error) {
	if s.begin(http.StatusOK); s.mode == passOn {
		return io.Copy(s.ResponseWriter, r)
	}
	return io.Copy(struct{ io.Writer }{s}, r)
}

// stream gives up keeping the answer back.
func (s *signIn) stream() {
	s.l.counts.sleepers.skipped.add(1)
	s.send()
}

// send writes what was kept back.
func (s *signIn) send() {
	s.mode = passOn
	s.ResponseWriter.WriteHeader(s.status)
	if len(s.kept) > 0 {
		_, _ = s.ResponseWriter.Write(s.kept) // its error is the next Write's
		s.kept = nil
	}
}

// FlushError is for http.ResponseController.
func (s *signIn) FlushError() error {
	switch s.begin(http.StatusOK); s.mode {
	case drop:
		return nil
	case keep:
		s.stream()
	}
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (s *signIn) Flush() { _ = s.FlushError() }

// Unwrap is for http.ResponseController.
func (s *signIn) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// hijacked notes that the connection is the handler's now. The status is no
// verdict then: only the handler knows what it goes on to say.
func (s *signIn) hijacked() { s.taken = true }

// finish serves what is due when the handler has returned.
func (s *signIn) finish() {
	defer s.leave("return")
	if s.taken {
		return
	}
	locked, _ := s.verdict()
	if s.status == 0 {
		if locked == nil && s.r.Context().Err() != nil {
			return // nobody was answered: no verdict
		}
		s.begin(http.StatusOK) // as the server would
	}
	switch s.mode {
	case drop:
		locked, _ = s.verdict()
		h := s.Header()
		clear(h)
		maps.Copy(h, s.before)
		s.l.refuseLocked(s.ResponseWriter, s.r, s.v.p, s.c, locked)
	case keep:
		_, delay := s.verdict()
		s.l.delay(s.ResponseWriter, s.r, s.v.who.key, delay, s.v.p.cfg.AuthLock.Delay)
		s.send()
	}
}

// leave gives back what the attempt still holds. Whoever has claimed it may
// settle it later; but most have forgotten it.
func (s *signIn) leave(why string) {
	s.mu.Lock()
	a, claimed := s.attempt, s.claimed
	s.mu.Unlock()
	if a == nil {
		return
	}
	if !claimed {
		a.Ignore()
	} else if a.release() {
		s.l.countUnsettled(s.c, why)
	}
}

// enterSignIn records the answer of the stage, and reports whether the request
// was not inside it yet.
func (v *visit) enterSignIn(s *signIn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sign != nil {
		return false
	}
	v.sign = s
	return true
}

func (v *visit) leaveSignIn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sign = nil
}

func (v *visit) signIn() *signIn {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sign
}
