package weir

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Shaping (requirement T15): a request that lacks tokens is held until it has
// them, if that takes no longer than its class or tier allows. Several that
// lack tokens of the same bucket form a line, and only its head asks the store
// again, when its tokens are due: so the line is served in order of arrival,
// and a crowd costs the store no more than one request does.

// lines are the lines of one Limiter, by bucket.
type lines struct {
	n  atomic.Int64 // requests held, in all lines
	mu sync.Mutex
	m  map[bucketID]*line
}

type bucketID struct {
	scope string
	key   store.Key
}

// line is the requests held for one bucket, the head first.
type line struct {
	head, tail *place
	cost       float64 // of all in it
}

// place is one held request's place in a line.
type place struct {
	next, prev *place
	cost       float64
	turn       chan struct{} // closed when the place becomes the head
}

func (ls *lines) held() int64 { return ls.n.Load() }

// busy returns the first check whose bucket has a line that its request may
// join, or -1. A newcomer there does not ask the store first, or it would
// overtake those in line.
func (ls *lines) busy(b *basket) int {
	if ls.n.Load() == 0 {
		return -1
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range b.checks {
		if b.uses[i].maxWait > 0 && ls.m[bucketID{b.checks[i].Scope, b.checks[i].Key}] != nil {
			return i
		}
	}
	return -1
}

// join takes a place in the line of c's bucket. It returns nil where the wait
// would be longer than left, or limit requests are held already. wait is what
// the request would wait if it stood alone.
func (ls *lines) join(c *store.Check, wait, left time.Duration, limit int) *place {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	id := bucketID{c.Scope, c.Key}
	ln := ls.m[id]
	if ln != nil {
		// What stands in line has to be refilled before the newcomer's cost is.
		wait = max(wait, time.Duration(min((ln.cost+c.Cost)/c.Limit.Rate*1e9, float64(store.Never/2))))
	}
	if wait > left || int(ls.n.Load()) >= limit {
		return nil
	}
	if ln == nil {
		ln = &line{}
		if ls.m == nil {
			ls.m = map[bucketID]*line{}
		}
		ls.m[id] = ln
	}
	ls.n.Add(1)
	p := &place{cost: c.Cost, turn: make(chan struct{}), prev: ln.tail}
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

// leave gives the place up and lets the next one be the head.
func (ls *lines) leave(c *store.Check, p *place) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	id := bucketID{c.Scope, c.Key}
	ln := ls.m[id]
	ls.n.Add(-1)
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
		delete(ls.m, id)
	}
}

// decide asks the store, and holds the request where it lacks tokens and may
// wait for them. The verdict is final.
func (l *Limiter) decide(ctx context.Context, p *policy, c *classPolicy, b *basket) store.Verdict {
	v := store.Verdict{Refused: l.lines.busy(b)} // RetryAfter 0: the store was not asked
	if v.Admitted() {
		v = l.admit(ctx, p, b)
		if v.Admitted() || b.uses[v.Refused].maxWait == 0 {
			return v
		}
	}
	h := hold{l: l, ctx: ctx, p: p, c: c, b: b, start: time.Now()}
	if v = h.wait(v); !v.Admitted() && v.RetryAfter == 0 {
		v = l.admit(ctx, p, b) // no place in line: it takes its chance
	}
	return v
}

// hold is one request being held.
type hold struct {
	l     *Limiter
	ctx   context.Context
	p     *policy
	c     *classPolicy
	b     *basket
	start time.Time
	timer *time.Timer
}

// left is how much longer the request may wait for check i.
func (h *hold) left(i int) time.Duration { return h.b.uses[i].maxWait - time.Since(h.start) }

// wait takes the request from line to line, one for each bucket that turns out
// to lack tokens, until it is admitted or may wait no longer.
func (h *hold) wait(v store.Verdict) store.Verdict {
	counted := false
	for {
		i := v.Refused
		check := &h.b.checks[i]
		place := h.l.lines.join(check, v.RetryAfter, h.left(i), h.p.cfg.Tiers.MaxWaiting)
		if place == nil {
			return v
		}
		if !counted {
			counted = true
			h.c.count.held.add(1)
		}
		v = h.inLine(place, i, v)
		h.l.lines.leave(check, place)
		if v.Admitted() || v.Refused == i {
			return v
		}
	}
}

// inLine waits for the place to be the head, and from then on asks the store
// each time the tokens are due. It returns when that changes anything: the
// request is admitted, or lacks tokens elsewhere, or has to give up.
func (h *hold) inLine(place *place, i int, v store.Verdict) store.Verdict {
	h.timer = time.NewTimer(h.left(i))
	defer h.timer.Stop()
	asked := time.Now()
	if !h.until(place.turn) {
		return v
	}
	for {
		h.timer.Reset(v.RetryAfter - time.Since(asked))
		if h.until(nil); h.ctx.Err() != nil || h.l.isClosed() {
			return v
		}
		v, asked = h.l.admit(h.ctx, h.p, h.b), time.Now()
		if v.Refused != i || v.RetryAfter > h.left(i) {
			return v
		}
	}
}

// until waits for an event and reports whether it came before the timer, the
// client's leaving and the Limiter's Close.
func (h *hold) until(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-h.timer.C:
	case <-h.ctx.Done():
	case <-h.l.closed:
	}
	return false
}
