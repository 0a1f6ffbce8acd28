package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheStoryGoesAsItIsTold(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "\n%s", &out)
	for _, line := range []string{
		"Bob signs in at home, 198.51.100.7: 303.",
		"told that a guess is wrong    10\n",
		"told that a guess is right     0\n",
		"refused unchecked            492\n",
		"passwords hashed              10\n",
		"signs in again: 303. He enrols over EST: 200,",
		"One address tries one password at 200 accounts: 100 told, 100 refused. Eve, elsewhere, signs in: 303.",
		`weir_auth_locked{scope="account"} 1`,
		`weir_auth_lockouts_total{scope="address"} 1`,
	} {
		require.Contains(t, out.String(), line)
	}
	for _, who := range []string{"the login page says ", "EST says            "} {
		require.Regexp(t, who+` 429, Retry-After 3(600|5\d\d): Please try again in 1 hour\.`, out.String())
	}
	for _, name := range []string{"bob", "eve", "user-1"} {
		_, metrics, _ := strings.Cut(out.String(), "What an operator sees")
		require.NotContains(t, metrics, name)
	}
}
