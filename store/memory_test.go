package store

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Sixty-four callers ask for an hour, at ten times the rate they can have. The
// bucket is empty from the first instant on, so nothing is lost to the burst,
// and who drains it at the last instant has had exactly burst + rate × 3600.
func TestAnHourOfSixtyFourCallersAdmitsExactlyTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 64
		l := Limit{Rate: 7.3001, Burst: 50}
		want := int64(50 + 26280) // ⌊50 + 7.3001 × 3600⌋ = ⌊26330.36⌋
		m := NewMemory()
		var admitted atomic.Int64
		ask := func() bool {
			v, _, err := m.Admit(t.Context(), []Check{{Scope: "s", Key: numbered(1), Limit: l, Cost: 1}}, nil)
			if err != nil {
				t.Error(err)
			}
			if v.Admitted() {
				admitted.Add(1)
			}
			return v.Admitted()
		}
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 0))
				for time.Since(begun) < time.Hour {
					ask()
					time.Sleep(min(time.Duration(r.Int64N(int64(1600*time.Millisecond))), time.Hour-time.Since(begun)))
				}
			})
		}
		wg.Wait()
		for ask() {
		}
		if got := time.Since(begun); got != time.Hour {
			t.Fatalf("the hour took %v", got)
		}
		if got := admitted.Load(); got != want {
			t.Errorf("admitted %d, want %d", got, want)
		}
	})
}

// image is all that a memory store holds.
type image struct {
	name   string
	single bucket
	used   bool
	shards []shardImage
}

type shardImage struct {
	entries            []entry
	count, hand, sweep int
	minFull            int64
}

func imageOf(m *Memory) (images []image) {
	for _, t := range *m.tables.Load() {
		im := image{name: t.name, single: t.single.b, used: t.single.used}
		for i := range t.shards {
			s := &t.shards[i]
			im.shards = append(im.shards, shardImage{slices.Clone(s.entries), s.count, s.hand, s.sweep, s.minFull})
		}
		images = append(images, im)
	}
	return images
}

func (a image) equal(b image) bool {
	return a.name == b.name && a.single == b.single && a.used == b.used &&
		slices.EqualFunc(a.shards, b.shards, func(x, y shardImage) bool {
			return slices.Equal(x.entries, y.entries) && x.count == y.count && x.hand == y.hand && x.sweep == y.sweep && x.minFull == y.minFull
		})
}

// A request that any of its tiers refuses, and one that only asks, leaves the
// whole store as it was, to the bit.
func TestRefusedRequestsAndPeeksChangeNotABit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		l := Limit{Rate: 1.0 / 3, Burst: 10}
		global := Check{Scope: "global", Limit: l, Cost: 0.1}
		address := Check{Scope: "address", Key: numbered(1), Limit: l, Cost: 0.7}
		other := Check{Scope: "address", Key: numbered(2), Limit: l, Cost: 1}
		drained := Check{Scope: "account", Key: numbered(3), Limit: Limit{1e-9, 1}, Cost: 1}
		m.Configure(Scope{Name: "address", MaxKeys: 3})
		for _, checks := range [][]Check{{global, address, drained}, {other}, {global}} {
			if v, _, _ := m.Admit(t.Context(), checks, nil); !v.Admitted() {
				t.Fatal("a fresh bucket refused")
			}
			time.Sleep(time.Second / 7)
		}
		fresh := Check{Scope: "address", Key: numbered(9), Limit: l, Cost: 1}
		shadow := drained
		shadow.Shadow = true
		above := Check{Scope: "address", Key: numbered(9), Limit: l, Cost: 11}
		before := imageOf(m)
		for i, checks := range [][]Check{
			{global, address, drained}, {drained, global, address}, {global, drained, fresh}, {address, address, other, drained},
			{shadow, global, drained}, {global, above}, {above, global}, {fresh, above}, {drained},
			{global, address, other, fresh, shadow, global, address, drained}, {drained, drained},
		} {
			time.Sleep(time.Millisecond)
			v, _, err := m.Admit(t.Context(), checks, nil)
			if err != nil || v.Admitted() {
				t.Fatalf("case %d: verdict %+v, error %v", i, v, err)
			}
			for _, peeked := range [][]Check{checks, {global, address, fresh, shadow}} {
				if _, _, err := m.Peek(t.Context(), peeked, nil); err != nil {
					t.Fatal(err)
				}
			}
			if after := imageOf(m); !slices.EqualFunc(before, after, image.equal) {
				t.Fatalf("case %d changed the store\nfrom %+v\nto   %+v", i, before, after)
			}
		}
	})
}

