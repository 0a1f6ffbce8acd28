package bench

import (
	"sync/atomic"
	"testing"
)

// decide runs a decider on all processors. order is the keys that it is asked
// for; each goroutine begins elsewhere in it.
func decide(b *testing.B, order []uint32, lane func() Decide, want bool) {
	b.Helper()
	var lanes atomic.Int64
	parallel(b, func(pb *testing.PB) {
		d := lane()
		i := int(lanes.Add(1)) * 7919 % len(order)
		for pb.Next() {
			if d(int(order[i])) != want {
				b.Errorf("decided %t", !want)
				return
			}
			if i++; i == len(order) {
				i = 0
			}
		}
	})
}

// parallel is RunParallel, and tells the processor time of an operation besides:
// what other processes do is not in it, and what the collector does is.
func parallel(b *testing.B, body func(*testing.PB)) {
	b.ReportAllocs()
	b.ResetTimer()
	begun := ProcessTime()
	b.RunParallel(body)
	b.ReportMetric(float64(ProcessTime()-begun)/float64(b.N), "cpu-ns/op")
}

// seen asks once for each key, so that the run finds all of them.
func seen(keys int, lane func() Decide) func() Decide {
	d := lane()
	for i := range keys {
		d(i)
	}
	return lane
}
