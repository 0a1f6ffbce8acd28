package store

import (
	"math"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// daily refills so slowly that nothing is full again during a test.
var daily = Limit{Rate: 1.0 / 86400, Burst: 10}

// admit spends from one bucket and says whether it could.
func admit(t *testing.T, m *Memory, scope string, k Key, l Limit, cost float64) bool {
	t.Helper()
	v, _, err := m.Admit(t.Context(), []Check{{Scope: scope, Key: k, Limit: l, Cost: cost}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v.Admitted()
}

// tokens returns what a bucket holds.
func tokens(t *testing.T, m *Memory, scope string, k Key, l Limit) float64 {
	t.Helper()
	_, states, err := m.Peek(t.Context(), []Check{{Scope: scope, Key: k, Limit: l}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return states[0].Tokens
}

// tableOf returns the table of a scope; the test must be the only user.
func (m *Memory) tableOf(scope string) *table {
	tables := *m.tables.Load()
	return tables[indexOf(tables, scope)]
}

func TestFullBucketsGoFirstAndAreNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, quick := NewMemory(), Limit{Rate: 1, Burst: 10}
		m.Configure(Scope{Name: "s", MaxKeys: 1000})
		for i := range 500 {
			admit(t, m, "s", numbered(i), daily, 1)
			admit(t, m, "s", numbered(1000+i), quick, 1)
		}
		time.Sleep(2 * time.Second) // the quick ones are full
		for i := range 500 {
			admit(t, m, "s", numbered(2000+i), daily, 5)
		}
		if got := m.Size("s"); got != (Size{Keys: 1000, Max: 1000, Evicted: 0}) {
			t.Fatalf("500 full buckets made room for 500: %+v", got)
		}
		for i := range 500 {
			if got := tokens(t, m, "s", numbered(i), daily); got > 9.1 {
				t.Fatalf("key %d is gone: it holds %v", i, got)
			}
		}
		for i := range 20 { // now there is none that is full
			admit(t, m, "s", numbered(3000+i), daily, 5)
		}
		if got := m.Size("s"); got.Keys != 1000 || got.Evicted != 20 {
			t.Fatalf("20 buckets went that were not full: %+v", got)
		}
		walk(t, m.tableOf("s"))
	})
}

func TestTheNearestToFullGoNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		m.Configure(Scope{Name: "s", MaxKeys: 100})
		for i := range 100 {
			admit(t, m, "s", numbered(i), daily, 1+float64(i)/20)
		}
		for i := range 40 {
			admit(t, m, "s", numbered(1000+i), daily, 10)
		}
		for i := range 100 {
			held := tokens(t, m, "s", numbered(i), daily) < 9.5
			if want := i >= 40; held != want {
				t.Errorf("key %d, %v tokens short: held %v, want %v", i, 1+float64(i)/20, held, want)
			}
		}
		if got := m.Size("s"); got.Evicted != 40 || got.Keys != 100 {
			t.Errorf("%+v", got)
		}
	})
}

// The shortest IdleTTL drops only what is full.
func TestIdleBucketsGoOnlyWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := NewMemory(), Limit{Rate: 1, Burst: 10}
		m.Configure(Scope{Name: "s", MaxKeys: 1000, IdleTTL: 1, Limit: l})
		admit(t, m, "s", numbered(1), l, 10)
		for second := range 10 {
			for i := range 50 { // each insertion looks for idle ones
				admit(t, m, "s", numbered(100+second*50+i), l, 1)
			}
			m.Size("s")
			if got := tokens(t, m, "s", numbered(1), l); math.Abs(got-float64(second)) > 1e-6 {
				t.Fatalf("a drained bucket holds %v after %d s at 1/s", got, second)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		for range 3 { // a pass may stop short of the end when it removes
			m.Size("s")
		}
		if got := m.Size("s"); got.Keys != 0 || got.Evicted != 0 {
			t.Errorf("all are full and idle: %+v", got)
		}
		if got := len(m.tableOf("s").shards[0].entries); got > 64 {
			t.Errorf("an empty shard keeps %d places", got)
		}
	})
}

func TestBucketsStayForTheIdleTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, l := NewMemory(), Limit{Rate: 1000, Burst: 10}
		m.Configure(Scope{Name: "s", IdleTTL: time.Minute, Limit: l})
		admit(t, m, "s", numbered(1), l, 1)
		time.Sleep(59 * time.Second)
		if got := m.Size("s").Keys; got != 1 {
			t.Errorf("%d keys after 59 s", got)
		}
		time.Sleep(2 * time.Second)
		if got := m.Size("s").Keys; got != 0 {
			t.Errorf("%d keys after 61 s", got)
		}
	})
}

// A spray of new keys neither outgrows the bound nor frees who is limited
// (scenario T19; a limiter on an LRU forgets him after as many keys as it
// holds), and what it drops is counted exactly.
func TestSprayStaysWithinTheBoundAndFreesNobody(t *testing.T) {
	bounds, times := []int{100, 10_000, 100_000}, 20 // two million keys at the default bound
	if raceDetector {
		bounds, times = bounds[:2], 5
	}
	for _, bound := range bounds {
		before := heap()
		m := NewMemory()
		m.Configure(Scope{Name: "s", MaxKeys: bound})
		if !admit(t, m, "s", numbered(-2), daily, 10) {
			t.Fatal("a fresh bucket refused")
		}
		checks, dst := []Check{{Scope: "s", Limit: daily, Cost: 1}}, make([]State, 0, 1)
		n := times * bound
		for i := range n {
			checks[0].Key = numbered(i)
			if v, _, _ := m.Admit(t.Context(), checks, dst); !v.Admitted() {
				t.Fatalf("newcomer %d was refused", i)
			}
		}
		size := m.Size("s")
		if size.Keys > bound || size.Keys < bound*9/10 || size.Max != bound || size.Evicted != uint64(n+1-size.Keys) {
			t.Errorf("%d keys through a bound of %d: %+v", n+1, bound, size)
		}
		if admit(t, m, "s", numbered(-2), daily, 1) {
			t.Errorf("bound %d: the drained key is served again", bound)
		}
		walk(t, m.tableOf("s"))
		perKey := float64(heap()-before) / float64(bound)
		t.Logf("bound %d, %d keys: %.1f B a key", bound, n, perKey)
		if bound >= 10_000 && perKey >= 64 {
			t.Errorf("bound %d: %.1f B a key", bound, perKey)
		}
		runtime.KeepAlive(m)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one's finalizers let go of
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return int64(ms.HeapAlloc)
}
