package clientip

import (
	"strings"
	"testing"
)

func TestAForwardedElementNamesItsClient(t *testing.T) {
	tests := []struct {
		name, elem, want string
		reason           Reason
	}{
		{"a plain address", "for=192.0.2.60", "192.0.2.60", None},
		{"any letter case", "FOR=192.0.2.60;Proto=http", "192.0.2.60", None},
		{"quoted IPv6 with a port", `for="[2001:db8::17]:4711"`, "2001:db8::17", None},
		{"IPv6 without its quotes", "for=[2001:db8::17]:4711", "2001:db8::17", None},
		{"IPv6 without its brackets", `for="2001:db8::17"`, "2001:db8::17", None},
		{"an obfuscated port", `for="192.0.2.43:_p.o-r_t1"`, "192.0.2.43", None},
		{"a quoted-pair", `for="192\.0.2.6\0"`, "192.0.2.60", None},
		{"a semicolon inside quotes", `by="a;for=6.6.6.6";for=192.0.2.60`, "192.0.2.60", None},
		{"an escaped quote inside quotes", `by="a\";for=6.6.6.6";for=192.0.2.60`, "192.0.2.60", None},
		{"empty pairs", ";;for=192.0.2.60; ;", "192.0.2.60", None},
		{"blanks and tabs around semicolons", "by=_x ;\tfor=192.0.2.60\t; host=h", "192.0.2.60", None},
		{"a long host beside it", "for=192.0.2.60;host=" + strings.Repeat("h", 253), "192.0.2.60", None},
		{"an empty quoted host beside it", `for=192.0.2.60;host=""`, "192.0.2.60", None},
		{"obsolete text in quotes", "for=192.0.2.60;x=\"\xff\xfe\"", "192.0.2.60", None},

		{"unknown", "for=unknown", "", Withheld},
		{"Unknown with a port", `for="Unknown:80"`, "", Withheld},
		{"an obfuscated name", "for=_gazonk", "", Withheld},
		{"an obfuscated name with an obfuscated port", `for="_gaz.onk-1:_p"`, "", Withheld},
		{"no for", "proto=https;by=10.0.0.1", "", Withheld},
		{"nothing but semicolons", ";;", "", Withheld},

		{"an empty value", "for=", "", Malformed},
		{"an empty quoted value", `for=""`, "", Malformed},
		{"no value", "for", "", Malformed},
		{"no name", "=192.0.2.60", "", Malformed},
		{"a bare address", "192.0.2.60", "", Malformed},
		{"a blank before =", "for =192.0.2.60", "", Malformed},
		{"a blank after =", "for= 192.0.2.60", "", Malformed},
		{"a blank between pairs", "for=192.0.2.60 by=_x", "", Malformed},
		{"text after the quotes", `for="192.0.2.60"x`, "", Malformed},
		{"an open quote", `for="192.0.2.60`, "", Malformed},
		{"a quote that ends in a backslash", `for="192.0.2.60\`, "", Malformed},
		{"a lone quote at the end", `for=192.0.2.60"`, "", Malformed},
		{"two for", "for=192.0.2.60;for=192.0.2.61", "", Malformed},
		{"two for that agree", "for=192.0.2.60;FOR=192.0.2.60", "", Malformed},
		{"a broken pair after it", "for=192.0.2.60;host", "", Malformed},
		{"a control character in quotes", "for=\"192.0.2.60\";x=\"\x01\"", "", Malformed},
		{"an escaped control character", "for=192.0.2.60;x=\"\\\x7f\"", "", Malformed},
		{"no such address", "for=192.0.2.999", "", Malformed},
		{"IPv4 in brackets", `for="[192.0.2.60]"`, "", Malformed},
		{"an obfuscated name of one character", "for=_", "", Malformed},
		{"an obfuscated name with a stray character", "for=_a!", "", Malformed},
		{"an obfuscated name with an empty port", `for="_a:"`, "", Malformed},
		{"unspecified", "for=0.0.0.0", "", Malformed},

		{"a node of 129 bytes", "for=" + strings.Repeat("1", 129), "", TooLong},
		{"a node of 129 bytes behind quoted-pairs", `for="` + strings.Repeat(`\1`, 129) + `"`, "", TooLong},
		{"a node of 128 bytes behind quoted-pairs", `for="` + strings.Repeat(`\1`, 128) + `"`, "", Malformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, reason := parseForwarded(tt.elem)
			if addrText(got) != tt.want || reason != tt.reason {
				t.Errorf("parseForwarded(%q) = %q, %v; want %q, %v", tt.elem, addrText(got), reason, tt.want, tt.reason)
			}
		})
	}
}
