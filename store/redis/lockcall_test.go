package redis

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

func TestLockKeysAreWhatTheyLookLike(t *testing.T) {
	key, caller := ask("", "\x01", 0, 0, 0).Key, ask("", "\x02", 0, 0, 0).Key
	one, two := "01"+strings.Repeat("0", 30), "02"+strings.Repeat("0", 30)
	zero := strings.Repeat("0", 32)
	together, _ := newKeyspace("weir:", "weir", false)
	spread, _ := newKeyspace("weir:", "weir", true)
	for _, tt := range []struct {
		name string
		got  []byte
		want string
	}{
		{"a counter", together.appendLock(nil, kindLock, "address", key, store.Key{}), "weir:{weir}l7:address:" + one},
		{"a caller's counter", together.appendLock(nil, kindLock, "account", key, caller), "weir:{weir}l7:account:" + one + two},
		{"a caller's counter at the zero key", together.appendLock(nil, kindLock, "account", store.Key{}, caller), "weir:{weir}l7:account:" + zero + two},
		{"who has signed in", together.appendLock(nil, kindKnown, "account", key, store.Key{}), "weir:{weir}k7:account:" + one},
		{"an index", together.appendIndex(nil, "account"), "weir:{weir}i7:account:"},
		{"a scope that is not plain text", together.appendIndex(nil, "pro tier"), "weir:{weir}i#12285f4a817fb42ceb4c3dfa6a0d4e3c:"},
		{"a slot for each key", spread.appendLock(nil, kindLock, "account", key, store.Key{}), "weir:{weir:" + one + "}l7:account:"},
		{"a caller's, in the same slot", spread.appendLock(nil, kindLock, "account", key, caller), "weir:{weir:" + one + "}l7:account:" + two},
		{"an index with a slot for each key", spread.appendIndex(nil, "account"), "weir:{weir}i7:account:"},
	} {
		if string(tt.got) != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

// FuzzLockKeys: two names are the same only if all that they are made of is.
func FuzzLockKeys(f *testing.F) {
	f.Add("account", []byte("a"), []byte("b"), "account", []byte("a"), []byte{}, byte(0), byte(0), false)
	f.Add("a", []byte{}, []byte("b"), "a", []byte("b"), []byte{}, byte(0), byte(0), true)
	f.Add("7:account", []byte{}, []byte{}, "account", []byte{}, []byte{}, byte(1), byte(2), false)
	f.Fuzz(func(t *testing.T, scopeA string, keyA, callerA []byte, scopeB string, keyB, callerB []byte, kindA, kindB byte, spread bool) {
		k, _ := newKeyspace("weir:", "weir", spread)
		kinds := []byte{kindLock, kindKnown}
		of := func(scope string, key, caller []byte, kind byte) (string, [4]string) {
			var a, c store.Key
			copy(a[:], key)
			copy(c[:], caller)
			kind = kinds[int(kind)%2]
			return string(k.appendLock(nil, kind, scope, a, c)), [4]string{scope, string(a[:]), string(c[:]), string(rune(kind))}
		}
		a, partsA := of(scopeA, keyA, callerA, kindA)
		b, partsB := of(scopeB, keyB, callerB, kindB)
		if (a == b) != (partsA == partsB) {
			t.Fatalf("%q and %q are made of %q and %q", a, b, partsA, partsB)
		}
		var c store.Check
		c.Scope = scopeB
		copy(c.Key[:], keyB)
		index := string(k.appendIndex(nil, scopeB))
		for _, other := range []string{string(k.append(nil, &c)), index, k.probe(), k.fingerprint()} {
			if a == other {
				t.Fatalf("%q is the name of something else", a)
			}
		}
	})
}

func TestRepliesAboutLocks(t *testing.T) {
	p := &lockPart{index: []int{0, 1}, counters: make([]store.Counter, 2), account: new(store.Account)}
	for _, tt := range []struct {
		name, reply string
		settled     bool
		want        store.LockVerdict
	}{
		{"begun", "0 0 1 0 1 0", false, store.LockVerdict{Refused: -1, Known: true}},
		{"refused by a lock", "3 2500000 0 0 0 0", false, store.LockVerdict{Refused: 2, RetryAfter: 2500 * time.Millisecond}},
		{"refused for a second", "1 1000000 0 1 0 0", false, store.LockVerdict{Refused: 0, RetryAfter: time.Second, Full: true}},
		{"told", "0 0 0 7 0 7", true, store.LockVerdict{Refused: -1, Failures: 7}},
		{"told, and two locks started", "0 0 0 7 5 9 7 10", true, store.LockVerdict{Refused: -1, Failures: 7, Started: 5}},
		{"locked for ever", "1 9223372036854775 0 0 0 0", true, store.LockVerdict{Refused: 0, RetryAfter: store.Never}},
	} {
		if r, err := readLock(tt.reply, p, tt.settled); err != nil || r.v != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, r.v, err, tt.want)
		}
	}
	for _, reply := range []string{"", "0", "0 0 0 0 0", "0 0 0 0 0 0 0", "4 1 0 0 0 0", "-1 0 0 0 0 0", "1 0 0 0 0 0", "x 0 0 0 0 0", "0 0 0 7 5 9 7", "0 0 0 7 8 9 7", "ok", "1e3 1 0 0 0 0"} {
		if r, err := readLock(reply, p, true); err == nil {
			t.Errorf("%q is read as %+v", reply, r)
		}
	}
}

// FuzzLockReply: no text panics, and what is taken is sound.
func FuzzLockReply(f *testing.F) {
	id := hex.EncodeToString(make([]byte, 16))
	for _, s := range []string{"0 0 0 7 0 7", "3 5 1 0 0 0", "0 0 0 7 5 9 7 10", id + ":3,600", id + id + ":1,1 " + id + ":2,2e3", ":,", id + ":-1,5"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	p := &lockPart{index: []int{0, 1}, counters: make([]store.Counter, 2), account: new(store.Account)}
	f.Fuzz(func(t *testing.T, text string, settled bool) {
		if r, err := readLock(text, p, settled); err == nil {
			if r.v.Refused < -1 || r.v.Refused > 2 || r.v.Admitted() != (r.v.RetryAfter == 0) || r.v.RetryAfter < 0 || r.v.Started >= 8 || r.v.Failures < 0 {
				t.Fatalf("%q: %+v", text, r.v)
			}
		}
		list, err := readLocks(text, []store.Lock{{Failures: 9}})
		if len(list) == 0 || list[0].Failures != 9 || err != nil && len(list) != 1 {
			t.Fatalf("%q: %+v, %v", text, list, err)
		}
		for _, one := range list {
			if one.Failures < 0 || one.Left < 0 {
				t.Fatalf("%q: %+v", text, one)
			}
		}
	})
}
