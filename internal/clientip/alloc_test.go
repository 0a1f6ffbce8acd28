//go:build !race

// The race detector adds allocations of its own.

package clientip

import (
	"net/http"
	"testing"
)

func TestResolveDoesNotAllocate(t *testing.T) {
	trusted := Config{Trusted: append(hosts(10_000), "10.0.0.0/8"), XRealIP: true}
	forwarded := Config{Trusted: []string{"10.0.0.0/8"}, Header: "forwarded"}
	single := Config{Trusted: []string{"10.0.0.0/8"}, Header: "single:CF-Connecting-IP"}
	tests := []struct {
		name string
		cfg  Config
		req  *http.Request
		want Source
	}{
		{"a plain peer", Config{}, request("203.0.113.9:40000", "tcp"), Peer},
		{"an IPv6 peer with a zone", Config{}, request("[fe80::1%eth0]:40000", "tcp"), Peer},
		{"a peer that is not trusted", trusted, request("203.0.113.9:40000", "tcp"), Peer},
		{"a unix peer", trusted, request("@", "unix"), Peer},
		{"one hop", trusted, xff("203.0.113.7"), XForwardedFor},
		{"three hops over two lines", trusted, xff("6.6.6.6, 203.0.113.7:80, [::ffff:10.0.0.1]:1", "10.0.0.2"), XForwardedFor},
		{"a zone", trusted, xff("2001:db8::1%eth0"), XForwardedFor},
		{"every hop trusted", trusted, xff("10.0.0.1, 10.0.0.2"), Leftmost},
		{"X-Real-IP", trusted, request("10.0.0.5:1", "", [2]string{"X-Real-IP", "203.0.113.7"}), XRealIP},
		{"Forwarded", forwarded, request("10.0.0.5:1", "", [2]string{"Forwarded", `for="[2001:db8::1]:80";proto=https, for=10.0.0.1`}), Forwarded},
		{"a CDN header", single, request("10.0.0.5:1", "", [2]string{"CF-Connecting-IP", "203.0.113.7"}), Single},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, tt.cfg)
			var got Result
			allocs := testing.AllocsPerRun(100, func() { got = r.Resolve(tt.req) })
			if allocs != 0 || got.Source != tt.want {
				t.Errorf("%v allocations, source %v (%v)", allocs, got.Source, got.Reason)
			}
		})
	}
}

// A malformed entry costs the error that netip makes, and nothing in
// proportion to the header.
func TestAHugeHeaderAllocatesNextToNothing(t *testing.T) {
	for name, lines := range hugeHeaders {
		for _, header := range []string{"", "forwarded", "single:X-Forwarded"} {
			t.Run(name+" "+header, func(t *testing.T) {
				r := resolver(t, Config{Trusted: []string{"10.0.0.0/8"}, Header: header, XRealIP: true})
				req := xff(lines...)
				req.Header["Forwarded"] = lines
				req.Header["X-Forwarded"] = lines
				if allocs := testing.AllocsPerRun(20, func() { r.Resolve(req) }); allocs > 2 {
					t.Errorf("%v allocations", allocs)
				}
			})
		}
	}
}

func TestPrefixAndDirectLoopbackDoNotAllocate(t *testing.T) {
	r := resolver(t, Config{})
	req := request("[::1]:1", "tcp", [2]string{"User-Agent", "x"}, [2]string{"Connection", "keep-alive"}, [2]string{"X_Long_Name_That_Fills_The_Buffer_And_More", "x"})
	addr := r.Resolve(request("[2002:cb00:7107::1]:1", "")).Addr
	direct := false
	allocs := testing.AllocsPerRun(100, func() {
		Prefix(addr, 32, 64)
		direct = DirectLoopback(req)
	})
	if allocs != 0 || !direct {
		t.Errorf("%v allocations, direct %t", allocs, direct)
	}
}
