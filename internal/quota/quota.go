package quota

import (
	"math"
	"time"
)

// Quota is one tier or window as one client sees it. It is a plain value. No
// number in it can make a field invalid: what is negative or no number counts
// as 0, what is too large as the largest number that the fields can hold.
type Quota struct {
	// Name names the policy, such as "per_ip". A Quota without one is no quota,
	// and nothing is told of it. Names come from configuration: a client must
	// not be able to choose one, if only because it may be of any length.
	Name string

	// Limit is how much a window grants, or a bucket's burst. It is told rounded
	// down.
	Limit float64

	// Remaining is what is left of Limit now. It is told rounded down, and
	// never as more than Limit.
	Remaining float64

	// Rate is what a bucket gets back, in tokens a second. It marks the quota
	// as a bucket: Window and Reset follow from it and are not looked at. 0
	// marks a window, the whole Limit of which comes back at Reset.
	Rate float64

	// Window is the length of the window; 0 is unknown.
	Window time.Duration

	// Reset is how long from now the window ends.
	Reset time.Duration
}

const (
	// maxUnits is the largest Integer of a Structured Field (RFC 9651, section
	// 3.3.1): 15 digits.
	maxUnits = 999_999_999_999_999

	// maxSeconds bounds every span of time in a field, as it does Retry-After
	// (requirement R1): clients that keep it in 32 bits survive it.
	maxSeconds = math.MaxUint32
)

// limit is Limit in whole units.
func (q *Quota) limit() int64 { return units(q.Limit) }

// remaining is Remaining in whole units, at most limit.
func (q *Quota) remaining() int64 { return min(units(q.Remaining), q.limit()) }

// window is the time in which Limit is granted once, in seconds; 0 is unknown.
func (q *Quota) window() int64 {
	if q.bucket() {
		return seconds(span(q.Limit / q.Rate))
	}
	return seconds(q.Window)
}

// reset is the time until all of Limit is there.
func (q *Quota) reset() time.Duration {
	d := q.Reset
	if q.bucket() {
		d = span((q.Limit - max(q.Remaining, 0)) / q.Rate)
	}
	return min(max(d, 0), maxSeconds*time.Second)
}

// effective is the time for which a client does well to live on what remains,
// in seconds; 0 is unknown. It is never told as 0, by which clients divide.
//
// In a window that is the rest of the window. For a bucket it is the time in
// which the rate brings what remains, or while nothing remains, the time until
// one token is there. Who spends evenly by that keeps to the rate, and the
// ratio of the two numbers cannot invite to more than that (sections 6 and 8.5
// of the draft). The two obvious choices are worse: until the bucket is full is
// next to nothing for a bucket that is nearly full, where it invites a
// stampede, and makes the client of an empty one wait for the whole burst
// where the next token would do; until the next token promises the burst again
// with each token.
func (q *Quota) effective() int64 {
	if q.bucket() {
		need := max(float64(q.remaining()), 1-max(q.Remaining, 0))
		return max(1, seconds(span(need/q.Rate)))
	}
	if q.Window <= 0 && q.Reset <= 0 {
		return 0
	}
	return max(1, seconds(q.Reset))
}

func (q *Quota) bucket() bool { return q.Rate > 0 }

// units rounds down to a number that an Integer of a Structured Field holds.
func units(x float64) int64 {
	switch {
	case !(x >= 1): // NaN too
		return 0
	case x >= maxUnits:
		return maxUnits
	}
	return int64(x)
}

// span is s seconds, at most maxSeconds, to the nearest nanosecond, so that the
// rounding error of a division does not grow to a second when it is rounded
// up; but what is more than nothing stays more than nothing.
func span(s float64) time.Duration {
	switch {
	case !(s > 0): // NaN too
		return 0
	case s >= maxSeconds:
		return maxSeconds * time.Second
	}
	return max(1, time.Duration(math.Round(s*1e9)))
}

// seconds rounds up to whole seconds, at least 0 and at most maxSeconds.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Second)+1, maxSeconds)
}

// resetTime is now + d as Unix time in seconds, rounded up and later than now:
// whoever computes a wait from it and the response's own Date, which is rounded
// down, gets at least 1.
func resetTime(now time.Time, d time.Duration) int64 {
	t := now.Add(d)
	sec := t.Unix()
	if t.Nanosecond() > 0 {
		sec++
	}
	return min(max(sec, now.Unix()+1, 0), maxUnits)
}
