package weir

import (
	"net/http"
	"slices"
	"strings"
)

// route is one pattern: the class of its requests, and those to which a query
// parameter narrows it.
type route struct {
	class  *classPolicy
	param  string // name of that parameter; "": nothing narrows it
	values []narrowing
}

// narrowing is the class of the requests whose parameter has a value.
type narrowing struct {
	value string
	class *classPolicy
}

// ServeHTTP makes a route a http.Handler, so that a ServeMux can carry it. It
// is never called.
func (*route) ServeHTTP(http.ResponseWriter, *http.Request) {}

// of returns the class of a request that the pattern matches. Only GET and HEAD
// without a body are narrowed: some servers read their parameters from the body
// of a POST, some (Rack, Undertow) from that of any request, and which of the two
// goes first is theirs to choose.
func (rt *route) of(r *http.Request) *classPolicy {
	if rt.param == "" || r.Method != http.MethodGet && r.Method != http.MethodHead || r.ContentLength != 0 {
		return rt.class
	}
	if value, ok := onlyValue(r.URL.RawQuery, rt.param); ok {
		for i := range rt.values {
			if rt.values[i].value == value {
				return rt.values[i].class
			}
		}
	}
	return rt.class
}

// maxQuery bounds the query that is looked at. The longest that would narrow
// anything has a name or two in it.
const maxQuery = 4 << 10

// onlyValue returns the value of the one parameter of that name in a query. ok
// is false unless every server reads the query like that: it has the parameter
// once, spelled as the name is, and nothing in it that some take for a separator
// and others do not, or for another spelling of the name.
//
// What is taken for the name in some server: any case of it (ASP), an escaped
// form, the name with [] (PHP), or with a blank or a dot for _ (PHP too). A
// semicolon separates in some, is a character in others, and has Go drop the
// parameter. An escaped separator is one to a server behind a proxy that
// decodes. Clients send nothing of all that, so whatever is doubtful is not
// looked into: it has the class of the pattern itself.
func onlyValue(query, name string) (value string, ok bool) {
	if len(query) > maxQuery {
		return "", false
	}
	for piece := range strings.SplitSeq(query, "&") {
		key, val, _ := strings.Cut(piece, "=")
		switch {
		case strings.ContainsFunc(key, notName) || !plainValue(val):
			return "", false
		case key == name:
			if ok {
				return "", false
			}
			value, ok = val, true
		case strings.EqualFold(key, name):
			return "", false
		}
	}
	return value, ok
}

// notName finds what is in no name of a parameter that all servers read alike.
func notName(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return false
	}
	return c != '_' && c != '-'
}

// plainValue reports whether a value is one in every reading: the characters of
// a query (RFC 3986, section 3.4) but ; and ?, and whole escapes, none of them
// of a separator.
func plainValue(value string) bool {
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '%':
			if i+2 >= len(value) || !hexDigit(value[i+1]) || !hexDigit(value[i+2]) {
				return false
			}
			switch strings.ToUpper(value[i+1 : i+3]) {
			case "26", "3B", "23", "00", "0A", "0D": // & ; # and ends of a line
				return false
			}
			i += 2
		case !notName(rune(c)), strings.IndexByte("-._~!$'()*+,=:@/", c) >= 0:
		default:
			return false
		}
	}
	return true
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

// splitQuery reads an [Endpoint].Query.
func splitQuery(query string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(query, "=")
	return name, value, ok && name != "" && value != "" &&
		!strings.ContainsFunc(name, notName) && !strings.ContainsFunc(value, func(c rune) bool { return c != '.' && c != '~' && notName(c) })
}

// validateQuery finds what is wrong with the query of endpoint i.
func (c *Config) validateQuery(f *faults, path string, i int) {
	e := c.Endpoints[i]
	name, _, ok := splitQuery(e.Query)
	method, found := "", false
	if at := strings.IndexAny(e.Pattern, " \t"); at >= 0 {
		method, found = e.Pattern[:at], true
	}
	switch {
	case !ok:
		f.add(path, e.Query, ReasonInvalid, "write one parameter and its value, such as operation=GetCACaps, in letters, digits and -._~ without escapes")
		return
	case e.Pattern == "":
		f.add(path, e.Query, ReasonInert, "it narrows a pattern, and there is none: give one, or drop the query")
		return
	case found && method != http.MethodGet && method != http.MethodHead:
		f.add(path, e.Query, ReasonInert, "only GET and HEAD are told apart by their query: write GET before the path, or the path alone")
		return
	}
	if !slices.ContainsFunc(c.Endpoints, func(o Endpoint) bool { return o.Pattern == e.Pattern && o.Query == "" }) {
		f.add(path, e.Query, ReasonMissing, "requests with another query, or one that can be read in two ways, need a class too: add an endpoint with this pattern and no query, for the class that is limited most")
	}
	for j, o := range c.Endpoints[:i] {
		if o.Pattern != e.Pattern || o.Query == "" {
			continue
		}
		if o.Query == e.Query {
			f.add(path, e.Query, ReasonConflict, "endpoints[%d] has this pattern and query: drop one of the two", j)
			return
		}
		if other, _, ok := splitQuery(o.Query); ok && other != name {
			f.add(path, e.Query, ReasonConflict, "endpoints[%d] narrows the pattern by the parameter %s, and a pattern is narrowed by one: use that", j, other)
			return
		}
	}
}
