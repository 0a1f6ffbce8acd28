//go:build e2e

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// An acmeClient is a client that people run. obtain runs it once: a new
// account, one order.
type acmeClient struct {
	name    string
	version func(t *testing.T) string
	obtain  func(t *testing.T, a *acmeCA) outcome
}

// outcome is how one run of a client ended.
type outcome struct {
	chain string // in PEM; "" if it got none
	said  string // what whoever runs it reads
	log   string // what is in a log of its own besides
	err   error
}

var acmeClients = []acmeClient{
	{"acme-tiny", packaged("acme-tiny"), acmeTiny},
	{"acmez", moduled("github.com/mholt/acmez/v3"), acmezLibrary},
	{"certbot", packaged("certbot"), certbot},
	{"dehydrated", packaged("dehydrated"), dehydrated},
	{"lego 4", packaged("lego"), lego4},
	{"lego 5", moduled("github.com/go-acme/lego/v5"), lego5},
	{"npm acme-client", installedNode, node},
	{"uacme", packaged("uacme"), uacme},
	{"x/crypto/acme", moduled("golang.org/x/crypto"), xcrypto},
}

// everyClient adds acme.sh where it could be had.
func everyClient() []acmeClient {
	if os.Getenv("E2E_ACME_SH") == "" {
		return acmeClients
	}
	return append(slices.Clip(acmeClients), acmeClient{"acme.sh", acmeShVersion, acmeSh})
}

func packaged(pkg string) func(*testing.T) string {
	return func(t *testing.T) string { return debian(t, pkg) }
}

func moduled(path string) func(*testing.T) string {
	return func(t *testing.T) string { return module(t, path) }
}

func TestWhatIsHeldOrNotLimitedEndsWell(t *testing.T) {
	for _, s := range []struct {
		name   string
		limits limits
		held   uint64
	}{
		{"one order an hour, its steps generous", limits{every: time.Hour}, 0},
		{"held for its tokens", limits{every: 2 * time.Second, drain: once, maxWait: 10 * time.Second}, 1},
	} {
		eachClient(t, s.name, s.limits, func(t *testing.T, _ acmeClient, a *acmeCA, got outcome) {
			endsWell(t, got)
			assert.Equal(t, []int{http.StatusCreated}, a.answers.to(acmeserver.PathNewOrder))
			assert.Equal(t, s.held, a.held())
			assert.Zero(t, a.answers.refusals())
		})
	}
}

// Who goes on by itself after one refusal. All others end the run.
func TestAfterOneRefusal(t *testing.T) {
	const soon = 2 * time.Second // and Retry-After: 2
	for _, s := range []struct {
		name    string
		limits  limits
		goingOn []string
	}{
		{"new-order 429 once, Retry-After: 2", limits{every: soon, drain: once},
			[]string{"npm acme-client", "x/crypto/acme"}},
		{"new-order 503 once, Retry-After: 2", limits{every: soon, drain: once, status: busy},
			[]string{"npm acme-client", "x/crypto/acme", "acme.sh"}},
		// acmez comes back twice, each time after 250 ms whatever it was told.
		{"new-order 503 once, tokens back within 200 ms", limits{every: 200 * time.Millisecond, drain: once, status: busy},
			[]string{"npm acme-client", "x/crypto/acme", "acme.sh", "acmez"}},
		{"directory 429 once", limits{class: weir.ClassACMEDirectory, every: soon, drain: lifted},
			[]string{"npm acme-client", "x/crypto/acme", "acme.sh"}},
		{"new-nonce 429 once", limits{class: weir.ClassACMENewNonce, every: soon, drain: lifted},
			[]string{"npm acme-client", "acme.sh"}},
		{"challenge 429 once", limits{class: weir.ClassACMEChallenge, every: soon, drain: lifted},
			[]string{"npm acme-client", "x/crypto/acme"}},
		{"finalize 429 once", limits{class: weir.ClassACMEFinalize, every: soon, drain: lifted},
			[]string{"npm acme-client", "x/crypto/acme"}},
		// What a guard does when the signer is busy.
		{"finalize 503 once", limits{class: weir.ClassACMEFinalize, every: soon, drain: lifted, status: busy},
			[]string{"npm acme-client", "x/crypto/acme", "acme.sh", "acmez"}},
	} {
		eachClient(t, s.name, s.limits, func(t *testing.T, c acmeClient, a *acmeCA, got outcome) {
			require.NotZero(t, a.answers.refusals(), "nothing was refused")
			if slices.Contains(s.goingOn, c.name) {
				endsWell(t, got)
			} else {
				assert.Errorf(t, got.err, "it went on: %s", got.said)
			}
		})
	}
}

// The first are refused for longer than they would wait, the others each time
// they ask.
func TestRefusedForGoodItSaysSo(t *testing.T) {
	for _, status := range []int{often, busy} {
		waiting := []string{"npm acme-client", "x/crypto/acme"}
		if status == busy {
			waiting = append(waiting, "acme.sh")
		}
		name := fmt.Sprintf("new-order %d for ten minutes, or each time", status)
		eachClientUnder(t, name, func(c acmeClient) limits {
			if slices.Contains(waiting, c.name) {
				return limits{every: time.Second, drain: always, status: status}
			}
			return limits{every: 10 * time.Minute, drain: always, status: status}
		}, func(t *testing.T, c acmeClient, _ *acmeCA, got outcome) {
			require.Error(t, got.err)
			assert.Empty(t, got.chain)
			detail := "Too many requests. Please try again in 10 minutes."
			if slices.Contains(waiting, c.name) {
				detail = "Too many requests. Please try again in 1 second."
			}
			if c.name == "certbot" { // see TestCertbotOnPython311
				assert.Contains(t, got.log, detail)
				return
			}
			assert.Contains(t, got.said, detail)
		})
	}
}

// eachClient runs every client against an authority of its own.
func eachClient(t *testing.T, name string, l limits, check func(*testing.T, acmeClient, *acmeCA, outcome)) {
	eachClientUnder(t, name, func(acmeClient) limits { return l }, check)
}

func eachClientUnder(t *testing.T, name string, l func(acmeClient) limits, check func(*testing.T, acmeClient, *acmeCA, outcome)) {
	t.Run(name, func(t *testing.T) {
		for _, c := range everyClient() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				version := c.version(t)
				lim := l(c)
				a := acme(t, lim)
				got := c.obtain(t, a)
				tell(c.name, version, name, got.summary(a.answers.to(lim.path())))
				check(t, c, a, got)
			})
		}
	})
}

func (o outcome) summary(answers []int) string {
	if o.err == nil {
		return fmt.Sprintf("certificate; answers %v", answers)
	}
	return fmt.Sprintf("fails; answers %v: %s", answers, lineWith(o.said, "Too many requests", "rror: ", "ERROR", "Could not", "rror"))
}

func endsWell(t *testing.T, o outcome) {
	t.Helper()
	require.NoErrorf(t, o.err, "%s", o.said)
	block, _ := pem.Decode([]byte(o.chain))
	require.NotNilf(t, block, "no certificate in %q; the client said: %s", o.chain, o.said)
	leaf, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.NoError(t, leaf.VerifyHostname(host))
}
