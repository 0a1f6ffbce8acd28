package problem

import "unicode/utf8"

const hexDigits = "0123456789abcdef"

// appendJSON appends s as a JSON string, byte for byte as encoding/json does
// with its HTML escaping: markup characters and the line separators that
// JavaScript trips over become \u escapes, invalid UTF-8 becomes U+FFFD. A test
// holds the two together; encoding/json itself allocates.
func appendJSON(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0 // s[start:i] waits to be copied as it is
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		if !jsonEscapes(c, size) {
			i += size
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', byte(c))
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default: // below 0x10000: the only ones that jsonEscapes names
			dst = append(dst, '\\', 'u', hexDigits[c>>12&0xF], hexDigits[c>>8&0xF], hexDigits[c>>4&0xF], hexDigits[c&0xF])
		}
		i += size
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// jsonEscapes reports whether c, decoded from size bytes, needs an escape.
func jsonEscapes(c rune, size int) bool {
	switch c {
	case '"', '\\', '<', '>', '&', '\u2028', '\u2029':
		return true
	case utf8.RuneError:
		return size == 1 // not a U+FFFD that was there before
	}
	return c < 0x20
}

// appendMarkup appends s as character data or a quoted attribute value of XML
// and HTML alike, byte for byte as xml.EscapeText does: numeric references for
// quotes, and U+FFFD for what XML 1.0 section 2.2 has no way to write.
func appendMarkup(dst []byte, s string) []byte {
	start := 0
	for i := 0; i < len(s); {
		c, size := utf8.DecodeRuneInString(s[i:])
		escape := markupEscape(c, size)
		if escape != "" {
			dst = append(dst, s[start:i]...)
			dst = append(dst, escape...)
			start = i + size
		}
		i += size
	}
	return append(dst, s[start:]...)
}

// markupEscape returns what stands for c, or "" if c stands for itself.
func markupEscape(c rune, size int) string {
	switch c {
	case '"':
		return "&#34;"
	case '\'':
		return "&#39;"
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '\t':
		return "&#x9;"
	case '\n':
		return "&#xA;"
	case '\r':
		return "&#xD;"
	case utf8.RuneError:
		if size > 1 {
			return ""
		}
		return "\uFFFD"
	case 0xFFFE, 0xFFFF:
		return "\uFFFD"
	}
	if c < 0x20 {
		return "\uFFFD"
	}
	return ""
}
