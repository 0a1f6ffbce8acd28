package clientip

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A resolveCase is one row of testdata/clientip.json.
type resolveCase struct {
	Name       string
	Trusted    []string
	Peer       string
	Network    string // of the listener; "" when unknown
	Mode       string // "", "xff-only", "forwarded" or "single:NAME"
	AllowAny   bool
	Headers    [][2]string
	Gen        []bigLine
	GenLines   *manyLines
	Want       string // "": no address
	WantSource string
}

// A bigLine is a header line too large to write out.
type bigLine struct {
	name, prefix, unit, suffix string
	count                      int
}

func (b *bigLine) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&b.name, &b.prefix, &b.unit, &b.count, &b.suffix})
}

// manyLines is one line many times, then a last one.
type manyLines struct {
	name, value, last string
	count             int
}

func (m *manyLines) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&m.name, &m.value, &m.count, &m.last})
}

func (c resolveCase) config() Config {
	cfg := Config{Trusted: c.Trusted, AllowAny: c.AllowAny, Header: c.Mode, XRealIP: true}
	if c.Mode == "xff-only" {
		cfg.Header, cfg.XRealIP = "", false
	}
	return cfg
}

func (c resolveCase) request() *http.Request {
	req := request(c.Peer, c.Network, c.Headers...)
	for _, g := range c.Gen {
		req.Header.Add(g.name, g.prefix+strings.Repeat(g.unit, g.count)+g.suffix)
	}
	if g := c.GenLines; g != nil {
		for range g.count {
			req.Header.Add(g.name, g.value)
		}
		req.Header.Add(g.name, g.last)
	}
	return req
}

func TestEveryRecordedRequestResolvesToItsAnswer(t *testing.T) {
	for _, c := range load[[]resolveCase](t, "clientip.json") {
		t.Run(c.Name, func(t *testing.T) {
			got := resolver(t, c.config()).Resolve(c.request())
			if addrText(got.Addr) != c.Want || got.Source.String() != c.WantSource {
				t.Errorf("got %q from %v (%v), want %q from %s", addrText(got.Addr), got.Source, got.Reason, c.Want, c.WantSource)
			}
			wellFormed(t, got)
		})
	}
}

func TestEveryRecordedBucketIsCountedAsStated(t *testing.T) {
	file := load[struct {
		Bucket []struct {
			Addr   string
			V4, V6 int
			Want   string
		}
	}](t, "clientip-buckets.json")
	if len(file.Bucket) == 0 {
		t.Fatal("no cases read")
	}
	nobodyTrusted := resolver(t, Config{})
	for _, c := range file.Bucket {
		t.Run(c.Addr+" at "+strconv.Itoa(c.V4)+" and "+strconv.Itoa(c.V6), func(t *testing.T) {
			got := nobodyTrusted.Resolve(request(c.Addr, ""))
			if text := bucketText(got, c.V4, c.V6); text != c.Want {
				t.Errorf("got %s, want %s", text, c.Want)
			}
			// The zone and the mapping are Prefix's to remove as well.
			if a, err := netip.ParseAddr(c.Addr); err == nil && Prefix(a, c.V4, c.V6).String() != c.Want {
				t.Errorf("Prefix(%v) = %v, want %s", a, Prefix(a, c.V4, c.V6), c.Want)
			}
		})
	}
}

func TestEveryRecordedLoopbackRequestIsJudgedAsStated(t *testing.T) {
	file := load[struct {
		DirectLoopback []struct {
			Name    string
			Peer    string
			Headers [][2]string
			Want    bool
		}
	}](t, "clientip-buckets.json")
	if len(file.DirectLoopback) == 0 {
		t.Fatal("no cases read")
	}
	for _, c := range file.DirectLoopback {
		t.Run(c.Name, func(t *testing.T) {
			if got := DirectLoopback(request(c.Peer, "", c.Headers...)); got != c.Want {
				t.Errorf("got %t, want %t", got, c.Want)
			}
		})
	}
}

// load reads a file of testdata.
func load[T any](tb testing.TB, name string) T {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return v
}

// resolver makes a resolver that has to be without errors.
func resolver(tb testing.TB, cfg Config) *Resolver {
	tb.Helper()
	r, errors, _ := New(cfg)
	if len(errors) > 0 {
		tb.Fatalf("New(%+v): %+v", cfg, errors)
	}
	return r
}

// request makes a request as net/http would hand it over. With a network, the
// context holds a listener's address of that network.
func request(peer, network string, headers ...[2]string) *http.Request {
	req := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, h := range headers {
		req.Header.Add(h[0], h[1])
	}
	var local net.Addr
	switch network {
	case "":
		return req
	case "unix":
		local = &net.UnixAddr{Name: "/run/weir.sock", Net: "unix"}
	default:
		local = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}
	}
	return req.WithContext(context.WithValue(context.Background(), http.LocalAddrContextKey, local))
}

// xff makes a request from peer 10.0.0.5 with these X-Forwarded-For lines.
func xff(lines ...string) *http.Request {
	req := request("10.0.0.5:4711", "")
	req.Header["X-Forwarded-For"] = slices.Clone(lines)
	return req
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// bucketText names the bucket of a result as its caller has to.
func bucketText(res Result, v4, v6 int) string {
	switch {
	case res.Addr.IsValid():
		return Prefix(res.Addr, v4, v6).String()
	case res.Unix:
		return "unix"
	default:
		return "unknown"
	}
}

// wellFormed checks what holds for every result.
func wellFormed(tb testing.TB, res Result) {
	tb.Helper()
	for _, a := range []netip.Addr{res.Addr, res.Peer} {
		if a.Zone() != "" || a.Is4In6() {
			tb.Errorf("%v keeps a zone or its IPv6 clothes", a)
		}
		if a.IsValid() && !isHost(a) {
			tb.Errorf("%v is nobody's address", a)
		}
	}
	if res.Source == Peer && res.Addr != res.Peer {
		tb.Errorf("source is the peer %v, address is %v", res.Peer, res.Addr)
	}
	if res.Source != Peer && !res.Addr.IsValid() {
		tb.Errorf("source %v without an address", res.Source)
	}
	if res.Unix && res.Peer.IsValid() {
		tb.Errorf("a unix peer with the address %v", res.Peer)
	}
	switch answered := res.Reason == None || res.Reason == AllTrusted; {
	case answered && res.Source == Peer:
		tb.Errorf("reason %v, yet the headers were not used", res.Reason)
	case !answered && res.Source != Peer:
		tb.Errorf("reason %v, yet the source is %v", res.Reason, res.Source)
	case (res.Reason == AllTrusted) != (res.Source == Leftmost):
		tb.Errorf("reason %v with source %v", res.Reason, res.Source)
	}
}
