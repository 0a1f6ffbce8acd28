package clientip

import (
	"net/netip"
	"strings"
)

// parseEntry reads one element of X-Forwarded-For, or the value of a
// single-value header, already trimmed.
func parseEntry(s string) (netip.Addr, Reason) {
	if len(s) > maxEntry {
		return netip.Addr{}, TooLong
	}
	if a, ok := parseHostPort(s, isPort); ok {
		return a, None
	}
	return netip.Addr{}, Malformed
}

// parseHostPort reads
//
//	v4   v4:port   v6   [v6]   [v6]:port
//
// which are the forms that proxies write (Azure's and Amazon's balancers add
// the port). It refuses what another parser might read differently: IPv4 in
// brackets, lone or doubled brackets, empty ports. An unbracketed v6:port
// cannot be told from an address and is taken as one.
func parseHostPort(s string, validPort func(string) bool) (netip.Addr, bool) {
	host, rest := s, ""
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		host, rest = s[1:end], s[end+1:]
		if strings.IndexByte(host, ':') < 0 {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 && i == strings.LastIndexByte(s, ':') {
		host, rest = s[:i], s[i:]
	}
	if rest != "" && (rest[0] != ':' || !validPort(rest[1:])) {
		return netip.Addr{}, false
	}
	return parseAddr(host)
}

// parseAddr reads an address that a client can have, without its zone and
// unmapped. Both happen before the address is compared with anything:
// netip.Prefix contains neither zoned nor mapped addresses, so a trusted hop
// could otherwise be written in a way that looks untrusted.
//
// The zone is cut off here rather than by netip, which would intern it: text
// of a client, kept in a process-wide table. Octal, hexadecimal and shortened
// IPv4 (CVE-2021-29923) are refused by netip itself.
func parseAddr(s string) (netip.Addr, bool) {
	if i := strings.IndexByte(s, '%'); i >= 0 {
		if !isZone(s[i+1:]) || strings.IndexByte(s[:i], ':') < 0 {
			return netip.Addr{}, false
		}
		s = s[:i]
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	if a = a.Unmap(); !isHost(a) {
		return netip.Addr{}, false
	}
	return a, true
}

// broadcast is the limited broadcast address (RFC 919 section 7).
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// isHost reports whether an unmapped address can be the source of a
// connection. Private and loopback addresses can: they are clients like others.
func isHost(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast() && a != broadcast
}

// isPort reports whether s is a decimal number from 0 to 65535.
func isPort(s string) bool {
	n := 0
	for i := range len(s) {
		c := s[i]
		if c < '0' || c > '9' {
			return false
		}
		if n = n*10 + int(c-'0'); n > 65535 {
			return false
		}
	}
	return s != ""
}

// isZone reports whether s can name a network interface. Separators are
// refused, because with one inside, "2001:db8::1%eth0 203.0.113.8" would be an
// address.
func isZone(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`/:%[]",;`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
