package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

func TestANameIsGroupCaseAndLimiter(t *testing.T) {
	for _, tt := range []struct {
		full string
		want name
		ok   bool
	}{
		{"Keyed/keys=10,zipf/go-limiter-2", name{"Keyed", "keys=10,zipf", "go-limiter", 2}, true},
		{"Keyed/keys=10,zipf/go-limiter", name{"Keyed", "keys=10,zipf", "go-limiter", 1}, true},
		{"Bare/admit/floor_clock+swap-16", name{"Bare", "admit", "floor_clock+swap", 16}, true},
		{"Bare/admit-2", name{}, false},
		{"Bare-2", name{}, false},
		{"Bare/admit/weir/more-2", name{}, false},
	} {
		if got, ok := split(benchfmt.Name(tt.full)); got != tt.want || ok != tt.ok {
			t.Errorf("split(%q) = %+v, %t; want %+v, %t", tt.full, got, ok, tt.want, tt.ok)
		}
	}
}

// Six runs, of which one was disturbed: the median does not mind, ratios are
// taken run by run, and the peer that is compared with is the quickest.
const sixRuns = `cpu: a machine
BenchmarkBare/admit/floor_clock-2 	 100	 10 ns/op	 0 B/op	 0 allocs/op
BenchmarkBare/admit/weir-2 	 100	 20 ns/op	 0 B/op	 0 allocs/op
BenchmarkBare/admit/quick-2 	 100	 40 ns/op	 8 B/op	 1 allocs/op
BenchmarkBare/admit/slow-2 	 100	 80 ns/op	 8 B/op	 1 allocs/op
`

func runs(t *testing.T) *results {
	t.Helper()
	text := strings.Repeat(sixRuns, 5) + strings.NewReplacer(" 10 ", " 100 ", " 20 ", " 200 ", " 40 ", " 400 ", " 80 ", " 800 ").Replace(sixRuns)
	r, err := parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestATableTellsMediansAndRatios(t *testing.T) {
	got := tables(group{name: "Bare", unit: "ns/op"}, runs(t))
	for _, want := range []string{
		"| limiter     |     ns/op | × best peer | × floor | B/op | allocs/op |",
		"| floor_clock | 10 ±900% |        0.25 |       1 |    0 |         0 |",
		"| weir        | 20 ±900% |        0.50 |       2 |    0 |         0 |",
		"| slow        | 80 ±900% |           2 |       8 |    8 |         1 |",
	} {
		if !strings.Contains(squeeze(got), squeeze(want)) {
			t.Errorf("no row\n%s in\n%s", want, got)
		}
	}
}

// squeeze takes the padding out.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestWhatCannotBeToldApartIsMarked(t *testing.T) {
	noisy := &series{values: map[string][]float64{"ns/op": {10, 30, 20, 25, 12, 28}}}
	alike := &series{values: map[string][]float64{"ns/op": {11, 29, 21, 24, 13, 27}}}
	other := &series{values: map[string][]float64{"ns/op": {110, 290, 210, 240, 130, 270}}}
	if got := ratioTo(alike, noisy, "ns/op"); !strings.HasPrefix(got, "≈ ") {
		t.Errorf("ratio of two that are alike: %q", got)
	}
	if got := ratioTo(other, noisy, "ns/op"); strings.HasPrefix(got, "≈") {
		t.Errorf("ratio of two that are not: %q", got)
	}
}

func TestAnUnnamedBenchmarkIsAnError(t *testing.T) {
	if _, err := parse(strings.NewReader("BenchmarkX-2 \t 1\t 5 ns/op\n")); err == nil {
		t.Error("no error")
	}
}

func TestOnlyWhatStandsBetweenTheMarkersIsRewritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	const before = "# Results\n<!-- begin A -->\nold\n<!-- end A -->\ntext\n<!-- begin B -->\nkept\n<!-- end B -->\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rewrite(path, map[string]string{"A": "new\n"}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Replace(before, "old\n", "\nnew\n\n", 1); string(after) != want {
		t.Errorf("got\n%s\nwant\n%s", after, want)
	}
	if err := rewrite(path, map[string]string{"C": "new"}); err == nil {
		t.Error("no error for a section that the file does not have")
	}
}
