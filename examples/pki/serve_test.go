package main

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
)

var inMemoryKeys = keyConfig{in: "memory", sessions: 8, bits: 2048}

func TestServeSaysWhereEverythingIsAndThenThatItIsReady(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, in, serveConfig{limits: "small", maxWait: time.Second, dir: dir, keys: inMemoryKeys})
		in.Close()
	}()
	said := map[string]string{}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		name, value, ok := strings.Cut(lines.Text(), "=")
		require.True(t, ok, lines.Text())
		said[name] = value
	}
	require.Equal(t, "ready", lines.Text())
	require.Equal(t, []string{
		"acme_directory", "crl_url", "est_password", "est_url", "est_user",
		"issuer_cert", "ocsp_url", "root_cert", "scep_challenge", "scep_url",
	}, slices.Sorted(maps.Keys(said)))

	root, issuer := certIn(t, said["root_cert"]), certIn(t, said["issuer_cert"])
	require.NoError(t, root.CheckSignatureFrom(root))
	require.NoError(t, issuer.CheckSignatureFrom(root))
	stop()
	require.NoError(t, <-ended)
}

func certIn(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	block, _ := pem.Decode(text)
	require.NotNil(t, block)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}

func TestServeRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  serveConfig
		says string
	}{
		{"limits of another name", serveConfig{limits: "none", keys: inMemoryKeys}, presetNames},
		{"a wait that is no wait", serveConfig{limits: "small", maxWait: -1, keys: inMemoryKeys}, "tiers.max_wait"},
		{"keys elsewhere", serveConfig{limits: "small", keys: keyConfig{in: "cloud"}}, "hsm or memory"},
		{"an address that is not here", serveConfig{limits: "small", https: "192.0.2.1:1", keys: inMemoryKeys}, "192.0.2.1:1"},
	} {
		require.ErrorContains(t, serve(t.Context(), io.Discard, tt.cfg), tt.says, tt.name)
	}
}

// The one advice is about proxies; see TestTheLimitsAreSoundAndUnsuspicious.
func TestEveryPresetIsSoundAndGuardsWhatIsSigned(t *testing.T) {
	t.Parallel()
	for name, limits := range presets {
		cfg := limits()
		require.NoError(t, cfg.Validate(), name)
		for _, a := range cfg.Advise() {
			require.Equal(t, "client_ip.trusted_proxies", a.Path, "%s: %s", name, a.Text)
		}
		guards := map[weir.Class]string{}
		for _, e := range cfg.Endpoints {
			if e.Guard != "" {
				guards[e.Class] = e.Guard
			}
		}
		require.Equal(t, map[weir.Class]string{
			weir.ClassACMEFinalize: guardHSM, weir.ClassACMERevoke: guardHSM,
			weir.ClassESTEnroll: guardHSM, weir.ClassSCEP: guardHSM, weir.ClassOCSP: guardHSM,
		}, guards, name)
	}
}
