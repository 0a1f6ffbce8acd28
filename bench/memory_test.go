package bench

import (
	"runtime"
	"testing"
	"time"
)

// heap is what is reachable now.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// One operation is a million new keys, made as a server makes them. B/key is
// what the heap has grown by afterwards. Bounded limiters have room for just
// that many, so that they hold them all.
func BenchmarkMemory(b *testing.B) {
	const n = 1_000_000
	b.Run("keys=1000000", func(b *testing.B) {
		for _, k := range KeyedLimiters() {
			b.Run(k.Name, func(b *testing.B) {
				var perKey float64
				for range b.N {
					before := heap()
					lane := k.Open(Fresh, n, Spent)
					d := lane()
					begun := time.Now()
					for i := range n {
						d(i)
					}
					b.ReportMetric(float64(time.Since(begun))/n, "ns/key")
					perKey += float64(heap()-before) / n
					runtime.KeepAlive(lane)
				}
				b.ReportMetric(perKey/float64(b.N), "B/key")
				b.ReportMetric(float64(pick(k.Bounded, 1, 0)), "bounded")
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}

// Two million new keys, from each of which one request comes, at limiters that
// have room for 100 000, where they let themselves be told. Each key has ten
// tokens a day. Before it all a victim spends its ten; freed is 1 if the spray
// has given it some back. MiB is what the limiter holds at the end, peak-MiB the
// most that the heap had in between, garbage included. stall-ms is the
// processor time of the dearest hundred calls in a row, so that what else the
// machine does is not in it.
func BenchmarkSpray(b *testing.B) {
	const n, bound, victim, block = 2_000_000, 100_000, 0, 100
	b.Run("keys=2000000,bound=100000", func(b *testing.B) {
		for _, k := range KeyedLimiters() {
			b.Run(k.Name, func(b *testing.B) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				for range b.N {
					before := heap()
					lane := k.Open(Fresh, bound, Few)
					d := lane()
					for d(victim) {
					}
					var dearest time.Duration
					var peak int64
					begun := ThreadTime()
					last := begun
					for i := 1; i <= n; i++ {
						d(i)
						if i%block == 0 {
							now := ThreadTime()
							dearest = max(dearest, now-last)
							last = now
						}
						if i%(n/50) == 0 {
							var m runtime.MemStats
							runtime.ReadMemStats(&m)
							peak = max(peak, int64(m.HeapAlloc))
							last = ThreadTime()
						}
					}
					b.ReportMetric(float64(last-begun)/n, "ns/key")
					b.ReportMetric(float64(dearest)/1e6, "stall-ms")
					b.ReportMetric(float64(pick(d(victim), 1, 0)), "freed")
					b.ReportMetric(float64(pick(k.Bounded, 1, 0)), "bounded")
					b.ReportMetric(float64(peak-before)/(1<<20), "peak-MiB")
					b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
					runtime.KeepAlive(lane)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	})
}
