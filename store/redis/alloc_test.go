//go:build !race

package redis

import (
	"testing"

	"github.com/weir-go/weir/store"
)

// What a call costs beside the client's own work does not grow with its checks.
func TestACallIsBuiltInAFewAllocations(t *testing.T) {
	k, err := newKeyspace("weir:", "weir", false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3, 6} {
		checks := make([]store.Check, n)
		for i := range checks {
			checks[i] = ask("per_account", string(rune('a'+i)), 1000.0/3, 1e6, 1.5)
		}
		// The call, its buffer and ends; the text, the slices of texts and
		// arguments, and two or three arguments as interface values.
		if got := testing.AllocsPerRun(100, func() { k.admitCall(modeAdmit, checks).args("evalsha", admitScript.digest) }); got > 9 {
			t.Errorf("%d checks: %v allocations to build a call, want at most 9", n, got)
		}
		dst := make([]store.State, 0, n)
		reply := "0"
		for range checks {
			reply += " 999999.83333333,0,0"
		}
		if got := testing.AllocsPerRun(100, func() { _, _, _, _ = decision(reply, checks, dst) }); got != 0 {
			t.Errorf("%d checks: %v allocations to read a reply, want 0", n, got)
		}
	}
}

func TestAnAttemptIsBuiltInAFewAllocations(t *testing.T) {
	k, err := newKeyspace("weir:", "weir", false)
	if err != nil {
		t.Fatal(err)
	}
	a := from("a", "bob", 100, 10)
	p := k.lockParts(a)[0]
	if got := testing.AllocsPerRun(100, func() { k.attemptCall(p, 1<<63, "after", 0).args("evalsha", theLockScripts.begin.digest) }); got > 10 {
		t.Errorf("%v allocations to build a call, want at most 10", got)
	}
	if got := testing.AllocsPerRun(100, func() { _, _ = readLock("2 2500000 0 0 0 0", p, false) }); got != 0 {
		t.Errorf("%v allocations to read a reply, want 0", got)
	}
}
