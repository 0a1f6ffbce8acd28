package problem

import (
	"math"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var acceptCases = []struct {
	name   string
	accept []string
	want   preference
}{
	{"no Accept is a program", nil, preferJSON},
	{"an empty Accept is a program", []string{""}, preferJSON},
	{"anything at all is a program", []string{"*/*"}, preferJSON},
	{"a browser wants a page", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"}, preferHTML},
	{"a browser fetching an image is not given a page", []string{"image/avif,image/webp,image/png,*/*;q=0.8"}, preferJSON},
	{"a fetch library lists json first and a wildcard last", []string{"application/json, text/plain, */*"}, preferJSON},
	{"a page at a low weight gives way to json", []string{"text/html;q=0.1, application/json"}, preferJSON},
	{"a page at a high weight comes before json", []string{"application/json;q=0.5, text/html"}, preferHTML},
	{"problem+json by name", []string{"text/html;q=0.9, application/problem+json"}, preferJSON},
	{"between equals the first named wins", []string{"text/html, application/json"}, preferHTML},
	{"between equals the first named wins the other way", []string{"application/json, text/html"}, preferJSON},
	{"a name beats a wildcard of the same weight", []string{"*/*, text/html"}, preferHTML},
	{"a wildcard of more weight beats a name", []string{"*/*, text/html;q=0.9"}, preferJSON},
	{"plain text by name", []string{"text/plain"}, preferPlain},
	{"plain text preferred to json", []string{"application/json;q=0.3, text/plain;q=0.4"}, preferPlain},
	{"any text is plain text", []string{"text/*"}, preferPlain},
	{"any text but plain is a page", []string{"text/*, text/plain;q=0.2"}, preferHTML},
	{"anything but a page", []string{"text/html;q=0, application/xhtml+xml;q=0, */*"}, preferJSON},
	{"nothing but a page", []string{"text/html, */*;q=0"}, preferHTML},
	{"nothing we have", []string{"image/png"}, preferJSON},
	{"a range we have nothing for does not count for what we have", []string{"image/*;q=1, application/*;q=0"}, preferJSON},
	{"nothing at all", []string{"*/*;q=0"}, preferJSON},
	{"xhtml is a page", []string{"application/xhtml+xml"}, preferHTML},
	{"case does not matter", []string{"TEXT/HTML;Q=1"}, preferHTML},
	{"space around everything", []string{" \ttext/html ; q=0.9 , application/json ; q=0.8 "}, preferHTML},
	{"several lines are one list", []string{"application/json;q=0.2", "text/html;q=0.9"}, preferHTML},
	{"parameters before the weight", []string{`text/html;level=1;q=0.1, application/json;q=0.2`}, preferJSON},
	{"a comma in quotes does not end the range", []string{`text/html;a="x, application/json";q=0.9, text/plain;q=0.1`}, preferHTML},
	{"a quoted quote does not end the quotes", []string{`text/html;a="\",text/plain";q=0.9`}, preferHTML},
	{"an unclosed quote swallows the rest", []string{`text/html;a="x, application/json`}, preferHTML},
	{"only semicolons", []string{";;;"}, preferJSON},
	{"only commas", []string{",,,"}, preferJSON},
	{"a type without a subtype is not heard", []string{"text/, /html, text"}, preferJSON},
	{"*/html is no range", []string{"*/html"}, preferJSON},
	{"a weight above one is not heard", []string{"text/html;q=2"}, preferJSON},
	{"a weight just above one is not heard", []string{"text/html;q=1.001"}, preferJSON},
	{"a negative weight is not heard", []string{"text/html;q=-0.5"}, preferJSON},
	{"a weight in words is not heard", []string{"text/html;q=high"}, preferJSON},
	{"an empty weight is not heard", []string{"text/html;q="}, preferJSON},
	{"NaN is no weight", []string{"text/html;q=NaN"}, preferJSON},
	{"a weight with many digits is cut", []string{"text/html;q=0.66666666666666666, application/json;q=0.665"}, preferHTML},
	{"old Java asks for a page", []string{"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}, preferHTML},
	{"the smallest weight counts", []string{"text/html;q=0.001"}, preferHTML},
	{"64 KiB are not parsed", []string{strings.Repeat("image/x,", 8<<10) + "text/html"}, preferJSON},
	{"64 KiB in many lines are not parsed", slicesRepeat("text/html", 8<<10), preferJSON},
	{"just below the limit is parsed", []string{strings.Repeat(",", maxAccept-len("text/html")) + "text/html"}, preferHTML},
}

func slicesRepeat(s string, n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = s
	}
	return lines
}

func TestAcceptChooses(t *testing.T) {
	for _, tt := range acceptCases {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, preferred(tt.accept))
		})
	}
}

// slowPreferred is the model: every type against every range, weights as
// floats, elements read by package mime. It knows no malformed fields and no
// quoted commas, which the tables above cover.
func slowPreferred(accept string) preference {
	type choice struct {
		quality            float64
		specific, position int
		gets               preference
	}
	best := choice{gets: preferJSON}
	for _, t := range mediaTypes {
		mine := choice{gets: t.gets}
		for i, element := range strings.Split(accept, ",") {
			mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(element))
			if err != nil {
				panic(err)
			}
			quality := 1.0
			if q, ok := params["q"]; ok {
				quality, _ = strconv.ParseFloat(q, 64)
			}
			specific := map[string]int{"*/*": 1, t.major + "/*": 2, t.major + "/" + t.minor: 3}[mediaType]
			if specific > mine.specific || specific > 0 && specific == mine.specific && quality > mine.quality {
				mine = choice{quality, specific, i, t.gets}
			}
		}
		switch {
		case mine.quality == 0:
		case mine.quality > best.quality,
			mine.quality == best.quality && mine.specific > best.specific,
			mine.quality == best.quality && mine.specific == best.specific && mine.position < best.position:
			best = mine
		}
	}
	return best.gets
}

