package clientip

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// fuzzTrust is a list with something of everything in it.
var fuzzTrust = []string{"10.0.0.0/8", "192.0.2.1", "::ffff:198.51.100.0/120", "2001:db8::/32", "fe80::/10", "::1"}

// fuzzModes are the modes that the fuzz targets and the random test go through.
var fuzzModes = []Config{
	{Trusted: fuzzTrust, XRealIP: true},
	{Trusted: fuzzTrust},
	{Trusted: fuzzTrust, Header: "forwarded"},
	{Trusted: fuzzTrust, Header: "single:X-Client"},
	{},
}

func modelOf(r *Resolver, cfg Config) model {
	return model{trusted: r.Trusted(), header: cfg.Header, realIP: cfg.XRealIP}
}

// agree checks one request in every mode: against the model, and against what
// must hold for any result. The lines go under the header of the mode; other
// is X-Real-IP.
func agree(t *testing.T, peer, lines, other string) (results []Result) {
	t.Helper()
	for _, cfg := range fuzzModes {
		r := resolver(t, cfg)
		req := request(peer, "tcp")
		name, _ := strings.CutPrefix(cfg.Header, "single:")
		if name == "" {
			name = "X-Forwarded-For"
		}
		if lines != "" {
			req.Header[http.CanonicalHeaderKey(name)] = strings.Split(lines, "\n")
		}
		if other != "" {
			req.Header["X-Real-Ip"] = strings.Split(other, "\n")
		}
		got := r.Resolve(req)
		if want := modelOf(r, cfg).resolve(peer, req.Header); got != want {
			t.Errorf("%q by %q with %q and %q:\n got %+v\nwant %+v", cfg.Header, peer, lines, other, got, want)
		}
		wellFormed(t, got)
		plausible(t, r, got)
		results = append(results, got)
	}
	return results
}

// plausible checks where a result stands in relation to the trust list, and
// that its text leads back to it.
func plausible(t *testing.T, r *Resolver, got Result) {
	t.Helper()
	switch got.Source {
	case XForwardedFor, Forwarded:
		if r.trusted.contains(got.Addr) {
			t.Errorf("%v is trusted, yet the walk stopped at it", got.Addr)
		}
	case Leftmost:
		if !r.trusted.contains(got.Addr) {
			t.Errorf("%v is not trusted, yet everything was", got.Addr)
		}
	}
	if got.Source != Peer && !r.trusted.contains(got.Peer) {
		t.Errorf("the header of %v was believed", got.Peer)
	}
	if got.Addr.IsValid() {
		again, reason := parseEntry(got.Addr.String())
		if again != got.Addr || reason != None {
			t.Errorf("%v reads back as %v (%v)", got.Addr, again, reason)
		}
	}
}

// FuzzResolve feeds any text to every mode.
func FuzzResolve(f *testing.F) {
	for _, c := range load[[]resolveCase](f, "clientip.json") {
		var lines, other []string
		for _, h := range c.Headers {
			if http.CanonicalHeaderKey(h[0]) == headerXRealIP {
				other = append(other, h[1])
			} else {
				lines = append(lines, h[1])
			}
		}
		f.Add(c.Peer, strings.Join(lines, "\n"), strings.Join(other, "\n"))
	}
	f.Add("10.0.0.5:1", strings.Repeat(" ", 8180)+"203.0.113.7", strings.Repeat("\n", 70))
	f.Add("10.0.0.5:1", strings.Repeat("10.0.0.1,", 70), strings.Repeat("10.0.0.1\n", 70))
	f.Fuzz(func(t *testing.T, peer, lines, other string) {
		agree(t, peer, lines, other)
	})
}

// FuzzEntry feeds any text to the grammar of one entry.
func FuzzEntry(f *testing.F) {
	for _, s := range []string{"203.0.113.7:80", "[2001:db8::7%eth0]:443", "::ffff:1.2.3.4", "[1.2.3.4]", "fe80::1%", "1.2.3.4%e", ":1", "[]:1", "[::1]x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, reason := parseEntry(s)
		if want, why := modelEntry(s); got != want || reason != why {
			t.Errorf("%q: got %v (%v), want %v (%v)", s, got, reason, want, why)
		}
	})
}

// FuzzForwarded feeds any text to the grammar of one Forwarded element.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		`for=192.0.2.60;proto=http;by=203.0.113.43`, `FOR="[2001:db8::17]:4711"`, `for="192.0.2.6\0"`, `for=unknown`,
		`for="_x:_y"`, `;; for=1.2.3.4 ;`, `for="`, `for=a;for=b`, `by="a;for=1.1.1.1\"";for=2.2.2.2`, `for="unknown:99999"`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.Trim(s, " \t")
		if s == "" {
			return // the walk passes over it
		}
		got, reason := parseForwarded(s)
		if want, why := modelElement(s); got != want || reason != why {
			t.Errorf("%q: got %v (%v), want %v (%v)", s, got, reason, want, why)
		}
	})
}

