package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// length is that of a run, in virtual time.
const length = 60 * time.Second

func main() {
	run := func(t *testing.T) {
		for _, s := range scenarios(length) {
			table(t, &s)
		}
	}
	// synctest wants a test to run in; this one prints PASS at its end.
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "guard", F: run}}, nil, nil)
}

// table prints one scenario as a table.
func table(t *testing.T, s *scenario) {
	fmt.Printf("\n### %s\n\n| | good/s | p50 ms | p99 ms | refused after, p99 ms |", s.name)
	line := "|---|---|---|---|---|"
	if len(s.streams) > 1 {
		for i := range s.streams {
			fmt.Printf(" %s served | p99 ms |", s.streams[i].name)
			line += "---|---|"
		}
	}
	fmt.Println("\n" + line)
	for _, d := range doors() {
		all := s.run(t, d)
		r := resultOf(all, nil)
		fmt.Printf("| %s | %.0f | %d | %d | %s |", d.name, float64(r.served)/s.length.Seconds(),
			quantile(r.after, 0.5).Milliseconds(), quantile(r.after, 0.99).Milliseconds(), r.refusals())
		if len(s.streams) > 1 {
			for i := range s.streams {
				r := resultOf(all, &s.streams[i])
				fmt.Printf(" %.1f %% | %d |", r.percent(), quantile(r.after, 0.99).Milliseconds())
			}
		}
		fmt.Println()
	}
}

// A result is what became of clients.
type result struct {
	came, served int
	after        []time.Duration // of those served, sorted
	refused      []time.Duration // of those refused before they left, sorted
}

// resultOf counts the clients of a stream; nil counts all.
func resultOf(all []*client, of *stream) (r result) {
	for _, c := range all {
		if of != nil && c.stream != of {
			continue
		}
		r.came++
		if c.served {
			r.served++
			r.after = append(r.after, c.after)
		} else if c.refused {
			r.refused = append(r.refused, c.after)
		}
	}
	slices.Sort(r.after)
	slices.Sort(r.refused)
	return r
}

func (r result) percent() float64 { return 100 * float64(r.served) / float64(max(1, r.came)) }

// refusals is how long those waited who were refused, or a dash if nobody was.
func (r result) refusals() string {
	if len(r.refused) == 0 {
		return "–"
	}
	return fmt.Sprint(quantile(r.refused, 0.99).Milliseconds())
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
