package clientip

import (
	"net/netip"
	"testing"
)

func TestPrefixOfWhatCannotBeCountedIsZero(t *testing.T) {
	v4, v6 := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8::1")
	tests := []struct {
		name   string
		addr   netip.Addr
		v4, v6 int
	}{
		{"no address", netip.Addr{}, 32, 64},
		{"IPv4 bits beyond 32", v4, 33, 64},
		{"IPv4 bits below 0", v4, -1, 64},
		{"IPv6 bits beyond 128", v6, 32, 129},
		{"IPv6 bits below 0", v6, 32, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Prefix(tt.addr, tt.v4, tt.v6); got != (netip.Prefix{}) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestPrefixAtItsEdges(t *testing.T) {
	tests := []struct {
		name, addr string
		v4, v6     int
		want       string
	}{
		{"everybody is one IPv4 client", "203.0.113.7", 0, 64, "0.0.0.0/0"},
		{"everybody is one IPv6 client", "2001:db8::1", 32, 0, "::/0"},
		{"::1 is alone whatever the length", "::1", 32, 0, "::1/128"},
		{"an embedded IPv4 address has the IPv4 length", "64:ff9b::203.0.113.7", 24, 64, "203.0.113.0/24"},
		{"an embedded IPv4 address goes by no IPv6 rule", "2002:cb00:7107::1", 32, -1, "203.0.113.7/32"},
		{"below the NAT64 network", "64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", 32, 64, "64:ff9a:ffff:ffff::/64"},
		{"above the NAT64 network", "64:ff9b::1:0:0", 32, 64, "64:ff9b::/64"},
		{"above the Teredo network", "2001:1::1", 32, 64, "2001:1::/64"},
		{"above the 6to4 network", "2003::1", 32, 64, "2003::/64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := Prefix(netip.MustParseAddr(tt.addr), tt.v4, tt.v6).String(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// FuzzPrefix holds that a prefix is masked, unmapped, and the same for every
// spelling of an address.
func FuzzPrefix(f *testing.F) {
	for _, s := range []string{"203.0.113.7", "::ffff:203.0.113.7", "2001:db8::1", "::1", "64:ff9b::1.2.3.4", "2002::1", "2001::1"} {
		f.Add(netip.MustParseAddr(s).AsSlice(), 32, 64)
	}
	f.Fuzz(func(t *testing.T, raw []byte, v4, v6 int) {
		a, ok := netip.AddrFromSlice(raw)
		got := Prefix(a, v4, v6)
		if !ok && got.IsValid() {
			t.Fatalf("%v from no address", got)
		}
		if !got.IsValid() {
			return
		}
		if got != got.Masked() || got.Addr().Is4In6() || got.Addr().Zone() != "" {
			t.Errorf("Prefix(%v, %d, %d) = %v", a, v4, v6, got)
		}
		if a.Is4() {
			if mapped := Prefix(netip.AddrFrom16(a.As16()), v4, v6); mapped != got {
				t.Errorf("%v is counted under %v, its mapped form under %v", a, got, mapped)
			}
		} else if zoned := Prefix(a.WithZone("eth0"), v4, v6); zoned != got {
			t.Errorf("%v is counted under %v, with a zone under %v", a, got, zoned)
		}
	})
}
