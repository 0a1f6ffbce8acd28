package clientip

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// TestPrefixSetAgreesWithALinearSearch compares the set with the obvious one
// over random lists, drawn from few bits so that networks nest and touch.
func TestPrefixSetAgreesWithALinearSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 2000 {
		var list []netip.Prefix
		for range rng.IntN(24) {
			list = append(list, randomPrefix(rng))
		}
		set := newPrefixSet(slices.Clone(list))
		orderly(t, set)
		for _, a := range probes(rng, list) {
			want := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
			if got := set.contains(a); got != want {
				t.Fatalf("round %d: %v in %v (made of %v): got %t, want %t", round, a, set, list, got, want)
			}
		}
		again := newPrefixSet(slices.Clone([]netip.Prefix(set)))
		if !slices.Equal(set, again) {
			t.Fatalf("round %d: %v becomes %v when it is built again", round, set, again)
		}
	}
}

// orderly checks the invariants that contains relies on.
func orderly(t *testing.T, set prefixSet) {
	t.Helper()
	for i, p := range set {
		if p != p.Masked() {
			t.Fatalf("%v is not masked", p)
		}
		if i == 0 {
			continue
		}
		before := set[i-1]
		if !before.Addr().Less(p.Addr()) || before.Overlaps(p) {
			t.Fatalf("%v before %v", before, p)
		}
		if parent := netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked(); before.Bits() == p.Bits() && parent.Contains(before.Addr()) {
			t.Fatalf("%v and %v are the halves of %v", before, p, parent)
		}
	}
}

func randomAddr(rng *rand.Rand) netip.Addr {
	low := byte(rng.IntN(64))
	switch rng.IntN(4) {
	case 0:
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 15: low})
	case 1: // the corners of both families
		return [...]netip.Addr{
			netip.IPv4Unspecified(), broadcast, netip.IPv6Unspecified(),
			netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
		}[rng.IntN(4)]
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, low})
}

func randomPrefix(rng *rand.Rand) netip.Prefix {
	a := randomAddr(rng)
	bits := a.BitLen() - rng.IntN(8)
	if rng.IntN(100) == 0 {
		bits = rng.IntN(2)
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// probes returns random addresses and the ones just outside each network.
func probes(rng *rand.Rand, list []netip.Prefix) []netip.Addr {
	var all []netip.Addr
	for range 32 {
		all = append(all, randomAddr(rng))
	}
	for _, p := range list {
		all = append(all, p.Addr())
		if before := p.Addr().Prev(); before.IsValid() {
			all = append(all, before)
		}
	}
	return all
}
