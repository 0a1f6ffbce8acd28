package weir

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Shaping (requirement T15): a request that lacks tokens is held until it has
// them, if that takes no longer than its class or tier allows. Those that lack
// tokens of the same bucket form a line in order of arrival. Only its head asks
// the store, when its tokens are due, and nobody who may wait asks past it: so
// a dear request gets its tokens however many cheap ones come after it, and a
// crowd costs the store no more than one request does. Requests that may not
// wait are decided by the bucket alone and can delay a line.
//
// A request stands in one keyed line at most, a client's say, and as its head
// also in the line of the bucket that all share, keeping its place meanwhile.
// The other way round nothing is kept: whoever lacks tokens of a key of its own
// stands there and not in the line of all, where others would wait for it. As
// places are taken in this order only, no two requests wait for each other.

// lines are the lines of one Limiter, by bucket.
type lines struct {
	n  atomic.Int64 // requests held
	mu sync.Mutex   // guards m, what is in it, and that n stays within its bound
	m  map[bucketID]*line
}

type bucketID struct {
	scope string
	key   store.Key
}

func bucketOf(c *store.Check) bucketID { return bucketID{c.Scope, c.Key} }

// line is the requests held for one bucket, the head first. It is never empty.
type line struct {
	id         bucketID
	head, tail *place
	cost       float64 // of all in it
}

// place is one held request's place in a line.
type place struct {
	line       *line
	next, prev *place
	cost       float64
	turn       chan struct{} // closed when the place becomes the head
}

func (ls *lines) held() int64 { return ls.n.Load() }

// busy returns the last check whose bucket has a line that its request has to
// join before it asks the store, or -1. Keyed buckets are checked after the
// shared one, so they come before it here. A request that stands in a keyed
// line (own) joins the line of all only, one that stands there none: lines that
// formed since it took its place are of those that came later.
func (ls *lines) busy(b *basket, own, all bool) int {
	if ls.n.Load() == 0 || all {
		return -1
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := len(b.checks) - 1; i >= 0; i-- {
		if u := b.uses[i]; u.maxWait == 0 || u.shadow || own && !u.shared() {
			continue
		}
		if ls.m[bucketOf(&b.checks[i])] != nil {
			return i
		}
	}
	return -1
}

// shared reports whether the tier has one bucket for all.
func (u *tierUse) shared() bool { return u.tier.source == fromNothing }

// wait returns how long a newcomer would wait for c behind those in line:
// their costs have to be refilled before its own is. tokens is what is there,
// alone what it would wait if there were no line. ls.mu is held.
func (ls *lines) wait(c *store.Check, alone time.Duration, tokens float64) time.Duration {
	ln := ls.m[bucketOf(c)]
	if ln == nil {
		return alone
	}
	ns := (ln.cost + c.Cost - tokens) / c.Limit.Rate * 1e9
	return max(alone, time.Duration(min(ns, float64(store.Never/2))))
}

// join takes the last place in the line of c's bucket. ls.mu is held.
func (ls *lines) join(c *store.Check) *place {
	id := bucketOf(c)
	ln := ls.m[id]
	if ln == nil {
		ln = &line{id: id}
		if ls.m == nil {
			ls.m = map[bucketID]*line{}
		}
		ls.m[id] = ln
	}
	p := &place{line: ln, cost: c.Cost, turn: make(chan struct{}), prev: ln.tail}
	ln.cost += c.Cost
	if ln.tail == nil {
		ln.head = p
		close(p.turn)
	} else {
		ln.tail.next = p
	}
	ln.tail = p
	return p
}

// leave gives a place up, if it is one, and lets the next be the head. ls.mu
// is held.
func (ls *lines) leave(p *place) {
	if p == nil {
		return
	}
	ln := p.line
	ln.cost -= p.cost
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		ln.tail = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
		return
	}
	if ln.head = p.next; ln.head != nil {
		close(ln.head.turn)
	} else {
		delete(ls.m, ln.id)
	}
}

// decide asks the store, and holds the request where it lacks tokens and may
// wait for them. The verdict is final.
func (l *Limiter) decide(ctx context.Context, p *policy, c *classPolicy, b *basket) store.Verdict {
	if l.lines.busy(b, false, false) < 0 {
		v := l.admit(ctx, p, b)
		if v.Admitted() || b.uses[v.Refused].maxWait == 0 {
			return v
		}
		return l.newHold(ctx, p, c, b).wait(v, -1)
	}
	h := l.newHold(ctx, p, c, b)
	return h.wait(h.ask())
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
	counted  bool   // among those held
}

func (l *Limiter) newHold(ctx context.Context, p *policy, c *classPolicy, b *basket) *hold {
	return &hold{l: l, ctx: ctx, p: p, c: c, b: b, start: time.Now()}
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
	ls, check, shared := &h.l.lines, &h.b.checks[i], h.b.uses[i].shared()
	alone, tokens := h.seen(v, i)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	mine := &h.own
	if shared {
		mine = &h.all
	}
	if *mine == nil || (*mine).line.id != bucketOf(check) {
		full := !h.counted && int(ls.n.Load()) >= h.p.cfg.Tiers.MaxWaiting
		if full || ls.wait(check, alone, tokens) > h.left(i) {
			return nil, 0
		}
		if !h.counted {
			h.counted = true
			ls.n.Add(1)
			h.c.count.held.add(1)
		}
		p = ls.join(check)
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
	came := event == nil
	select {
	case <-event:
		came = true
	case <-h.timer.C:
		// Of two things in one instant select picks either.
		select {
		case <-event:
			came = true
		default:
		}
	case <-h.ctx.Done():
	case <-h.l.closed:
	}
	return came && h.ctx.Err() == nil && !h.l.isClosed()
}

// refuse turns v into the final refusal: the longest wait of all, those in line
// before the request included. If nothing has to be waited for, v stays as it is.
func (h *hold) refuse(v store.Verdict) store.Verdict {
	ls := &h.l.lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	final := v
	for i := range h.b.checks {
		if u := h.b.uses[i]; u.maxWait == 0 || u.shadow {
			continue // v knows
		}
		alone, tokens := h.seen(v, i)
		if wait := ls.wait(&h.b.checks[i], alone, tokens); wait > final.RetryAfter {
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
		ls.n.Add(-1)
	}
}
