//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/estserver"
)

// strongSwan is tried with refusals only: of version 5.9.8, what it makes of
// the server's PKCS #7 ends in an error of its own, refused or not.
func TestStrongSwanIsRefusedByEST(t *testing.T) {
	for _, status := range []int{often, busy} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := open(t, limits{class: weir.ClassESTEnroll, every: time.Hour, drain: always, status: status})
			c := command{home: p.dir}
			request(t, c)
			said, err := c.run(t.Context(), "pki", "--est", "--url", p.secure, "--in", "new.csr",
				"--cacert", "root.pem", "--cacert", "issuer.pem", "--userpass", user+":"+password)
			tell("strongSwan pki --est", debian(t, "strongswan-pki"), fmt.Sprint("EST ", status), ended(said, err))
			require.Error(t, err)
			assert.Contains(t, said, fmt.Sprint("EST request failed: HTTP ", status))
			assert.Equal(t, []int{status}, p.answers.to(estserver.Prefix), "it came back")
		})
	}
}
