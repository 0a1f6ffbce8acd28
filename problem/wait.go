package problem

import (
	"math"
	"strconv"
	"time"
)

// maxRetryAfter is the largest wait announced, in seconds: about 136 years.
// Requirement R1; clients that keep the value in 32 bits survive it.
const maxRetryAfter = math.MaxUint32

// RetryAfterSeconds turns a wait into the number that Retry-After carries:
// whole seconds, rounded up, at least 1 and at most 4294967295.
//
// Rounding up keeps the promise (who waits that long is not early), and the
// minimum keeps away from 0, on which several ACME clients retry in a tight
// loop. It is the only place where a wait becomes seconds: header, documents
// and words all come from here.
func RetryAfterSeconds(d time.Duration) int64 {
	if d <= time.Second {
		return 1
	}
	secs := int64(d / time.Second)
	if d%time.Second != 0 {
		secs++
	}
	return min(secs, maxRetryAfter)
}

// appendWait appends a wait in words, "in 90 seconds", "in 2 minutes". Units
// grow with the wait and each step rounds up, so the words may be later than
// the header but never earlier.
func appendWait(dst []byte, secs int64) []byte {
	n, unit := secs, "second"
	if n >= 120 || n%60 == 0 {
		n, unit = ceilDiv(n, 60), "minute"
		if n >= 120 || n%60 == 0 {
			n, unit = ceilDiv(n, 60), "hour"
			if n >= 48 || n%24 == 0 {
				n, unit = ceilDiv(n, 24), "day"
			}
		}
	}
	if unit == "day" && n > 366 {
		return append(dst, "in more than a year"...)
	}
	dst = append(dst, "in "...)
	dst = strconv.AppendInt(dst, n, 10)
	dst = append(dst, ' ')
	dst = append(dst, unit...)
	if n != 1 {
		dst = append(dst, 's')
	}
	return dst
}

// ceilDiv divides a positive n, rounding up.
func ceilDiv(n, by int64) int64 { return (n + by - 1) / by }
