package main

import (
	"fmt"
	"strings"
	"testing"
)

// verdict is the plain word on a measured answer.
type verdict string

const (
	right verdict = "right"
	weak  verdict = "weak" // safe but poorer than it could be, or right in part
	wrong verdict = "wrong"
)

// cell is one measured answer. as says of what, where there are several.
type cell struct {
	as      string
	got     string
	verdict verdict
}

func (c cell) String() string {
	word := string(c.verdict)
	if c.verdict == wrong {
		word = "**wrong**"
	}
	s := c.got + " " + word
	if c.as != "" {
		s = c.as + ": " + s
	}
	return s
}

// verdictOn is right, or else the verdict given.
func verdictOn(ok bool, otherwise verdict) verdict {
	if ok {
		return right
	}
	return otherwise
}

// question is one row. ask returns nil where the column has no such feature.
type question struct {
	title string
	asks  string // what is done, what the figures are, and which are right
	ask   func(t *testing.T, c *column) []cell
}

func questions() []question {
	return []question{
		{"refund under concurrency", refundAsks, refunds},
		{"64 callers, one key", contentionAsks, contention},
		{"window boundary", boundaryAsks, boundary},
		{"refill at 100 000/s", refillAsks, refill},
		{"IPv6 /64 spray", networkAsks, network},
		{"`::ffff:` aliases", aliasAsks, aliases},
		{"forged left XFF entries", forgedAsks, forged},
		{"headers of a peer that is no proxy", strangerAsks, stranger},
		{"malformed or missing XFF", malformedAsks, malformed},
		{"spray frees a drained key", sprayAsks, spray},
		{"memory under a spray", growthAsks, growth},
		{"panic in the handler: limiter", panicAsks, panics},
		{"panic in the handler: guard", slotAsks, slots},
		{"cost above the burst", costAsks, costly},
		{"limit of nothing", zeroAsks, nothing},
		{"Retry-After", retryAsks, retryAfter},
		{"refused requests spend", chainAsks, chained},
		{"lower limit, existing keys", reloadAsks, reloads},
		{"Redis dies", outageAsks, outage},
		{"headers that stand already", headerAsks, headers},
		{"two limiters, one store", sharedAsks, sharedStore},
		{"clock set back", clockAsks, clockBack},
		{"metrics registered again", metricsAsks, metricsAgain},
	}
}

// row is a question and its answers, column by column.
type row struct {
	question
	cells [][]cell
}

// markdown is the one table, and below it what its rows ask.
func markdown(cs []*column, rows []row) string {
	var b strings.Builder
	b.WriteString("| question |")
	for _, c := range cs {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(cs)) + "\n")
	for i, r := range rows {
		fmt.Fprintf(&b, "| %d. %s |", i+1, r.title)
		for _, cells := range r.cells {
			b.WriteString(" " + text(cells) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	for i, r := range rows {
		fmt.Fprintf(&b, "%d. **%s.** %s\n", i+1, r.title, r.asks)
	}
	return b.String()
}

func text(cells []cell) string {
	if len(cells) == 0 {
		return "n/a"
	}
	var lines []string
	for _, c := range cells {
		lines = append(lines, c.String())
	}
	return strings.Join(lines, "<br>")
}
