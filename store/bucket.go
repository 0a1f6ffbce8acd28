package store

import (
	"math"
	"time"
)

// Limit is a token bucket's policy.
type Limit struct {
	Rate  float64 // tokens a second; fractions are allowed
	Burst float64 // capacity in tokens
}

// holds reports whether a full bucket would have cost. Neither a negative cost
// (which would mint tokens) nor a NaN (which would poison the bucket, since
// nothing compares below it) is ever held, nor is anything by a NaN burst.
func (l Limit) holds(cost float64) bool { return cost >= 0 && cost <= l.Burst }

// bucket is the state of one token bucket: the tokens it held at an instant
// (nanoseconds on the store's own monotonic clock). Tokens are never below 0
// nor above the burst; the refill since then is computed when the bucket is
// touched, at the rate in force at that moment, which is why a reload needs no
// conversion. All methods are pure.
type bucket struct {
	tokens float64
	last   int64
}

// at returns the tokens at now. An earlier now refills nothing: callers read
// the clock before they hold the lock, and a reading that is late must not
// rewind the bucket. (golang.org/x/time/rate rewinds, and then refills the
// same interval twice.)
func (b bucket) at(now int64, l Limit) float64 {
	t := b.tokens
	if now > b.last && l.Rate > 0 {
		t += float64(now-b.last) / 1e9 * l.Rate
	}
	return min(t, l.Burst)
}

// take spends cost if it is there. What is short by less than one nanosecond
// of refill counts as there, since the clock cannot tell that instant from
// this one; it is borrowed from the next nanosecond by moving last forward, so
// that nothing is minted and tokens stay at 0 or above. A bucket that is ahead of
// now lends nothing: on a clock that stands still, one small cost after
// another would otherwise borrow for ever.
func (b bucket) take(now int64, l Limit, cost float64) (bucket, bool) {
	if !l.holds(cost) {
		return b, false
	}
	rest := b.at(now, l) - cost
	if rest >= 0 {
		return bucket{rest, max(now, b.last)}, true
	}
	tick := l.Rate / 1e9
	if now < b.last || !(rest > -tick) { // a NaN is refused too
		return b, false
	}
	return bucket{min(rest+tick, l.Burst), now + 1}, true
}

// wait returns how long after now the cost would be there if nobody else
// spent: the same arithmetic as take decides it, so a caller that comes back
// then is never refused by a rounding error. It is at least 1 ns.
func (b bucket) wait(now int64, l Limit, cost float64) time.Duration {
	if !l.holds(cost) || !(l.Rate > 0) {
		return Never
	}
	from := max(now, b.last)
	ns := (cost - b.at(from, l)) / l.Rate * 1e9
	if ns >= math.MaxInt64/2 { // 146 years: past every Retry-After
		return Never
	}
	for w, step := max(1, int64(ns)), int64(1); ; step *= 2 {
		if _, ok := b.take(from+w, l, cost); ok {
			return time.Duration(from - now + w)
		}
		if w += step; w >= math.MaxInt64/2 {
			return Never
		}
	}
}

// refund gives cost back, exactly: adding it at the bucket's own instant and
// clamping there is the same as adding it to what the bucket holds at any later
// one and clamping then, so it needs no clock. What is not a positive number
// gives nothing.
func (b bucket) refund(l Limit, cost float64) bucket {
	if !(cost > 0) || !(l.Burst >= 0) {
		return b
	}
	return bucket{min(l.Burst, b.tokens+cost), b.last}
}

// fullAt returns the instant from which the bucket is full and so no different
// from one that was never touched. It errs late, never early: by 1 ns for the
// clock and by a few rounding errors of the division, which at 100 days are
// more than that nanosecond.
func (b bucket) fullAt(l Limit) int64 {
	if b.tokens >= l.Burst {
		return b.last
	}
	if !(l.Rate > 0) {
		return math.MaxInt64
	}
	ns := math.Ceil((l.Burst-b.tokens)/l.Rate*1e9*(1+1e-15)) + 1
	if !(ns < float64(math.MaxInt64-b.last)) { // no number is never, too
		return math.MaxInt64
	}
	return b.last + int64(ns)
}
