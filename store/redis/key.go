package redis

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-go/weir/store"
)

// maxScope is the longest scope name that stands in a key as it is.
const maxScope = 64

// keyspace turns checks into names of Redis keys:
//
//	weir:{weir}b6:per_ip:00000000000000000000ffffc0a80100
//	^    ^     ^^ ^      ^
//	|    |     || |      the Key in hex; nothing for the one bucket of a scope
//	|    |     || the scope
//	|    |     |the length of the scope in bytes
//	|    |     b: a bucket, w: a window
//	|    the namespace, which as hash tag puts all keys of a limiter in one slot
//	the prefix
//
// No two buckets share a name, whatever prefixes, namespaces and scopes are
// called (requirement S12): a prefix has no brace, so the first one ends it; a
// namespace has none and no colon; the scope is read by its length. A scope that
// is long or not plain text is hashed, and # stands where its length would.
//
// With a slot for each Key the tag is {weir:HEX}, for the scopes without keys
// still {weir}, and the hex at the end is left out.
//
// The auth lock's names are made alike: l is a failure counter, k who has signed
// in to an account, i the index of a scope's locks, which is in the slot of the
// scopes without keys. The hex stands there also for the zero Key, since that of a
// caller may follow.
type keyspace struct {
	head       string // prefix, brace and namespace
	slotPerKey bool
}

func newKeyspace(prefix, namespace string, slotPerKey bool) (keyspace, error) {
	if len(prefix) > 128 {
		return keyspace{}, fmt.Errorf("key prefix is %d bytes long: use at most 128", len(prefix))
	}
	for _, c := range []byte(prefix) {
		// Braces would move the hash tag; the others are not what they seem in
		// the pattern of an ACL rule.
		switch {
		case c <= ' ' || c >= 0x7f:
			return keyspace{}, fmt.Errorf("key prefix %q: use printable ASCII without spaces", prefix)
		case c == '{' || c == '}' || c == '*' || c == '?' || c == '[' || c == ']' || c == '^' || c == '\\':
			return keyspace{}, fmt.Errorf("key prefix %q: leave out %q, which Redis reads as part of a pattern or hash tag", prefix, c)
		}
	}
	if namespace == "" {
		return keyspace{}, errors.New("namespace is empty: name the limiter whose counts these are")
	}
	if len(namespace) > 64 {
		return keyspace{}, fmt.Errorf("namespace is %d bytes long: use at most 64", len(namespace))
	}
	for _, c := range []byte(namespace) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return keyspace{}, fmt.Errorf("namespace %q: use letters, digits, dots, _ and -", namespace)
		}
	}
	return keyspace{head: prefix + "{" + namespace, slotPerKey: slotPerKey}, nil
}

// append appends the name of the bucket or window that c asks.
func (k keyspace) append(b []byte, c *store.Check) []byte {
	b = append(b, k.head...)
	keyed := c.Key != store.Key{}
	if keyed && k.slotPerKey {
		b = append(b, ':')
		b = hex.AppendEncode(b, c.Key[:])
	}
	kind := byte('b')
	if c.Window > 0 {
		kind = 'w'
	}
	b = appendScope(append(b, '}', kind), c.Scope)
	if keyed && !k.slotPerKey {
		b = hex.AppendEncode(b, c.Key[:])
	}
	return b
}

// appendScope appends a scope and the colon that ends it.
func appendScope(b []byte, scope string) []byte {
	if plain(scope) {
		b = strconv.AppendInt(b, int64(len(scope)), 10)
		b = append(b, ':')
		b = append(b, scope...)
	} else {
		sum := sha256.Sum256([]byte(scope))
		b = append(b, '#')
		b = hex.AppendEncode(b, sum[:16])
	}
	return append(b, ':')
}

// Kinds of the auth lock's keys.
const (
	kindLock  = 'l'
	kindKnown = 'k'
	kindIndex = 'i'
)

// appendLock appends the name of a failure counter, for one caller of an account
// if that is not zero, or of who is known at it.
func (k keyspace) appendLock(b []byte, kind byte, scope string, key, caller store.Key) []byte {
	b = append(b, k.head...)
	if k.slotPerKey {
		b = append(b, ':')
		b = hex.AppendEncode(b, key[:])
	}
	b = appendScope(append(b, '}', kind), scope)
	if !k.slotPerKey {
		b = hex.AppendEncode(b, key[:])
	}
	if caller != (store.Key{}) {
		b = hex.AppendEncode(b, caller[:])
	}
	return b
}

// appendIndex appends the name of the index of a scope's locks.
func (k keyspace) appendIndex(b []byte, scope string) []byte {
	b = append(b, k.head...)
	return appendScope(append(b, '}', kindIndex), scope)
}

// probe is the name of the key that a probe writes. No bucket has it: there a b
// or w comes after the brace.
func (k keyspace) probe() string { return k.head + "}probe" }

// plain reports whether a scope may stand in a key as it is.
func plain(scope string) bool {
	if len(scope) > maxScope {
		return false
	}
	for i := range len(scope) {
		if scope[i] <= ' ' || scope[i] >= 0x7f {
			return false
		}
	}
	return true
}
