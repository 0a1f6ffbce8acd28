package store

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

// Shrinking drops the least valuable, wherever they stood in the old table: to
// move buckets over one by one let each full one displace a drained one.
func TestShrinkingKeepsTheDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sizes := range [][2]int{{100, 10}, {20_000, 10}, {200_000, 5000}} {
			m := NewMemory()
			m.Configure(Scope{Name: "s", MaxKeys: sizes[0]})
			keys := min(sizes[0], 10_000)
			drained := min(5, sizes[1]/2)
			for i := range keys {
				cost := 1.0
				if i%(keys/drained) == 0 {
					cost = 10
				}
				admit(t, m, "s", numbered(i), daily, cost)
			}
			m.Configure(Scope{Name: "s", MaxKeys: sizes[1]})
			for i := 0; i < keys; i += keys / drained {
				if got := tokens(t, m, "s", numbered(i), daily); got != 0 {
					t.Errorf("%v: drained key %d holds %v", sizes, i, got)
				}
			}
			tab := m.tableOf("s")
			walk(t, tab)
			size := m.Size("s")
			if size.Keys > sizes[1] || size.Evicted != uint64(keys-size.Keys) {
				t.Errorf("%v: %d keys became %+v", sizes, keys, size)
			}
		}
	})
}

func TestShrinkingDropsFullBucketsUncounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		m.Configure(Scope{Name: "s", MaxKeys: 100})
		for i := range 90 {
			admit(t, m, "s", numbered(i), daily, 1)
			m.Refund(t.Context(), []Check{{Scope: "s", Key: numbered(i), Limit: daily, Cost: 1}})
		}
		for i := range 10 {
			admit(t, m, "s", numbered(100+i), daily, 1)
		}
		m.Configure(Scope{Name: "s", MaxKeys: 10})
		if got := m.Size("s"); got != (Size{Keys: 10, Max: 10}) {
			t.Errorf("90 full buckets and 10 others became %+v", got)
		}
		for i := range 10 {
			if got := tokens(t, m, "s", numbered(100+i), daily); got != 9 {
				t.Errorf("key %d holds %v", i, got)
			}
		}
	})
}

// A new limit changes when a bucket counts as full, with the bound or without.
func TestConfigureTellsWhenBucketsAreFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := Limit{Rate: 1e6, Burst: 10}
		for _, bound := range []int{10, 5000} {
			for _, tt := range []struct {
				name string
				sc   Scope
				full bool
			}{
				{"a slower limit makes it later", Scope{Limit: daily}, false},
				{"a lower burst makes it full", Scope{Limit: Limit{1, 5}}, true},
				{"a limit of the key's own is heard", Scope{Limit: quick, LimitOf: func(Key) Limit { return daily }}, false},
				{"no limit leaves what the last check said", Scope{}, false},
			} {
				m := NewMemory()
				m.Configure(Scope{Name: "s", MaxKeys: 10})
				admit(t, m, "s", numbered(1), daily, 3)
				for i := range 12 { // past the bound: the shard has looked when one is full
					admit(t, m, "s", numbered(2+i), daily, 1)
				}
				tt.sc.Name, tt.sc.MaxKeys = "s", bound
				m.Configure(tt.sc)
				tab := m.tableOf("s")
				h := tab.hash(numbered(1))
				s := tab.shardOf(h)
				e := s.entries[s.find(numbered(1), h)]
				if got := e.full <= m.now(); got != tt.full {
					t.Errorf("%s (bound %d): full %v, want %v", tt.name, bound, got, tt.full)
				}
				if e.tokens != 7 {
					t.Errorf("%s: %v tokens, want 7", tt.name, e.tokens)
				}
				walk(t, tab)
			}
		}
	})
}

// Bounds go up and down at random; the buckets are those of a map.
func TestConfigureKeepsEveryBucketThatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(4, 2))
		m, held := NewMemory(), map[Key]float64{}
		still := Limit{Rate: 0, Burst: 1000}
		for range 60 {
			for range 50 {
				k := numbered(r.IntN(200))
				if _, ok := held[k]; !ok {
					held[k] = 1000
				}
				if admit(t, m, "s", k, still, 3) {
					held[k] -= 3
				}
			}
			m.Configure(Scope{Name: "s", MaxKeys: []int{0, 200, 201, 4095, 4096, 9000, 100_000}[r.IntN(7)], Limit: still})
			walk(t, m.tableOf("s"))
			for k, want := range held {
				if got := tokens(t, m, "s", k, still); got != want {
					t.Fatalf("%x holds %v, want %v", k, got, want)
				}
			}
		}
	})
}
