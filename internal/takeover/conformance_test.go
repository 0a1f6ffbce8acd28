package takeover

import (
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

func TestItIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return New(store.NewMemory(), store.NewMemory(), Options{}) })
}

func TestItIsAStoreDuringAnOutage(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		remote := newFar()
		s := New(remote, store.NewMemory(), Options{})
		degrade(t, s, remote)
		return s
	})
}
