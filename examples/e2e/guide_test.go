//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir"
)

func TestTheGuidesConfigurationIsSound(t *testing.T) {
	guide, err := os.ReadFile("../../docs/pki.md")
	require.NoError(t, err)
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	for i := range cfg.Endpoints {
		switch e := &cfg.Endpoints[i]; e.Class {
		case weir.ClassOCSP, weir.ClassACMEFinalize, weir.ClassESTEnroll, weir.ClassSCEP:
			e.Guard = "hsm"
		}
	}
	parts := strings.Split(string(guide), "```yaml\n")[1:]
	require.Len(t, parts, 2, "limits, guard")
	for _, part := range parts {
		file, _, _ := strings.Cut(part, "```")
		d := yaml.NewDecoder(bytes.NewReader([]byte(file)))
		d.KnownFields(true)
		require.NoError(t, d.Decode(&cfg))
	}
	require.NoError(t, cfg.Validate())
	assert.NotZero(t, cfg.Tiers.MaxWait)
	assert.Equal(t, 2, cfg.Guards["hsm"].Lanes["status"].Reserve)
	assert.Len(t, cfg.Advise(), 1, "that no proxy is trusted")
}
