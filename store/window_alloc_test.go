//go:build !race

package store

import (
	"testing"
	"time"
)

// Windows that exist are counted without an allocation, alone and beside a
// bucket, whether the request passes or not.
func TestWindowsDoNotAllocate(t *testing.T) {
	m := NewMemory()
	bucket := Check{Scope: "bucket", Key: numbered(1), Limit: Limit{0, 1e9}, Cost: 1}
	subject, process := windowed("subject", 1, 100*day, 1e9), arriving(windowed("process", 0, time.Hour, 1e9))
	closed := windowed("closed", 1, time.Hour, 0)
	g, dst := gauge{t, m}, make([]State, 0, 8)
	g.passes(bucket, subject, process)
	for _, tt := range []struct {
		name   string
		checks []Check
		passes bool
	}{
		{"one window", []Check{subject}, true},
		{"a window, a bucket and arrivals", []Check{bucket, subject, process}, true},
		{"the same, refused", []Check{bucket, subject, process, closed}, false},
		{"a place twice", []Check{subject, process, subject, process}, true},
		{"a place twice, refused", []Check{subject, process, closed, subject, process}, false},
	} {
		for verb, call := range map[string]func() (Verdict, []State, error){
			"Admit": func() (Verdict, []State, error) { return m.Admit(t.Context(), tt.checks, dst) },
			"Peek":  func() (Verdict, []State, error) { return m.Peek(t.Context(), tt.checks, dst) },
		} {
			if got := testing.AllocsPerRun(200, func() {
				if v, _, err := call(); err != nil || v.Admitted() != tt.passes {
					t.Fatalf("%s of %s: %+v, %v", verb, tt.name, v, err)
				}
			}); got != 0 {
				t.Errorf("%s of %s: %v allocations, want 0", verb, tt.name, got)
			}
		}
	}
}
