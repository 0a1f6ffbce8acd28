package store

import (
	"math"
	"time"
)

// frame places fixed windows on the store's clock. Windows are aligned to the
// Unix epoch, so every replica, and every client, agrees where they begin. The
// clock in between is monotonic: a step of the wall clock neither ends a
// window early nor opens one twice.
type frame struct {
	epoch  int64 // Unix nanoseconds at the store's 0
	length int64 // nanoseconds
}

// index numbers the windows: floor(t / length).
func (f frame) index(now int64) int64 {
	t := f.epoch + now
	i := t / f.length
	if t%f.length < 0 {
		i--
	}
	return i
}

// left is how long the window that now lies in goes on; at least 1 ns.
func (f frame) left(now int64) time.Duration {
	return time.Duration((f.index(now)+1)*f.length - f.epoch - now)
}

// window is the state of a fixed-window counter: the units used in the window
// that last lies in. It has the shape of a bucket so that both live in one
// kind of table. The count, not what is left, is kept: a limit that is raised
// within a window gives the difference, one that is lowered leaves nothing
// (and not less than nothing). A length that is changed takes the count along
// if the last of it lies in the new window: when each unit was counted is not
// known, and too much is better than twice.
type window bucket

// used is the count at now. A reading of the clock from before the last write
// does not open the earlier window again.
func (w window) used(now int64, f frame) float64 {
	if f.index(max(now, w.last)) != f.index(w.last) {
		return 0
	}
	return w.tokens
}

// counts reports whether a cost can be counted. One that is negative, infinite
// or no number fits nowhere and is never counted, not even Always.
func counts(cost float64) bool { return cost >= 0 && cost <= math.MaxFloat64 }

// take counts cost if it fits under the limit. The count it returns otherwise
// is for who counts Always.
func (w window) take(now int64, f frame, limit, cost float64) (window, bool) {
	if !counts(cost) {
		return w, false
	}
	used := w.used(now, f) + cost
	return window{used, max(now, w.last)}, used <= limit
}

// wait is how long until the cost would fit if nobody else counted.
func (w window) wait(now int64, f frame, limit, cost float64) time.Duration {
	if !(counts(cost) && cost <= limit) {
		return Never
	}
	return w.reset(now, f)
}

// reset is how long after now, which may be a late reading, the window ends.
func (w window) reset(now int64, f frame) time.Duration {
	from := max(now, w.last)
	return f.left(from) + time.Duration(from-now)
}

// left is what a limit leaves of a count: never less than nothing, and nothing
// under a limit that is no number.
func left(limit, used float64) float64 {
	if used < limit {
		return limit - used
	}
	return 0
}

// fullAt is when the count is worth nothing any more.
func (w window) fullAt(f frame) int64 { return w.last + int64(f.left(w.last)) }
