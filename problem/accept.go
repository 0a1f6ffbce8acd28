package problem

import "strings"

// maxAccept bounds the work on an Accept field, in bytes over all its lines.
// Browsers send some 150, and a caller under refusal gets no more of our time.
const maxAccept = 1 << 10

// A preference is the document that an Accept field asks for. The order breaks
// the last tie, so it puts programs first.
type preference int

const (
	preferJSON preference = iota
	preferPlain
	preferHTML
)

// mediaTypes are the types that can be asked for and what each one gets.
var mediaTypes = [...]struct {
	major, minor string
	gets         preference
}{
	{"application", "problem+json", preferJSON},
	{"application", "json", preferJSON},
	{"text", "plain", preferPlain},
	{"text", "html", preferHTML},
	{"application", "xhtml+xml", preferHTML},
}

// A weight is how much a media type is wanted. The zero value is "not at all".
type weight struct {
	quality  int // thousandths, 0…1000
	specific int // 3 type/subtype, 2 type/*, 1 */*, 0 not mentioned
	position int // of the range in the field, from 0
}

// preferred reads the lines of an Accept field (RFC 9110 section 12.5.1) and
// returns the document they ask for, preferJSON where they leave it open.
// It takes time linear in their length, at most maxAccept, and allocates nothing.
func preferred(lines []string) preference {
	size := 0
	for _, line := range lines {
		size += len(line)
	}
	if size > maxAccept {
		return preferJSON
	}

	var weights [len(mediaTypes)]weight
	position := 0
	for _, line := range lines {
		for line != "" {
			var element string
			element, line = cutUnquoted(line, ',')
			major, minor, quality, ok := parseRange(element)
			if !ok {
				continue
			}
			for i, t := range mediaTypes {
				w := weight{quality, matches(major, minor, t.major, t.minor), position}
				if w.outranks(weights[i]) {
					weights[i] = w
				}
			}
			position++
		}
	}

	best, choice := weight{}, preferJSON
	for i, w := range weights {
		if w.betterThan(best) {
			best, choice = w, mediaTypes[i].gets
		}
	}
	return choice
}

// outranks reports whether w, rather than old, decides about a type: the more
// specific range does, even to say no. Of two equally specific ones (they
// differ in parameters that no document here has) the kinder does.
func (w weight) outranks(old weight) bool {
	if w.specific != old.specific {
		return w.specific > old.specific
	}
	return w.specific > 0 && w.quality > old.quality
}

// betterThan reports whether a type of weight w is wanted more than one of
// weight than. A weight of no quality is better than none.
func (w weight) betterThan(than weight) bool {
	if w.quality != than.quality {
		return w.quality > than.quality
	}
	if w.specific != than.specific {
		return w.quality > 0 && w.specific > than.specific
	}
	return w.position < than.position
}

// matches returns how specifically the range major/minor covers a type, as
// weight.specific counts it.
func matches(major, minor, typeMajor, typeMinor string) int {
	switch {
	case major == "*":
		return 1
	case !strings.EqualFold(major, typeMajor):
		return 0
	case minor == "*":
		return 2
	case strings.EqualFold(minor, typeMinor):
		return 3
	}
	return 0
}

// parseRange splits a media range such as "text/html;level=1;q=0.5". Parameters
// other than q are ignored. A bare "*", which old Java clients send, is "*/*".
// It reports false for an element without a type or with a q that is no weight:
// one that says something else than it means is better not heard.
func parseRange(element string) (major, minor string, quality int, ok bool) {
	name, params := cutUnquoted(element, ';')
	major, minor, ok = strings.Cut(trimSpace(name), "/")
	if !ok && major == "*" {
		minor, ok = "*", true
	}
	if !ok || major == "" || minor == "" || major == "*" && minor != "*" {
		return "", "", 0, false
	}
	quality = 1000
	for params != "" {
		var param string
		param, params = cutUnquoted(params, ';')
		key, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(trimSpace(key), "q") {
			continue
		}
		if quality, ok = parseQuality(trimSpace(value)); !ok {
			return "", "", 0, false
		}
		break // what follows q are the extensions of RFC 7231 section 5.3.2, gone in RFC 9110
	}
	return major, minor, quality, true
}

// parseQuality reads a weight (RFC 9110 section 12.4.2) in thousandths. It also
// takes ".2" and more than three digits, which are sent, and drops the excess.
func parseQuality(s string) (thousandths int, ok bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole != "0" && whole != "1" && (whole != "" || fraction == "") {
		return 0, false
	}
	unit := 100
	for i := range len(fraction) {
		c := fraction[i]
		if c < '0' || c > '9' || whole == "1" && c != '0' {
			return 0, false
		}
		thousandths += unit * int(c-'0')
		unit /= 10
	}
	if whole == "1" {
		thousandths = 1000
	}
	return thousandths, whole != "" || point
}

// cutUnquoted is strings.Cut at the first sep outside a quoted-string (RFC 9110
// section 5.6.4). An unclosed quote runs to the end.
func cutUnquoted(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// trimSpace removes optional whitespace (RFC 9110 section 5.6.3): unlike
// strings.TrimSpace it knows only space and tab.
func trimSpace(s string) string {
	return strings.Trim(s, " \t")
}
