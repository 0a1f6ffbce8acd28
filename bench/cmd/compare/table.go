package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// tables are those of a group, in Markdown that can be read as it is.
func tables(g group, r *results) string {
	whats, cpus := r.cases(g.name)
	var out strings.Builder
	for _, what := range whats {
		fmt.Fprintf(&out, "%s:\n\n%s\n", what, table(g, r, what, cpus))
	}
	return out.String()
}

func table(g group, r *results, what string, cpus []int) string {
	head := []string{"limiter"}
	for _, n := range cpus {
		unit := g.unit
		if len(cpus) > 1 {
			unit = fmt.Sprintf("%s, %d cpu", strings.TrimSuffix(unit, "/op"), n)
		}
		head = append(head, unit, "× best peer", "× floor")
	}
	scales := len(cpus) > 1 && g.unit == "ns/op"
	if scales {
		head = append(head, fmt.Sprintf("gain of %d cpu", cpus[len(cpus)-1]))
	}
	last := r.of(g.name, what, cpus[len(cpus)-1])
	more := furtherUnits(g, last)
	head = append(head, more...)
	rows := [][]string{head}
	for _, s := range last {
		row := []string{s.limiter}
		var times []float64
		for _, n := range cpus {
			list := r.of(g.name, what, n)
			at := slices.IndexFunc(list, func(o *series) bool { return o.limiter == s.limiter })
			if at < 0 {
				row = append(row, "", "", "")
				continue
			}
			mine := list[at].values[g.unit]
			times = append(times, summary(mine).Center)
			row = append(row, measured(mine), ratioTo(bestPeer(g, list), list[at], g.unit), ratioTo(floorOf(list), list[at], g.unit))
		}
		if scales {
			gain := ""
			if len(times) == len(cpus) {
				gain = fmt.Sprintf("%.2f", times[0]/times[len(times)-1])
			}
			row = append(row, gain)
		}
		for _, unit := range more {
			row = append(row, figure(summary(s.values[unit]).Center))
		}
		rows = append(rows, row)
	}
	return markdown(dropEmpty(rows))
}

// furtherUnits are what else the benchmarks report, allocations last.
func furtherUnits(g group, list []*series) (units []string) {
	for _, s := range list {
		for unit := range s.values {
			if unit != g.unit && !(unit == "ns/op" && g.whole > 0) && unit != "B/op" && unit != "allocs/op" && !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	slices.Sort(units)
	for _, unit := range []string{"B/op", "allocs/op"} {
		if strings.HasSuffix(g.unit, "/op") && slices.ContainsFunc(list, func(s *series) bool { return s.values[unit] != nil }) {
			units = append(units, unit)
		}
	}
	return units
}

// bestPeer is the peer with the least, of those that bound their keys where
// that is told.
func bestPeer(g group, list []*series) (best *series) {
	bounds := g.whole > 0
	for _, s := range list {
		if s.isFloor() || s.isOurs() || bounds && !boundsKeys(s) {
			continue
		}
		if best == nil || summary(s.values[g.unit]).Center < summary(best.values[g.unit]).Center {
			best = s
		}
	}
	return best
}

// boundsKeys reports whether the limiter holds no more keys than it is told to.
func boundsKeys(s *series) bool { b := s.values["bounded"]; return len(b) > 0 && b[0] == 1 }

// floorOf is the nearest floor: the last that the case names.
func floorOf(list []*series) (floor *series) {
	for _, s := range list {
		if s.isFloor() {
			floor = s
		}
	}
	return floor
}

// ratioTo is the median ratio with its interval; ≈ says that the two cannot be
// told apart. With less than four runs of each no difference could be told.
func ratioTo(to, s *series, unit string) string {
	if to == nil {
		return ""
	}
	if to == s {
		return "1"
	}
	text := figure(summary(ratios(s.values[unit], to.values[unit])).Center) + interval(ratios(s.values[unit], to.values[unit]))
	if len(s.values[unit]) >= 4 && !differ(s.values[unit], to.values[unit]) {
		text = "≈ " + text
	}
	return text
}

func measured(values []float64) string { return figure(summary(values).Center) + interval(values) }

// interval is the half-width in per cent, nothing where too few runs were made
// to tell.
func interval(values []float64) string {
	text := summary(values).PctRangeString()
	if strings.Contains(text, "∞") || text == "" || text == "0%" {
		return ""
	}
	return " ±" + text
}

// figure is a number with three digits.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return ""
	case a >= 99.95 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// dropEmpty leaves out columns that say nothing.
func dropEmpty(rows [][]string) [][]string {
	for c := len(rows[0]) - 1; c > 0; c-- {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[c] != "" }) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], c, c+1)
			}
		}
	}
	return rows
}

// markdown lays a table out, numbers to the right.
func markdown(rows [][]string) string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for c, cell := range row {
			width[c] = max(width[c], utf8.RuneCountInString(cell), 3)
		}
	}
	var out strings.Builder
	for i, row := range rows {
		for c, cell := range row {
			pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(cell))
			if c == 0 {
				out.WriteString("| " + cell + pad)
			} else {
				out.WriteString(" | " + pad + cell)
			}
		}
		out.WriteString(" |\n")
		if i == 0 {
			out.WriteString("|" + strings.Repeat("-", width[0]+2))
			for _, w := range width[1:] {
				out.WriteString("|" + strings.Repeat("-", w+1) + ":")
			}
			out.WriteString("|\n")
		}
	}
	return out.String()
}
