package weir

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// The maps of plain patterns are only a shorter way to what ServeMux says: over
// random sets of patterns and requests both find the same class.
func TestPlainPatternsAreFoundAsServeMuxFindsThem(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []string{"a", "b", "a.b", "A", "{x}", "{y...}", "{$}", "", "b", "c", "%61", "..", "."}
	methods := []string{"", "", "GET ", "POST ", "HEAD ", "GET\t"}
	hosts := []string{"", "", "", "", "", "", "ca.example"}
	paths := []string{"a", "b", "a.b", "A", "c", "", "%61", "a%2Fb", "..", "."}
	path := func(words []string) (p string) {
		for range 1 + rng.IntN(4) {
			p += "/" + words[rng.IntN(len(words))]
		}
		return p
	}
	shortcuts := 0
	for range 20_000 {
		var added []string
		for range 1 + rng.IntN(6) {
			pattern := methods[rng.IntN(len(methods))] + hosts[rng.IntN(len(hosts))] + path(words)
			trial := http.NewServeMux()
			sound := true
			for _, p := range append(slices.Clone(added), pattern) {
				sound = sound && register(trial, p) == nil
			}
			if sound {
				added = append(added, pattern)
			}
		}
		if len(added) == 0 {
			continue
		}
		routes := make([]*route, len(added))
		for i, pattern := range added {
			routes[i] = &route{class: &classPolicy{name: Class(pattern)}}
		}
		fast := newEndpoints(added, routes)
		slow := fast
		slow.plain = false
		for range 20 {
			method := []string{"GET", "POST", "HEAD", "PUT", "CONNECT"}[rng.IntN(5)]
			r, err := http.NewRequest(method, "http://"+[]string{"ca.example", "other"}[rng.IntN(2)]+path(paths), nil)
			if err != nil {
				t.Fatal(err)
			}
			got, want := fast.of(r), slow.of(r)
			if got != want {
				t.Fatalf("patterns %q, %s %s: class %s, want %s", added, method, r.URL, className(got), className(want))
			}
			if fast.plain && r.URL.RawPath == "" && method != "CONNECT" && fast.shortcut(method, r.URL.Path) != nil {
				shortcuts++
			}
		}
	}
	if shortcuts < 2000 {
		t.Errorf("only %d requests took the short way: the test shows little", shortcuts)
	}
}

func className(c *classPolicy) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%q", c.name)
}

func BenchmarkClass(b *testing.B) {
	l, err := New(func() Config { c := DefaultConfig(); c.Endpoints = PKIEndpoints(); return c }())
	if err != nil {
		b.Fatal(err)
	}
	e := &l.policy.Load().endpoints
	for _, target := range []string{"/acme/new-order", "/acme/order/17", "/ocsp/MFEwTzBNMEswSTAJBgUrDgMCGgUABBQ", "/elsewhere"} {
		b.Run("path="+target[:min(15, len(target))], func(b *testing.B) {
			b.ReportAllocs()
			r := httptest.NewRequest("POST", target, nil)
			for b.Loop() {
				e.of(r)
			}
		})
	}
}
