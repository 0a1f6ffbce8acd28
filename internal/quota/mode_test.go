package quota

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModesAreReadAsTheyAreWritten(t *testing.T) {
	for m, word := range map[Mode]string{Off: "off", Rejected: "rejected", Always: "always"} {
		got, ok := ParseMode(word)
		require.True(t, ok, word)
		require.Equal(t, m, got)
		require.Equal(t, word, m.String())
	}
	for _, word := range []string{"", "Off", "on", "always ", "mode(3)"} {
		_, ok := ParseMode(word)
		require.False(t, ok, "%q is no mode", word)
	}
	require.Equal(t, "mode(3)", Mode(3).String())
}

func TestTheModeSaysWhichResponsesAreTold(t *testing.T) {
	for _, tt := range []struct {
		mode              Mode
		admitted, refused bool
	}{
		{Off, false, false},
		{Rejected, false, true},
		{Always, true, true},
		{Mode(3), false, false},
	} {
		require.Equal(t, tt.admitted, Headers{Mode: tt.mode}.Wanted(false), "%v, admitted", tt.mode)
		require.Equal(t, tt.refused, Headers{Mode: tt.mode}.Wanted(true), "%v, refused", tt.mode)
	}
}
