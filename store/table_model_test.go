package store

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// numbered returns the n-th key; none is zero.
func numbered(n int) (k Key) {
	binary.BigEndian.PutUint64(k[:], uint64(n)+1)
	return k
}

// shelf is a shard as one would explain it: a map.
type shelf map[Key]entry

// TestShardIsAMap does the same to a shard and to a map, at random, and holds
// one against the other after each step.
func TestShardIsAMap(t *testing.T) {
	for _, tt := range []struct {
		name      string
		quota     int
		idle      time.Duration
		distinct  int
		longWaits bool
	}{
		{"a quota of one", 1, time.Hour, 4, true},
		{"a quota of two", 2, 1, 5, true},
		{"a few keys", 7, 30, 20, true},
		{"keys that are never full", 100, 10, 300, true},
		{"keys that are mostly full", 100, 50, 300, false},
		{"more than a victim is sought among", 500, 40, 1500, true},
		{"a quota that is never reached", 1000, 20, 400, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(tt.quota), uint64(tt.distinct)))
			tab := newTable(Scope{Name: "t", MaxKeys: tt.quota, IdleTTL: tt.idle}, 1)
			if len(tab.shards) != 1 {
				t.Fatalf("%d shards", len(tab.shards))
			}
			m, s, now := shelf{}, &tab.shards[0], int64(1)
			steps := min(20_000, 2_000_000/(tt.quota+100)) // each looks at every entry
			if raceDetector {
				steps /= 4
			}
			for range steps {
				now += r.Int64N(4)
				k := numbered(r.IntN(tt.distinct))
				h := tab.hash(k)
				switch op := r.IntN(100); {
				case op < 60:
					wait := r.Int64N(100)
					if tt.longWaits {
						wait = 50 + r.Int64N(10_000)
					}
					m.put(t, tab, entry{k, r.Float64(), now, now + wait}, now)
				case op < 75:
					if i := s.find(k, h); i >= 0 {
						s.remove(tab, i)
						delete(m, k)
					}
				case op < 80:
					s.resize(tab, r.IntN(2*tt.quota+2))
				case op < 90:
					before := maps.Clone(m)
					s.dropIdle(tab, now, r.IntN(len(s.entries)+3))
					m.lost(t, s, before, now, true)
				case s.count > 0 && op < 94:
					m.evict(t, tab, now)
				}
				m.equals(t, tab)
			}
		})
	}
}

// put puts into both and checks what went to make room.
func (m shelf) put(t *testing.T, tab *table, e entry, now int64) {
	t.Helper()
	s, before, evicted := &tab.shards[0], maps.Clone(m), tab.evicted.Load()
	_, known := m[e.key]
	s.put(tab, e.key, tab.hash(e.key), bucket{e.tokens, e.last}, e.full, now)
	m[e.key] = e
	before[e.key] = e
	gone := m.lost(t, s, before, now, false)
	if known && len(gone) > 0 {
		t.Fatalf("%d buckets went for a key that was there", len(gone))
	}
	m.mayGo(t, s, before, gone, now, tab.evicted.Load()-evicted)
}

// evict evicts from both and checks which one went.
func (m shelf) evict(t *testing.T, tab *table, now int64) {
	t.Helper()
	s, before, evicted := &tab.shards[0], maps.Clone(m), tab.evicted.Load()
	s.evict(tab, now)
	gone := m.lost(t, s, before, now, false)
	if len(gone) != 1 {
		t.Fatalf("%d buckets were evicted", len(gone))
	}
	m.mayGo(t, s, before, gone, now, tab.evicted.Load()-evicted)
}

// lost takes out of the model what the shard no longer has.
func (m shelf) lost(t *testing.T, s *shard, before shelf, now int64, idle bool) (gone []entry) {
	t.Helper()
	kept := map[Key]bool{}
	for i := range s.entries {
		kept[s.entries[i].key] = s.entries[i].last != 0
	}
	for k, e := range before {
		if kept[k] {
			continue
		}
		if idle && !isIdle(e, s, now) {
			t.Fatalf("dropped as idle at %d with a TTL of %d: %+v", now, s.idle, e)
		}
		delete(m, k)
		gone = append(gone, e)
	}
	return gone
}

func isIdle(e entry, s *shard, now int64) bool { return e.full <= now && now-e.last >= s.idle }

// mayGo checks an eviction: whatever is full goes first and is no loss; among
// the others the nearest to full goes, of at least evictScan, and is counted.
func (m shelf) mayGo(t *testing.T, s *shard, before shelf, gone []entry, now int64, counted uint64) {
	t.Helper()
	lossy := slices.DeleteFunc(slices.Clone(gone), func(e entry) bool { return e.full <= now })
	if uint64(len(lossy)) != counted || len(lossy) > 1 {
		t.Fatalf("%d buckets that were not full went, %d were counted", len(lossy), counted)
	}
	if len(lossy) == 0 {
		return
	}
	nearer := 0
	for _, e := range m {
		if e.full <= now {
			t.Fatalf("%+v went at %d although %+v is full", lossy[0], now, e)
		}
		if e.full < lossy[0].full && e.last != now { // the newcomer is not asked
			nearer++
		}
	}
	if most := max(0, len(before)-evictScan); nearer > most {
		t.Fatalf("%+v went although %d are nearer to full, at most %d may be overlooked", lossy[0], nearer, most)
	}
}

// equals claims that the shard holds what the model does, and is sound.
func (m shelf) equals(t *testing.T, tab *table) {
	t.Helper()
	s := &tab.shards[0]
	walkShard(t, tab, s)
	if s.count != len(m) {
		t.Fatalf("%d entries, the model has %d", s.count, len(m))
	}
	for i := range s.entries {
		if e := s.entries[i]; e.last != 0 && m[e.key] != e {
			t.Fatalf("%+v, the model has %+v", e, m[e.key])
		}
	}
}

func TestTableSplitsItsBoundOverShards(t *testing.T) {
	for _, tt := range []struct{ maxKeys, bound, shards int }{
		{0, defaultMaxKeys, 32}, {-5, defaultMaxKeys, 32},
		{1, 1, 1}, {10, 10, 1}, {4095, 4095, 1}, {4096, 4096, 2}, {5001, 5001, 2},
		{100_000, 100_000, 32}, {1_000_003, 1_000_003, 256},
		{1 << 40, 1 << 40, maxShards}, {1<<63 - 1, 1<<63 - 1, maxShards},
	} {
		tab := newTable(Scope{Name: "t", MaxKeys: tt.maxKeys}, 1)
		if tab.maxKeys != tt.bound || len(tab.shards) != tt.shards {
			t.Errorf("MaxKeys %d: a bound of %d over %d shards, want %d over %d", tt.maxKeys, tab.maxKeys, len(tab.shards), tt.bound, tt.shards)
		}
		for i := range 100 {
			k := numbered(i)
			h := tab.hash(k)
			tab.shardOf(h).put(tab, k, h, bucket{1, 1}, 2, 1)
		}
		walk(t, tab)
	}
}