func TestAcceptAgreesWithTheSlowModel(t *testing.T) {
	ranges := []string{"*/*", "text/*", "application/*", "text/html", "text/plain", "application/json",
		"application/problem+json", "application/xhtml+xml", "image/png", "image/*"}
	weights := []string{"", "", ";q=1", ";q=0", ";q=0.5", ";q=0.50", ";Q=0.501", "; q=0.9", ";level=2;q=0.3", ";level=1"}
	rng := rand.New(rand.NewPCG(3, 4))
	seen := map[preference]int{}
	for range 20000 {
		var elements []string
		for range 1 + rng.IntN(6) {
			elements = append(elements, ranges[rng.IntN(len(ranges))]+weights[rng.IntN(len(weights))])
		}
		accept := strings.Join(elements, ", ")
		got := preferred([]string{accept})
		require.Equal(t, slowPreferred(accept), got, "Accept: %s", accept)
		require.Equal(t, got, preferred(elements), "one line or many, Accept: %s", accept)
		seen[got]++
	}
	require.Len(t, seen, 3, "the random fields reach every document")
}

func TestQuality(t *testing.T) {
	for s, want := range map[string]int{
		"0": 0, "1": 1000, "0.": 0, "1.": 1000, "1.000": 1000, "0.5": 500, "0.123": 123, "0.1239": 123, ".2": 200,
		"": -1, ".": -1, "2": -1, "00": -1, "01": -1, "0,5": -1, "1.1": -1, "1.0001": -1, "-0": -1, "+1": -1, "0.5x": -1, "1e0": -1, " 1": -1,
	} {
		got, ok := parseQuality(s)
		if want < 0 {
			require.False(t, ok, "q=%q is a weight", s)
			continue
		}
		require.True(t, ok, "q=%q is no weight", s)
		require.Equal(t, want, got, "q=%q", s)
	}
}

func FuzzAccept(f *testing.F) {
	for _, tt := range acceptCases {
		f.Add(strings.Join(tt.accept, ","))
	}
	f.Fuzz(func(t *testing.T, accept string) {
		got := preferred([]string{accept})
		require.Contains(t, []preference{preferJSON, preferPlain, preferHTML}, got)

		if len(accept) > maxAccept {
			require.Equal(t, preferJSON, got, "a field over the limit was parsed")
			return
		}
		// Laws: letter case means nothing, neither do empty elements in front,
		// and naming nothing means JSON.
		if len(accept)+2 <= maxAccept {
			require.Equal(t, got, preferred([]string{" ," + accept}))
		}
		require.Equal(t, got, preferred([]string{asciiUpper(accept)}))
		if !strings.ContainsAny(accept, "/*") {
			require.Equal(t, preferJSON, got)
		}

		// A weight is what strconv would read, cut to thousandths.
		if q, ok := parseQuality(accept); ok {
			exact, err := strconv.ParseFloat(accept, 64)
			require.NoError(t, err)
			require.LessOrEqual(t, math.Abs(exact-float64(q)/1000), 0.001+1e-9)
		}
	})
}

func asciiUpper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}

func TestNegotiate(t *testing.T) {
	says := func(word string) Writer {
		return func(w http.ResponseWriter, _ *http.Request, rej Rejection) {
			rej.SetHeaders(w.Header())
			w.WriteHeader(rej.StatusCode())
			_, _ = w.Write([]byte(word))
		}
	}
	three := Negotiate(says("html"), says("json"), says("plain"))
	noPlain := Negotiate(says("html"), says("json"), nil)
	two := ByAccept(says("html"), says("other"))

	for _, tt := range []struct{ name, accept, three, noPlain, two string }{
		{"no Accept", "", "json", "json", "other"},
		{"a browser", "text/html,*/*;q=0.8", "html", "html", "html"},
		{"a program", "application/json", "json", "json", "other"},
		{"a terminal", "text/plain", "plain", "json", "other"},
		{"json rather than a page", "text/html;q=0.1, application/json", "json", "json", "other"},
		{"plain rather than a page", "text/html;q=0.1, text/plain", "plain", "json", "other"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, c := range []struct {
				writer Writer
				want   string
			}{{three, tt.three}, {noPlain, tt.noPlain}, {two, tt.two}} {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				if tt.accept != "" {
					r.Header.Set("Accept", tt.accept)
				}
				w := httptest.NewRecorder()
				c.writer(w, r, Rejection{})
				require.Equal(t, c.want, w.Body.String())
			}
		})
	}
}

func TestNegotiateWithoutAWriterPanicsWhenWired(t *testing.T) {
	require.Panics(t, func() { Negotiate(nil, JSON, Plain) })
	require.Panics(t, func() { Negotiate(HTML, nil, Plain) })
	require.Panics(t, func() { ByAccept(nil, JSON) })
	require.Panics(t, func() { ByAccept(HTML, nil) })
}
