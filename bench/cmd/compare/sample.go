package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// name is what a benchmark's name says: Group/case/limiter-cpus.
type name struct {
	group, what, limiter string
	cpus                 int
}

// split reads a name as package testing writes it, without "Benchmark".
func split(full benchfmt.Name) (n name, ok bool) {
	base, parts := full.Parts()
	n.group, n.cpus = string(base), 1
	if len(parts) > 0 && parts[len(parts)-1][0] == '-' {
		n.cpus, _ = strconv.Atoi(string(parts[len(parts)-1][1:]))
		parts = parts[:len(parts)-1]
	}
	if len(parts) != 2 || n.cpus < 1 {
		return name{}, false
	}
	n.what, n.limiter = string(parts[0][1:]), string(parts[1][1:])
	return n, n.group != "" && n.what != "" && n.limiter != ""
}

func (n name) isFloor() bool { return strings.HasPrefix(n.limiter, "floor_") }
func (n name) isOurs() bool  { return n.limiter == "weir" || strings.HasPrefix(n.limiter, "weir_") }

// series is all runs of one benchmark: for each unit a value from each.
type series struct {
	name
	values map[string][]float64
}

// results are all series, in the order in which they first came.
type results struct {
	all     []*series
	machine map[string]string // goos, goarch, cpu
}

func parse(r io.Reader) (*results, error) {
	res := &results{machine: map[string]string{}}
	byName := map[name]*series{}
	reader := benchfmt.NewReader(r, "benchmarks")
	for reader.Scan() {
		record, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		n, ok := split(record.Name)
		if !ok {
			return nil, fmt.Errorf("benchmark %q is not named Group/case/limiter", record.Name)
		}
		s := byName[n]
		if s == nil {
			s = &series{n, map[string][]float64{}}
			byName[n], res.all = s, append(res.all, s)
		}
		for _, v := range record.Values {
			unit, value := v.Unit, v.Value
			if v.OrigUnit != "" {
				unit, value = v.OrigUnit, v.OrigValue
			}
			s.values[unit] = append(s.values[unit], value)
		}
		for _, key := range []string{"goos", "goarch", "cpu"} {
			if at, ok := record.ConfigIndex(key); ok {
				res.machine[key] = string(record.Config[at].Value)
			}
		}
	}
	return res, reader.Err()
}

// of returns the series of one case, for one number of processors.
func (r *results) of(group, what string, cpus int) (list []*series) {
	for _, s := range r.all {
		if s.group == group && s.what == what && s.cpus == cpus {
			list = append(list, s)
		}
	}
	return list
}

// cases and the numbers of processors of a group, in order.
func (r *results) cases(group string) (whats []string, cpus []int) {
	for _, s := range r.all {
		if s.group != group {
			continue
		}
		if !slices.Contains(whats, s.what) {
			whats = append(whats, s.what)
		}
		if !slices.Contains(cpus, s.cpus) {
			cpus = append(cpus, s.cpus)
		}
	}
	slices.Sort(cpus)
	return whats, cpus
}

// median and its 95 % interval.
func summary(values []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95)
}

// differ reports whether two series are told apart at the 5 % level.
func differ(a, b []float64) bool {
	c := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(a), &benchmath.DefaultThresholds),
		benchmath.NewSample(slices.Clone(b), &benchmath.DefaultThresholds))
	return c.P < c.Alpha
}

// ratios are taken run by run: the runs of one round are near each other.
func ratios(a, b []float64) []float64 {
	list := make([]float64, min(len(a), len(b)))
	for i := range list {
		list[i] = a[i] / b[i]
	}
	return list
}

// about tells the machine and how the figures were taken.
func about(r *results, count int, benchtime, cpu string) string {
	return fmt.Sprintf("%s, %s/%s, %d processors (%s), `-count %d -benchtime %s -cpu %s`.\n",
		runtime.Version(), r.machine["goos"], r.machine["goarch"], runtime.NumCPU(), r.machine["cpu"], count, benchtime, cpu)
}
