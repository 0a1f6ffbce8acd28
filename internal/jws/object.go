package jws

import "bytes"

// maxDepth is how deep objects and arrays may nest, the outermost included.
// ACME needs three levels. Servers read more (encoding/json 10000), but a
// request that goes there is no worse off than one without an account.
const maxDepth = 64

// object reads the members of one JSON object (RFC 8259) in order, duplicates
// included, as a bufio.Scanner reads lines:
//
//	o := openObject(text)
//	for o.next() {
//		// o.name, o.value
//	}
//	if !o.alone() {
//		// text was not exactly one object, whatever was seen of it
//	}
//
// It is as strict as encoding/json, but for maxDepth, and looks at each byte
// once. Decoder.Token would do the same, were it not for who is asking: it
// makes a string of the payload, takes some 47 allocations for an ordinary
// request, and grows by 360 kB for 64 KiB of brackets. This allocates nothing.
type object struct {
	text  []byte
	at    int // where the object begins, then behind the last value
	depth int // of the object itself, from 1
	end   int // behind the closing brace, 0 until it was reached

	name  []byte // between the quotes, its escapes not yet resolved
	value []byte // from its first byte to its last, nil before the first member
}

// openObject begins to read the object that text, but for white space around
// it, should consist of.
func openObject(text []byte) object {
	return object{text: text, at: skipSpace(text, 0), depth: 1}
}

// next goes to the next member. It returns false at the end of the object and
// at the first fault, after which it must not be called again.
func (o *object) next() bool {
	first := o.value == nil
	at := skipSpace(o.text, o.at)
	switch c := byteAt(o.text, at); {
	case first && c == '{' && o.depth <= maxDepth:
		at = skipSpace(o.text, at+1)
		if byteAt(o.text, at) == '}' {
			o.end = at + 1
			return false
		}
	case !first && c == ',':
		at = skipSpace(o.text, at+1)
	case !first && c == '}':
		o.end = at + 1
		return false
	default:
		return false
	}
	behind := skipString(o.text, at)
	if behind < 0 {
		return false
	}
	o.name = o.text[at+1 : behind-1]
	if at = skipSpace(o.text, behind); byteAt(o.text, at) != ':' {
		return false
	}
	at = skipSpace(o.text, at+1)
	if behind = skipValue(o.text, at, o.depth); behind < 0 {
		return false
	}
	o.value, o.at = o.text[at:behind], behind
	return true
}

// alone reports whether the object was read to its end and nothing but white
// space is behind it.
func (o *object) alone() bool {
	return o.end > 0 && skipSpace(o.text, o.end) == len(o.text)
}

// is reports whether word, of at most 10 characters, is the name of the member
// once escapes are resolved. No escape makes one character of more than six
// bytes, so that a longer name is another one and need not be resolved.
func (o *object) is(word string) bool {
	if len(o.name) > 6*len(word) {
		return false
	}
	var buf [60]byte
	return string(unescape(buf[:0], o.name)) == word
}

// folds is like is, in any letter case, as decoders see it that ignore case.
func (o *object) folds(word string) bool {
	if len(o.name) > 6*len(word) {
		return false
	}
	var buf [60]byte
	return bytes.EqualFold(unescape(buf[:0], o.name), []byte(word))
}

// stringValue returns what is between the quotes of the value, if it is a
// string.
func (o *object) stringValue() (inside []byte, ok bool) {
	if o.value[0] != '"' {
		return nil, false
	}
	return o.value[1 : len(o.value)-1], true
}
