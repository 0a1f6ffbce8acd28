package clientip

import (
	"net/netip"
	"strings"
	"testing"
)

// TestPitfallsOfOtherResolvers keeps one row for each answer that other
// software gives, or gave until an advisory, and that would be wrong here. The
// name begins with whose it is.
func TestPitfallsOfOtherResolvers(t *testing.T) {
	const header, realIP = "X-Forwarded-For", "X-Real-IP"
	tens := []string{"10.0.0.0/8"}
	line := func(values ...string) (list [][2]string) {
		for _, v := range values {
			list = append(list, [2]string{header, v})
		}
		return list
	}
	and := func(list [][2]string, name, value string) [][2]string { return append(list, [2]string{name, value}) }
	tests := []struct {
		name    string
		trusted []string
		mode    string
		peer    string
		network string
		headers [][2]string
		want    string
		source  Source
	}{
		{"realclientip: a peer that is no address opens no header", tens, "", "ohno", "", line("203.0.113.3"), "", Peer},
		{"realclientip: an empty peer opens no header", tens, "", "", "", line("203.0.113.3"), "", Peer},
		{"realclientip: the unspecified peer opens no header", tens, "", "0.0.0.0:1", "", line("203.0.113.3"), "", Peer},
		{"realclientip: a long zone is not part of the answer", tens, "", "10.0.0.5:1", "", line("fe80::1%" + strings.Repeat("z", 120)), "fe80::1", XForwardedFor},
		{"realclientip: a zone of 5 KB is no entry", tens, "", "10.0.0.5:1", "", line("fe80::1%" + strings.Repeat("z", 5000)), "10.0.0.5", Peer},
		{"realclientip: IPv4 in brackets is refused", tens, "", "10.0.0.5:1", "", line("[1.2.3.4]"), "10.0.0.5", Peer},
		{"realclientip: IPv4 with a zone is refused", tens, "", "10.0.0.5:1", "", line("1.2.3.4%eth0"), "10.0.0.5", Peer},
		{"realclientip: a named port is refused", tens, "", "10.0.0.5:1", "", line("1.2.3.4:nope"), "10.0.0.5", Peer},
		{"realclientip: blanks around = are refused in Forwarded", tens, "forwarded", "10.0.0.5:1", "", [][2]string{{"Forwarded", "for= 192.0.2.60"}}, "10.0.0.5", Peer},

		{"adam-p: the leftmost entry is anyone's", tens, "", "10.0.0.5:1", "", line("6.6.6.6, 203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"adam-p: all lines are one list", tens, "", "10.0.0.5:1", "", line("1.1.1.1, 203.0.113.7", "10.0.0.2"), "203.0.113.7", XForwardedFor},
		{"adam-p: an open quote on the left does not hide the right", tens, "forwarded", "10.0.0.5:1", "", [][2]string{{"Forwarded", `for="1.1.1.1, for=192.0.2.60`}}, "192.0.2.60", Forwarded},

		{"chi GHSA-3fxj-6jh8-hvhx: a prepended entry is not the client", tens, "", "10.0.0.5:1", "", line("1.2.3.4, 99.99.99.99"), "99.99.99.99", XForwardedFor},
		{"chi GHSA-9g5q-2w5x-hmxf: a header that was not chosen is not read", tens, "", "10.0.0.5:1", "", and(nil, "True-Client-IP", "1.2.3.4"), "10.0.0.5", Peer},
		{"chi GHSA-rjr7-jggh-pgcp: nobody becomes loopback by a header", tens, "", "99.99.99.99:1", "", line("127.0.0.1"), "99.99.99.99", Peer},
		{"chi GHSA-j6qf-3m9c-vwj3: the connection is looked at before the header", []string{"198.51.100.0/24"}, "", "203.0.113.66:1", "", line("10.0.0.7, 198.51.100.42"), "203.0.113.66", Peer},
		{"chi: entries with ports are read", tens, "", "10.0.0.5:1", "", line("203.0.113.7:1234, 10.1.1.1:80"), "203.0.113.7", XForwardedFor},
		{"chi: the unspecified address is no client", tens, "", "10.0.0.5:1", "", line("203.0.113.7, 0.0.0.0"), "10.0.0.5", Peer},
		{"chi: a multicast address is no client", tens, "", "10.0.0.5:1", "", line("203.0.113.7, ff02::1"), "10.0.0.5", Peer},
		{"chi: a mapped hop is still a trusted hop", tens, "", "10.0.0.1:1", "", line("203.0.113.7, ::ffff:10.0.0.5"), "203.0.113.7", XForwardedFor},
		{"chi: a zoned hop is still a trusted hop", []string{"2606:4700::/32"}, "", "[2606:4700::5]:1", "", line("2001:db8::7, 2606:4700::1%x"), "2001:db8::7", XForwardedFor},

		{"gin CVE-2020-28483: a direct client has no say", nil, "", "203.0.113.9:1", "", line("127.0.0.1"), "203.0.113.9", Peer},
		{"gin: junk does not move on to X-Real-IP", tens, "", "10.0.0.5:1", "", and(line("junk"), realIP, "198.51.100.77"), "10.0.0.5", Peer},
		{"gin: a zoned peer is an address", nil, "", "[fe80::1%eth0]:1", "", nil, "fe80::1", Peer},
		{"gin: a unix peer is not trusted unless listed", tens, "", "@", "unix", line("203.0.113.3"), "", Peer},
		{"gin: the answer has one spelling", tens, "", "10.0.0.5:1", "", line("2001:DB8:0:0::0001"), "2001:db8::1", XForwardedFor},
		{"gin: a platform header is parsed", tens, "single:X-Appengine-Remote-Addr", "10.0.0.5:1", "", and(nil, "X-Appengine-Remote-Addr", "not an address"), "10.0.0.5", Peer},
		{"gin: a platform header needs a trusted peer", tens, "single:X-Appengine-Remote-Addr", "192.0.2.9:1", "", and(nil, "X-Appengine-Remote-Addr", "1.2.3.4"), "192.0.2.9", Peer},

		{"echo: a private peer is not a proxy by itself", nil, "", "192.168.1.5:1", "", line("192.0.2.106"), "192.168.1.5", Peer},
		{"echo: a loopback peer is not a proxy by itself", nil, "", "127.0.0.1:1", "", and(nil, realIP, "192.0.2.106"), "127.0.0.1", Peer},
		{"echo: half a pair of brackets is refused", tens, "", "10.0.0.5:1", "", line("[2001:db8::7"), "10.0.0.5", Peer},
		{"echo: a mapped peer loses its clothes", nil, "", "[::ffff:203.0.113.9]:1", "", nil, "203.0.113.9", Peer},
		{"fiber: the leftmost entry that parses is not the client", tens, "", "10.0.0.5:1", "", line("junk, 6.6.6.6, 203.0.113.7"), "203.0.113.7", XForwardedFor},

		{"caddy: an unreadable entry is not passed over", tens, "", "10.0.0.5:1", "", line("6.6.6.6, unix:"), "10.0.0.5", Peer},
		{"caddy: a mapped peer is on an IPv4 list", tens, "", "[::ffff:10.0.0.5]:1", "", line("203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"caddy: a mapped list entry holds IPv4 peers", []string{"::ffff:10.0.0.0/104"}, "", "10.0.0.5:1", "", line("203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"caddy: a list of trusted hops does not lead to the next header", tens, "", "10.0.0.5:1", "", and(line("10.0.0.1"), realIP, "6.6.6.6"), "10.0.0.1", Leftmost},
		{"caddy: brackets without a port are read", tens, "", "10.0.0.5:1", "", line("[2001:db8::7]"), "2001:db8::7", XForwardedFor},

		{"traefik: the second line counts", tens, "", "10.0.0.5:1", "", line("6.6.6.6", "203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"traefik: a megabyte is not an address", tens, "", "10.0.0.5:1", "", line(strings.Repeat("x", 1<<20)), "10.0.0.5", Peer},
		{"traefik: X-Real-IP of a client does not beat the list", tens, "", "10.0.0.5:1", "", and(line("203.0.113.7"), realIP, "6.6.6.6"), "203.0.113.7", XForwardedFor},
		{"traefik: an underscore spelling is another header", tens, "", "10.0.0.5:1", "", and(nil, "X_Forwarded_For", "6.6.6.6"), "10.0.0.5", Peer},
		{"traefik CVE-2024-45410: what Connection names is read all the same", tens, "", "10.0.0.5:1", "", and(line("203.0.113.7"), "Connection", "X-Forwarded-For"), "203.0.113.7", XForwardedFor},

		{"nginx: a proxy at the end is not the client", tens, "", "10.0.0.5:1", "", line("203.0.113.7, 10.0.0.2"), "203.0.113.7", XForwardedFor},
		{"nginx: after junk the answer is the peer, not the hop before", tens, "", "10.0.0.5:1", "", line("junk, 10.0.0.2"), "10.0.0.5", Peer},
		{"nginx: a leading zero is no trusted hop", tens, "", "192.0.2.1:1", "", line("6.6.6.6, 010.0.0.1"), "192.0.2.1", Peer},
		{"nginx: a leading zero from a proxy is no trusted hop", tens, "", "10.0.0.5:1", "", line("6.6.6.6, 010.0.0.1"), "10.0.0.5", Peer},
		{"nginx: a single header with two lines is not its first", tens, "single:X-Client", "10.0.0.5:1", "", [][2]string{{"X-Client", "6.6.6.6"}, {"X-Client", "203.0.113.7"}}, "10.0.0.5", Peer},
		{"nginx: an empty last line does not end the walk", tens, "", "10.0.0.5:1", "", line("203.0.113.7", ""), "203.0.113.7", XForwardedFor},
		{"nginx: unix peers are trusted by a word", []string{"unix"}, "", "", "unix", line("203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"envoy: one proxy fewer does not shift the answer to the left", tens, "", "10.0.0.5:1", "", line("6.6.6.6, 203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"envoy: one proxy more does not shift the answer to the right", tens, "", "10.0.0.5:1", "", line("6.6.6.6, 203.0.113.7, 10.0.0.1, 10.0.0.2"), "203.0.113.7", XForwardedFor},

		{"httpd: octal is not read", tens, "", "10.0.0.5:1", "", line("010.0.0.1"), "10.0.0.5", Peer},
		{"httpd: a short form is not read", tens, "", "10.0.0.5:1", "", line("127.1"), "10.0.0.5", Peer},
		{"httpd: one number is not read", tens, "", "10.0.0.5:1", "", line("2130706433"), "10.0.0.5", Peer},
		{"httpd: a private client is a client", []string{"10.0.0.5"}, "", "10.0.0.5:1", "", line("192.168.7.7"), "192.168.7.7", XForwardedFor},
		{"httpd CVE-2022-31813: a header that Connection removed leaves the peer", []string{"127.0.0.1"}, "", "127.0.0.1:1", "", and(nil, "Connection", "X-Forwarded-For"), "127.0.0.1", Peer},

		{"Rails: an unreadable entry ends the walk", tens, "", "10.0.0.5:1", "", line("6.6.6.6, not_an_address"), "10.0.0.5", Peer},
		{"Rails: private hops are not trusted by themselves", []string{"10.0.0.5"}, "", "10.0.0.5:1", "", line("6.6.6.6, 192.168.0.1"), "192.168.0.1", XForwardedFor},
		{"Rails: a disagreeing Client-IP is no fault", tens, "", "10.0.0.5:1", "", and(line("203.0.113.7"), "Client-IP", "2.2.2.2"), "203.0.113.7", XForwardedFor},
		{"Spring: neither the first line nor its first entry is the client", tens, "", "10.0.0.5:1", "", line("6.6.6.6, 7.7.7.7", "8.8.8.8, 203.0.113.7"), "203.0.113.7", XForwardedFor},

		{"Cloudflare: a comma without a blank", tens, "", "10.0.0.5:1", "", line("6.6.6.6,203.0.113.7"), "203.0.113.7", XForwardedFor},
		{"AWS ALB: IPv6 with the client's port", tens, "", "10.0.0.5:1", "", line("[2001:db8::7]:50123"), "2001:db8::7", XForwardedFor},
		{"GCP: the balancer's own address has to be listed", []string{"35.191.0.0/16"}, "", "35.191.9.9:1", "", line("203.0.113.7,34.120.1.1"), "34.120.1.1", XForwardedFor},
		{"HAProxy: the proxy's entry is a line of its own", tens, "", "10.0.0.5:1", "", line("6.6.6.6", "203.0.113.7"), "203.0.113.7", XForwardedFor},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, Config{Trusted: tt.trusted, Header: tt.mode, XRealIP: true})
			got := r.Resolve(request(tt.peer, tt.network, tt.headers...))
			if addrText(got.Addr) != tt.want || got.Source != tt.source {
				t.Errorf("got %q from %v (%v), want %q from %v", addrText(got.Addr), got.Source, got.Reason, tt.want, tt.source)
			}
			wellFormed(t, got)
		})
	}
}

// In realclientip a list of trusted hops and a malformed one give the same
// empty answer, though only the first is a question of configuration.
func TestPitfallAllTrustedAndMalformedCanBeToldApart(t *testing.T) {
	r := resolver(t, trustTens)
	trusted, malformed := r.Resolve(xff("10.0.0.1")), r.Resolve(xff("junk"))
	if trusted.Reason != AllTrusted || malformed.Reason != Malformed {
		t.Errorf("got %v and %v", trusted.Reason, malformed.Reason)
	}
}

// In gin two spellings of one client were two clients.
func TestPitfallSpellingsOfOneClientAreOneClient(t *testing.T) {
	r := resolver(t, trustTens)
	want := netip.MustParseAddr("203.0.113.7")
	for _, spelling := range []string{"203.0.113.7", "203.0.113.7:1", "::ffff:203.0.113.7", "[::FFFF:cb00:7107%x]:9", "0:0:0:0:0:ffff:203.0.113.7"} {
		if got := r.Resolve(xff(spelling)).Addr; got != want {
			t.Errorf("%s became %v", spelling, got)
		}
	}
}

// netip.Prefix contains neither mapped nor zoned addresses, so a trust test
// before unmapping would let a hop look like a stranger.
func TestPitfallMappedAndZonedPeersAreOnTheList(t *testing.T) {
	r := resolver(t, Config{Trusted: []string{"10.0.0.0/8", "fe80::/10"}})
	for _, peer := range []string{"[::ffff:10.0.0.5]:1", "[fe80::5%eth0]:1", "[::ffff:10.0.0.5%eth0]:1"} {
		req := xff("203.0.113.7")
		req.RemoteAddr = peer
		if got := r.Resolve(req); got.Source != XForwardedFor {
			t.Errorf("%s: %+v", peer, got)
		}
	}
}

// httpd and this package refuse to trust everybody; gin did so by default.
func TestPitfallNobodyIsTrustedByDefault(t *testing.T) {
	r := resolver(t, Config{XRealIP: true})
	if len(r.Trusted()) != 0 || r.TrustsUnix() {
		t.Errorf("trusts %v, unix %t", r.Trusted(), r.TrustsUnix())
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if r, _, _ := New(Config{Trusted: []string{all}}); r != nil {
			t.Errorf("%s was accepted", all)
		}
	}
}
