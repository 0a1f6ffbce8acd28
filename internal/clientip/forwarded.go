package clientip

import (
	"net/netip"
	"strings"
)

// parseForwarded reads one element of a Forwarded header (RFC 7239 section 4),
// already trimmed, and returns the address of its for= parameter:
//
//	element = [ pair ] *( ";" [ pair ] )
//	pair    = token "=" ( token / quoted-string )
//
// The list was split at every comma, those inside quotes too. A reader that
// minds the quotes must start on the left, where one open quote of an attacker
// swallows all that the proxies appended. Split from the right, a quoted comma
// makes its element malformed, which costs the peer and no more.
//
// Blanks around ";" and a node that lacks its quotes or brackets are let
// through, since proxies write them; blanks around "=" and a repeated for= are
// not.
func parseForwarded(elem string) (netip.Addr, Reason) {
	node, found := "", false
	for rest := elem; rest != ""; {
		if rest[0] == ';' || isBlank(rest[0]) {
			rest = rest[1:]
			continue
		}
		name, value, after, ok := cutPair(rest)
		if !ok {
			return netip.Addr{}, Malformed
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, Malformed
			}
			node, found = value, true
		}
		rest = trimLeftBlanks(after)
		if rest != "" && rest[0] != ';' {
			return netip.Addr{}, Malformed
		}
	}
	if !found {
		return netip.Addr{}, Withheld
	}
	return parseNode(node)
}

// parseNode reads the value of for=, still quoted (RFC 7239 section 6).
func parseNode(raw string) (netip.Addr, Reason) {
	node, ok := unquote(raw)
	if !ok || len(node) > maxEntry {
		return netip.Addr{}, TooLong
	}
	name, port, hasPort := strings.Cut(node, ":")
	if (strings.EqualFold(name, "unknown") || isObfuscated(name)) && (!hasPort || isNodePort(port)) {
		return netip.Addr{}, Withheld
	}
	if a, ok := parseHostPort(node, isNodePort); ok {
		return a, None
	}
	return netip.Addr{}, Malformed
}

// cutPair takes one name=value from the front of s. The value keeps its quotes.
func cutPair(s string) (name, value, rest string, ok bool) {
	i := 0
	for i < len(s) && isToken(s[i]) {
		i++
	}
	if i == 0 || i == len(s) || s[i] != '=' {
		return "", "", "", false
	}
	name, s = s[:i], s[i+1:]
	n := valueLen(s)
	if n == 0 {
		return "", "", "", false
	}
	return name, s[:n], s[n:], true
}

// valueLen returns the length of the token or quoted-string at the front of s,
// 0 if there is none.
func valueLen(s string) int {
	if s == "" || s[0] != '"' {
		i := 0
		for i < len(s) && (isToken(s[i]) || s[i] == ':' || s[i] == '[' || s[i] == ']') {
			i++
		}
		return i
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '"' {
			return i + 1
		}
		if s[i] == '\\' {
			i++
		}
		if i == len(s) || s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return 0
		}
	}
	return 0
}

// unquote removes the quotes of a well-formed value and resolves its
// quoted-pairs (RFC 9110 section 5.6.4). It is false for a value so long that
// it cannot shrink to an entry.
func unquote(s string) (string, bool) {
	if s[0] != '"' {
		return s, true
	}
	s = s[1 : len(s)-1]
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	if len(s) > 2*maxEntry {
		return "", false
	}
	plain := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		plain = append(plain, s[i])
	}
	return string(plain), true
}

// isNodePort accepts a number or an obfuscated port (RFC 7239 section 6).
func isNodePort(s string) bool { return isPort(s) || isObfuscated(s) }

// isObfuscated reports whether s is an obfnode or obfport (RFC 7239 section 6.3).
func isObfuscated(s string) bool {
	if len(s) < 2 || s[0] != '_' {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// isToken reports whether c may stand in a token (RFC 9110 section 5.6.2).
func isToken(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}
