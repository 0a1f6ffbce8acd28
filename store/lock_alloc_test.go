//go:build !race

package store

import "testing"

// An attempt allocates nothing but the place that it reserves, and that only
// where there is a failure; a lock refuses for nothing at all.
func TestAllocsOfAnAttempt(t *testing.T) {
	for _, tt := range []struct {
		name     string
		failures int
		outcome  Outcome
	}{
		{"a success", 0, Succeeded},
		{"an attempt without a verdict", 0, Ignored},
		{"an attempt after a failure", 1, Ignored},
		{"a refusal by a lock", 10, Failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory()
			for range tt.failures {
				try(t, m, guess(1, 1), Failed)
			}
			a, ctx := guess(1, 1), t.Context()
			run := func() {
				if v, _ := m.Begin(ctx, &a); v.Admitted() {
					_, _ = m.Settle(ctx, &a, tt.outcome)
				}
			}
			run()
			if got := testing.AllocsPerRun(200, run); got > 0 {
				t.Errorf("%v allocations", got)
			}
		})
	}
}
