package store

import (
	"math"
	"slices"
	"time"
)

// tally is the state of one failure counter at an instant, in nanoseconds of
// the store's own clock. All methods are pure: they read no clock and lock
// nothing.
//
//	locked ⇒ count > 0
//	count > 0 ⇒ end is when the window closes, or the lock
type tally struct {
	end    int64
	held   []hold // places reserved, in the order of their tickets
	count  int32
	locked bool
}

// hold is one reserved place.
type hold struct {
	ticket uint64
	until  int64
}

// roll forgets what has ended by now: the window is open and the lock holds
// for instants before end, not for end itself.
func (t *tally) roll(now int64) {
	if t.count > 0 && now >= t.end {
		t.count, t.end, t.locked = 0, 0, false
	}
	// Tickets are given out in the order of time, so the ended come first.
	n := 0
	for n < len(t.held) && t.held[n].until <= now {
		n++
	}
	t.held = slices.Delete(t.held, 0, n)
}

// empty reports whether the tally is no different from one never touched.
func (t *tally) empty() bool { return t.count == 0 && len(t.held) == 0 }

// weight is what is lost by forgetting the tally, locks aside.
func (t *tally) weight() int { return int(t.count) + len(t.held) }

// wait returns how long the lock still holds, 0 if there is none.
func (t *tally) wait(now int64) time.Duration {
	if !t.locked {
		return 0
	}
	return time.Duration(t.end - now)
}

// full reports whether every failure that is left is spoken for by an attempt
// under way. One may always be: a Max that was lowered below the count locks
// with the next failure, which somebody has to be let in for.
func (t *tally) full(l LockLimit) bool {
	return len(t.held) > 0 && t.weight() >= l.Max
}

// reserve takes a place.
func (t *tally) reserve(ticket uint64, now int64) {
	t.held = append(t.held, hold{ticket, later(now, ReservationTTL)})
}

// release gives the place of a ticket back, if it still has one.
func (t *tally) release(ticket uint64) {
	i, ok := slices.BinarySearchFunc(t.held, ticket, func(h hold, ticket uint64) int {
		switch {
		case h.ticket < ticket:
			return -1
		case h.ticket > ticket:
			return 1
		}
		return 0
	})
	if ok {
		t.held = slices.Delete(t.held, i, i+1)
	}
}

// fail counts a failure and reports whether it starts the lock.
func (t *tally) fail(now int64, l LockLimit) bool {
	if t.count == 0 {
		t.end = later(now, l.Window)
	}
	t.count = min(t.count, math.MaxInt32-1) + 1
	if int(t.count) < l.Max {
		return false
	}
	t.locked, t.end = true, later(now, l.Lockout)
	return true
}

// forgive takes n failures back, unless they have led to a lock: a success
// never lifts one (requirement L11).
func (t *tally) forgive(n int32) {
	if t.locked || n <= 0 {
		return
	}
	if t.count -= n; t.count <= 0 {
		t.count, t.end = 0, 0
	}
}

// clear ends count and lock; what is reserved stays.
func (t *tally) clear() { t.count, t.end, t.locked = 0, 0, false }

// later adds without overflow: a lock for 300 years is one for ever.
func later(now int64, d time.Duration) int64 {
	if d > math.MaxInt64-time.Duration(now) {
		return math.MaxInt64
	}
	return now + int64(d)
}
