// Package storetest is the contract of a [store.Store] as a suite of tests.
// Every store passes it: the one in memory, the one in Redis, and any that is
// written elsewhere.
//
//	func TestMyStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return mystore.New(…) })
//	}
//
// The suite runs in real time, since a store may keep time in another process:
// limits refill by one token an hour and windows last as long where time must
// not matter, and the few rules about time take a fraction of a second. It
// never asserts that something was fast, so a busy machine makes it slow, not
// red.
package storetest

import (
	"slices"
	"testing"

	"github.com/weir-go/weir/store"
)

// rule is one clause of the contract.
type rule struct {
	name string // reads as a sentence; the name of the subtest
	why  string // what a store owes, told to whoever broke it
	test func(s *subject)
}

// Run holds the stores that open returns against the contract, one subtest a
// rule. Open is called once for each and must return an empty store, or one
// that shares no bucket with those returned before; Run closes it, and closing
// it again in a cleanup of the caller's is allowed for. Rules about
// [store.Peeker], [store.Configurer], [store.Sizer], [store.Locker] and
// [store.AttemptAdmitter] hold only for a store that implements them.
//
// A failure tells which rule was broken, and why it is one.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			st := open(t)
			t.Cleanup(func() { _ = st.Close() }) // the rules about Close look at its error
			r.test(&subject{T: t, store: st, rule: r})
		})
	}
}

func rules() []rule {
	return slices.Concat(burstRules, refillRules, atomicRules, refundRules, blameRules,
		bucketRules, limitRules, shadowRules, windowRules, callRules, closeRules, boundRules, lockRules, attemptRules)
}
