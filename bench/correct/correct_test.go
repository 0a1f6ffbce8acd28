package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// weir's own answers. A figure that depends on the machine is left out: then the
// verdict alone counts, and right is never too good.
var wants = map[string][]cell{
	"refund under concurrency":           {{"", "0 lost, 0 minted", right}},
	"64 callers, one key":                {{"tier", "", right}, {"window", "", right}, {"tier, Redis", "", right}},
	"window boundary":                    {{"tier", "19, 10", weak}, {"window", "19, 19", wrong}, {"both", "12, 3", weak}, {"tier, Redis", "", weak}},
	"refill at 100 000/s":                {{"tier", "100.0 %", right}},
	"IPv6 /64 spray":                     {{"", "1", right}},
	"`::ffff:` aliases":                  {{"", "1, 4", right}},
	"forged left XFF entries":            {{"", "1", right}},
	"headers of a peer that is no proxy": {{"", "1", right}},
	"malformed or missing XFF":           {{"", "1, 1, 1", right}},
	"spray frees a drained key":          {{"tier", "0", right}},
	"memory under a spray":               {{"tier", "", right}},
	"panic in the handler: limiter":      {{"", "6", right}},
	"panic in the handler: guard":        {{"", "0 of 4", right}},
	"cost above the burst":               {{"in a configuration", "refused when made", right}, {"tier", "never", right}},
	"limit of nothing":                   {{"rate 0, burst 5", "refused when made", right}, {"rate 5, burst 0", "refused when made", right}, {"both 0 (documented: no limit)", "20", weak}},
	"Retry-After":                        {{"", "2s, 1.2s", right}},
	"refused requests spend":             {{"", "0 of 50", right}},
	"lower limit, existing keys":         {{"", "3", right}},
	"Redis dies":                         {{"", "200×4 429×16", right}},
	"headers that stand already":         {{"", "kept; wait kept", right}},
	"two limiters, one store":            {{"", "0", wrong}, {"a Namespace each", "5", right}},
	"clock set back":                     nil,
	"metrics registered again":           {{"", "0", right}},
}

// What is not right here is what the documentation says: fixed windows meet at
// their boundary, a bucket has its burst, two zeros are no limit, and Limiters of
// one Namespace are one.
func TestWeirAnswersAsItDid(t *testing.T) {
	for _, q := range questions() {
		t.Run(q.title, func(t *testing.T) {
			want, ok := wants[q.title]
			if !ok {
				t.Fatal("no answer is written down for this question")
			}
			got := q.ask(t, weirs())
			if len(got) != len(want) {
				t.Fatalf("answers are %v, want %v", got, want)
			}
			for i, w := range want {
				g := got[i]
				same := g.verdict == w.verdict || w.got == "" && g.verdict == right
				if g.as != w.as || !same || w.got != "" && g.got != w.got {
					t.Errorf("the answer is %q, want %q", g, w)
				}
			}
		})
	}
}

func TestMostCountsOnlyWhatSurelyLiesInOneInterval(t *testing.T) {
	instants := func(ms ...int) (list []span) {
		for _, m := range ms {
			list = append(list, span{time.UnixMilli(int64(m)), time.UnixMilli(int64(m))})
		}
		return list
	}
	for _, tc := range []struct {
		name  string
		calls []span
		want  int
	}{
		{"none", nil, 0},
		{"one", instants(5), 1},
		{"two as far apart as it is long are not in it together", instants(0, 100), 1},
		{"two that are nearer are", instants(0, 99), 2},
		{"the fullest interval counts, wherever it begins", instants(0, 10, 90, 95, 105, 185, 400), 4},
		{"many at once", instants(7, 7, 7), 3},
		{"a call that took longer than the interval lies in none", []span{{time.UnixMilli(0), time.UnixMilli(100)}}, 0},
		{"a slow answer takes nobody along", []span{{time.UnixMilli(0), time.UnixMilli(90)}, {time.UnixMilli(91), time.UnixMilli(101)}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := most(tc.calls, 100*time.Millisecond); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

// One caller's calls in sequence, some slow, against the plain way.
func TestMostIsWhatThePlainWayFinds(t *testing.T) {
	const length = 50 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var calls []span
		at := time.UnixMilli(0)
		for range random.IntN(30) {
			begun := at.Add(time.Duration(random.IntN(20)) * time.Millisecond)
			at = begun.Add(time.Duration(random.IntN(4)*random.IntN(20)) * time.Millisecond)
			calls = append(calls, span{begun, at})
		}
		want := 0
		for i := range calls {
			for j := i; j < len(calls); j++ {
				if calls[j].ended.Sub(calls[i].begun) < length {
					want = max(want, j-i+1)
				}
			}
		}
		if got := most(calls, length); got != want {
			t.Fatalf("%v: %d, want %d", calls, got, want)
		}
	}
}

func TestRetryAfterIsReadAsWholeSecondsOnly(t *testing.T) {
	for field, want := range map[string]time.Duration{
		"0": 0, "17": 17 * time.Second, "": untold, "-1": untold, "1.5": untold, "+1": untold, "Mon, 30 Nov 2026 11:41:29 GMT": untold,
	} {
		if got := waitTold(field); got != want {
			t.Errorf("%q is %v, want %v", field, got, want)
		}
	}
}

func TestOnlyWhatIsBetweenTheMarkersChanges(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.md")
	for _, tc := range []struct {
		name, before, after string
	}{
		{"an old table", "# A\n" + begin + "old\n" + end + "\nZ\n", "# A\n" + begin + "\nnew\n" + end + "\nZ\n"},
		{"nothing yet", begin + end, begin + "\nnew\n" + end},
		{"no markers", "# A\n", ""},
		{"the second is missing", "# A\n" + begin + "old\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(tc.before), 0o600); err != nil {
				t.Fatal(err)
			}
			err := between(file, "new")
			got, readErr := os.ReadFile(file)
			if readErr != nil {
				t.Fatal(readErr)
			}
			want := tc.after
			if want == "" {
				want = tc.before
			}
			if (err == nil) != (tc.after != "") || string(got) != want {
				t.Errorf("error %v, file %q, want %q", err, got, want)
			}
		})
	}
}

// The table that is checked in answers the questions that are asked now, of the
// columns that are there now.
func TestTableThatIsKeptIsOfTheseQuestions(t *testing.T) {
	text, err := os.ReadFile("../CORRECTNESS.md")
	if err != nil {
		t.Fatal(err)
	}
	table := string(text)
	head := "| question |"
	for _, c := range columns() {
		head += " " + c.name + " |"
	}
	var titles []string
	for line := range strings.Lines(table) {
		if first, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " |"); ok && strings.HasPrefix(line, "| ") {
			if _, title, ok := strings.Cut(first, ". "); ok {
				titles = append(titles, title)
			}
		}
	}
	var want []string
	for _, q := range questions() {
		want = append(want, q.title)
		if !strings.Contains(table, "**"+q.title+".** "+q.asks+"\n") {
			t.Errorf("%q is asked in other words there: run it again", q.title)
		}
	}
	if !slices.Equal(titles, want) || !strings.Contains(table, head+"\n") {
		t.Errorf("the table has the rows %q, want %q, and the head %s: run it again", titles, want, head)
	}
}
