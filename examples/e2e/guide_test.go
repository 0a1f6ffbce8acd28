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
	_, rest, found := strings.Cut(string(guide), "```yaml\n")
	require.True(t, found)
	file, _, found := strings.Cut(rest, "```")
	require.True(t, found)

	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	d := yaml.NewDecoder(bytes.NewReader([]byte(file)))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&cfg))
	assert.NoError(t, cfg.Validate())
	assert.NotZero(t, cfg.Tiers.MaxWait)
}
