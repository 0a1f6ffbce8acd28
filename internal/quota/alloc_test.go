//go:build !race

package quota

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAllocations(t *testing.T) {
	all := []Quota{global, perIP, subject}
	for _, tt := range []struct {
		name   string
		h      Headers
		outer  string
		allocs float64
	}{
		{"off", Headers{}, "", 0},
		{"three fields: the array of values and their text", legacy, "", 2},
		{"five fields: the same", ietf, "", 2},
		{"three fields that stay as they are", legacy, "3", 0},
		{"two that stay and policies", ietf, "3", 2},
		{"three fields that are replaced", legacy, "300", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			header, outer := make(http.Header), []string{tt.outer}
			require.Equal(t, tt.allocs, testing.AllocsPerRun(500, func() {
				clear(header)
				if tt.outer != "" {
					header[keyRemaining] = outer
				}
				tt.h.Write(header, noon.Add(time.Millisecond), perIP, all)
			}))
		})
	}
}
