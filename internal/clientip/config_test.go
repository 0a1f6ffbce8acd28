package clientip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestEveryRecordedConfigurationIsJudgedAsStated reads the "expect" of each row:
// "error", "ok", "ok, merged", a network, "… + warning", "warning: …", "error
// unless AllowAny".
func TestEveryRecordedConfigurationIsJudgedAsStated(t *testing.T) {
	type configCase struct {
		Name    string
		Trusted []string
		Expect  string
	}
	headers := map[string]string{
		"single-header-is-xff": "single:X-Forwarded-For",
		"two-header-modes":     "x-forwarded-for, single:CF-Connecting-IP",
	}
	for _, c := range load[[]configCase](t, "clientip-config.json") {
		t.Run(c.Name, func(t *testing.T) {
			cfg := Config{Trusted: c.Trusted, Header: headers[c.Name], TrustRequired: true}
			if c.Name == "4097-prefixes" {
				cfg.Trusted = hosts(4097)
			}
			r, errors, warnings := New(cfg)
			if (r == nil) != (len(errors) > 0) {
				t.Fatalf("resolver %v with errors %+v", r, errors)
			}
			if strings.HasPrefix(c.Expect, "error") != (r == nil) {
				t.Fatalf("want %s, got errors %+v", c.Expect, errors)
			}
			for _, f := range append(errors, warnings...) {
				if f.Message == "" || f.Fix == "" || f.Field == "" {
					t.Errorf("fault does not say what to do: %+v", f)
				}
			}
			if want := strings.Contains(c.Expect, "warning"); want != (len(warnings) > 0) {
				t.Errorf("want %s, got warnings %+v", c.Expect, warnings)
			}
			if first, _, _ := strings.Cut(c.Expect, " "); strings.Contains(first, "/") && texts(r)[0] != first {
				t.Errorf("trusted %v, want %s", texts(r), first)
			}
		})
	}
}

