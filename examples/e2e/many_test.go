//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/clients"
)

// lego asks for all authorizations and challenges of an order at once, as fast
// as it is answered: the steps of one admitted order are a flood of their own.
func TestAnOrderForAHundredNamesPassesTheUsualLimits(t *testing.T) {
	a := acme(t, limits{every: time.Hour})
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprintf("n%d.example.test", i)
	}
	_, stats, err := clients.ObtainLego(t.Context(), a.DirectoryURL, a.Client(), names)
	tell("lego 5", module(t, "github.com/go-acme/lego/v5"), "one order for 100 names", fmt.Sprintf("%d requests, %d refused", len(stats.Exchanges), stats.Refused()))
	require.NoError(t, err)
	assert.Zero(t, a.answers.refusals())
}
