package weir

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// queryCases are queries, and the value of operation in them, "" where it is
// not the same to all servers.
var queryCases = []struct{ name, query, want string }{
	{"alone", "operation=GetCACaps", "GetCACaps"},
	{"before another", "operation=GetCACaps&message=ca-1", "GetCACaps"},
	{"behind another", "message=ca-1&operation=GetCACaps", "GetCACaps"},
	{"between empty ones", "&&operation=GetCACaps&", "GetCACaps"},
	{"beside base64", "operation=PKIOperation&message=MIIB%2bw%3D%3D", "PKIOperation"},
	{"beside base64 that is not escaped", "operation=PKIOperation&message=MII/B+w==", "PKIOperation"},
	{"beside a name with an escape", "cmd=crl&operation=x&issuer=CN%3DRoot%2cO%3DA", "x"},
	{"an escaped letter is one the servers decode, and nobody sends", "operation=Get%43ACaps", "Get%43ACaps"},
	{"none", "", ""},
	{"none of that name", "message=operation", ""},
	{"no value", "operation", ""},
	{"an empty value", "operation=", ""},
	{"twice", "operation=GetCACaps&operation=PKIOperation", ""},
	{"twice the same", "operation=GetCACaps&operation=GetCACaps", ""},
	{"once in capitals", "operation=GetCACaps&OPERATION=PKIOperation", ""},
	{"only in capitals", "Operation=GetCACaps", ""},
	{"once escaped", "operation=GetCACaps&o%70eration=PKIOperation", ""},
	{"once with an escaped equals sign", "operation=GetCACaps&operation%3DPKIOperation", ""},
	{"a second one without a value", "operation=GetCACaps&operation", ""},
	{"an array of it", "operation=GetCACaps&operation[]=PKIOperation", ""},
	{"a blank before it", "operation=GetCACaps&+operation=PKIOperation", ""},
	{"a NUL behind it", "operation=GetCACaps&operation%00=PKIOperation", ""},
	{"a semicolon", "operation=GetCACaps;operation=PKIOperation", ""},
	{"a semicolon elsewhere", "operation=GetCACaps&message=x;operation=PKIOperation", ""},
	{"an escaped ampersand", "operation=GetCACaps&message=x%26operation=PKIOperation", ""},
	{"an escaped semicolon", "operation=GetCACaps&message=x%3boperation=PKIOperation", ""},
	{"a second question mark", "operation=GetCACaps&message=x?operation=PKIOperation", ""},
	{"a fragment", "operation=GetCACaps#&operation=PKIOperation", ""},
	{"half an escape", "operation=GetCACaps&message=x%2", ""},
	{"no escape", "operation=GetCACaps&message=x%zz", ""},
	{"a letter beyond ASCII", "operation=GetCACaps&message=\u00e9", ""},
	{"a name that folds to it", "operation=GetCACaps&operat\u0131on=PKIOperation", ""},
	{"a blank", "operation=GetCACaps &x=y", ""},
	{"a line", "operation=GetCACaps&x=%0aoperation=PKIOperation", ""},
	{"a query of megabytes", "operation=GetCACaps&x=" + strings.Repeat("y", 1<<22), ""},
}

func TestOnlyValueOfAQuery(t *testing.T) {
	for _, tc := range queryCases {
		t.Run(tc.name, func(t *testing.T) {
			got, _ := onlyValue(tc.query, "operation")
			assert.Equal(t, tc.want, got)
		})
	}
}

