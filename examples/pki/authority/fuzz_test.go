package authority

import (
	"crypto"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ocsp"
)

// Whatever comes, by either method, is refused by its status or answered with an
// OCSP response, signed or not.
func FuzzOCSP(f *testing.F) {
	var a *Authority
	f.Add([]byte("junk"), "/junk")
	f.Add([]byte{0x30, 0x03, 0x0a, 0x01, 0x03}, "/MAMKAQM%3D")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		if a == nil {
			a = newAuthority(t)
		}
		get := httptest.NewRequest(http.MethodGet, "/ocsp", nil)
		get.URL = &url.URL{Path: "/ocsp" + path}
		good := asks(t, a, new(big.Int).SetBytes(body), crypto.SHA256)
		for _, r := range []*http.Request{post(body), post(good), get} {
			w := answers(t, a, r)
			if w.Code != http.StatusOK {
				require.GreaterOrEqual(t, w.Code, 400)
				require.Less(t, w.Code, 500)
				continue
			}
			_, err := ocsp.ParseResponse(w.Body.Bytes(), a.Issuer)
			if _, unsigned := err.(ocsp.ResponseError); !unsigned {
				require.NoError(t, err)
			}
		}
	})
}
