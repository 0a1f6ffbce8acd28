package clientip

import (
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A model is the resolver once more, plain and slow: it splits everything,
// matches with regular expressions and searches the list from end to end. It
// shares no code with the real one but the types of the result.
type model struct {
	trusted []netip.Prefix
	header  string // as in Config
	realIP  bool
}

// resolve answers for a peer on a TCP connection.
func (m model) resolve(peer string, h http.Header) Result {
	p, ok := modelAddr(peer, digitsPort)
	if !ok {
		return Result{Reason: NoPeer}
	}
	res := Result{Addr: p, Peer: p}
	if len(m.trusted) == 0 {
		res.Reason = NoTrust
		return res
	}
	if !m.trusts(p) {
		res.Reason = UntrustedPeer
		return res
	}
	addr, source, reason := m.read(h)
	res.Reason = reason
	if reason == None || reason == AllTrusted {
		res.Addr, res.Source = addr, source
	}
	return res
}

func (m model) read(h http.Header) (netip.Addr, Source, Reason) {
	if name, ok := strings.CutPrefix(m.header, "single:"); ok {
		a, reason := m.single(h.Values(name))
		return a, Single, reason
	}
	if m.header == "forwarded" {
		return m.list(h.Values("Forwarded"), Forwarded, modelElement)
	}
	a, source, reason := m.list(h.Values("X-Forwarded-For"), XForwardedFor, modelEntry)
	if reason == NoHeader && m.realIP {
		a, reason = m.single(h.Values("X-Real-IP"))
		source = XRealIP
	}
	return a, source, reason
}

func (m model) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(m.trusted, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (m model) list(lines []string, source Source, parse func(string) (netip.Addr, Reason)) (netip.Addr, Source, Reason) {
	if len(lines) == 0 {
		return netip.Addr{}, Peer, NoHeader
	}
	elements, cut := affordable(strings.Split(strings.Join(lines, ","), ","), true)
	var last netip.Addr
	for _, elem := range elements {
		a, reason := parse(elem)
		if reason != None {
			return netip.Addr{}, Peer, reason
		}
		if last = a; !m.trusts(a) {
			return a, source, None
		}
	}
	switch {
	case cut:
		return netip.Addr{}, Peer, TooLong
	case len(elements) == 0:
		return netip.Addr{}, Peer, NoHeader
	default:
		return last, Leftmost, AllTrusted
	}
}

func (m model) single(lines []string) (netip.Addr, Reason) {
	values, cut := affordable(lines, false)
	var found []netip.Addr
	for _, v := range values {
		a, reason := modelEntry(v)
		if reason != None {
			return netip.Addr{}, reason
		}
		if len(found) > 0 && found[0] != a {
			return netip.Addr{}, Conflict
		}
		found = append(found, a)
	}
	switch {
	case cut:
		return netip.Addr{}, TooLong
	case len(found) == 0:
		return netip.Addr{}, NoHeader
	default:
		return found[0], None
	}
}

// affordable returns the elements that hold something, trimmed and in reading
// order, up to the one that a budget no longer covers.
func affordable(elements []string, fromRight bool) (held []string, cut bool) {
	if fromRight {
		elements = slices.Clone(elements)
		slices.Reverse(elements)
	}
	empty, bytes := 0, 0
	for _, e := range elements {
		if bytes+len(e) > 8192 {
			return held, true
		}
		bytes += len(e) + 1
		if e = strings.Trim(e, " \t"); e == "" {
			if empty++; empty > 64 {
				return held, true
			}
			continue
		}
		if len(held) == 64 {
			return held, true
		}
		held = append(held, e)
	}
	return held, false
}

const (
	digitsPort = `[0-9]+`
	obfuscated = `_[A-Za-z0-9._-]+`
	tokenChars = "[A-Za-z0-9!#$%&'*+.^_`|~-]"
	looseValue = "[A-Za-z0-9!#$%&'*+.^_`|~:\\[\\]-]+"
	quoted     = `"(?:[\t !#-\[\]-~\x{80}-\x{10ffff}]|\\[\t -~\x{80}-\x{10ffff}])*"`
	pair       = tokenChars + `+=(?:` + looseValue + `|` + quoted + `)`
)

var (
	v4Form      = regexp.MustCompile(`^([0-9.]+)$`)
	zoneForm    = regexp.MustCompile(`^([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(?:%([^\x00- \x7f/:%\[\]",;]+))?$`)
	elementForm = regexp.MustCompile(`^(?:` + pair + `)?[ \t]*(?:;[ \t]*(?:` + pair + `)?[ \t]*)*$`)
	pairForm    = regexp.MustCompile(pair)
	withheld    = regexp.MustCompile(`^(?:(?i:unknown)|` + obfuscated + `)(?::(` + obfuscated + `|` + digitsPort + `))?$`)
)

func modelEntry(s string) (netip.Addr, Reason) {
	if len(s) > 128 {
		return netip.Addr{}, TooLong
	}
	a, ok := modelAddr(s, digitsPort)
	if !ok {
		return netip.Addr{}, Malformed
	}
	return a, None
}

// modelAddr reads host, [host], host:port or [host]:port.
func modelAddr(s, port string) (netip.Addr, bool) {
	withPort := regexp.MustCompile(`^(\[[^\]]*\]|[^:\[]*):(` + port + `)$`)
	host := s
	if m := withPort.FindStringSubmatch(s); m != nil {
		host = m[1]
		if n, err := strconv.ParseUint(m[2], 10, 64); m[2][0] != '_' && (err != nil || n > 65535) {
			return netip.Addr{}, false
		}
	}
	inner, bracketed := strings.CutPrefix(host, "[")
	if bracketed {
		if inner, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return netip.Addr{}, false
		}
	} else if v4Form.MatchString(host) {
		return modelHost(host)
	} else if host != s {
		return netip.Addr{}, false // a port after something that is not v4
	}
	m := zoneForm.FindStringSubmatch(inner)
	if m == nil {
		return netip.Addr{}, false
	}
	return modelHost(m[1])
}

func modelHost(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	a = a.Unmap()
	nobody := []string{"0.0.0.0", "::", "255.255.255.255"}
	if slices.Contains(nobody, a.String()) || a.IsMulticast() {
		return netip.Addr{}, false
	}
	return a, true
}

func modelElement(s string) (netip.Addr, Reason) {
	if !elementForm.MatchString(s) {
		return netip.Addr{}, Malformed
	}
	var nodes []string
	for _, p := range pairForm.FindAllString(s, -1) {
		if name, value, _ := strings.Cut(p, "="); strings.EqualFold(name, "for") {
			nodes = append(nodes, value)
		}
	}
	if len(nodes) == 0 {
		return netip.Addr{}, Withheld
	}
	if len(nodes) > 1 {
		return netip.Addr{}, Malformed
	}
	node := nodes[0]
	if node[0] == '"' {
		node = regexp.MustCompile(`(?s)\\(.)`).ReplaceAllString(node[1:len(node)-1], "$1")
	}
	if len(node) > 128 {
		return netip.Addr{}, TooLong
	}
	if m := withheld.FindStringSubmatch(node); m != nil {
		if m[1] == "" || m[1][0] == '_' {
			return netip.Addr{}, Withheld
		}
		if n, err := strconv.Atoi(m[1]); err == nil && n <= 65535 {
			return netip.Addr{}, Withheld
		}
	}
	a, ok := modelAddr(node, digitsPort+`|`+obfuscated)
	if !ok {
		return netip.Addr{}, Malformed
	}
	return a, None
}
