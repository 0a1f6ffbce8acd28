//go:build !race

package bench

import "testing"

// budget is what one request may cost at most, in counts that do not depend on
// how busy the machine is. Go 1.26 on a 64-bit machine.
type budget struct {
	allocs float64
	bytes  float64 // as the allocator hands them out, in its size classes
	calls  float64 // of the store
	locks  float64 // taken in weir's own sources, for reading or writing
	sets   float64 // keys that a Redis server writes; one round trip in any case
	why    string
}

// budgets are those of the scenarios, by name. Each number has its reason; a
// change that needs a higher one says here what for, and one that does with
// less writes the lower one down.
var budgets = map[string]budget{
	"one tier": {2, 576, 1, 1, 1,
		"the request's copy (320 bytes) and what its context carries (256); the lock is that of the key's shard"},
	"one tier, behind a proxy": {2, 576, 1, 1, 1,
		"the header is walked where it lies"},
	"one tier, header fields always": {4, 656, 1, 1, 1,
		"the digits of all fields in one text, and one array for their values"},
	"one tier, refused": {6, 584, 1, 1, 0,
		"no copy of the request; the digits and the values of the rate-limit fields and those of the document's: four of 184 bytes; a header of eight fields, as many as a small map holds: two of 400"},
	"three tiers": {3, 584, 1, 3, 3,
		"the user of HTTP Basic costs one; a lock for each bucket"},
	"three tiers, windows, guard": {3, 584, 1, 10, 5,
		"a lock for each of five counts, and five of the guard: slot taken and given back, and the request's note of it"},
	"three tiers, windows, auth lock": {6, 1216, 3, 16, 5,
		"the attempt (480 bytes) and the watch over the answer's status (144), and HTTP Basic is read a second time; eleven locks: begun, asked of two counters and settled, and the notes of request and answer"},
	"everything": {6, 1216, 3, 21, 5,
		"the sum of the above"},
	"everything, refused": {7, 592, 1, 5, 1,
		"HTTP Basic, the fields' digits and values: five of 192 bytes; a header of eight fields: two of 400; refused before the auth lock and the guard: neither is asked; the process ceiling has counted the arrival"},
}

func TestBudgetOfEveryScenario(t *testing.T) {
	named := map[string]bool{}
	for _, s := range Scenarios() {
		named[s.Name] = true
		if _, ok := budgets[s.Name]; !ok {
			t.Errorf("%s has no budget", s.Name)
		}
	}
	for name := range budgets {
		if !named[name] {
			t.Errorf("there is no scenario %q", name)
		}
	}
}

// redisBudget is what one request makes a Redis server do, by its own count.
// Commands that are not listed are not to be seen. What Redis has refused until
// an instant is refused here until then, so that refusals cost less.
func redisBudget(b budget, attempt bool) map[string]float64 {
	commands := map[string]float64{
		"evalsha": 1, // one round trip, whatever the number of tiers and windows
		"time":    1, // in the script: the server's clock decides
		"mget":    1, // in the script: all buckets at once
		"set":     b.sets,
	}
	if attempt {
		commands["evalsha"]++ // to settle; to begin is part of the first
		commands["time"] += 2 // the script of the first is two in one
		commands["mget"] += 2 // all counters at once, and again to settle
		commands["set"]++     // who has signed in is remembered
	}
	return commands
}

// within compares a count with its budget.
func within(t *testing.T, what string, got, budget float64) {
	t.Helper()
	if got > budget {
		t.Errorf("%v %s a request, the budget is %v", got, what, budget)
	}
	if got < budget {
		t.Logf("%v %s a request, less than the budget of %v: lower it", got, what, budget)
	}
}
