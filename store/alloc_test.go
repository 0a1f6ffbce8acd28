//go:build !race

package store

import (
	"strings"
	"testing"
)

// No call allocates for buckets that exist, nor one that is refused.
func TestHotPathDoesNotAllocate(t *testing.T) {
	scopes := strings.Fields("global address account process subject class fleet device tenant a b c d e f g")
	for _, n := range []int{1, 2, 3, 6, 7, 16} {
		m := NewMemory()
		plenty, still := Limit{Rate: 1e6, Burst: 1e9}, Limit{Rate: 0, Burst: 1}
		var passing, refused []Check
		for i := range n {
			c := Check{Scope: scopes[i], Key: numbered(i), Limit: plenty, Cost: 1}
			if i == 0 {
				c.Key = Key{}
			}
			passing = append(passing, c)
			c.Key[15]++
			if i == n-1 {
				c.Limit = still
			}
			refused = append(refused, c)
		}
		dst := make([]State, 0, n)
		ctx := t.Context()
		if v, _, err := m.Admit(ctx, refused, dst); err != nil || !v.Admitted() {
			t.Fatal(v, err)
		}
		for _, tt := range []struct {
			name string
			call func() (Verdict, error)
			pass bool
		}{
			{"Admit", func() (Verdict, error) { v, _, err := m.Admit(ctx, passing, dst); return v, err }, true},
			{"Admit, refused", func() (Verdict, error) { v, _, err := m.Admit(ctx, refused, dst); return v, err }, false},
			{"Peek", func() (Verdict, error) { v, _, err := m.Peek(ctx, passing, dst); return v, err }, true},
			{"Peek, refused", func() (Verdict, error) { v, _, err := m.Peek(ctx, refused, dst); return v, err }, false},
			{"Refund", func() (Verdict, error) { return Verdict{Refused: -1}, m.Refund(ctx, passing) }, true},
		} {
			if got := testing.AllocsPerRun(200, func() {
				if v, err := tt.call(); err != nil || v.Admitted() != tt.pass {
					t.Fatalf("%s of %d checks: %+v, %v", tt.name, n, v, err)
				}
			}); got != 0 {
				t.Errorf("%s of %d checks: %v allocations, want 0", tt.name, n, got)
			}
		}
	}
}
