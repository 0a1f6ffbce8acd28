package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// Run with
//
//	go test -run '^$' -bench . -cpu 1,2 ./store
//
// checks=1 is one keyed bucket; checks=3 is that, another keyed one and the
// global one. B/key is the heap a key takes once all are there.
func BenchmarkAdmit(b *testing.B) {
	for _, checks := range []int{1, 3} {
		for _, keys := range []int{1, 10_000, 1_000_000} {
			for _, spread := range []string{"uniform", "zipf"} {
				if keys == 1 && spread == "zipf" {
					continue
				}
				for _, outcome := range []string{"admit", "refuse"} {
					name := fmt.Sprintf("checks=%d/keys=%d/%s/%s", checks, keys, spread, outcome)
					b.Run(name, func(b *testing.B) { benchmarkAdmit(b, checks, keys, spread, outcome) })
				}
			}
		}
	}
}

func benchmarkAdmit(b *testing.B, checks, keys int, spread, outcome string) {
	limit := Limit{Rate: 1e9, Burst: 1e9}
	if outcome == "refuse" {
		limit = Limit{Rate: 1e-9, Burst: 1}
	}
	before := heap()
	m := NewMemory()
	for _, scope := range []string{"address", "account"} {
		m.Configure(Scope{Name: scope, MaxKeys: keys * 2, Limit: limit})
	}
	call := func(k Key, asked []Check, dst []State) Verdict {
		asked[0] = Check{Scope: "address", Key: k, Limit: limit, Cost: 1}
		if len(asked) == 3 {
			asked[1] = Check{Scope: "account", Key: k, Limit: limit, Cost: 1}
			asked[2] = Check{Scope: "global", Limit: Limit{Rate: 1e9, Burst: 1e9}, Cost: 1}
		}
		v, _, _ := m.Admit(context.Background(), asked, dst)
		return v
	}
	asked, dst := make([]Check, checks), make([]State, 0, checks)
	for i := range keys {
		call(numbered(i), asked, dst)
	}
	perKey := float64(heap()-before) / float64(keys)
	order := keyOrder(keys, spread)
	var lane atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		asked, dst := make([]Check, checks), make([]State, 0, checks)
		for i := int(lane.Add(1)) * 7919; pb.Next(); i++ {
			if v := call(numbered(int(order[i%len(order)])), asked, dst); v.Admitted() != (outcome == "admit") {
				b.Errorf("%+v, want %s", v, outcome)
				return
			}
		}
	})
	if keys > 1 {
		b.ReportMetric(perKey, "B/key")
	}
	runtime.KeepAlive(m)
}

// keyOrder is a sequence of keys long enough not to stay in the cache.
func keyOrder(keys int, spread string) []uint32 {
	r := rand.New(rand.NewPCG(1, 1))
	order := make([]uint32, 1<<20)
	z := rand.NewZipf(r, 1.1, 1, uint64(keys-1))
	for i := range order {
		if spread == "zipf" {
			order[i] = uint32(z.Uint64())
		} else {
			order[i] = uint32(r.IntN(keys))
		}
	}
	return order
}

// lru is what one would write with what there is: limiters of x/time/rate in a
// golang-lru under a mutex.
type lru struct {
	mu    sync.Mutex
	keys  *simplelru.LRU[Key, *rate.Limiter]
	limit rate.Limit
	burst int
}

func newLRU(bound int, limit rate.Limit, burst int) *lru {
	keys, err := simplelru.NewLRU[Key, *rate.Limiter](bound, nil)
	if err != nil {
		panic(err)
	}
	return &lru{keys: keys, limit: limit, burst: burst}
}

func (c *lru) get(k Key) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.keys.Get(k)
	if !ok {
		l = rate.NewLimiter(c.limit, c.burst)
		c.keys.Add(k, l)
	}
	return l
}

func BenchmarkTimeRateInLRU(b *testing.B) {
	for _, keys := range []int{1, 10_000, 1_000_000} {
		for _, spread := range []string{"uniform", "zipf"} {
			if keys == 1 && spread == "zipf" {
				continue
			}
			for _, outcome := range []string{"admit", "refuse"} {
				b.Run(fmt.Sprintf("checks=1/keys=%d/%s/%s", keys, spread, outcome), func(b *testing.B) {
					benchmarkLRU(b, keys, spread, outcome)
				})
			}
		}
	}
}

func benchmarkLRU(b *testing.B, keys int, spread, outcome string) {
	before := heap()
	c := newLRU(keys*2, 1e9, 1e9)
	if outcome == "refuse" {
		c.limit, c.burst = 1e-9, 1
	}
	for i := range keys {
		c.get(numbered(i)).Allow()
	}
	perKey := float64(heap()-before) / float64(keys)
	order := keyOrder(keys, spread)
	var lane atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(lane.Add(1)) * 7919; pb.Next(); i++ {
			if c.get(numbered(int(order[i%len(order)]))).Allow() != (outcome == "admit") {
				b.Error("wrong outcome")
				return
			}
		}
	})
	if keys > 1 {
		b.ReportMetric(perKey, "B/key")
	}
	runtime.KeepAlive(c)
}

// A spray makes a key with each call and, at the bound, evicts one.
func BenchmarkSpray(b *testing.B) {
	for _, bound := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("bound=%d", bound), func(b *testing.B) {
			m := NewMemory()
			m.Configure(Scope{Name: "s", MaxKeys: bound})
			checks, dst := []Check{{Scope: "s", Limit: Limit{Rate: 1e-3, Burst: 10}, Cost: 1}}, make([]State, 0, 1)
			n := 0
			next := func() {
				checks[0].Key = numbered(n)
				n++
				_, _, _ = m.Admit(context.Background(), checks, dst)
			}
			for range bound {
				next()
			}
			for b.Loop() {
				next()
			}
		})
	}
}

// Configure with another bound moves every key while the scope waits.
func BenchmarkConfigure(b *testing.B) {
	const keys = 1_000_000
	m := NewMemory()
	l := Limit{Rate: 1e-3, Burst: 10}
	m.Configure(Scope{Name: "s", MaxKeys: keys, Limit: l})
	for i := range keys {
		_, _, _ = m.Admit(context.Background(), []Check{{Scope: "s", Key: numbered(i), Limit: l, Cost: 1}}, nil)
	}
	for _, other := range []int{keys, keys + 1} {
		b.Run(fmt.Sprintf("moved=%v", other != keys), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				m.Configure(Scope{Name: "s", MaxKeys: []int{other, keys}[i%2], Limit: l})
			}
		})
	}
}
