package gate

// A waiter is one caller that waits for a slot. Everything in it is guarded by
// the gate's mutex, except as noted.
//
// Waiters are not pooled. Recycling them would be safe with respect to the gate
// (once the verdict is in, nobody else keeps a pointer), but the channel would
// outlive the wait: a channel made inside a testing/synctest bubble must not be
// used in another one, and a user's tests would crash over a cache they cannot
// see. Only callers that wait anyway pay for the allocation.
type waiter struct {
	prev, next *waiter

	verdict verdict

	// decided is closed when the gate has decided; it orders the write of
	// verdict before the waiter's read, which may then do without the mutex.
	decided chan struct{}
}

// A verdict is what the gate has decided about a waiter.
type verdict uint8

const (
	undecided verdict = iota // in the list; all others are out of it
	granted                  // owns a slot, counted in Gate.held
	refused                  // the gate was closed
)

// decide tells w, which is out of the list, what became of it. It may be called
// once, and it is the last time that the gate touches w.
func (w *waiter) decide(v verdict) {
	w.verdict = v
	close(w.decided)
}

// A waitlist is a queue of waiters, oldest first, linked through the waiters
// themselves: a waiter leaves from any place in constant time, however long the
// queue. The zero value is an empty list.
type waitlist struct {
	first, last *waiter
	n           int
}

// join adds a new waiter at the end.
func (l *waitlist) join() *waiter {
	w := &waiter{prev: l.last, decided: make(chan struct{})}
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.n++
	return w
}

// remove takes out w, which must be in the list. The links of w are cleared, so
// that a waiter which is slow to wake does not keep its old neighbours alive.
func (l *waitlist) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next = nil, nil
	l.n--
}

// pop takes out the oldest waiter; it returns nil when nobody waits.
func (l *waitlist) pop() *waiter {
	w := l.first
	if w != nil {
		l.remove(w)
	}
	return w
}
