// Command compare runs the benchmarks of this module in rounds, and prints one
// table for each case: medians, their confidence intervals, and ratios to the
// best peer and to the floor.
//
//	go run ./cmd/compare                        every group
//	go run ./cmd/compare -group Keyed,Redis     two of them
//	go run ./cmd/compare -write RESULTS.md      and put the tables there
//	go run ./cmd/compare -read raw.txt          tables of an earlier run
//
// Limiters take turns: a round runs each of them, so that a slow minute of the
// machine falls on all alike, and ratios are taken within a round. The
// statistics are those of benchstat (golang.org/x/perf/benchmath), which assume
// nothing about the distribution: six runs are the least from which they tell a
// 95 % interval.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// group is one Benchmark function and how it is run.
type group struct {
	name  string
	about string
	// turns is how often a limiter runs in one round: more than once where
	// making it takes longer than asking it.
	turns int
	// unit is what limiters are compared by.
	unit string
	// oneCPU runs it on all processors only.
	oneCPU bool
	// whole runs the benchmark once, in at most that many rounds: one operation
	// is a million calls.
	whole int
}

var groups = []group{
	{name: "Bare", about: "One bucket that all callers ask. `weir_global` is the bucket of a tier without keys; rows below `mennanov_bare` are keyed limiters asked for one key.", turns: 1, unit: "ns/op"},
	{name: "Keyed", about: "A bucket for each key, all keys seen before.", turns: 2, unit: "ns/op"},
	{name: "Tiers", about: "An address's bucket, an account's and the common one. Ours spends from all or none; the others are asked one after the other and keep what the first have spent.", turns: 2, unit: "ns/op"},
	{name: "Middleware", about: "ServeHTTP of the whole middleware, by the client's address. `by_hand` sends no header fields and no Retry-After. `weir_headers` sends X-RateLimit fields on every response, as `httprate`, `ulule`, `throttled`, `tollbooth` and `go-limiter` do.", turns: 2, unit: "ns/op"},
	{name: "Full", about: "`weir_full` is three tiers, three windows, auth lock (with a credential in each request), guard and metrics; the peers have one tier.", turns: 2, unit: "ns/op"},
	{name: "Stages", about: "What each part of the chain adds, in processor time of one thread.", turns: 1, unit: "cpu-ns/op", oneCPU: true},
	{name: "Address", about: "The client's address from the connection or from X-Forwarded-For.", turns: 1, unit: "ns/op"},
	{name: "Guard", about: "How many at once. `weir` is Guard.Acquire, whose release may be called twice; the guard of the chain needs no such closure (case middleware).", turns: 1, unit: "ns/op"},
	{name: "Redis", about: "Decisions over one server, which has a processor of its own. ns/op is wall time over all callers.", turns: 1, unit: "ns/op", oneCPU: true},
	{name: "Memory", about: "A million keys. Compared with the best limiter that bounds its keys.", unit: "B/key", oneCPU: true, whole: 1},
	{name: "Spray", about: "Two million new keys, room for 100 000 where that can be said. freed 1: the spray gave a drained victim tokens back. Compared with the best limiter that bounds its keys.", unit: "MiB", oneCPU: true, whole: 2},
}

func main() {
	var (
		count     = flag.Int("count", 6, "runs of each benchmark")
		benchtime = flag.String("benchtime", "50ms", "time of each run")
		cpu       = flag.String("cpu", "1,2", "numbers of processors")
		only      = flag.String("group", "", "groups to run, with commas between; all if empty")
		unit      = flag.String("unit", "ns/op", "what times are compared by: ns/op, or cpu-ns/op on a busy machine")
		raw       = flag.String("raw", "", "keep the benchmarks' own output in this file, for benchstat")
		read      = flag.String("read", "", "read that output from a file instead of running anything")
		write     = flag.String("write", "", "put the tables between the markers of this file")
	)
	flag.Parse()
	if err := run(*count, *benchtime, *cpu, *only, *unit, *raw, *read, *write); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(count int, benchtime, cpu, only, unit, raw, read, write string) error {
	chosen := groups
	if only != "" {
		names := strings.Split(only, ",")
		chosen = slices.DeleteFunc(slices.Clone(groups), func(g group) bool { return !slices.Contains(names, g.name) })
		if len(chosen) != len(names) {
			return fmt.Errorf("-group %s: there are %s", only, groupNames())
		}
	}
	var output []byte
	var err error
	if read != "" {
		output, err = os.ReadFile(read)
	} else {
		output, err = measure(chosen, count, benchtime, cpu)
	}
	if err != nil {
		return err
	}
	if raw != "" {
		if err := os.WriteFile(raw, output, 0o644); err != nil {
			return err
		}
	}
	results, err := parse(bytes.NewReader(output))
	if err != nil {
		return err
	}
	sections := map[string]string{}
	for _, g := range chosen {
		if g.unit == "ns/op" && g.name != "Redis" { // whose work is another process's
			g.unit = unit
		}
		if text := tables(g, results); text != "" {
			sections[g.name] = text
			fmt.Printf("## %s\n\n%s\n\n%s\n", g.name, g.about, text)
		}
	}
	if write == "" {
		return nil
	}
	sections["machine"] = about(results, count, benchtime, cpu)
	return rewrite(write, sections)
}

func groupNames() string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return strings.Join(names, ", ")
}

// measure builds the benchmarks once and runs them in rounds.
func measure(chosen []group, count int, benchtime, cpu string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "bench.test")
	build := exec.Command("go", "test", "-c", "-o", binary, "github.com/weir-go/weir/bench")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building the benchmarks: %w", err)
	}
	var output bytes.Buffer
	for round := 0; ; round++ {
		ran := false
		for _, g := range chosen {
			n, time, cpus := min(g.turns, count-round*g.turns), benchtime, cpu
			if g.whole > 0 {
				n, time = min(1, min(g.whole, count)-round), "1x"
			}
			if n <= 0 {
				continue
			}
			if g.oneCPU {
				cpus = cpu[strings.LastIndexByte(cpu, ',')+1:]
			}
			ran = true
			fmt.Fprintf(os.Stderr, "round %d: %s\n", round+1, g.name)
			cmd := exec.Command(binary, "-test.run", "^$", "-test.bench", "^Benchmark"+g.name+"$", "-test.count", strconv.Itoa(n),
				"-test.benchtime", time, "-test.cpu", cpus, "-test.timeout", "30m")
			var complaint bytes.Buffer
			cmd.Stdout, cmd.Stderr = io.MultiWriter(&output, &complaint), os.Stderr
			if err := cmd.Run(); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", g.name, err, complaint.Bytes())
			}
		}
		if !ran {
			return output.Bytes(), nil
		}
	}
}
