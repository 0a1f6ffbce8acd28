package clientip

import (
	"net/netip"
	"strconv"
	"strings"
)

// unixToken stands for peers on a unix socket; nginx spells it "unix:".
const unixToken = "unix"

// Networks larger than these cover more than any operator's proxies.
const (
	shortIPv4 = 8
	shortIPv6 = 16
)

// A trustList gathers the entries of Config.Trusted while they are read.
type trustList struct {
	allowAny bool

	prefixes []netip.Prefix // masked and unmapped
	unix     bool
	errors   []Fault
	warnings []Fault
}

// add reads one entry and files it, its error or its warnings.
func (l *trustList) add(index int, entry string) {
	if entry == unixToken {
		l.unix = true
		return
	}
	p, message, fix := parseNetwork(entry)
	if message == "" && p.Bits() == 0 && !l.allowAny {
		message, fix = "trusts every address there is, so that each client could choose its own",
			"the networks that the proxies connect from"
	}
	if message != "" {
		l.errors = append(l.errors, Fault{index, fieldTrusted, entry, message, fix})
		return
	}
	l.prefixes = append(l.prefixes, p.Masked())
	l.doubt(index, entry, p)
}

// doubt warns of what is legal but hardly meant.
func (l *trustList) doubt(index int, entry string, p netip.Prefix) {
	warn := func(message, fix string) {
		l.warnings = append(l.warnings, Fault{index, fieldTrusted, entry, message, fix})
	}
	if p != p.Masked() {
		warn("has bits set beyond its length; the whole network is trusted", p.Masked().String())
	}
	short := shortIPv6
	if p.Addr().Is4() {
		short = shortIPv4
	}
	if p.Bits() < short {
		warn("is shorter than /"+strconv.Itoa(short)+" and covers much of the address space",
			"only the networks that the proxies connect from")
	}
	if p.Addr().IsMulticast() {
		warn("is multicast, where no connection comes from", "a unicast address or network")
	}
}

// parseNetwork reads an address or a network, unmapped but not masked. A
// message that is not empty says what is wrong with it.
func parseNetwork(entry string) (p netip.Prefix, message, fix string) {
	p, ok := readNetwork(entry)
	if !ok {
		message, fix = explain(entry)
		return netip.Prefix{}, message, fix
	}
	if a := p.Addr(); a.Is4In6() {
		// A mapped prefix contains nothing once the addresses are unmapped.
		if p.Bits() < 96 {
			return p, "is an IPv4-mapped network that reaches beyond IPv4", "the IPv4 network, such as 10.0.0.0/8"
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	if a := p.Addr(); a.IsUnspecified() && p.IsSingleIP() {
		return p, "is an address to listen on, not one to connect from", "the addresses that the proxies connect from"
	}
	return p, "", ""
}

func readNetwork(s string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p, true
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// explain says what is wrong with an entry that cannot be read. It looks for
// the slips that people make, so that the answer can be the corrected text.
func explain(entry string) (message, fix string) {
	const hint = "an address such as 192.0.2.10, a network such as 10.0.0.0/8, or the word unix"
	bare, zone, zoned := strings.Cut(entry, "%")
	if _, length, ok := strings.Cut(zone, "/"); ok {
		bare += "/" + length
	}
	trimmed := strings.TrimSpace(entry)
	host, hostOK := parseHostPort(entry, isPort)
	switch {
	case trimmed == "":
		return "is empty", hint
	case strings.Contains(entry, ","):
		return "holds several entries in one text", "one list entry for each: " + strings.Join(splitList(entry), " and ")
	case strings.EqualFold(strings.TrimSuffix(trimmed, ":"), unixToken):
		return "is not how unix sockets are written here", unixToken
	case trimmed != entry && isNetwork(trimmed):
		return "has blanks around it", trimmed
	case zoned && isNetwork(bare):
		return "has a zone, which says nothing about where a connection comes from", bare
	case hostOK:
		return "has a port or brackets; proxies connect from any port", host.String()
	case strings.Contains(entry, "/"):
		return "is not a network in CIDR form", hint
	default:
		return "is not an address; names are not looked up", hint
	}
}

func isNetwork(s string) bool {
	_, ok := readNetwork(s)
	return ok
}

func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
