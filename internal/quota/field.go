package quota

import "strconv"

// appendServiceLimit appends a Service Limit Item (the draft, section 4.1):
//
//	"per_ip";r=12;t=1
//
// t is at most retryAfter seconds, if that is positive.
func (q *Quota) appendServiceLimit(dst []byte, retryAfter int64) []byte {
	dst = appendString(dst, q.Name)
	dst = append(dst, ";r="...)
	dst = strconv.AppendInt(dst, q.remaining(), 10)
	if t := q.effective(); t > 0 {
		if retryAfter > 0 {
			t = min(t, retryAfter)
		}
		dst = append(dst, ";t="...)
		dst = strconv.AppendInt(dst, t, 10)
	}
	return dst
}

// appendPolicy appends a Quota Policy Item (the draft, section 3.1):
//
//	"per_ip";q=40;w=2
//
// w must not be 0 and is left out where the window is unknown.
func (q *Quota) appendPolicy(dst []byte) []byte {
	dst = appendString(dst, q.Name)
	dst = append(dst, ";q="...)
	dst = strconv.AppendInt(dst, q.limit(), 10)
	if w := q.window(); w > 0 {
		dst = append(dst, ";w="...)
		dst = strconv.AppendInt(dst, w, 10)
	}
	return dst
}

// appendPolicies appends the items of quotas as a List, which is empty only if
// none of them has a name.
func appendPolicies(dst []byte, quotas []Quota) []byte {
	begin := len(dst)
	for i := range quotas {
		if quotas[i].Name == "" {
			continue
		}
		if len(dst) > begin {
			dst = append(dst, ", "...)
		}
		dst = quotas[i].appendPolicy(dst)
	}
	return dst
}

// appendString appends s as a String (RFC 9651, section 3.3.3), which holds
// printable ASCII; quotes and backslashes are escaped. Any other byte is
// percent-encoded, and so is the percent sign, so that different names stay
// different and [net/url.PathUnescape] gives the name back. (A Display String
// would hold Unicode, but the draft requires a String.)
func appendString(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ' || c > '~' || c == '%':
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