// FuzzConfig feeds any text to the trust list and the header mode: whatever is
// accepted must trust what it says, and whatever is refused must say why.
func FuzzConfig(f *testing.F) {
	for _, c := range []string{"10.0.0.0/8", "::ffff:10.0.0.0/104", "unix", "fe80::%e/10", "0.0.0.0/0", "a,b", "%", "/", "[::1]:80"} {
		f.Add(c, "single:X-Client")
	}
	f.Fuzz(func(t *testing.T, entry, header string) {
		r, errors, warnings := New(Config{Trusted: []string{entry}, Header: header})
		if (r == nil) != (len(errors) > 0) {
			t.Fatalf("resolver %v with %+v", r, errors)
		}
		for _, fault := range append(errors, warnings...) {
			if fault.Message == "" || fault.Fix == "" || fault.Value != entry && fault.Value != header {
				t.Errorf("fault %+v", fault)
			}
		}
		if r == nil || r.TrustsUnix() {
			return
		}
		for _, p := range r.Trusted() {
			if !r.trusted.contains(p.Addr()) || p != p.Masked() || p.Addr().Is4In6() || p.Bits() == 0 {
				t.Errorf("%q is trusted as %v", entry, p)
			}
		}
		if again := resolver(t, Config{Trusted: texts(r)}); again.Trusted()[0] != r.Trusted()[0] {
			t.Errorf("%q reads back as %v", entry, again.Trusted())
		}
	})
}

// FuzzDirectLoopback holds that no header makes a request more direct.
func FuzzDirectLoopback(f *testing.F) {
	f.Add("127.0.0.1:5", "X_Forwarded_For", "close, via")
	f.Add("[::1]:5", "Accept", "upgrade")
	f.Fuzz(func(t *testing.T, peer, name, connection string) {
		bare := DirectLoopback(request(peer, "tcp"))
		req := request(peer, "tcp", [2]string{"Connection", connection})
		req.Header[name] = []string{""}
		got := DirectLoopback(req)
		if got && !bare {
			t.Errorf("%q is direct only with %q and Connection %q", peer, name, connection)
		}
		folded := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if got && (strings.HasPrefix(folded, "x-forwarded-") || folded == "forwarded" || folded == "via") {
			t.Errorf("direct with the header %q", name)
		}
		if a, err := netip.ParseAddrPort(peer); bare && (err != nil || !a.Addr().Unmap().IsLoopback()) {
			t.Errorf("direct from %q", peer)
		}
	})
}

// TestRandomRequestsResolveAsTheModelSays builds requests out of pieces that
// are nearly right, which random bytes seldom are.
func TestRandomRequestsResolveAsTheModelSays(t *testing.T) {
	rng := rand.New(rand.NewPCG(7239, 9110))
	pick := func(s []string) string { return s[rng.IntN(len(s))] }
	hosts := []string{
		"10.0.0.1", "10.9.9.9:80", "203.0.113.7", "203.0.113.7:65536", "::ffff:10.0.0.2", "[2001:db8::1]", "[2001:db8::1]:8", "2001:db9::1",
		"fe80::1%eth0", "::", "224.0.0.1", "junk", "", "", " ", "[10.0.0.1]", "192.0.2.1", "198.51.100.9", "1.2.3.4%e", "unknown", "_x",
	}
	wraps := []string{"%", "%", "for=%", "for=%", `for="%"`, `by=_a;for="%"`, "for=% ;host=h", `for="%`, "for =%", `for="%";for=%`, " % ", "\t%"}
	joints := []string{",", ", ", ",,", "\n", "\n\n", " ,\t", ";"}
	peers := []string{"10.0.0.5:1", "10.0.0.5:1", "10.0.0.5", "[::ffff:10.0.0.5]:1", "203.0.113.1:1", "[2001:db8::5%e]:1", "ohno", "0.0.0.0:1", ""}
	seen := map[string]bool{}
	for range 4000 {
		var text strings.Builder
		for range rng.IntN(7) {
			text.WriteString(strings.ReplaceAll(pick(wraps), "%", pick(hosts)))
			text.WriteString(pick(joints))
		}
		lines := text.String()
		if rng.IntN(50) == 0 {
			lines += strings.Repeat(pick(hosts)+pick(joints), 60+rng.IntN(12))
		}
		if lines = strings.TrimSuffix(lines, ","); rng.IntN(2) == 0 {
			lines = strings.TrimSuffix(lines, "\n")
		}
		for _, got := range agree(t, pick(peers), lines, pick(hosts)+pick(joints)+pick(hosts)) {
			seen[got.Source.String()], seen[got.Reason.String()] = true, true
		}
		if t.Failed() {
			return
		}
	}
	if all := len(sourceWords) + len(reasonWords); len(seen) != all {
		t.Errorf("only %d of %d sources and reasons came up: %v", len(seen), all, seen)
	}
}
