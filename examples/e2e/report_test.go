//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// row is what one client did in one scenario.
type row struct{ client, version, scenario, result string }

var report struct {
	mu   sync.Mutex
	rows []row
}

func tell(client, version, scenario, result string) {
	report.mu.Lock()
	defer report.mu.Unlock()
	report.rows = append(report.rows, row{client, version, scenario, oneLine(result)})
}

// oneLine makes a table's cell of what a program said.
func oneLine(s string) string {
	const most = 180
	s = strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "/")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// lineWith returns the first line of said that contains any of the words, or
// the last line.
func lineWith(said string, words ...string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, word := range words {
		for _, line := range lines {
			if strings.Contains(line, word) {
				return line
			}
		}
	}
	return lines[len(lines)-1]
}

// TestMain ends with the table of what was seen, in the file that E2E_TABLE
// names, or printed.
func TestMain(m *testing.M) {
	quiet()
	if os.Getenv("E2E_ACME_SH") == "" {
		tell("acme.sh", "", "all", "not run: the script was not to be had")
	}
	code := m.Run()
	out := os.Stdout
	if name := os.Getenv("E2E_TABLE"); name != "" {
		file, err := os.Create(name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		out = file
	}
	slices.SortStableFunc(report.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.client, b.client))
	})
	fmt.Fprintln(out, "| client | version | scenario | result |\n|---|---|---|---|")
	for _, r := range report.rows {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", r.client, r.version, r.scenario, r.result)
	}
	if err := out.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
