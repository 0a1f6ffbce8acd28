package clientip

import "net/netip"

// readSingle reads a header that holds one address: X-Real-IP, or what a CDN
// calls its own. The value is the answer even if it is a trusted address:
// there is no list to walk.
//
// Several lines must agree. Taking the first or the last would be a guess
// about which of two proxies appended instead of replacing, and one of the
// two values is the client's own. Blank lines are passed over.
func readSingle(lines []string) (netip.Addr, Reason) {
	left := fullBudget
	var found netip.Addr
	for _, line := range lines {
		value, ok := left.spend(line)
		if !ok {
			return netip.Addr{}, TooLong
		}
		if value == "" {
			continue
		}
		a, reason := parseEntry(value)
		if reason != None {
			return netip.Addr{}, reason
		}
		if found.IsValid() && a != found {
			return netip.Addr{}, Conflict
		}
		found = a
	}
	if !found.IsValid() {
		return netip.Addr{}, NoHeader
	}
	return found, None
}
