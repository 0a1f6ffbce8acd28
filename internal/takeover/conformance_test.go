package takeover

import (
	"testing"
	"time"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// unhurried is for tests in real time: a busy machine makes them slow, and is not
// to be taken for a store that hangs.
var unhurried = Options{Timeout: time.Minute, Stall: time.Minute}

func TestItIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return New(store.NewMemory(), store.NewMemory(), unhurried) })
}

// A bucket that is leased is a bucket all the same.
func TestItIsAStoreWithLeases(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s := New(store.NewMemory(), store.NewMemory(), unhurried)
		times := map[string]time.Duration{}
		for _, scope := range []string{
			"bucket", "burst", "crowd", "drained", "fine", "fractions", "full", "global", "hour", "minute", "one", "order",
			"over", "peek", "rate", "real", "refill", "refund", "second",
		} {
			times[scope] = time.Second
		}
		s.SetLeases(times)
		return s
	})
}

func TestItIsAStoreDuringAnOutage(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		remote := newFar()
		s := New(remote, store.NewMemory(), Options{})
		degrade(t, s, remote)
		return s
	})
}
