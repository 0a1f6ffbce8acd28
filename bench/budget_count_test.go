//go:build !race

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/store"
)

// The number of allocations is exact. That of bytes is the least of some
// rounds: what the runtime allocates for itself falls into few of them.
func TestBudgetOfAllocations(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			h, w := s.Handler(), &NullWriter{H: http.Header{}}
			s.Before(h)
			serve := func() {
				w.Reset(s.Status)
				h.ServeHTTP(w, s.Request)
			}
			allocs := testing.AllocsPerRun(500, serve)
			if w.Status != s.Status {
				t.Fatalf("status %d, want %d", w.Status, s.Status)
			}
			within(t, "allocations", allocs, budgets[s.Name].allocs)
			within(t, "bytes", bytesOf(serve), budgets[s.Name].bytes)
		})
	}
}

// bytesOf is how many bytes a call allocates.
func bytesOf(f func()) (least float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 200
	for round := range 10 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n {
			f()
		}
		runtime.ReadMemStats(&after)
		each := float64((after.TotalAlloc - before.TotalAlloc) / n)
		if round == 0 || each < least {
			least = each
		}
	}
	return least
}

func TestBudgetOfABareDecisionIsNoAllocation(t *testing.T) {
	keys := Listed(1)
	for _, scopes := range [][]string{{""}, {"address"}, {"address", "account", ""}} {
		for _, q := range []Quota{Roomy, Spent} {
			d := MemoryTiers(keys, 16, q, scopes...)()
			d(0)
			var ok bool
			got := testing.AllocsPerRun(500, func() { ok = d(0) })
			if ok != (q == Roomy) || got != 0 {
				t.Errorf("%d checks: admitted %t, %v allocations, want 0", len(scopes), ok, got)
			}
		}
	}
}

// countingStore counts what a request asks of the store.
type countingStore struct {
	*store.Memory
	calls atomic.Int64
}

func (c *countingStore) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	c.calls.Add(1)
	return c.Memory.Admit(ctx, checks, dst)
}

func (c *countingStore) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	c.calls.Add(1)
	return c.Memory.Peek(ctx, checks, dst)
}

func (c *countingStore) Refund(ctx context.Context, checks []store.Check) error {
	c.calls.Add(1)
	return c.Memory.Refund(ctx, checks)
}

func (c *countingStore) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	c.calls.Add(1)
	return c.Memory.Begin(ctx, a)
}

func (c *countingStore) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (store.LockVerdict, error) {
	c.calls.Add(1)
	return c.Memory.Settle(ctx, a, o)
}

func TestBudgetOfStoreCalls(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			c := &countingStore{Memory: store.NewMemory()}
			h, w := s.Handler(weir.WithStore(c)), &NullWriter{H: http.Header{}}
			s.Before(h)
			const n = 100
			before := c.calls.Load()
			for range n {
				w.Reset(s.Status)
				h.ServeHTTP(w, s.Request)
				if w.Status != s.Status {
					t.Fatalf("status %d, want %d", w.Status, s.Status)
				}
			}
			within(t, "calls of the store", float64(c.calls.Load()-before)/n, budgets[s.Name].calls)
		})
	}
}

// Locks are counted by a program in which weir's own sources import
// countsync as sync: go's overlay has it compile other files in their place.
// So every Lock and RLock of weir is in the count, in whatever package, and
// none of the libraries below it.
func TestBudgetOfLocks(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", "-f",
		`{{if .Module}}{{if eq .Module.Path "github.com/weir-go/weir"}}{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`,
		"github.com/weir-go/weir").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for i, path := range strings.Fields(string(list)) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if counted, ok := importing(t, source); ok {
			file := filepath.Join(dir, strconv.Itoa(i)+".go")
			if err := os.WriteFile(file, counted, 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[path] = file
		}
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var complaint bytes.Buffer
	run := exec.Command("go", "run", "-overlay", file, "./cmd/locks")
	run.Stderr = &complaint
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, complaint.Bytes())
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "\t")
		got, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen++
		t.Run(name, func(t *testing.T) { within(t, "locks", got, budgets[name].locks) })
	}
	if seen != len(budgets) {
		t.Errorf("%d scenarios were counted, want %d", seen, len(budgets))
	}
}

// importing returns a source that imports countsync in the place of sync.
func importing(t *testing.T, source []byte) ([]byte, bool) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"sync"` && spec.Name == nil {
			at := set.Position(spec.Path.Pos()).Offset
			return fmt.Appendf(nil, "%s%s%s", source[:at], `sync "github.com/weir-go/weir/bench/countsync"`, source[at+len(`"sync"`):]), true
		}
	}
	return nil, false
}