// Nine checks over three scopes, some of them the same, are one spend; the
// plain sum says of which.
func TestCallsOfManyChecksAreTheirSum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 9))
		for _, bound := range []int{3, 20_000} {
			m := NewMemory()
			type place struct {
				scope string
				key   Key
			}
			held := map[place]float64{}
			for _, scope := range []string{"a", "b", "c"} {
				m.Configure(Scope{Name: scope, MaxKeys: bound})
			}
			still := Limit{Rate: 0, Burst: 500}
			for range 3000 {
				var checks []Check
				after := maps.Clone(held)
				passes := true
				for range r.IntN(12) {
					p := place{string(rune('a' + r.IntN(3))), Key{}}
					if n := r.IntN(4); n > 0 {
						p.key = numbered(n)
					}
					c := Check{Scope: p.scope, Key: p.key, Limit: still, Cost: float64(r.IntN(4)), Shadow: r.IntN(8) == 0}
					checks = append(checks, c)
					if _, ok := after[p]; !ok {
						after[p] = 500
					}
					if after[p] >= c.Cost {
						after[p] -= c.Cost
					} else if !c.Shadow {
						passes = false
						after[p] = -1 // nothing passes after it, and nothing is spent
					}
				}
				v, states, err := m.Admit(t.Context(), checks, nil)
				if err != nil || v.Admitted() != passes {
					t.Fatalf("%v: verdict %+v, error %v, want admitted %v", checks, v, err, passes)
				}
				if passes {
					held = after
					for i, c := range checks {
						if got, want := states[i].Tokens, held[place{c.Scope, c.Key}]; got != want {
							t.Fatalf("%v: state %d tells %v tokens, want %v", checks, i, got, want)
						}
					}
				}
				for p, want := range held {
					if got := tokens(t, m, p.scope, p.key, still); got != want {
						t.Fatalf("%v holds %v, want %v", p, got, want)
					}
				}
			}
		}
	})
}

// A new key may evict, grow or shift the shard before the other buckets of the
// same call are written: where they were found is then not where they are.
func TestBucketsThatMoveWithinACallAreFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasting = 20
		m, still := NewMemory(), Limit{Rate: 0, Burst: 1e6} // never full: never evicted before a newcomer
		m.Configure(Scope{Name: "s", MaxKeys: lasting + 5})
		var spent [lasting]float64
		r := rand.New(rand.NewPCG(6, 6))
		for n := range 5000 {
			i, j := r.IntN(lasting), r.IntN(lasting)
			checks := []Check{
				{Scope: "s", Key: numbered(1000 + n), Limit: daily, Cost: 1},
				{Scope: "s", Key: numbered(i), Limit: still, Cost: 1},
				{Scope: "s", Key: numbered(5_000_000 + n), Limit: daily, Cost: 1},
				{Scope: "s", Key: numbered(j), Limit: still, Cost: 2},
			}
			r.Shuffle(len(checks), func(a, b int) { checks[a], checks[b] = checks[b], checks[a] })
			if v, _, err := m.Admit(t.Context(), checks, nil); err != nil || !v.Admitted() {
				t.Fatalf("verdict %+v, error %v", v, err)
			}
			spent[i]++
			spent[j] += 2
		}
		walk(t, m.tableOf("s"))
		for i, want := range spent {
			if got := 1e6 - tokens(t, m, "s", numbered(i), still); got != want {
				t.Errorf("key %d paid %v of %v", i, got, want)
			}
		}
	})
}

func TestClosedMemoryStaysEmpty(t *testing.T) {
	m := NewMemory()
	m.Configure(Scope{Name: "s", MaxKeys: 10})
	admit(t, m, "s", numbered(1), daily, 1)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Admit(t.Context(), []Check{{Scope: "s"}}, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("Admit after Close: %v", err)
	}
	m.Configure(Scope{Name: "s", MaxKeys: 20})
	m.Drop("s")
	m.table("s") // what a call does that Close overtook
	if got := len(*m.tables.Load()); got != 0 {
		t.Errorf("%d tables after Close", got)
	}
	if got := m.Size("s"); got != (Size{}) {
		t.Errorf("%+v after Close", got)
	}
}

func TestAskingAtNoCostMakesNoKey(t *testing.T) {
	m := NewMemory()
	for i := range 100 {
		if !admit(t, m, "s", numbered(i), daily, 0) {
			t.Fatal("a cost of 0 was refused")
		}
	}
	if got := m.Size("s").Keys; got != 0 {
		t.Errorf("%d keys of which nothing was spent", got)
	}
}
