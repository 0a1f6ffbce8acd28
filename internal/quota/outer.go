package quota

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// standing is how the X-RateLimit fields that stand compare with our quota.
type standing uint8

const (
	absent  standing = iota
	looser           // more remains there
	tighter          // no more remains there, or it does not say how much
)

// compare compares what stands with a quota of which remaining is left. It
// compares units, not shares of a limit: 5 of 10 are used up before 400 of 1000
// are. Equals stay as they are.
func compare(header http.Header, remaining int64) standing {
	if len(header[keyLimit])+len(header[keyRemaining])+len(header[keyReset]) == 0 {
		return absent
	}
	if n, ok := number(header[keyRemaining]); ok && n > remaining {
		return looser
	}
	return tighter
}

// retryAfter returns the seconds in a Retry-After field, 0 if there is none or
// it is a date.
func retryAfter(header http.Header) int64 {
	n, _ := number(header[keyRetryAfter])
	return n
}

// number reads a field of one value that is a number without a sign.
func number(field []string) (n int64, ok bool) {
	if len(field) != 1 {
		return 0, false
	}
	u, err := strconv.ParseUint(strings.Trim(field[0], " \t"), 10, 63)
	return int64(u), err == nil
}

// join adds ours, one line, to the lines of a list that stand.
func join(stands, ours []string) []string {
	if len(stands) == 0 {
		return ours
	}
	if slices.Contains(stands, ours[0]) {
		return stands
	}
	for _, line := range stands {
		if !strings.HasPrefix(strings.TrimLeft(line, " "), `"`) {
			return stands
		}
	}
	// Clipped: the array may be somebody's who has set it in many responses.
	return append(slices.Clip(stands), ours[0])
}
