package bench

import (
	"fmt"
	"runtime"
	"testing"
)

// A bucket for each key, all of them there already. Bounded limiters have room
// for twice as many. One key is the group Bare.
func BenchmarkKeyed(b *testing.B) {
	for _, c := range []struct {
		keys   int
		spread string
		quota  Quota
	}{
		{10_000, "uniform", Roomy},
		{10_000, "zipf", Roomy},
		{10_000, "zipf", Spent},
		{1_000_000, "uniform", Roomy},
		{1_000_000, "zipf", Roomy},
	} {
		name := fmt.Sprintf("keys=%d,%s,%s", c.keys, c.spread, pick(c.quota == Roomy, "admit", "refuse"))
		b.Run(name, func(b *testing.B) {
			order, keys := Order(c.keys, c.spread), Listed(c.keys)
			if c.quota == Roomy {
				look := oneLookUp(keys, c.keys)
				b.Run("floor_look-up", func(b *testing.B) { decide(b, order, alike(look), true) })
			}
			for _, k := range KeyedLimiters() {
				open(b, k.Name, func() func() Decide { return seen(c.keys, k.Open(keys, 2*c.keys, c.quota)) },
					func(b *testing.B, lane func() Decide) { decide(b, order, lane, c.quota == Roomy) })
			}
		})
	}
}

// Three tiers: the address's bucket, the account's, and the one that all share.
// Ours is one decision that spends all or nothing; the others are asked one
// after the other, and what the first two spent stays spent if the third
// refuses, which is less work.
func BenchmarkTiers(b *testing.B) {
	const n = 100_000
	order, keys := Order(n, "zipf"), Listed(n)
	b.Run(fmt.Sprintf("tiers=3,keys=%d,zipf", n), func(b *testing.B) {
		look := oneLookUp(keys, n)
		b.Run("floor_look-up", func(b *testing.B) { decide(b, order, alike(look), true) })
		open(b, "weir", func() func() Decide { return seen(n, MemoryTiers(keys, 2*n, Roomy, "address", "account", "")) },
			func(b *testing.B, lane func() Decide) { decide(b, order, lane, true) })
		for _, k := range KeyedLimiters()[1:] {
			open(b, k.Name, func() func() Decide {
				address, account, all := k.Open(keys, 2*n, Roomy), k.Open(keys, 2*n, Roomy), k.Open(keys, 2*n, Roomy)
				return seen(n, func() Decide {
					a, c, g := address(), account(), all()
					return func(i int) bool { return a(i) && c(i) && g(0) }
				})
			}, func(b *testing.B, lane func() Decide) { decide(b, order, lane, true) })
		}
	})
}

// open makes a limiter only if its benchmark is run, once for all counts and
// processors, and gives its memory back behind it.
func open(b *testing.B, name string, make func() func() Decide, run func(*testing.B, func() Decide)) {
	var lane func() Decide
	b.Run(name, func(b *testing.B) {
		if lane == nil {
			lane = make()
			runtime.GC()
		}
		run(b, lane)
	})
	lane = nil
	runtime.GC()
}
