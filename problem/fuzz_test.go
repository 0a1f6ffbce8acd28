package problem

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"
	"golang.org/x/net/http/httpguts"
)

// FuzzWriters feeds every writer strings that no configuration should contain
// and a path that any caller may send, and reads the result with the parsers
// that clients use. Nothing may leave the place that was meant for it.
func FuzzWriters(f *testing.F) {
	for i, s := range hostile {
		f.Add(s, hostile[(i+1)%len(hostile)], "https://ca.example/"+s, s, s, "/"+s, int64(i)*int64(time.Second), 400+i)
	}
	f.Add("acme", "address", "https://ca.example/x&y'z'", "locked", "nonce", "/b/k", int64(1), 0)
	f.Fuzz(func(t *testing.T, class, tier, help, reason, nonce, path string, wait int64, status int) {
		rej := Rejection{Status: status, Reason: reason, Class: class, Tier: tier, RetryAfter: time.Duration(wait), Nonce: nonce, Help: help}
		r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}}
		for _, tt := range writers {
			w := refused(t, tt.write, r, rej)
			for key, values := range w.Result().Header {
				for _, value := range values {
					require.True(t, httpguts.ValidHeaderFieldValue(value), "%s: %s: %q", tt.name, key, value)
				}
			}
			document := w.Body.Bytes()
			switch tt.name {
			case "ACME", "JSON":
				checkJSON(t, document, rej, w.Code, tt.name == "JSON")
			case "HTML":
				checkHTML(t, document, rej)
			case "S3":
				checkXML(t, document, path)
			case "OCSP":
				_, err := ocsp.ParseResponse(document, nil)
				require.Equal(t, ocsp.ResponseError{Status: ocsp.TryLater}, err)
			case "Empty":
				require.Empty(t, document)
			default:
				require.Equal(t, rej.Detail()+"\n", string(document))
			}
		}
	})
}

func checkJSON(t *testing.T, document []byte, rej Rejection, status int, extended bool) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	var got struct {
		Type, Title, Detail, Reason, Class string
		Status                             int
		Violated                           []string `json:"violated-policies"`
		Secs                               int64    `json:"retry_after_secs"`
		OK                                 *bool
		Error, Message                     string
	}
	require.NoError(t, decoder.Decode(&got), "%s", document)
	require.ErrorIs(t, decoder.Decode(new(any)), io.EOF)
	require.Equal(t, status, got.Status)
	require.Equal(t, rej.Detail(), got.Detail)
	if !extended {
		return
	}
	require.Equal(t, viaJSON(t, rej.Reason), got.Reason)
	require.Equal(t, viaJSON(t, rej.Class), got.Class)
	require.Equal(t, viaJSON(t, rej.Tier), strings.Join(got.Violated, ""))
	require.Equal(t, RetryAfterSeconds(rej.RetryAfter), got.Secs)
	require.Equal(t, rej.Reason == ReasonLocked, got.OK != nil && got.Error == "locked" && got.Message == got.Detail)
}

// viaJSON is what survives of s in any JSON document.
func viaJSON(t *testing.T, s string) (back string) {
	t.Helper()
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(encoded, &back))
	return back
}

// checkHTML compares with a page of harmless words: the same elements.
func checkHTML(t *testing.T, document []byte, rej Rejection) {
	t.Helper()
	got := parsePage(t, document)
	harmless := Rejection{Status: rej.Status, RetryAfter: time.Minute, Class: "a", Tier: "b", Reason: "c"}
	if rej.Reason == ReasonDenied {
		harmless.Reason, harmless.RetryAfter = ReasonDenied, rej.RetryAfter
	}
	if ValidHelp(rej.Help) {
		harmless.Help = "https://ca.example/"
		require.Equal(t, rej.Help, got.href)
	}
	want := parsePage(t, refused(t, HTML, get(), harmless).Body.Bytes())
	require.Equal(t, want.elements, got.elements)
	require.Equal(t, want.style, got.style)
}

func checkXML(t *testing.T, document []byte, path string) {
	t.Helper()
	var got s3Error
	require.NoError(t, xml.Unmarshal(document, &got))
	var escaped bytes.Buffer
	require.NoError(t, xml.EscapeText(&escaped, []byte(cutText(path, maxResource))))
	var want string
	require.NoError(t, xml.Unmarshal([]byte("<x>"+escaped.String()+"</x>"), &want))
	require.Equal(t, want, got.Resource)

	decoder, elements := xml.NewDecoder(bytes.NewReader(document)), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
	require.Equal(t, 5, elements, "Error, Code, Message, Resource, RequestId")
}
