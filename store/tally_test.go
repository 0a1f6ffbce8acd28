package store

import (
	"math"
	"testing"
	"time"
)

// The default policy of an address (requirement L1).
var address = LockLimit{Max: 100, Window: 5 * time.Minute, Lockout: 10 * time.Minute}

// failed is a tally after n failures at one instant.
func failed(n int, now int64, l LockLimit) (t tally) {
	for range n {
		t.fail(now, l)
	}
	return t
}

func TestAFailureCountsAndTheLastOneLocks(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int
		limit  LockLimit
		count  int32
		locks  bool
	}{
		{"the first", 0, address, 1, false},
		{"the ninety-ninth", 98, address, 99, false},
		{"the hundredth", 99, address, 100, true},
		{"the only one that is allowed", 0, LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}, 1, true},
		{"the next one after the limit was lowered below the count", 50, LockLimit{Max: 20, Window: time.Hour, Lockout: time.Hour}, 51, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := failed(tt.before, 7, address)
			if locks := got.fail(7, tt.limit); locks != tt.locks || got.locked != tt.locks || got.count != tt.count {
				t.Errorf("locks %v, state %+v, want %v and %d failures", locks, got, tt.locks, tt.count)
			}
		})
	}
}

func TestWindowsAndLocksEndOnTheNanosecond(t *testing.T) {
	window, lockout := int64(address.Window), int64(address.Lockout)
	for _, tt := range []struct {
		name     string
		failures int
		at       int64
		count    int32
		wait     time.Duration
	}{
		{"in the last nanosecond of the window the failures are there", 99, window - 1, 99, 0},
		{"when the window ends they are not", 99, window, 0, 0},
		{"a lock begins whole", 100, 0, 100, address.Lockout},
		{"the end of the window does not end a lock", 100, window, 100, address.Lockout - address.Window},
		{"in its last second it holds", 100, lockout - second, 100, time.Second},
		{"in its last nanosecond it holds", 100, lockout - 1, 100, 1},
		{"then it is over, and the count starts from nothing", 100, lockout, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := failed(tt.failures, 0, address)
			got.roll(tt.at)
			if got.count != tt.count || got.wait(tt.at) != tt.wait || got.empty() != (tt.count == 0) {
				t.Errorf("%d failures, wait %v, want %d and %v", got.count, got.wait(tt.at), tt.count, tt.wait)
			}
		})
	}
}

func TestTheWindowDoesNotSlide(t *testing.T) {
	got := failed(50, 0, address)
	for range 49 {
		got.fail(299*second, address)
	}
	if got.roll(300 * second); got.count != 0 {
		t.Errorf("%d failures are left of a window whose first was 300 s ago", got.count)
	}
}

func TestPlacesAreReservedUpToTheLimit(t *testing.T) {
	limit := LockLimit{Max: 10, Window: time.Hour, Lockout: time.Hour}
	for _, tt := range []struct {
		name           string
		failures, held int
		full           bool
	}{
		{"nine left, one taken", 1, 1, false},
		{"nine left, eight taken", 1, 8, false},
		{"nine left, nine taken", 1, 9, true},
		{"one left, none taken", 9, 0, false},
		{"one left, one taken", 9, 1, true},
		{"none failed, nine taken", 0, 9, false},
		{"none failed, ten taken", 0, 10, true},
		{"more failed than a lowered limit allows, none taken", 15, 0, false},
		{"more failed than a lowered limit allows, one taken", 15, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := failed(tt.failures, 0, address)
			for i := range tt.held {
				got.reserve(uint64(i+1), 0)
			}
			if got.full(limit) != tt.full {
				t.Errorf("full is %v, want %v", !tt.full, tt.full)
			}
		})
	}
}

func TestAPlaceComesBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*tally)
		left int
	}{
		{"when it is released", func(t *tally) { t.release(2) }, 2},
		{"once, however often it is released", func(t *tally) { t.release(2); t.release(2) }, 2},
		{"not by a ticket that is nobody's", func(t *tally) { t.release(9) }, 3},
		{"not before its time", func(t *tally) { t.roll(int64(ReservationTTL) - 1) }, 3},
		{"by itself after 30 seconds", func(t *tally) { t.roll(int64(ReservationTTL)) }, 1},
		{"all in the end", func(t *tally) { t.roll(int64(ReservationTTL) + 5*second) }, 0},
		{"whatever becomes of the count", func(t *tally) { t.fail(0, address); t.clear() }, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got tally
			got.reserve(1, 0)
			got.reserve(2, 0)
			got.reserve(3, 5*second)
			if tt.do(&got); len(got.held) != tt.left {
				t.Errorf("%d places are held, want %d", len(got.held), tt.left)
			}
		})
	}
}

func TestASuccessTakesFailuresBackButNoLock(t *testing.T) {
	limit := LockLimit{Max: 10, Window: time.Hour, Lockout: time.Hour}
	for _, tt := range []struct {
		name        string
		failures    int
		back, count int32
	}{
		{"all of them", 9, 9, 0},
		{"some of them", 9, 3, 6},
		{"no more than there are", 3, 9, 0},
		{"none", 3, 0, 3},
		{"a lock stays", 10, 10, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := failed(tt.failures, 5, limit)
			if got.forgive(tt.back); got.count != tt.count || got.locked != (tt.failures == 10) {
				t.Errorf("state %+v, want %d failures", got, tt.count)
			}
		})
	}
}

// Keycloak#30939: a wait that is too long must not wrap round to none.
func TestALockForEverIsNotNone(t *testing.T) {
	limit := LockLimit{Max: 1, Window: math.MaxInt64, Lockout: math.MaxInt64}
	got := failed(1, 77, limit)
	got.roll(1 << 60)
	if wait := got.wait(1 << 60); wait <= 0 {
		t.Errorf("the lock holds for another %v", wait)
	}
}
