package weir

import (
	"context"
	"net/http"
	"time"

	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/store"
)

// decide asks the store, and holds the request where it lacks tokens and may
// wait for them. The verdict is final.
func (l *Limiter) decide(w http.ResponseWriter, r *http.Request, p *policy, c *classPolicy, b *basket) store.Verdict {
	if l.lines.busy(b, false, false) < 0 {
		v := l.admit(r.Context(), p, b)
		if v.Admitted() || b.uses[v.Refused].maxWait == 0 {
			return v
		}
		h := l.newHold(r.Context(), p, c, b)
		if h.readBody(r) {
			v, line := h.ask()
			return h.waitFor(w, r, v, line)
		}
		return h.waitFor(w, r, v, -1)
	}
	h := l.newHold(r.Context(), p, c, b)
	if v := h.arrive(); !v.Admitted() {
		return v
	}
	h.readBody(r)
	v, line := h.ask()
	return h.waitFor(w, r, v, line)
}

// waitFor is wait, with the time not counted against the server's WriteTimeout:
// a request that is held for longer would get its tokens and then no answer
// through. The deadline is moved before, for over HTTP/2 it ends the stream, and
// set anew after.
func (h *hold) waitFor(w http.ResponseWriter, r *http.Request, v store.Verdict, line int) store.Verdict {
	if line < 0 && v.Admitted() {
		return h.wait(v, line)
	}
	var longest time.Duration
	for _, u := range h.b.uses {
		longest = max(longest, u.maxWait)
	}
	_ = extendDeadline(w, r, longest)
	v = h.wait(v, line)
	_ = extendDeadline(w, r, 0)
	return v
}

// readBody reads a body that nobody has read yet, up to maxBody: over HTTP/1.1
// net/http does not notice that a client has left before its body is read, and
// a place in line is not to be kept for nobody. It reports whether there was
// one; what the store said before is old then. An address has no more than
// maxUnfinished read at once, for nothing has been spent yet; what comes above
// that stands in line with its body unread.
func (h *hold) readBody(r *http.Request) bool {
	if !h.c.readsWhole() || r.Body == nil || r.Body == http.NoBody || h.b.bodyRead {
		return false
	}
	if id, ok := h.l.before.enter(h.b.who, nil); ok {
		defer h.l.before.leave(h.b.who, id)
	} else {
		return false
	}
	jws.Peek(r, maxBody)
	h.start = time.Now()
	return true
}

// hold is one request being held.
type hold struct {
	l        *Limiter
	ctx      context.Context
	p        *policy
	c        *classPolicy
	b        *basket
	start    time.Time
	timer    *time.Timer
	own, all *place // in a keyed line and in the line of all, or nil
	counted  bool   // among those held, and those of its address
}

func (l *Limiter) newHold(ctx context.Context, p *policy, c *classPolicy, b *basket) *hold {
	return &hold{l: l, ctx: ctx, p: p, c: c, b: b, start: time.Now()}
}

// arrive counts a request that is about to join a line: it arrives now, in the
// window that is open, and not when its turn comes. It returns the refusal of
// one that the process ceiling has no room for.
func (h *hold) arrive() store.Verdict {
	b := h.b
	if len(b.checks) == 0 || !b.checks[0].Always { // nothing is asked before the ceiling
		return store.Verdict{Refused: -1}
	}
	one := basket{checks: b.checks[:1:1], uses: b.uses[:1:1]}
	v := h.l.admit(h.ctx, h.p, &one)
	b.hasArrived, b.arrivalWait = one.hasArrived, one.arrivalWait
	if v.Admitted() {
		return v
	}
	if all := h.look(0); !all.Admitted() && len(b.states) > 0 {
		v = all // whatever else refuses it may have the longer wait
	}
	return h.refuse(v)
}

// left is how much longer the request may wait for check i.
func (h *hold) left(i int) time.Duration { return h.b.uses[i].maxWait - time.Since(h.start) }

// wait takes the request from line to line until it is admitted or may wait no
// longer. v and line are the answer of ask.
func (h *hold) wait(v store.Verdict, line int) store.Verdict {
	defer h.end() // after a panic of the store too: those behind have no part in it
	for line >= 0 || !v.Admitted() {
		i, patient := h.lacking(v, line)
		if !patient {
			return h.refuse(v)
		}
		p, due := h.take(v, i)
		if p == nil {
			if v = h.refuse(v); v.Admitted() {
				v = h.l.admit(h.ctx, h.p, h.b) // the line has gone meanwhile
			}
			return v
		}
		if !h.pause(p, i, due) {
			h.end()
			if v = h.refuse(h.look(i)); v.Admitted() {
				v = store.Verdict{Refused: i} // what is there now it has not taken
			}
			return v
		}
		v, line = h.ask()
	}
	return v
}

