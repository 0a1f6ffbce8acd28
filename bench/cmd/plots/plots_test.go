package main

import (
	"encoding/xml"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func small() *plot {
	return &plot{file: "p", title: "Cost & size", desc: "What it costs.", x: "sizes", y: "ns/call", lines: []line{
		{name: "flat", points: []point{{0, 100}, {1, 100}, {10, 110}, {100, 120}}},
		{name: "steep <", points: []point{{1, 10}, {2, 100}, {100, 5000}}},
	}}
}

func TestADrawingIsWellFormedAndSaysWhatItIs(t *testing.T) {
	svg := draw(small())
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{`role="img"`, `<title id="t">Cost &amp; size</title>`, ">sizes<", ">ns/call<", ">steep &lt;<", ">flat<"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}

func TestAnAxisIsLogarithmic(t *testing.T) {
	x := axis{0, 4, 100, 500}
	for v, want := range map[float64]float64{1: 100, 10: 200, 100: 300, 10_000: 500, 0: 100} {
		if got := x.at(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("at(%v) = %v, want %v", v, got, want)
		}
	}
}

func TestOnlyWhatIsSteeperThanItsCauseIsACliff(t *testing.T) {
	got := cliffs(small())
	if len(got) != 1 || !strings.Contains(got[0], "10 ns at 1, 100 ns at 2") {
		t.Errorf("cliffs: %q", got)
	}
}

func TestFiguresComeBackFromTheirFile(t *testing.T) {
	path, p := filepath.Join(t.TempDir(), "p.csv"), small()
	if err := writeCSV(path, p); err != nil {
		t.Fatal(err)
	}
	back := small()
	for i := range back.lines {
		back.lines[i].points = nil
	}
	if err := readCSV(path, back); err != nil {
		t.Fatal(err)
	}
	for i := range p.lines {
		if !reflect.DeepEqual(back.lines[i].points, p.lines[i].points) {
			t.Errorf("%v, want %v", back.lines[i].points, p.lines[i].points)
		}
	}
}

func TestEverySizeIsMeasured(t *testing.T) {
	l := line{at: []int{1, 2}, open: func(size int) func(int) { return func(int) {} }}
	l.measure(time.Microsecond)
	if len(l.points) != 2 || l.points[0].x != 1 || l.points[1].x != 2 {
		t.Errorf("points %v", l.points)
	}
}

func TestStepsAreOneTwoFive(t *testing.T) {
	if got := steps(1, 100); !slices.Equal(got, []int{1, 2, 5, 10, 20, 50, 100}) {
		t.Errorf("steps: %v", got)
	}
}
