package clientip

import (
	"strings"
	"testing"
)

func TestAnEntryIsReadInTheFormsThatProxiesWrite(t *testing.T) {
	tests := []struct{ name, entry, want string }{
		{"IPv4", "203.0.113.7", "203.0.113.7"},
		{"IPv4 with a port", "203.0.113.7:5544", "203.0.113.7"},
		{"port 0", "203.0.113.7:0", "203.0.113.7"},
		{"IPv6", "2001:db8::7", "2001:db8::7"},
		{"IPv6 in brackets", "[2001:db8::7]", "2001:db8::7"},
		{"IPv6 with a port", "[2001:db8::7]:443", "2001:db8::7"},
		{"capitals", "2001:DB8::ABCD", "2001:db8::abcd"},
		{"a zone", "fe80::1%eth0", "fe80::1"},
		{"a zone with a dot", "fe80::1%eth0.100", "fe80::1"},
		{"a zone in brackets", "[fe80::1%eth0]:1", "fe80::1"},
		{"mapped", "::ffff:203.0.113.7", "203.0.113.7"},
		{"mapped in hexadecimal", "::ffff:cb00:7107", "203.0.113.7"},
		{"mapped with a zone", "[::ffff:203.0.113.7%eth0]:1", "203.0.113.7"},
		{"v4-compatible stays IPv6", "::203.0.113.7", "::cb00:7107"},
		{"the broadcast address of some network cannot be told from a host", "203.0.113.255", "203.0.113.255"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, reason := parseEntry(tt.entry); reason != None || addrText(got) != tt.want {
				t.Errorf("parseEntry(%q) = %q, %v; want %q", tt.entry, addrText(got), reason, tt.want)
			}
		})
	}
}

func TestAnEntryThatAnotherParserCouldReadDifferentlyIsRefused(t *testing.T) {
	tests := []struct{ name, entry string }{
		{"nothing", ""},
		{"only a port", ":80"},
		{"only brackets", "[]"},
		{"empty brackets with a port", "[]:80"},
		{"an empty port", "203.0.113.7:"},
		{"an empty port after brackets", "[2001:db8::7]:"},
		{"a port of letters", "203.0.113.7:http"},
		{"a port beyond 65535", "203.0.113.7:65536"},
		{"a port that overflows", "203.0.113.7:18446744073709551697"},
		{"a signed port", "203.0.113.7:+80"},
		{"two ports", "203.0.113.7:80:80"},
		{"IPv4 in brackets", "[203.0.113.7]"},
		{"an open bracket", "[2001:db8::7"},
		{"a closed bracket", "2001:db8::7]"},
		{"doubled brackets", "[[2001:db8::7]]"},
		{"text before the bracket", "x[2001:db8::7]"},
		{"text after the bracket", "[2001:db8::7]80"},
		{"leading zeros", "203.000.113.007"},
		{"octal", "010.0.0.1"},
		{"hexadecimal", "0x7f.0.0.1"},
		{"one number", "2130706433"},
		{"a short form", "127.1"},
		{"a trailing dot", "203.0.113.7."},
		{"a network", "203.0.113.0/24"},
		{"a name", "localhost"},
		{"quotes", `"203.0.113.7"`},
		{"a zone on IPv4", "203.0.113.7%eth0"},
		{"an empty zone", "fe80::1%"},
		{"a zone alone", "%eth0"},
		{"two zones", "fe80::1%a%b"},
		{"a zone that hides another address", "2001:db8::1%eth0 203.0.113.8"},
		{"a zone that hides a port", "2001:db8::1%eth0:80"},
		{"two addresses", "203.0.113.7 203.0.113.8"},
		{"a NUL", "203.0.113.7\x00"},
		{"a no-break space", "203.0.113.7\u00a0"},
		{"digits of another script", "٢٠٣.0.113.7"},
		{"unspecified IPv4", "0.0.0.0"},
		{"unspecified IPv6", "::"},
		{"unspecified in mapped form", "::ffff:0.0.0.0"},
		{"unspecified with a zone", "::%eth0"},
		{"multicast IPv4", "224.0.0.1"},
		{"multicast IPv6", "ff02::1"},
		{"multicast in mapped form", "::ffff:224.0.0.1"},
		{"broadcast", "255.255.255.255"},
		{"broadcast in mapped form", "::ffff:255.255.255.255"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, reason := parseEntry(tt.entry); reason != Malformed || got.IsValid() {
				t.Errorf("parseEntry(%q) = %v, %v; want malformed", tt.entry, got, reason)
			}
		})
	}
}

func TestAnEntryIsAtMost128Bytes(t *testing.T) {
	fits := "fe80::1%" + strings.Repeat("z", 120)
	if got, reason := parseEntry(fits); reason != None || addrText(got) != "fe80::1" {
		t.Errorf("%d bytes: got %v, %v", len(fits), got, reason)
	}
	if got, reason := parseEntry(fits + "z"); reason != TooLong || got.IsValid() {
		t.Errorf("%d bytes: got %v, %v", len(fits)+1, got, reason)
	}
}
