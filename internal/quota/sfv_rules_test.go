package quota

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The parser decides what the other tests call valid, so it is held against the
// examples of RFC 9651 and of the draft itself.

func TestTheParserReadsWhatTheRFCAndTheDraftShow(t *testing.T) {
	type params = map[string]any
	one := func(v any) []sfItem { return []sfItem{{v, params{}}} }
	for _, tt := range []struct {
		name  string
		lines []string
		want  []sfItem
	}{
		{"nothing is an empty list", []string{""}, nil},
		{"an integer", []string{"42"}, one(int64(42))},
		{"the largest integer", []string{"999999999999999"}, one(int64(999999999999999))},
		{"a negative integer", []string{"-42"}, one(int64(-42))},
		{"leading zeros are permitted", []string{"-00042"}, one(int64(-42))},
		{"a decimal", []string{"4.5"}, one(sfDecimal("4.5"))},
		{"a string", []string{`"hello world"`}, one("hello world")},
		{"a string with escapes", []string{`"a\"b\\c"`}, one(`a"b\c`)},
		{"an empty string", []string{`""`}, one("")},
		{"a token", []string{"foo123/456"}, one(sfToken("foo123/456"))},
		{"a byte sequence", []string{":cHJldGVuZCB0aGlzIGlzIGJpbmFyeSBjb250ZW50Lg==:"}, one([]byte("pretend this is binary content."))},
		{"a boolean", []string{"?1"}, one(true)},
		{"a date", []string{"@1659578233"}, one(sfDate(1659578233))},
		{"a display string", []string{`%"f%c3%bc%c3%bc"`}, one(sfDisplay("füü"))},
		{"parameters, one of them without a value", []string{`abc;a=1;b=2; cde_456`}, []sfItem{{sfToken("abc"), params{"a": int64(1), "b": int64(2), "cde_456": true}}}},
		{"a list", []string{"sugar, tea,rum"}, []sfItem{{sfToken("sugar"), params{}}, {sfToken("tea"), params{}}, {sfToken("rum"), params{}}}},
		{"a list over two lines", []string{"sugar, tea", "rum"}, []sfItem{{sfToken("sugar"), params{}}, {sfToken("tea"), params{}}, {sfToken("rum"), params{}}}},
		{"two policies (the draft, section 3.2)", []string{`"permin";q=50;w=60,"perhr";q=1000;w=3600`}, []sfItem{
			{"permin", params{"q": int64(50), "w": int64(60)}}, {"perhr", params{"q": int64(1000), "w": int64(3600)}}}},
		{"a service limit with a key (the draft, section 4.2)", []string{`"default";r=999;pk=:dHJpYWwxMjEzMjM=:`}, []sfItem{
			{"default", params{"r": int64(999), "pk": []byte("trial121323")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseList(tt.lines...)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestTheParserRefusesWhatIsNoList(t *testing.T) {
	for _, tt := range []struct{ name, line string }{
		{"an integer of 16 digits", "1000000000000000"},
		{"a plus sign", "+1"},
		{"a minus sign alone", "-"},
		{"a decimal without a fraction", "1."},
		{"a decimal with four places", "1.2345"},
		{"an exponent", `"a";q=1e9`},
		{"not a number", `"a";q=+Inf`},
		{"a string without end", `"a`},
		{"a string that ends in a backslash", `"a\`},
		{"an escape of anything else", `"a\n"`},
		{"a line feed in a string", "\"a\n\""},
		{"a letter outside ASCII in a string", `"é"`},
		{"the delete character in a string", "\"\x7f\""},
		{"a comma at the end", `"a",`},
		{"two commas", `"a",,"b"`},
		{"items without a comma", `"a" "b"`},
		{"a parameter without a name", `"a";`},
		{"a parameter in upper case", `"a";Q=1`},
		{"a parameter without a value after the sign", `"a";q=`},
		{"a blank before the semicolon", `"a" ;q=1`},
		{"a blank around the sign", `"a";q = 1`},
		{"a parameter twice", `"a";q=1;q=2`},
		{"bad base64", ":a:"},
		{"a line break in base64", ":YQ\n==:"},
		{"base64 without end", ":YQ=="},
		{"a boolean that is neither", "?2"},
		{"a date with a fraction", "@1.5"},
		{"a display string in upper case", `%"%C3%BC"`},
		{"a display string with half a letter", `%"%c3"`},
		{"a percent sign at the end of a display string", `%"%c`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseList(tt.line)
			require.Error(t, err, "parsed as %v", got)
		})
	}
}
