// Command plots draws what a decision or a request costs as something grows:
// keys, tiers, overrides, trusted networks, endpoint patterns. Each plot is an
// SVG and a CSV with the same figures.
//
//	go run ./cmd/plots -out plots
//
// Steps that are steeper than what grows are told on standard output: a cost
// that rises by more than half as much again as its cause is a cliff.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-go/weir/bench"
)

// plot is a cost over what grows.
type plot struct {
	file, title, desc string
	x, y              string // what the axes count
	lines             []line
}

// line is one of the things compared.
type line struct {
	name   string
	at     []int                    // the sizes
	open   func(size int) func(int) // what is measured at a size; it gets a running number
	points []point
}

type point struct {
	x  int
	ns float64
}

func main() {
	var (
		out  = flag.String("out", "plots", "folder to write to")
		only = flag.String("plot", "", "the one plot to draw; all if empty")
		rest = flag.Duration("time", 20*time.Millisecond, "time of each of seven runs")
		read = flag.Bool("read", false, "draw the figures of the CSV files again, measure nothing")
	)
	flag.Parse()
	if err := run(*out, *only, *rest, *read); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(out, only string, each time.Duration, read bool) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, p := range plots() {
		if only != "" && only != p.file {
			continue
		}
		path := filepath.Join(out, p.file)
		if read {
			if err := readCSV(path+".csv", &p); err != nil {
				return err
			}
		} else {
			fmt.Fprintln(os.Stderr, p.file)
			for i := range p.lines {
				p.lines[i].measure(each)
			}
			if err := writeCSV(path+".csv", &p); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path+".svg", []byte(draw(&p)), 0o644); err != nil {
			return err
		}
		for _, c := range cliffs(&p) {
			fmt.Println(c)
		}
	}
	return nil
}

// measure takes the least of seven runs at each size, in processor time: other
// work on the machine can only add. What the collector does on other threads is
// not in it.
func (l *line) measure(each time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, size := range l.at {
		call := l.open(size)
		n := 0
		timed := func(calls int) time.Duration {
			begun := bench.ThreadTime()
			for range calls {
				call(n)
				n++
			}
			return bench.ThreadTime() - begun
		}
		calls := 16
		for timed(calls) < each/4 {
			calls *= 2
		}
		calls *= 3
		least := float64(timed(calls))
		for range 6 {
			least = min(least, float64(timed(calls)))
		}
		l.points = append(l.points, point{size, least / float64(calls)})
	}
}

// cliffs are the steps between two sizes at which the cost rises by more than
// 1.5 times what the size does.
func cliffs(p *plot) (list []string) {
	for _, l := range p.lines {
		for i := 1; i < len(l.points); i++ {
			a, b := l.points[i-1], l.points[i]
			if a.x > 0 && b.ns/a.ns > 1.5*float64(b.x)/float64(a.x) {
				list = append(list, fmt.Sprintf("cliff: %s, %s: %.0f ns at %d, %.0f ns at %d", p.file, l.name, a.ns, a.x, b.ns, b.x))
			}
		}
	}
	return list
}

func writeCSV(path string, p *plot) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"line", p.x, p.y})
	for _, l := range p.lines {
		for _, pt := range l.points {
			_ = w.Write([]string{l.name, strconv.Itoa(pt.x), strconv.FormatFloat(pt.ns, 'f', 1, 64)})
		}
	}
	w.Flush()
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func readCSV(path string, p *plot) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return err
	}
	for _, row := range rows[1:] {
		at := slices.IndexFunc(p.lines, func(l line) bool { return l.name == row[0] })
		x, err1 := strconv.Atoi(row[1])
		ns, err2 := strconv.ParseFloat(row[2], 64)
		if at < 0 || err1 != nil || err2 != nil {
			return fmt.Errorf("%s: row %q is not of this plot", path, row)
		}
		p.lines[at].points = append(p.lines[at].points, point{x, ns})
	}
	return nil
}
