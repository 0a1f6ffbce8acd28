package weir

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// basicUser reads what the request's own BasicAuth reads.
func FuzzBasicUser(f *testing.F) {
	encode := base64.StdEncoding.EncodeToString
	for _, field := range []string{
		"", "Basic", "Basic ", "basic " + encode([]byte("bob:x")), "BASIC " + encode([]byte("bob:x")), "Basic  " + encode([]byte("bob:x")),
		"Basic " + encode([]byte("bob")), "Basic " + encode([]byte(":x")), "Basic " + encode([]byte("a:b:c")), "Basic " + encode([]byte("b\x00b:\xff")),
		"Basic " + strings.TrimRight(encode([]byte("bob:xy")), "="), "Basic Ym9i\r\nOng=", "Basic Ym9iOng", "Bearer Ym9iOng=", "Ba\u017fic Ym9iOng=",
		"Basic " + encode([]byte(strings.Repeat("b", 287)+":")), "Basic " + encode([]byte(strings.Repeat("b", 288)+":x")),
		"Basic " + encode([]byte(strings.Repeat("b", 5000)+":x")), "Basic " + encode([]byte("bob:"+strings.Repeat("x", 5000))),
	} {
		f.Add(field)
	}
	f.Fuzz(func(t *testing.T, field string) {
		r := &http.Request{Header: http.Header{"Authorization": {field}}}
		want, _, wantOK := r.BasicAuth()
		if user, ok := basicUser(r); user != want || ok != wantOK {
			t.Errorf("%q: %q, %v; BasicAuth reads %q, %v", field, user, ok, want, wantOK)
		}
	})
}
