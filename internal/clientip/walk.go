package clientip

import (
	"net/netip"
	"strings"
)

// What one request may cost. A real chain has a handful of hops; whatever goes
// beyond these numbers is a client at play, and becomes the peer.
const (
	maxEntries = 64   // elements that hold something
	maxEmpty   = 64   // elements that hold nothing (RFC 9110 section 5.6.1.2 has us skip a reasonable number)
	maxEntry   = 128  // bytes of one entry; the longest address with zone and port is far shorter
	maxScan    = 8192 // bytes looked at, separators included
)

// walk goes through a list header from the right, passes over trusted hops and
// returns the first other one. What lies to its left is never looked at, so
// junk there cannot matter.
//
//	no element at all       NoHeader
//	an element not readable the parser's reason (I3)
//	a budget spent          TooLong
//	every hop trusted       the leftmost, AllTrusted (I4)
//
// Only None and AllTrusted come with an address.
func (r *Resolver) walk(lines []string, parse func(string) (netip.Addr, Reason), source Source) (netip.Addr, Source, Reason) {
	list := listFromRight{lines: lines, budget: fullBudget}
	var leftmost netip.Addr
	for {
		elem, state := list.next()
		switch state {
		case listEnd:
			if !leftmost.IsValid() {
				return netip.Addr{}, Peer, NoHeader
			}
			return leftmost, Leftmost, AllTrusted
		case listOver:
			return netip.Addr{}, Peer, TooLong
		}
		hop, reason := parse(elem)
		if reason != None {
			return netip.Addr{}, Peer, reason
		}
		if !r.trusted.contains(hop) {
			return hop, source, None
		}
		leftmost = hop
	}
}

// listFromRight yields the elements of a list header, the last one first. Its
// lines form one list in the order they came (RFC 9110 section 5.3); a proxy
// may append to the last line or add a line of its own.
//
// Splitting would cost the whole header before the first element is known:
// tens of milliseconds for the megabyte that net/http lets through.
type listFromRight struct {
	lines []string // not yet begun; the last is next
	line  string   // what remains of the current line
	open  bool     // line has an element left (which may be empty)
	budget
}

type listState uint8

const (
	listMore listState = iota // an element was returned
	listEnd                   // there is no further element
	listOver                  // a budget is spent
)

// next returns the next element that is not empty, trimmed.
func (l *listFromRight) next() (string, listState) {
	for {
		if !l.open {
			if len(l.lines) == 0 {
				return "", listEnd
			}
			last := len(l.lines) - 1
			l.line, l.lines, l.open = l.lines[last], l.lines[:last], true
		}
		elem, ok := l.cutLast()
		if !ok {
			return "", listOver
		}
		if elem, ok = l.spend(elem); !ok {
			return "", listOver
		}
		if elem != "" {
			return elem, listMore
		}
	}
}

// cutLast takes the text after the last comma of the line, or all of it. It
// looks no further than the budget allows, and is false if that is too short.
func (l *listFromRight) cutLast() (string, bool) {
	window := l.line[len(l.line)-min(len(l.line), max(l.scan, 0)):]
	comma := strings.LastIndexByte(window, ',')
	if comma < 0 {
		if len(window) < len(l.line) {
			return "", false
		}
		l.line, l.open = "", false
		return window, true
	}
	elem := window[comma+1:]
	l.line = l.line[:len(l.line)-len(elem)-1]
	return elem, true
}

// budget is what is left for one header.
type budget struct {
	entries int // elements with something in them
	empty   int // elements without
	scan    int // bytes; each element also costs one for its separator, so 50 000 blank lines are not free
}

var fullBudget = budget{entries: maxEntries, empty: maxEmpty, scan: maxScan}

// spend pays for one element and returns it without the blanks around it. It
// is false if the element is more than what is left.
func (b *budget) spend(elem string) (string, bool) {
	if b.scan < len(elem) {
		return "", false
	}
	b.scan -= len(elem) + 1
	if elem = trimBlanks(elem); elem == "" {
		b.empty--
		return "", b.empty >= 0
	}
	b.entries--
	return elem, b.entries >= 0
}

// trimBlanks removes optional whitespace (RFC 9110 section 5.6.3), which is
// space and tab and nothing else: strings.TrimSpace would accept more.
func trimBlanks(s string) string {
	s = trimLeftBlanks(s)
	for s != "" && isBlank(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func trimLeftBlanks(s string) string {
	for s != "" && isBlank(s[0]) {
		s = s[1:]
	}
	return s
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
