package clientip

import (
	"net/netip"
	"slices"
)

// A prefixSet is a set of addresses, kept as the shortest list of prefixes
// that covers it. Invariants, on which contains relies:
//
//   - every prefix is masked and unmapped;
//   - ascending by address, IPv4 before IPv6;
//   - no two overlap, and no two are the halves of one larger prefix.
//
// So an address can lie only in the last prefix that does not start after it,
// and a look-up takes log2(n) comparisons: about 14 for the 10 000 networks of
// a large CDN list. A radix tree would answer in as many steps with a pointer
// chase for each.
type prefixSet []netip.Prefix

// newPrefixSet takes masked, unmapped prefixes in any order and may reorder
// the slice that it is given.
func newPrefixSet(prefixes []netip.Prefix) prefixSet {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	var set prefixSet
	for _, p := range prefixes {
		// Sorted, so only the last one kept can contain p.
		if n := len(set); n > 0 && set[n-1].Contains(p.Addr()) {
			continue
		}
		set = append(set, p).joinHalves()
	}
	return slices.Clip(set)
}

// joinHalves replaces the last two prefixes by their parent for as long as
// they are its halves.
func (s prefixSet) joinHalves() prefixSet {
	for len(s) > 1 {
		low, high := s[len(s)-2], s[len(s)-1]
		if low.Bits() != high.Bits() || low.Bits() == 0 {
			return s
		}
		parent, err := low.Addr().Prefix(low.Bits() - 1)
		if err != nil || !parent.Contains(high.Addr()) {
			return s
		}
		s = append(s[:len(s)-2], parent)
	}
	return s
}

// contains reports whether a, unmapped and without a zone, is in the set.
func (s prefixSet) contains(a netip.Addr) bool {
	i, exact := slices.BinarySearchFunc(s, a, func(p netip.Prefix, a netip.Addr) int {
		return p.Addr().Compare(a)
	})
	return exact || i > 0 && s[i-1].Contains(a)
}
