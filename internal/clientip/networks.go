package clientip

import "net/netip"

// Networks is a set of addresses, such as a list of exempt clients. The zero
// Networks is empty. It is immutable and safe for concurrent use.
type Networks struct{ set prefixSet }

// NewNetworks returns the set that the prefixes cover. They must be masked and
// unmapped. The slice is kept, and reordered.
func NewNetworks(prefixes []netip.Prefix) Networks { return Networks{newPrefixSet(prefixes)} }

// Contains reports whether a, unmapped and without a zone, is in the set. It
// takes log2(n) comparisons.
func (n Networks) Contains(a netip.Addr) bool { return len(n.set) > 0 && n.set.contains(a) }
