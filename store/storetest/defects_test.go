package storetest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// defectVar names the defect that [TestPlainKeepsTheContract] is to have when
// [TestDefectsAreFound] runs it in a process of its own.
const defectVar = "WEIR_STORETEST_DEFECT"

func TestPlainKeepsTheContract(t *testing.T) {
	defect := os.Getenv(defectVar)
	if defect != "" {
		patience = 500 * time.Millisecond // it will run out
	}
	Run(t, func(*testing.T) store.Store { return newPlain(defect) })
}

func TestStoresWithoutOptionalPowersKeepTheContract(t *testing.T) {
	Run(t, func(*testing.T) store.Store { return bare{newPlain("")} })
}

// A suite that passes everything is worth nothing: each store that is wrong
// must fail, by the rule that it breaks. The listed rules are those that must
// fail; others might as well, since one mistake often breaks several, and are
// not asked.
func TestDefectsAreFound(t *testing.T) {
	for _, tt := range []struct {
		defect string
		rules  []string
	}{
		{"one above the burst", []string{"the burst is exact", "the burst is exact for a crowd"}},
		{"a crowd overspends", []string{"a crowd of one address spends one token"}},
		{"the clock rewinds", []string{"refill never outruns the rate", "a late caller opens no window twice"}},
		{"refill knows no burst", []string{"refill stops at the burst"}},
		{"the wait is half", []string{"the wait is enough", "the wait is what is missing divided by the rate"}},
		{"spends before it refuses", []string{"a refused request spends nothing", "one caller at its limit costs the others nothing"}},
		{"spends, then gives back", []string{"a doomed request is never in the way"}},
		{"refunds are lost", []string{"a refund is exact", "a refund covers each check of the call"}},
		{"refunds know no burst", []string{"a refund stops at the burst"}},
		{"a stranger's refund is an error", []string{"a refund to a stranger is harmless"}},
		{"the first is blamed", []string{"the longest wait is blamed"}},
		{"never is soon", []string{"never is said where waiting is in vain"}},
		{"scopes share keys", []string{"scopes and keys are apart", "windows of two scopes are apart"}},
		{"names are joined", []string{"scopes and keys are apart", "windows of two scopes are apart"}},
		{"duplicates are judged alone", []string{"one bucket twice is one spend", "one window twice is one count"}},
		{"the limit is that of the first call", []string{"a higher rate refills at once", "a lower burst clamps at once"}},
		{"a shadow refuses", []string{"a shadow never refuses", "a shadow window never refuses"}},
		{"windows begin with the first request", []string{"windows are aligned"}},
		{"a refused request is counted in its window", []string{"a refused request is counted in no window", "a limit may change within a window"}},
		{"arrivals count only if they pass", []string{"arrivals are counted whatever becomes of them"}},
		{"a raised limit waits for the next window", []string{"a limit may change within a window"}},
		{"a lowered limit leaves less than nothing", []string{"a limit may change within a window"}},
		{"a refund reaches windows", []string{"a refund passes windows over"}},
		{"the wait of a window is its length", []string{"the wait of a window is the time to its boundary"}},
		{"peek spends", []string{"a peek decides and changes nothing", "a peek counts nothing"}},
		{"dst is overwritten", []string{"states are appended in order"}},
		{"retains dst", []string{"the caller keeps its slices"}},
		{"retains checks", []string{"the caller keeps its slices"}},
		{"changes checks", []string{"the caller keeps its slices"}},
		{"refund ignores close", []string{"a closed store says so"}},
		{"close is once", []string{"a closed store says so"}},
		{"keys are unbounded", []string{"keys stay within the bound"}},
		{"the drained are dropped", []string{"a spray frees no drained key", "a spray frees no exhausted window"}},
		{"a refused request leaves a key", []string{"a refused request leaves no key"}},
	} {
		t.Run(tt.defect, func(t *testing.T) {
			t.Parallel()
			broken, out := runWith(t, tt.defect, append(tt.rules, unconcerned))
			for _, r := range tt.rules {
				if !slices.Contains(broken, r) {
					t.Errorf("rule %q took no offence; these did: %q\n%s", r, broken, out)
				}
			}
			for _, r := range rules() {
				if slices.Contains(broken, r.name) && !strings.Contains(out, r.why) {
					t.Errorf("rule %q failed without saying why it is one", r.name)
				}
			}
			if slices.Contains(broken, unconcerned) && tt.defect != "dst is overwritten" {
				t.Errorf("a rule that has nothing to do with it failed\n%s", out)
			}
		})
	}
}

// unconcerned is a rule that next to no defect breaks.
const unconcerned = "no checks are admitted"

var failedRule = regexp.MustCompile(`--- FAIL: TestPlainKeepsTheContract/(\S+)`)

// runWith holds a store with the defect against some of the rules and returns
// those that failed. Run ends a subtest that fails, and with it the test, so it
// needs a process.
func runWith(t *testing.T, defect string, rules []string) (broken []string, out string) {
	t.Helper()
	var names []string
	for _, r := range rules {
		names = append(names, regexp.QuoteMeta(strings.ReplaceAll(r, " ", "_")))
	}
	only := "-test.run=^TestPlainKeepsTheContract$/^(" + strings.Join(names, "|") + ")$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], only, "-test.count=1")
	cmd.Env = append(os.Environ(), defectVar+"="+defect)
	raw, err := cmd.CombinedOutput()
	out = string(raw)
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("want exit code 1 of a failed test, got %v\n%s", err, out)
	}
	for _, m := range failedRule.FindAllStringSubmatch(out, -1) {
		broken = append(broken, strings.ReplaceAll(m[1], "_", " "))
	}
	return broken, out
}

func TestRulesAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, r := range rules() {
		if names[r.name] || r.name == "" || r.why == "" || r.test == nil {
			t.Errorf("rule %q: named twice or not complete", r.name)
		}
		names[r.name] = true
	}
}
