//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/scepserver"
)

// scepclient is MicroMDM's. It leaves the certificate in client.pem.
func scepclient(t *testing.T, p *pki) (string, error) {
	return command{home: p.dir}.run(t.Context(), "scepclient", "-server-url", p.plain+scepserver.Path,
		"-private-key", "client.key", "-certificate", "client.pem", "-challenge", challenge, "-cn", host, "-debug")
}

func TestScepclientIsHeld(t *testing.T) {
	p := open(t, limits{class: weir.ClassSCEP, every: 2 * time.Second, drain: once, maxWait: 10 * time.Second})
	said, err := scepclient(t, p)
	tell("micromdm scepclient", debian(t, "scep"), "SCEP PKIOperation held for its tokens", ended(said, err))
	require.NoError(t, err, said)
	said, err = command{home: p.dir}.run(t.Context(), "openssl", "verify", "-CAfile", "root.pem", "-untrusted", "issuer.pem", "client.pem")
	assert.NoError(t, err, said)
	assert.Equal(t, []string{http.MethodPost}, p.answers.enrolments())
}

func TestScepclientIsRefused(t *testing.T) {
	for _, class := range []weir.Class{weir.ClassSCEP, weir.ClassSCEPCA} {
		for _, status := range []int{often, busy} {
			name := fmt.Sprintf("%s %d", class, status)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := open(t, limits{class: class, every: 10 * time.Minute, drain: always, status: status})
				said, err := scepclient(t, p)
				tell("micromdm scepclient", debian(t, "scep"), "SCEP "+name, ended(said, err))
				require.Error(t, err)
				assert.Contains(t, said, wait)
				assert.Empty(t, read(p.file("client.pem")))
			})
		}
	}
}

// RFC 8894 (section 3.5.2) has what GetCACaps says decide how a client goes on.
// A refusal is no answer for this one either way: it takes it for a server that
// can do nothing, and sends its request in a URI of some 3 KB.
func TestScepclientTakesARefusedGetCACapsForNoCapabilities(t *testing.T) {
	for _, status := range []int{often, busy} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := open(t, limits{class: classCaps, every: time.Hour, drain: always, status: status})
			said, err := scepclient(t, p)
			tell("micromdm scepclient", debian(t, "scep"), fmt.Sprintf("SCEP GetCACaps %d", status), ended(lineWith(said, "op=PKIOperation"), err))
			assert.Equal(t, []string{http.MethodGet}, p.answers.enrolments())
		})
	}
}

func TestStrongSwanIsRefusedTheCACertificates(t *testing.T) {
	for _, status := range []int{often, busy} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			p := open(t, limits{class: weir.ClassSCEPCA, every: time.Hour, drain: always, status: status})
			said, err := command{home: p.dir}.run(t.Context(), "pki", "--scepca", "--url", p.plain+scepserver.Path, "--caout", "ca.pem", "--raout", "ca-ra.pem")
			tell("strongSwan pki --scepca", debian(t, "strongswan-pki"), fmt.Sprintf("SCEP %s %d", weir.ClassSCEPCA, status), ended(lineWith(said, "response: HTTP"), err))
			require.Error(t, err)
			assert.Contains(t, said, fmt.Sprint("response: HTTP ", status))
		})
	}
}

// strongSwan is tried with refusals only: version 5.9.8 refuses AES although
// the server offers it, and what it makes of the answer with DES3 ends in an
// error of its own.
func TestStrongSwanIsRefusedBySCEP(t *testing.T) {
	for _, class := range []weir.Class{weir.ClassSCEP, classCaps} {
		for _, status := range []int{often, busy} {
			name := fmt.Sprintf("%s %d", class, status)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				p := open(t, limits{class: class, every: time.Hour, drain: always, status: status})
				c := command{home: p.dir}
				said, err := c.run(t.Context(), "openssl", "genrsa", "-out", "client.key", "2048")
				require.NoError(t, err, said)
				said, err = c.run(t.Context(), "pki", "--scep", "--url", p.plain+scepserver.Path, "--in", "client.key",
					"--dn", "CN="+host, "--password", challenge, "--cipher", "des3",
					"--cacert-enc", "ra.pem", "--cacert-sig", "ra.pem", "--cacert", "root.pem", "--cacert", "issuer.pem")
				tell("strongSwan pki --scep", debian(t, "strongswan-pki"), "SCEP "+name, ended(lineWith(said, "response: HTTP"), err))
				require.Error(t, err)
				assert.Contains(t, said, fmt.Sprint("response: HTTP ", status))
				assert.Equal(t, 1, p.answers.refusals(), "it came back, or went on without")
			})
		}
	}
}
