package problem

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile collects strings that break naive output in one format or another.
var hostile = []string{
	"",
	"plain",
	`quote " and ' and \ backslash`,
	`"><script>alert(1)</script>`,
	`</title></style><img src=x onerror=alert(1)>`,
	"]]> <!-- --> &amp; &#0; <![CDATA[",
	"line\r\nSet-Cookie: a=b\r\n\r\n<html>",
	"tab\tnul\x00bell\x07back\bfeed\fescape\x1bdelete\x7f",
	"separators \u2028 \u2029, next line \u0085",
	"not utf-8 \xff\xc0\xaf \xed\xa0\x80 end \xe2\x82",
	"replacement \uFFFD stays, \uFFFE and \uFFFF do not fit XML",
	"beyond the basic plane \U0001F6A7 \U0010FFFF",
	"{{.}} ${x} %s %00",
}

// encoding/json and encoding/xml are the models: the output must be theirs byte
// for byte.
func FuzzEscapersAgreeWithTheStandardLibrary(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, err := json.Marshal(s)
		require.NoError(t, err)
		require.Equal(t, string(want), string(appendJSON(nil, s)))

		var markup bytes.Buffer
		require.NoError(t, xml.EscapeText(&markup, []byte(s)))
		require.Equal(t, markup.String(), string(appendMarkup(nil, s)))
	})
}

func TestEscapersAgreeOnEveryRuneAndByte(t *testing.T) {
	check := func(s string) {
		want, err := json.Marshal(s)
		require.NoError(t, err)
		var markup bytes.Buffer
		require.NoError(t, xml.EscapeText(&markup, []byte(s)))
		if string(want) != string(appendJSON(nil, s)) || markup.String() != string(appendMarkup(nil, s)) {
			t.Errorf("%q becomes %s in JSON, want %s, and %s in markup, want %s",
				s, appendJSON(nil, s), want, appendMarkup(nil, s), &markup)
		}
	}
	for b := range 0x100 {
		check("a" + string([]byte{byte(b)}) + "z")
	}
	for r := rune(0x80); r < 0x11000; r++ {
		check(string(r))
	}
}

// The writers append sentences, titles and headings without escaping.
func TestNothingWeSayNeedsEscaping(t *testing.T) {
	for _, reason := range allReasons {
		c := Rejection{Reason: reason}.cause()
		for _, s := range []string{c.problem, c.title, c.heading, c.sentence, c.text, Rejection{Reason: reason}.Detail()} {
			require.Equal(t, `"`+s+`"`, string(appendJSON(nil, s)))
			require.Equal(t, s, string(appendMarkup(nil, s)))
		}
	}
}