// ask asks the store. If there is a line to join before that, it only looks
// what is there.
func (h *hold) ask() (v store.Verdict, line int) {
	line = h.l.lines.busy(h.b, h.own != nil, h.all != nil)
	if line < 0 {
		return h.l.admit(h.ctx, h.p, h.b), line
	}
	return h.look(line), line
}

// look returns what the store would say. One that cannot tell is taken to lack
// tokens of check i, it is not known how many.
func (h *hold) look(i int) store.Verdict {
	v, ok := h.l.peek(h.ctx, h.p, h.b)
	if !ok {
		v, h.b.states = store.Verdict{Refused: i}, h.b.states[:0]
	}
	return v
}

// lacking returns the check whose line to stand in: the last that has a line
// or lacks tokens. patient is false if some check would have the request wait
// longer than it may.
func (h *hold) lacking(v store.Verdict, line int) (i int, patient bool) {
	if i = line; line < 0 {
		i = v.Refused
	}
	for j, s := range h.b.states {
		if s.Wait == 0 || h.b.checks[j].Shadow {
			continue
		}
		if s.Wait > h.left(j) {
			return j, false
		}
		i = max(i, j)
	}
	return i, true
}

// seen returns what was last seen of check i: how long it would wait alone,
// and the tokens that are there.
func (h *hold) seen(v store.Verdict, i int) (alone time.Duration, tokens float64) {
	if i >= len(h.b.states) {
		return 0, 0
	}
	s := h.b.states[i]
	if v.Admitted() { // by a look, which tells what would be left
		s.Tokens += h.b.checks[i].Cost
	}
	return s.Wait, s.Tokens
}

// take finds or takes the request's place in the line of check i, and gives up
// those that it must not keep meanwhile. due is how long the tokens would take
// the head of the line. There is no place where the wait would be too long, or
// too many are held.
func (h *hold) take(v store.Verdict, i int) (p *place, due time.Duration) {
	ls, shared := &h.l.lines, h.b.uses[i].shared()
	alone, tokens := h.seen(v, i)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	mine := &h.own
	if shared {
		mine = &h.all
	}
	if *mine == nil || (*mine).line.id != h.b.lineOf(i) {
		if ls.full(h.b, i, h.p.cfg.Tiers.MaxWaiting, h.counted) || ls.wait(h.b, i, alone, tokens) > h.left(i) {
			return nil, 0
		}
		if !h.counted {
			h.counted = true
			ls.enter(h.b.who)
			h.c.count.held.add(1)
		}
		p = ls.join(h.b, i)
		ls.leave(*mine)
		*mine = p
	}
	if !shared {
		ls.leave(h.all)
		h.all = nil
	}
	return *mine, alone
}

// pause lets the head of a line wait until its tokens are due, and one behind
// others until its turn: what it has seen is old by then, so it asks again. It
// reports whether to go on; not, if the wait has become too long after all, or
// the client or the Limiter has gone.
func (h *hold) pause(p *place, i int, due time.Duration) bool {
	select {
	case <-p.turn:
		return h.until(nil, due)
	default:
		return h.until(p.turn, h.left(i))
	}
}

// until waits for an event, at most for d; that d has passed is itself the
// event if there is no other.
func (h *hold) until(event <-chan struct{}, d time.Duration) bool {
	if h.timer == nil {
		h.timer = time.NewTimer(d)
	} else {
		h.timer.Reset(d)
	}
	select {
	case <-event:
	case <-h.timer.C:
		if event != nil {
			return false
		}
	case <-h.ctx.Done():
	case <-h.l.closed:
	}
	return h.ctx.Err() == nil && !h.l.isClosed()
}

// refuse turns v into the final refusal: the longest wait of all, those in line
// before the request included. If nothing has to be waited for, v stays as it is.
func (h *hold) refuse(v store.Verdict) store.Verdict {
	ls := &h.l.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	final := v
	for i := range h.b.checks {
		if !h.b.uses[i].holds() {
			continue // v knows
		}
		alone, tokens := h.seen(v, i)
		if wait := ls.wait(h.b, i, alone, tokens); wait > final.RetryAfter {
			final = store.Verdict{Refused: i, RetryAfter: wait}
		}
	}
	return final
}

// end leaves the lines. It may be called again.
func (h *hold) end() {
	if h.timer != nil {
		h.timer.Stop()
	}
	ls := &h.l.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.leave(h.own)
	ls.leave(h.all)
	h.own, h.all = nil, nil
	if h.counted {
		h.counted = false
		ls.exit(h.b.who)
	}
}
