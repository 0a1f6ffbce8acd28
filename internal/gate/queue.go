package gate

// A queue is who waits in a lane, by flows. Every operation takes constant time,
// however many wait, but for ahead, which looks at each flow. Memory is bounded
// by the waiters: a flow is there as long as one of its waiters is. The zero
// value is empty.
type queue struct {
	n     int // waiters
	flows map[turn]*flow
	sites map[Flow]int // how many flows with turns of their own a site has; none at 0

	// first to last is the order of turns.
	first, last *flow

	// byLen[i] is one of the flows that have i waiters, the head of a list of
	// all; longest is the largest i that has any. So the flow with most waiters
	// is found without looking at the others: a flood from many flows, which
	// finds the queue full each time, must not cost a walk each time.
	byLen   []*flow
	longest int
}

// A flow is the waiters that share turns, those of one Flow as a rule, oldest first, linked through the waiters
// themselves: one leaves from any place in constant time.
type flow struct {
	key         turn
	n           int
	first, last *waiter

	prev, next         *flow // in the order of turns
	prevLike, nextLike *flow // of the same length
}

// join adds w at the end of its flow. A flow that was not there gets the last
// turn, or the next one if the newest is first.
func (q *queue) join(w *waiter, key Flow, newest bool) {
	t := q.turnOf(key)
	f := q.flows[t]
	if f == nil {
		if q.flows == nil {
			q.flows, q.sites = map[turn]*flow{}, map[Flow]int{}
		}
		f = &flow{key: t}
		q.flows[t] = f
		q.countSite(t, 1)
		q.link(f, newest)
	}
	w.flow, w.prev = f, f.last
	if f.last != nil {
		f.last.next = w
	} else {
		f.first = w
	}
	f.last = w
	q.n++
	q.resize(f, f.n+1)
}

// remove takes out w, which must be in the queue. The links of w are cleared, so
// that a waiter which is slow to wake does not keep its old neighbours alive.
func (q *queue) remove(w *waiter) {
	f := w.flow
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.last = w.prev
	}
	w.prev, w.next, w.flow = nil, nil, nil
	q.n--
	q.resize(f, f.n-1)
	if f.n == 0 {
		q.unlink(f)
		delete(q.flows, f.key)
		q.countSite(f.key, -1)
	}
}

// next returns the waiter whose turn it is. The queue must not be empty.
func (q *queue) next(newest bool) *waiter {
	if newest {
		return q.first.last
	}
	return q.first.first
}

// served gives a flow, one of whose waiters was served, the last turn, if it has
// others.
func (q *queue) served(f *flow) {
	if f.n > 0 {
		q.unlink(f)
		q.link(f, false)
	}
}

// yields reports whether a newcomer of a flow has a better right to a place than
// somebody in the queue: another flow has two waiters more. With one more it
// would only be the other way round then, and two flows would take a place from
// each other for ever.
func (q *queue) yields(key Flow) bool {
	if q.longest < 2 {
		return false
	}
	have := 0
	if f := q.flows[q.turnOf(key)]; f != nil {
		have = f.n
	}
	return q.longest >= have+2
}

// victim returns the waiter that goes for a newcomer's sake.
func (q *queue) victim(newest bool) *waiter {
	f := q.byLen[q.longest]
	switch {
	case !newest:
		return f.last
	case q.longest == 1:
		return q.last.first
	}
	return f.first
}

// ahead returns how many would be served before a newcomer of a flow, if nobody
// else comes.
func (q *queue) ahead(key Flow) int {
	mine := q.flows[q.turnOf(key)]
	if mine == nil {
		return q.first.rounds(nil, 1, 1)
	}
	// As many rounds as the flow has waiters, and then those whose turn is
	// before its own.
	return q.first.rounds(mine, mine.n+1, mine.n) + mine.n
}

// rounds counts the waiters that are served before the last of mine, the flows
// from f on but before mine having `before` turns until then and those behind
// `behind`.
func (f *flow) rounds(mine *flow, before, behind int) (n int) {
	turns := before
	for ; f != nil; f = f.next {
		if f == mine {
			turns = behind
			continue
		}
		n += min(f.n, turns)
	}
	return n
}

// link gives f a turn: the next, or the last.
func (q *queue) link(f *flow, next bool) {
	if next {
		f.prev, f.next = nil, q.first
	} else {
		f.prev, f.next = q.last, nil
	}
	if f.prev != nil {
		f.prev.next = f
	} else {
		q.first = f
	}
	if f.next != nil {
		f.next.prev = f
	} else {
		q.last = f
	}
}

func (q *queue) unlink(f *flow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		q.first = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		q.last = f.prev
	}
	f.prev, f.next = nil, nil
}

// resize moves f to the flows of length n, one more or one less than it had.
func (q *queue) resize(f *flow, n int) {
	if f.n > 0 {
		if f.prevLike != nil {
			f.prevLike.nextLike = f.nextLike
		} else {
			q.byLen[f.n] = f.nextLike
		}
		if f.nextLike != nil {
			f.nextLike.prevLike = f.prevLike
		}
	}
	f.n, f.prevLike, f.nextLike = n, nil, nil
	for len(q.byLen) <= n {
		q.byLen = append(q.byLen, nil)
	}
	if n > 0 {
		if f.nextLike = q.byLen[n]; f.nextLike != nil {
			f.nextLike.prevLike = f
		}
		q.byLen[n] = f
	}
	if n > q.longest {
		q.longest = n
	}
	if q.longest > 0 && q.byLen[q.longest] == nil {
		q.longest-- // f was the last of that length, and is one shorter now
	}
}
