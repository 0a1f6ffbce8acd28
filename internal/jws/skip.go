package jws

import "strings"

// The functions in this file recognise the values of RFC 8259. Each takes the
// position where one should begin, which may be the end of text, and returns
// the position behind it, or -1 if none is there.

// skipValue passes over any value, one that lies depth levels deep.
func skipValue(text []byte, at, depth int) int {
	switch byteAt(text, at) {
	case '"':
		return skipString(text, at)
	case '{':
		o := object{text: text, at: at, depth: depth + 1}
		for o.next() {
		}
		if o.end == 0 {
			return -1
		}
		return o.end
	case '[':
		return skipArray(text, at, depth+1)
	case 't':
		return skipWord(text, at, "true")
	case 'f':
		return skipWord(text, at, "false")
	case 'n':
		return skipWord(text, at, "null")
	default:
		return skipNumber(text, at)
	}
}

// skipArray passes over an array that is itself on level depth.
func skipArray(text []byte, at, depth int) int {
	if depth > maxDepth {
		return -1
	}
	at = skipSpace(text, at+1)
	if byteAt(text, at) == ']' {
		return at + 1
	}
	for {
		if at = skipValue(text, at, depth); at < 0 {
			return -1
		}
		at = skipSpace(text, at)
		switch byteAt(text, at) {
		case ',':
			at = skipSpace(text, at+1)
		case ']':
			return at + 1
		default:
			return -1
		}
	}
}

// skipString passes over a string. Bytes above 0x7f are not checked to be
// UTF-8; encoding/json does not refuse them either.
func skipString(text []byte, at int) int {
	if byteAt(text, at) != '"' {
		return -1
	}
	for at++; at < len(text); at++ {
		switch c := text[at]; {
		case c == '"':
			return at + 1
		case c < ' ':
			return -1
		case c == '\\':
			at++
			switch c = byteAt(text, at); {
			case c == 'u' && isHex4(text, at+1):
				at += 4
			case strings.IndexByte(`"\/bfnrt`, c) < 0:
				return -1
			}
		}
	}
	return -1
}

// isHex4 reports whether four hex digits are at at.
func isHex4(text []byte, at int) bool {
	for i := range 4 {
		switch c := byteAt(text, at+i); {
		case '0' <= c && c <= '9', 'a' <= c|0x20 && c|0x20 <= 'f':
		default:
			return false
		}
	}
	return true
}

// skipNumber passes over [-] int [frac] [exp] (§6). What the number is worth
// does not matter, however long it is.
func skipNumber(text []byte, at int) int {
	if byteAt(text, at) == '-' {
		at++
	}
	if byteAt(text, at) == '0' {
		at++
	} else if at = skipDigits(text, at); at < 0 {
		return -1
	}
	if byteAt(text, at) == '.' {
		if at = skipDigits(text, at+1); at < 0 {
			return -1
		}
	}
	if byteAt(text, at)|0x20 == 'e' {
		at++
		if c := byteAt(text, at); c == '+' || c == '-' {
			at++
		}
		return skipDigits(text, at)
	}
	return at
}

// skipDigits passes over one decimal digit or more.
func skipDigits(text []byte, at int) int {
	first := at
	for c := byteAt(text, at); '0' <= c && c <= '9'; c = byteAt(text, at) {
		at++
	}
	if at == first {
		return -1
	}
	return at
}

// skipWord passes over a literal name (§3).
func skipWord(text []byte, at int, word string) int {
	if string(text[at:min(at+len(word), len(text))]) != word {
		return -1
	}
	return at + len(word)
}

// skipSpace passes over white space (§2), of which there may be none.
func skipSpace(text []byte, at int) int {
	for at < len(text) {
		switch text[at] {
		case ' ', '\t', '\r', '\n':
			at++
		default:
			return at
		}
	}
	return at
}

// byteAt returns the byte at at, and 0 behind the end of text. The two need not
// be told apart: no token holds an unescaped NUL.
func byteAt(text []byte, at int) byte {
	if at < len(text) {
		return text[at]
	}
	return 0
}
