package clientip

import (
	"net/netip"
	"sync"
	"testing"
)

func TestTheReasonTellsWhyTheAnswerIsThePeer(t *testing.T) {
	xffLine := func(v string) [2]string { return [2]string{"X-Forwarded-For", v} }
	tests := []struct {
		name    string
		header  string
		trusted []string
		peer    string
		headers [][2]string
		want    Reason
	}{
		{"nobody is trusted", "", nil, "10.0.0.5:1", [][2]string{xffLine("203.0.113.7")}, NoTrust},
		{"the peer is a stranger", "", []string{"10.0.0.0/8"}, "192.0.2.1:1", [][2]string{xffLine("203.0.113.7")}, UntrustedPeer},
		{"a unix peer is not on the list", "", []string{"10.0.0.0/8"}, "@", [][2]string{xffLine("203.0.113.7")}, UntrustedPeer},
		{"the peer is no address", "", []string{"10.0.0.0/8", "unix"}, "ohno", [][2]string{xffLine("203.0.113.7")}, NoPeer},
		{"the peer is no address and nobody is trusted", "", nil, "ohno", nil, NoPeer},
		{"the proxy sent nothing", "", []string{"10.0.0.0/8"}, "10.0.0.5:1", nil, NoHeader},
		{"the proxy sent a blank", "", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{xffLine(" , ")}, NoHeader},
		{"the proxy sent no such header", "single:X-Client", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{xffLine("203.0.113.7")}, NoHeader},
		{"the proxy sent junk", "", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{xffLine("junk")}, Malformed},
		{"two single values differ", "single:X-Client", []string{"10.0.0.0/8"}, "10.0.0.5:1",
			[][2]string{{"X-Client", "203.0.113.7"}, {"X-Client", "203.0.113.8"}}, Conflict},
		{"the next hop withholds its client", "forwarded", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{{"Forwarded", "for=unknown"}}, Withheld},
		{"every hop is trusted", "", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{xffLine("10.0.0.1")}, AllTrusted},
		{"the client is found", "", []string{"10.0.0.0/8"}, "10.0.0.5:1", [][2]string{xffLine("203.0.113.7")}, None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, Config{Trusted: tt.trusted, Header: tt.header, XRealIP: true})
			got := r.Resolve(request(tt.peer, "", tt.headers...))
			if got.Reason != tt.want {
				t.Errorf("got %v, want %v", got.Reason, tt.want)
			}
			wellFormed(t, got)
		})
	}
}

func TestASingleValueIsReadFromLinesThatAgree(t *testing.T) {
	tests := []struct {
		name   string
		lines  []string
		want   string
		reason Reason
	}{
		{"one line", []string{" 203.0.113.7 "}, "203.0.113.7", None},
		{"twice the same", []string{"203.0.113.7", "203.0.113.7"}, "203.0.113.7", None},
		{"the same in two spellings", []string{"203.0.113.7", "[::ffff:203.0.113.7]:80"}, "203.0.113.7", None},
		{"a blank line before", []string{" ", "203.0.113.7"}, "203.0.113.7", None},
		{"a trusted address", []string{"10.9.9.9"}, "10.9.9.9", None},
		{"no line", nil, "", NoHeader},
		{"blank lines only", []string{"", "\t"}, "", NoHeader},
		{"two answers", []string{"203.0.113.7", "203.0.113.8"}, "", Conflict},
		{"a list", []string{"203.0.113.7, 203.0.113.7"}, "", Malformed},
		{"an answer and junk", []string{"203.0.113.7", "junk"}, "", Malformed},
		{"64 blank lines", append(make([]string, 64), "203.0.113.7"), "203.0.113.7", None},
		{"65 blank lines", append(make([]string, 65), "203.0.113.7"), "", TooLong},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, reason := readSingle(tt.lines); addrText(got) != tt.want || reason != tt.reason {
				t.Errorf("got %q (%v), want %q (%v)", addrText(got), reason, tt.want, tt.reason)
			}
		})
	}
}

// TestAUnixPeerIsKnownByTheListener holds that the text of RemoteAddr decides
// only where the listener is unknown: another middleware may have rewritten it.
func TestAUnixPeerIsKnownByTheListener(t *testing.T) {
	tests := []struct {
		name, peer, network string
		unix                bool
	}{
		{"unix listener, unnamed client", "@", "unix", true},
		{"unix listener, named client", "/run/client.sock", "unix", true},
		{"unix listener, nothing", "", "unix", true},
		{"unix listener, rewritten to an address", "10.0.0.5:1", "unix", true},
		{"listener unknown, @", "@", "", true},
		{"listener unknown, a path", "/run/client.sock", "", false},
		{"listener unknown, nothing", "", "", false},
		{"tcp listener, @", "@", "tcp", false},
		{"tcp listener, an address", "10.0.0.5:1", "tcp", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := request(tt.peer, tt.network)
			got := resolver(t, Config{}).Resolve(req)
			if got.Unix != tt.unix {
				t.Errorf("Unix = %t, want %t", got.Unix, tt.unix)
			}
			wellFormed(t, got)
			req.RemoteAddr = "127.0.0.1:1"
			if tt.network != "" && DirectLoopback(req) == tt.unix {
				t.Errorf("a loopback address by the %s listener: direct = %t", tt.network, tt.unix)
			}
		})
	}
}

func TestResolveChangesNothingInTheRequest(t *testing.T) {
	req := xff("203.0.113.7", "10.0.0.1")
	resolver(t, trustTens).Resolve(req)
	if req.RemoteAddr != "10.0.0.5:4711" || len(req.Header) != 1 || req.Header["X-Forwarded-For"][1] != "10.0.0.1" {
		t.Errorf("the request became %q %v", req.RemoteAddr, req.Header)
	}
}

func TestOneResolverServesManyGoroutines(t *testing.T) {
	r := resolver(t, Config{Trusted: append(hosts(1000), "10.0.0.0/8")})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			client := netip.AddrFrom4([4]byte{203, 0, 113, byte(g)})
			req := xff("6.6.6.6, "+client.String(), "10.0.0.1")
			for range 500 {
				if got := r.Resolve(req); got.Addr != client {
					t.Errorf("got %v, want %v", got.Addr, client)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSourcesAndReasonsHaveAWordEach(t *testing.T) {
	seen := map[string]bool{}
	for s := Peer; s <= Single; s++ {
		seen[s.String()] = true
	}
	for r := None; r <= Withheld; r++ {
		seen[r.String()] = true
	}
	if want := int(Single) + int(Withheld) + 2; len(seen) != want {
		t.Errorf("%d words for %d values: %v", len(seen), want, seen)
	}
	if got := Source(99).String() + Reason(99).String(); got != "source(99)reason(99)" {
		t.Errorf("unknown values print as %q", got)
	}
}