func TestNarrowingByAQuery(t *testing.T) {
	cfg := noTiersBut(TierGlobal)
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{
		{Pattern: "GET /both", Query: "op=caps", Class: "caps"}, {Pattern: "GET /both", Class: "get"}, {Pattern: "/both", Class: "any"},
		{Pattern: "/tree/{x...}", Class: "tree"}, {Pattern: "/tree/{x...}", Query: "op=caps", Class: "caps"}, {Pattern: "/tree/{x...}", Query: "op=cert", Class: "cert"},
		{Pattern: "/w/{a}/wild", Class: "wild"}, {Pattern: "/w/{a}/wild", Query: "op=caps", Class: "caps"},
	}
	l := newLimiter(t, cfg)
	for _, tc := range []struct {
		name, method, target string
		want                 Class
	}{
		{"the value", "GET", "/both?op=caps", "caps"},
		{"HEAD too", "HEAD", "/both?op=caps", "caps"},
		{"another value has the class of the pattern", "GET", "/both?op=cert", "get"},
		{"another method its own pattern's", "POST", "/both?op=caps", "any"},
		{"below a subtree", "GET", "/tree/1/2?op=cert", "cert"},
		{"a subtree without its slash", "GET", "/tree?op=caps", "caps"},
		{"below a subtree by POST", "POST", "/tree/1/2?op=cert", "tree"},
		{"by a wildcard", "GET", "/w/x/wild?op=caps", "caps"},
		{"by a wildcard with an escape", "GET", "/w/%78/wild?op=caps", "caps"},
		{"on a path that is not clean", "GET", "//both?op=caps", "caps"},
		{"on a path that two routers read differently", "GET", "/tree%2F1?op=caps", "caps"},
		{"twice", "GET", "/both?op=caps&op=cert", "get"},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, classFound(l, tc.method, tc.target)) })
	}
}

// Rack and Undertow read the parameters in the body of any request that says it
// is a form, and the former has them go before those of the query.
func TestABodyIsNotNarrowedByTheQuery(t *testing.T) {
	l := newLimiter(t, pkiConfig())
	for _, method := range []string{"GET", "HEAD"} {
		for length, want := range map[int64]Class{0: ClassSCEPCA, 22: ClassSCEP, -1: ClassSCEP} {
			for _, path := range []string{"/scep", "//scep", "/%73cep", "/scep;x", "/scep/"} {
				r := httptest.NewRequest(method, "http://ca.example"+path+"?operation=GetCACaps", nil)
				r.ContentLength = length
				assert.Equal(t, want, l.policy.Load().endpoints.of(r).name, "%s %s, a body of %d bytes", method, path, length)
			}
		}
	}
}

// readings are what servers make of a query: the values that each finds for a
// name.
var readings = map[string]func(query, name string) []string{
	"net/url": func(query, name string) []string {
		values, _ := url.ParseQuery(query)
		return values[name]
	},
	"semicolons separate, names fold": func(query, name string) (found []string) {
		for _, piece := range strings.FieldsFunc(query, func(c rune) bool { return strings.ContainsRune("&;?#\r\n", c) }) {
			key, value, _ := strings.Cut(piece, "=")
			key, value = lenient(key), lenient(value)
			key, _, _ = strings.Cut(key, "[")
			key, _, _ = strings.Cut(key, "\x00")
			if strings.EqualFold(strings.TrimSpace(key), name) {
				found = append(found, value)
			}
		}
		return found
	},
	"decoded before it is split": func(query, name string) []string {
		values, _ := url.ParseQuery(lenient(query))
		return values[name]
	},
}

// lenient decodes the escapes that are whole and leaves the others.
func lenient(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if i+2 < len(text) {
			if c, err := url.PathUnescape(text[i:min(i+3, len(text))]); err == nil && text[i] == '%' {
				b.WriteString(c)
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// A generous class is for requests that no server takes for another operation.
func FuzzNoReadingOfAQueryIsMoreThanItsClass(f *testing.F) {
	for _, tc := range queryCases[:len(queryCases)-1] {
		f.Add(tc.query)
	}
	ca, op := &classPolicy{name: ClassSCEPCA}, &classPolicy{name: ClassSCEP}
	rt := &route{class: op, param: "operation", values: []narrowing{{"GetCACaps", ca}}}
	r := httptest.NewRequest("GET", "/scep", nil)
	f.Fuzz(func(t *testing.T, query string) {
		r.URL.RawQuery = query
		if rt.of(r) != ca {
			if values, err := url.ParseQuery(query); err == nil && query == values.Encode() && len(values) == 1 && values.Get("operation") == "GetCACaps" && len(values["operation"]) == 1 {
				t.Fatalf("%q is not taken for what it plainly is", query)
			}
			return
		}
		for name, read := range readings {
			if values := read(query, "operation"); len(values) != 1 || values[0] != "GetCACaps" {
				t.Fatalf("%q has the generous class and is %q to a server of %s", query, values, name)
			}
		}
	})
}
