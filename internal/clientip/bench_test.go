package clientip

import (
	"net/http"
	"strings"
	"testing"
)

func BenchmarkResolve(b *testing.B) {
	thousands := Config{Trusted: append(hosts(10_000), "10.0.0.0/8")}
	benchmarks := []struct {
		name string
		cfg  Config
		req  *http.Request
	}{
		{"case=plain-peer", Config{}, request("203.0.113.9:40000", "tcp")},
		{"case=xff/hops=1", trustTens, xff("203.0.113.7")},
		{"case=xff/hops=3", trustTens, xff("6.6.6.6, 203.0.113.7, 10.0.0.1, 10.0.0.2")},
		{"case=xff/hops=1/trusted=10000", thousands, xff("203.0.113.7")},
		{"case=forwarded/hops=1", Config{Trusted: trustTens.Trusted, Header: "forwarded"},
			request("10.0.0.5:1", "tcp", [2]string{"Forwarded", `for="[2001:db8::1]:80";proto=https`})},
		{"case=huge/client-last", trustTens, xff(strings.Repeat("6.6.6.6, ", 100_000) + "203.0.113.7")},
		{"case=huge/all-trusted", trustTens, xff(strings.Repeat("10.0.0.1, ", 100_000))},
		{"case=huge/commas", trustTens, xff(strings.Repeat(",", 1<<20))},
		{"case=huge/blanks", trustTens, xff(strings.Repeat(" ", 1<<20))},
		{"case=huge/word", trustTens, xff(strings.Repeat("a", 1<<20))},
	}
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			r := resolver(b, bm.cfg)
			b.ReportAllocs()
			for b.Loop() {
				r.Resolve(bm.req)
			}
		})
	}
}

func BenchmarkPrefix(b *testing.B) {
	addr := resolver(b, Config{}).Resolve(request("[2001:db8:1:2::3]:1", "")).Addr
	b.ReportAllocs()
	for b.Loop() {
		Prefix(addr, 32, 64)
	}
}

func BenchmarkDirectLoopback(b *testing.B) {
	req := request("127.0.0.1:1", "tcp", [2]string{"User-Agent", "x"}, [2]string{"Accept", "*/*"},
		[2]string{"Content-Type", "application/json"}, [2]string{"Connection", "keep-alive"})
	b.ReportAllocs()
	for b.Loop() {
		DirectLoopback(req)
	}
}

func BenchmarkNew(b *testing.B) {
	cfg := Config{Trusted: hosts(10_000)}
	b.Run("trusted=10000", func(b *testing.B) {
		for b.Loop() {
			New(cfg)
		}
	})
}
