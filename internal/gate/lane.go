package gate

import (
	"fmt"
	"time"
)

// A Lane is a part of a gate with a queue of its own. Lanes share the slots,
// but for those that are reserved (row G9): work in other lanes, however much
// there is and even if all of it hangs, leaves a lane its reserve.
type Lane struct {
	gate *Gate
	name string

	// Guarded by the gate's mutex.
	open     bool // configured; newcomers of any other go to the default lane
	reserve  int  // slots that only this lane may take
	limit    int  // the most slots it may hold
	queueCap int
	order    Order
	held     int
	granted  uint64 // the number of its last grant
	queue    queue
	pace
}

// LaneConfig is the size of a lane.
type LaneConfig struct {
	Reserve int // slots that no other lane may take
	Limit   int // the most slots that it may hold; 0: all
	Queue   int // places to wait
	Order   Order
}

func (c LaneConfig) check() {
	if c.Queue < 0 || c.Reserve < 0 || c.Limit < 0 {
		panic(fmt.Sprintf("gate: a lane of %+v; use 0 for none", c))
	}
}

func (ln *Lane) configure(c LaneConfig) {
	ln.reserve, ln.limit, ln.queueCap, ln.order = c.Reserve, ln.gate.slots, c.Queue, c.Order
	if c.Limit > 0 {
		ln.limit = min(c.Limit, ln.limit)
	}
}

// mayTake reports whether a slot is free for a lane: one of its own reserve,
// or one that nobody has reserved.
//
// Where the reserve was raised while the slots were taken, free slots may be
// fewer than reserved ones; a lane below its reserve then takes what there is.
func (g *Gate) mayTake(ln *Lane) bool {
	free := g.slots - g.held
	return free > 0 && ln.held < ln.limit && (ln.held < ln.reserve || free > g.unfilled)
}

// before reports whether ln is to be served before other.
func (ln *Lane) before(other *Lane) bool {
	if a, b := ln.held < ln.reserve, other.held < other.reserve; a != b {
		return a
	}
	if ln.held != other.held {
		return ln.held < other.held
	}
	return ln.granted < other.granted
}

// newestFirst reports whether the lane serves its newest waiter first now.
func (ln *Lane) newestFirst(now time.Duration) bool {
	switch ln.order {
	case NewestFirst:
		return true
	case ControlledDelay:
		return ln.standing(now)
	}
	return false
}

// full reports whether a newcomer of a flow finds no place in the queue. Where
// more wait than there are places, which Configure made fewer, nobody is thrown
// out for it either.
func (ln *Lane) full(key Flow) bool {
	q := &ln.queue
	if q.n < ln.queueCap {
		return false
	}
	if q.n > ln.queueCap || q.n == 0 {
		return true
	}
	return !ln.newestFirst(ln.gate.clock(ln.order)) && !q.yields(key)
}

// bound is how long a newcomer may wait that would wait for maxWait.
func (ln *Lane) bound(maxWait, now time.Duration) time.Duration {
	if ln.order != ControlledDelay {
		return maxWait
	}
	most := ln.burstWait()
	if ln.standing(now) {
		most = ln.standingWait()
	}
	if maxWait < 0 {
		return most
	}
	return min(maxWait, most)
}

// hopelessLocked reports whether a newcomer cannot get its slot within maxWait,
// or not be done by its deadline, as far as can be told (row G8). One that would
// be the next is let in to the queue: what it waits for can happen at any moment.
func (ln *Lane) hopelessLocked(w *Work, k *Kind, now, deadline time.Duration) bool {
	left := deadline - now
	if !ln.inTime(k.Times, left, now) {
		return true
	}
	if need := ln.need(k.Times); left >= need {
		left -= need
	}
	if deadline == never {
		left = never
	}
	if w.MaxWait > 0 {
		left = min(left, w.MaxWait)
	}
	// Who would be ahead is known in no time only as a bound.
	n := ln.queue.n
	if left == never || n == 0 || ln.newestFirst(now) || !ln.known() || ln.wait(n, now) <= left {
		return false
	}
	ahead := ln.queue.ahead(w.Flow)
	return ahead > 0 && ln.wait(ahead, now) > left
}

// Wait estimates how long a newcomer to a lane (nil: the default one) would wait
// for a slot if it came last of all. known is false before there is anything to
// tell by.
func (g *Gate) Wait(ln *Lane) (wait time.Duration, known bool) {
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if ln == nil || !ln.open {
		ln = g.lanes[0]
	}
	if g.mayTake(ln) {
		return 0, true
	}
	if ln.queue.n == 0 {
		return ln.times.mean / time.Duration(max(1, ln.held)), ln.times.n > 0
	}
	if !ln.known() {
		return 0, false
	}
	return ln.wait(ln.queue.n, now), true
}
