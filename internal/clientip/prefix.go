package clientip

import "net/netip"

// Networks whose addresses carry an IPv4 address.
var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052 section 2.1
	sixTo4 = netip.MustParsePrefix("2002::/16")    // RFC 3056 section 2
	teredo = netip.MustParsePrefix("2001::/32")    // RFC 4380 section 4
)

// Prefix returns what counts as one client (T13): the network of v4 bits
// (0 to 32, usually 32) or v6 bits (0 to 128, usually 64) around a. One
// household or server owns a whole IPv6 /64, so anything longer is no limit.
//
// Addresses that carry an IPv4 address are counted under that one: behind
// NAT64 or Teredo a /64 would lump all users of a gateway together, and with
// 6to4 the owner of one IPv4 address has 65 536 of them. ::1 is always alone.
// The local-use NAT64 network 64:ff9b:1::/48 (RFC 8215) stays as it is, since
// the place of the IPv4 address in it is a site's own choice.
//
// An invalid address, or bits out of range, gives the zero Prefix. The result
// says whom to count, not where a request came from: anyone may write an IPv4
// address into an IPv6 one, so allow and deny lists must look at the address.
func Prefix(a netip.Addr, v4, v6 int) netip.Prefix {
	a = a.Unmap().WithZone("")
	if embedded, ok := embeddedIPv4(a); ok {
		a = embedded
	}
	bits := v6
	switch {
	case a.Is4():
		bits = v4
	case a == netip.IPv6Loopback():
		bits = 128
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// embeddedIPv4 returns the IPv4 address that a transition address stands for.
func embeddedIPv4(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(a):
		// The client's address is stored inverted, so that translators on
		// the way do not rewrite it.
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	}
	return netip.Addr{}, false
}
