package bench

import (
	"context"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

// One bucket that everybody asks. The first rows are limiters without keys, and
// ours in the place that a global tier has; the others are asked for always the
// same key.
func BenchmarkBare(b *testing.B) {
	for _, q := range []Quota{Roomy, Spent} {
		roomy := q == Roomy
		b.Run(pick(roomy, "admit", "refuse"), func(b *testing.B) {
			run := func(name string, d func() Decide) {
				b.Run(name, func(b *testing.B) { decide(b, []uint32{0}, d, roomy) })
			}
			swap := clockAndSwap(q)
			swap(0)
			if roomy {
				run("floor_atomic", alike(oneAtomic()))
				run("floor_clock", alike(oneClock()))
			}
			run("floor_clock+swap", alike(swap))
			keys := Listed(1)
			run("weir_global", seen(1, MemoryTiers(keys, 1, q, "")))
			x := newRate(q)
			run("xrate", seen(1, alike(func(int) bool { return x.Allow() })))
			smooth := ratelimiter.NewSmooth[any](uint(q), pick(roomy, time.Second, day))
			run("failsafe_smooth", seen(1, alike(func(int) bool { return smooth.TryAcquirePermit() })))
			bursty := ratelimiter.NewBursty[any](uint(q), day)
			run("failsafe_bursty", seen(1, alike(func(int) bool { return bursty.TryAcquirePermit() })))
			m, ctx := newMennanov(q), context.Background()
			run("mennanov_bare", seen(1, alike(func(int) bool { _, err := m.Limit(ctx); return err == nil })))
			for _, k := range KeyedLimiters() {
				run(k.Name, seen(1, k.Open(keys, 16, q)))
			}
		})
	}
}
