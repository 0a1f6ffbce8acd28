// Correct puts the same questions to weir and to its peers, prints one table of
// measured answers, and writes it between the markers of CORRECTNESS.md in the
// module's directory. It needs redis-server.
//
//	go run ./correct            # all
//	go run ./correct -only 64   # rows whose title has that; writes nothing
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func main() {
	only := flag.String("only", "", "ask only the questions whose title contains this, and write no file")
	file := flag.String("file", "CORRECTNESS.md", "the file to write the table to")

	// What needs a *testing.T here: bubbles of virtual time, which make a window's
	// boundary exact for the peers too, and the starter of Redis servers.
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
		Name: "correct",
		F: func(t *testing.T) {
			table := run(t, *only)
			fmt.Print(table)
			if *only != "" {
				return
			}
			if err := between(*file, table); err != nil {
				t.Fatal(err)
			}
		},
	}}, nil, nil)
}

// run asks every question of every column.
func run(t *testing.T, only string) string {
	cs := columns()
	var rows []row
	for _, q := range questions() {
		if !strings.Contains(q.title, only) {
			continue
		}
		r := row{question: q}
		for _, c := range cs {
			var cells []cell
			t.Run(q.title+"/"+c.name, func(t *testing.T) { cells = q.ask(t, c) })
			r.cells = append(r.cells, cells)
		}
		fmt.Fprintln(os.Stderr, "asked:", q.title)
		rows = append(rows, r)
	}
	return versions() + "\n" + markdown(cs, rows)
}

// versions says what was asked, from the binary's own record.
func versions() string {
	var list []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			for _, peer := range []string{
				"golang.org/x/time", "golang.org/x/sync", "github.com/go-chi/", "github.com/ulule/", "github.com/throttled/", "github.com/didip/",
				"github.com/sethvargo/", "github.com/mennanov/", "github.com/failsafe-go/", "github.com/go-redis/redis_rate", "github.com/realclientip/",
			} {
				if strings.HasPrefix(m.Path, peer) {
					list = append(list, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
				}
			}
		}
	}
	return fmt.Sprintf("%s, %s/%s, %d CPUs: %s.\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), strings.Join(list, ", "))
}

const (
	begin = "<!-- begin: go run ./correct -->\n"
	end   = "<!-- end -->"
)

// between replaces what stands between the markers of a file.
func between(file, table string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: the markers %q and %q are not there", file, begin, end)
	}
	return os.WriteFile(file, []byte(head+begin+"\n"+table+"\n"+end+tail), 0o644)
}
