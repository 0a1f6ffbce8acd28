package store_test

import (
	"testing"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return store.NewMemory() })
}
