package estserver

import (
	"net/http"
	"testing"

	"github.com/weir-go/weir/examples/pki/authority"
)

// Whatever comes is answered with a certificate or refused as the client's fault.
func FuzzEnrolment(f *testing.F) {
	var a *authority.Authority
	f.Add([]byte("junk"))
	f.Add([]byte("MIIB\nAgEA"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if a == nil {
			a = newAuthority(t)
		}
		switch code := answerTo(a, enrolment("simpleenroll", body)).Code; code {
		case http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("status %d", code)
		}
	})
}
