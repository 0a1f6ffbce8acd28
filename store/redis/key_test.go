package redis

import (
	"encoding/hex"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

func TestKeysAreWhatTheyLookLike(t *testing.T) {
	address := ask("per_ip", "", 1, 1, 1)
	copy(address.Key[10:], "\xff\xff\xc0\xa8\x01\x00")
	for _, tt := range []struct {
		name string
		slot bool
		c    store.Check
		want string
	}{
		{"a bucket of an address", false, address, "weir:{weir}b6:per_ip:00000000000000000000ffffc0a80100"},
		{"a bucket without keys", false, ask("global", "", 1, 1, 1), "weir:{weir}b6:global:"},
		{"a window", false, within(time.Minute, address), "weir:{weir}w6:per_ip:00000000000000000000ffffc0a80100"},
		{"a scope that is not plain text", false, ask("pro tier", "", 1, 1, 1), "weir:{weir}b#12285f4a817fb42ceb4c3dfa6a0d4e3c:"},
		{"a slot for each key", true, address, "weir:{weir:00000000000000000000ffffc0a80100}b6:per_ip:"},
		{"a slot for what is shared", true, ask("global", "", 1, 1, 1), "weir:{weir}b6:global:"},
	} {
		k, err := newKeyspace("weir:", "weir", tt.slot)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(k.append(nil, &tt.c)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzKeys reads names back: a name that two buckets shared could be read as one
// of them only.
func FuzzKeys(f *testing.F) {
	f.Add("weir:", "weir", "per_ip", []byte("key"), false, false)
	f.Add("", "a", "b6:per_ip:", []byte{}, true, false)
	f.Add("a:b", "c.d", "}{w", []byte("}{"), false, true)
	f.Add("x", "y", strings.Repeat("z", 65), []byte("0123456789abcdef"), true, true)
	f.Fuzz(func(t *testing.T, prefix, namespace, scope string, key []byte, window, slot bool) {
		k, err := newKeyspace(prefix, namespace, slot)
		if err != nil {
			return
		}
		c := ask(scope, string(key), 1, 1, 1)
		if window {
			c.Window = time.Second
		}
		name := string(k.append(nil, &c))
		gotPrefix, rest, _ := strings.Cut(name, "{")
		tag, rest, _ := strings.Cut(rest, "}")
		gotNamespace, tagKey, _ := strings.Cut(tag, ":")
		kind := rest[0]
		var gotScope, tail string
		if hash, ok := strings.CutPrefix(rest[1:], "#"); ok {
			if plain(scope) {
				t.Fatalf("%q: scope %q is hashed", name, scope)
			}
			gotScope, tail = scope, hash[33:]
		} else {
			length, text, _ := strings.Cut(rest[1:], ":")
			n, err := strconv.Atoi(length)
			if err != nil {
				t.Fatal(err)
			}
			gotScope, tail = text[:n], text[n+1:]
		}
		wantKey := hex.EncodeToString(c.Key[:])
		if c.Key == (store.Key{}) {
			wantKey = ""
		}
		if gotPrefix != prefix || gotNamespace != namespace || gotScope != scope || tagKey+tail != wantKey || (kind == 'w') != window {
			t.Fatalf("%q reads as prefix %q, namespace %q, kind %c, scope %q, key %q", name, gotPrefix, gotNamespace, kind, gotScope, tagKey+tail)
		}
		if name == k.probe() {
			t.Fatalf("%q is the probe's", name)
		}
	})
}

func TestPrefixesAndNamespacesThatCannotBe(t *testing.T) {
	for _, tt := range []struct{ name, prefix, namespace string }{
		{"a prefix with a hash tag", "a{b}", "weir"}, {"a prefix with a brace", "a{", "weir"}, {"a prefix that closes a tag", "}", "weir"},
		{"a prefix that is a pattern", "a*", "weir"}, {"a prefix with a set", "[ab]", "weir"}, {"a prefix with a backslash", `\`, "weir"},
		{"a prefix with a space", "a b", "weir"}, {"a prefix with a NUL", "a\x00", "weir"}, {"a prefix with a newline", "a\n", "weir"},
		{"a prefix in another script", "wehr-ü", "weir"}, {"a prefix without end", strings.Repeat("a", 129), "weir"},
		{"no namespace", "weir:", ""}, {"a namespace with a colon", "weir:", "a:b"}, {"a namespace with a brace", "weir:", "a}"},
		{"a namespace with a space", "weir:", "a b"}, {"a namespace without end", "weir:", strings.Repeat("a", 65)},
	} {
		if _, err := newKeyspace(tt.prefix, tt.namespace, false); err == nil {
			t.Errorf("%s is taken", tt.name)
		}
	}
}