func TestNewSaysWhatToWriteInstead(t *testing.T) {
	tests := []struct {
		name    string
		cfg     Config
		field   string
		index   int
		message string // a part of it
		fix     string // a part of it
	}{
		{"a host name is never looked up", Config{Trusted: []string{"localhost"}}, "trusted_proxies", 0, "names are not looked up", "192.0.2.10"},
		{"a list in one text is taken apart", Config{Trusted: []string{"10.0.0.0/8, 192.168.0.0/16"}}, "trusted_proxies", 0, "several", "10.0.0.0/8 and 192.168.0.0/16"},
		{"a port is dropped", Config{Trusted: []string{"10.0.0.1", "10.0.0.5:443"}}, "trusted_proxies", 1, "port", "10.0.0.5"},
		{"brackets are dropped", Config{Trusted: []string{"[2001:db8::1]"}}, "trusted_proxies", 0, "brackets", "2001:db8::1"},
		{"the zone of an address is dropped", Config{Trusted: []string{"fe80::1%eth0"}}, "trusted_proxies", 0, "zone", "fe80::1"},
		{"the zone of a network is dropped", Config{Trusted: []string{"fe80::%eth0/10"}}, "trusted_proxies", 0, "zone", "fe80::/10"},
		{"blanks are dropped", Config{Trusted: []string{" 10.0.0.0/8"}}, "trusted_proxies", 0, "blanks", "10.0.0.0/8"},
		{"the nginx word for unix sockets is translated", Config{Trusted: []string{"unix:"}}, "trusted_proxies", 0, "unix", "unix"},
		{"an empty entry is no entry", Config{Trusted: []string{""}}, "trusted_proxies", 0, "empty", "192.0.2.10"},
		{"a length beyond the address is no network", Config{Trusted: []string{"10.0.0.0/33"}}, "trusted_proxies", 0, "CIDR", "10.0.0.0/8"},
		{"a listen address is not a proxy", Config{Trusted: []string{"0.0.0.0"}}, "trusted_proxies", 0, "listen", "connect from"},
		{"a listen address is not a proxy in IPv6", Config{Trusted: []string{"::"}}, "trusted_proxies", 0, "listen", "connect from"},
		{"everything is not a trust list", Config{Trusted: []string{"0.0.0.0/0"}}, "trusted_proxies", 0, "every address", "connect from"},
		{"everything in mapped form is not a trust list", Config{Trusted: []string{"::ffff:0.0.0.0/96"}}, "trusted_proxies", 0, "every address", "connect from"},
		{"a mapped network must stay within IPv4", Config{Trusted: []string{"::ffff:10.0.0.0/95"}}, "trusted_proxies", 0, "beyond IPv4", "10.0.0.0/8"},
		{"trust needs a list", Config{TrustRequired: true}, "trusted_proxies", -1, "no proxy is listed", "10.0.0.0/8"},
		{"an unknown header mode is refused", Config{Header: "x-real-ip"}, "header", -1, "no way", "single:NAME"},
		{"a single header needs a name", Config{Header: "single:"}, "header", -1, "no way", "single:NAME"},
		{"a list header is not a single one", Config{Header: "single:x-forwarded-for"}, "header", -1, "list", "x-forwarded-for"},
		{"Forwarded is not a single header", Config{Header: "Single:forwarded"}, "header", -1, "list", "forwarded"},
		{"only one header is believed", Config{Header: "forwarded,x-forwarded-for"}, "header", -1, "more than one", "exactly one"},
		{"a header name is a token", Config{Header: "single:cf/ip"}, "header", -1, "not a header name", "single:NAME"},
		{"Host is not an address", Config{Header: "single:host"}, "header", -1, "holds an address", "single:NAME"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, errors, _ := New(tt.cfg)
			if r != nil || len(errors) != 1 {
				t.Fatalf("got %v and %+v, want one error", r, errors)
			}
			got := errors[0]
			if got.Field != tt.field || got.Index != tt.index ||
				!strings.Contains(got.Message, tt.message) || !strings.Contains(got.Fix, tt.fix) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestNewReportsAllFaultsAtOnceInOrder(t *testing.T) {
	_, errors, warnings := New(Config{
		Trusted: []string{"nope", "10.1.2.3/8", "10.0.0.0/33", "192.0.2.1", "64.0.0.0/7"},
		Header:  "both",
	})
	var got []string
	for _, f := range errors {
		got = append(got, fmt.Sprint(f.Field, f.Index, f.Value))
	}
	if want := []string{"trusted_proxies0nope", "trusted_proxies210.0.0.0/33", "header-1both"}; !slices.Equal(got, want) {
		t.Errorf("errors %q, want %q", got, want)
	}
	if len(warnings) != 2 || warnings[0].Index != 1 || warnings[0].Fix != "10.0.0.0/8" || warnings[1].Index != 4 {
		t.Errorf("warnings %+v", warnings)
	}
}

func TestNewWarnsOfWhatIsHardlyMeant(t *testing.T) {
	tests := []struct {
		name    string
		cfg     Config
		message string // of the only warning; "" for none
	}{
		{"an IPv4 network shorter than 8 bits", Config{Trusted: []string{"10.0.0.0/7"}}, "shorter than /8"},
		{"an IPv4 network of 8 bits is quiet", Config{Trusted: []string{"10.0.0.0/8"}}, ""},
		{"an IPv6 network shorter than 16 bits", Config{Trusted: []string{"fe80::/10"}}, "shorter than /16"},
		{"an IPv6 network of 16 bits is quiet", Config{Trusted: []string{"2002::/16"}}, ""},
		{"everything, even when it is allowed", Config{Trusted: []string{"::/0"}, AllowAny: true}, "shorter than /16"},
		{"bits beyond the length", Config{Trusted: []string{"2001:db8::1/64"}}, "bits set"},
		{"a multicast network", Config{Trusted: []string{"224.0.0.0/8"}}, "multicast"},
		{"a header that nobody may set", Config{Header: "single:CF-Connecting-IP"}, "never read"},
		{"no list is quiet", Config{XRealIP: true}, ""},
		{"a unix socket is quiet", Config{Trusted: []string{"unix"}, Header: "forwarded", TrustRequired: true}, ""},
		{"the same network twice is quiet", Config{Trusted: []string{"10.0.0.0/8", "10.0.0.0/8"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, errors, warnings := New(tt.cfg)
			if r == nil {
				t.Fatalf("errors %+v", errors)
			}
			if tt.message == "" && len(warnings) == 0 {
				return
			}
			if len(warnings) != 1 || tt.message == "" || !strings.Contains(warnings[0].Message, tt.message) {
				t.Errorf("got %+v", warnings)
			}
		})
	}
}

func TestTrustedIsTheShortestListOfTheSameNetworks(t *testing.T) {
	tests := []struct {
		name    string
		trusted []string
		want    []string
	}{
		{"nested networks vanish", []string{"10.1.0.0/16", "10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"halves join", []string{"10.0.0.128/25", "10.0.0.0/25"}, []string{"10.0.0.0/24"}},
		{"joined halves join again", []string{"10.0.0.0/24", "10.0.1.0/25", "10.0.1.128/25"}, []string{"10.0.0.0/23"}},
		{"neighbours that are no halves stay", []string{"10.0.1.0/24", "10.0.2.0/24"}, []string{"10.0.1.0/24", "10.0.2.0/24"}},
		{"two halves of everything are shown as what they are", []string{"0.0.0.0/1", "128.0.0.0/1"}, []string{"0.0.0.0/0"}},
		{"mapped and plain are one", []string{"::ffff:10.0.0.0/104", "10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{"IPv4 comes first", []string{"2001:db8::1", "192.0.2.1"}, []string{"192.0.2.1/32", "2001:db8::1/128"}},
		{"unix is not a network", []string{"unix"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := resolver(t, Config{Trusted: tt.trusted})
			if got := texts(r); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if r.TrustsUnix() != slices.Contains(tt.trusted, "unix") {
				t.Errorf("TrustsUnix = %t", r.TrustsUnix())
			}
		})
	}
}

func TestTheCallersSlicesAreNotShared(t *testing.T) {
	trusted := []string{"10.0.0.0/8"}
	r := resolver(t, Config{Trusted: trusted})
	trusted[0] = "192.0.2.0/24"
	r.Trusted()[0] = netip.MustParsePrefix("192.0.2.0/24")
	if got := texts(r); got[0] != "10.0.0.0/8" {
		t.Errorf("trusted became %v", got)
	}
}

func TestHeaderModesAreReadInAnyLetterCase(t *testing.T) {
	for _, header := range []string{"Single:cf-connecting-ip", "SINGLE:CF-CONNECTING-IP", "single:CF-Connecting-IP"} {
		r := resolver(t, Config{Trusted: []string{"10.0.0.5"}, Header: header})
		got := r.Resolve(request("10.0.0.5:1", "", [2]string{"cf-connecting-ip", "203.0.113.7"}))
		if addrText(got.Addr) != "203.0.113.7" || got.Source != Single {
			t.Errorf("%s: got %+v", header, got)
		}
	}
}

// hosts returns n addresses, no two of them neighbours.
func hosts(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("172.%d.%d.%d", 16+i>>15, i>>7&0xff, i&0x7f<<1)
	}
	return list
}

func texts(r *Resolver) []string {
	var list []string
	for _, p := range r.Trusted() {
		list = append(list, p.String())
	}
	return list
}
