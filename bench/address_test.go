package bench

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/realclientip/realclientip-go"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/clientip"
)

// Who is asking: the peer itself, and through the X-Forwarded-For of trusted
// proxies. Realclientip and our resolver are functions; chi's is middleware, so
// ours has a row as middleware, too. realclientip believes the header whoever
// the peer is.
func BenchmarkAddress(b *testing.B) {
	networks := func(n int) []string {
		list := []string{Trusted}
		for i := 1; i < n; i++ {
			list = append(list, fmt.Sprintf("172.%d.%d.0/24", 16+i>>8, i&255))
		}
		return list
	}
	for _, c := range []struct {
		name, peer, header string
		trusted            int
	}{
		{"peer", "203.0.113.7:40000", "", 1},
		{"hops=1", "10.0.0.1:40000", "203.0.113.7", 1},
		{"hops=3", "10.0.0.1:40000", "6.6.6.6, 203.0.113.7, 10.0.0.3, 10.0.0.2", 1},
		{"hops=3,forged=100", "10.0.0.1:40000", forged(100) + "203.0.113.7, 10.0.0.3, 10.0.0.2", 1},
		{"hops=3,ipv6", "10.0.0.1:40000", "2001:db8:1:2::7, 10.0.0.3, 10.0.0.2", 1},
		{"hops=3,trusted=100", "10.0.0.1:40000", "203.0.113.7, 10.0.0.3, 10.0.0.2", 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest("POST", Path, nil)
			r.RemoteAddr = c.peer
			want := netip.MustParseAddrPort(c.peer).Addr()
			if c.header != "" {
				r.Header.Set("X-Forwarded-For", c.header)
				want = netip.MustParseAddr("203.0.113.7")
				if c.name == "hops=3,ipv6" {
					want = netip.MustParseAddr("2001:db8:1:2::7")
				}
			}
			text := want.String()
			run := func(name string, f func() bool) {
				b.Run(name, func(b *testing.B) { decide(b, []uint32{0}, alike(func(int) bool { return f() }), true) })
			}
			through := func(name string, wrap func(http.Handler) http.Handler, found func(*http.Request) netip.Addr) {
				b.Run(name, func(b *testing.B) {
					h := wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						if got := found(r); got != want {
							b.Errorf("%v, want %v", got, want)
						}
					}))
					decide(b, []uint32{0}, func() Decide {
						w := &NullWriter{H: http.Header{}}
						return func(int) bool { h.ServeHTTP(w, r); return true }
					}, true)
				})
			}
			run("floor_parse", func() bool { a, err := netip.ParseAddrPort(r.RemoteAddr); return err == nil && a.IsValid() })
			resolver, _, _ := clientip.New(clientip.Config{Trusted: networks(c.trusted)})
			run("weir", func() bool { return resolver.Resolve(r).Addr == want })
			cfg := Bare(Setup{Bound: 100})
			cfg.Tiers.PerIP = TierOf(Roomy)
			cfg.ClientIP.TrustedProxies = networks(c.trusted)
			through("weir_middleware", NewWeir(cfg).ClientIP, func(r *http.Request) netip.Addr {
				info, _ := weir.FromContext(r.Context())
				return info.Addr
			})
			var strategy realclientip.Strategy = realclientip.RemoteAddrStrategy{}
			chi := middleware.ClientIPFromRemoteAddr
			if c.header != "" {
				nets := must(realclientip.AddressesAndRangesToIPNets(networks(c.trusted)...))
				strategy = must(realclientip.NewRightmostTrustedRangeStrategy("X-Forwarded-For", nets))
				chi = middleware.ClientIPFromXFF(networks(c.trusted)...)
			}
			run("realclientip", func() bool { return strategy.ClientIP(r.Header, r.RemoteAddr) == text })
			through("chi_middleware", chi, func(r *http.Request) netip.Addr { return middleware.GetClientIPAddr(r.Context()) })
		})
	}
}

// forged is n entries that a client wrote itself.
func forged(n int) (s string) {
	for i := range n {
		s += fmt.Sprintf("198.51.100.%d, ", i%250)
	}
	return s
}
