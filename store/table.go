package store

import (
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxKeys = 100_000
	defaultIdleTTL = 10 * time.Minute

	// keysPerShard is the size a shard is aimed at: small enough that growing
	// one (its owner's only stall) takes microseconds, large enough that the
	// random spread of keys over shards fills the bound to within a few
	// percent before the fullest shard starts to evict.
	keysPerShard = 2048
	// maxShards keeps a bound that means "no bound" from costing anything
	// before there are keys; above it shards grow instead.
	maxShards = 1 << 14
	// evictScan is how many entries are compared for the one nearest to full
	// when none is full.
	evictScan = 128
	// sweepStep is how many entries each insertion looks at for idle ones.
	sweepStep = 2
)

// table holds the buckets of one scope: the zero key in a place of its own,
// all others in shards. Everything but the shards is fixed once it is made;
// a changed bound makes a new table.
type table struct {
	name    string
	order   uint64 // creation order, for the lock order; from 1
	seed    maphash.Seed
	maxKeys int
	shards  []shard
	single  *single
	evicted *atomic.Uint64
}

// single is the bucket of the zero key, on a cache line of its own: for a
// global tier it is what every request of the process writes.
type single struct {
	_    [64]byte
	mu   sync.Mutex
	used bool // false: never touched, so full
	b    bucket
	_    [64]byte
}

// entry is one keyed bucket, 40 bytes. last == 0 marks a free place (the
// store's clock starts at 1).
type entry struct {
	key    Key
	tokens float64
	last   int64
	full   int64 // when the bucket is full again under the limit of its last write
}

// shard is an open-addressing hash table with linear probing: no pointer for
// the collector to follow, no allocation for a new key, and a hit moves
// nothing. (A strict LRU was measured at six times the cost of a plain
// look-up, and its order is not the one that matters here: the key that was
// drained longest ago is the one to keep.) An entry is found by probing from
// its home; removal shifts followers back, so there are no tombstones.
type shard struct {
	mu      sync.Mutex
	entries []entry
	count   int
	quota   int   // bound on count
	hand    int   // where the next search for a victim starts
	sweep   int   // where the next look for idle entries starts
	minFull int64 // no entry is full before this; a lower bound
	idle    int64 // IdleTTL
	dead    bool  // replaced by Configure: look the table up again
	_       [40]byte
}

func newTable(sc Scope, order uint64) *table {
	t := &table{
		name: sc.Name, order: order, seed: maphash.MakeSeed(),
		maxKeys: boundOf(sc), single: new(single), evicted: new(atomic.Uint64),
	}
	n := 1
	if t.maxKeys >= 2*keysPerShard {
		n = min(maxShards, 1<<(bits.Len(uint(t.maxKeys/keysPerShard))-1))
	}
	t.shards = make([]shard, n)
	for i := range t.shards {
		s := &t.shards[i]
		// The first maxKeys%n shards take one more, so that the quotas add up
		// to the bound exactly.
		s.quota, s.idle = t.maxKeys/n, idleOf(sc)
		if i < t.maxKeys%n {
			s.quota++
		}
	}
	return t
}

func boundOf(sc Scope) int {
	if sc.MaxKeys <= 0 {
		return defaultMaxKeys
	}
	return sc.MaxKeys
}

func idleOf(sc Scope) int64 {
	if sc.IdleTTL <= 0 {
		return int64(defaultIdleTTL)
	}
	return int64(sc.IdleTTL)
}

// hash is keyed by a seed of the process, so nobody outside can choose keys
// that crowd into one place.
func (t *table) hash(k Key) uint64 { return maphash.Bytes(t.seed, k[:]) }

// shardOf takes the low bits; home takes the high ones.
func (t *table) shardOf(h uint64) *shard { return &t.shards[h&uint64(len(t.shards)-1)] }

// home maps a hash to its place without a division.
func (s *shard) home(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(s.entries)))
	return int(hi)
}

func (s *shard) next(i int) int {
	if i++; i < len(s.entries) {
		return i
	}
	return 0
}

// find returns the place of k, or -1.
func (s *shard) find(k Key, h uint64) int {
	if s.count == 0 {
		return -1
	}
	for i := s.home(h); ; i = s.next(i) {
		e := &s.entries[i]
		if e.last == 0 {
			return -1
		}
		if e.key == k {
			return i
		}
	}
}

// set writes the bucket at place i.
func (s *shard) set(i int, b bucket, full int64) {
	e := &s.entries[i]
	e.tokens, e.last, e.full = b.tokens, b.last, full
	s.minFull = min(s.minFull, full)
}

// put writes the bucket of k, which may be new. A new key first looks for idle
// neighbours to drop and, at the bound, takes the place of the least valuable
// bucket.
func (s *shard) put(t *table, k Key, h uint64, b bucket, full, now int64) {
	if i := s.find(k, h); i >= 0 {
		s.set(i, b, full)
		return
	}
	s.dropIdle(t, now, sweepStep)
	for s.count >= s.quota {
		s.evict(t, now)
	}
	if (s.count+1)*4 > len(s.entries)*3 {
		s.resize(t, max(8, len(s.entries)*2))
	}
	s.insert(h, entry{k, b.tokens, b.last, full})
}

// insert places an entry that is known to be absent, with room to spare.
func (s *shard) insert(h uint64, e entry) {
	i := s.home(h)
	for s.entries[i].last != 0 {
		i = s.next(i)
	}
	s.entries[i] = e
	s.count++
	s.minFull = min(s.minFull, e.full)
}

// remove frees place i and moves back every follower that would otherwise be
// cut off from its home.
func (s *shard) remove(t *table, i int) {
	s.count--
	for j := s.next(i); s.entries[j].last != 0; j = s.next(j) {
		h := s.home(t.hash(s.entries[j].key))
		// The follower at j stays if its home lies in (i, j], going round.
		if i < j && h > i && h <= j || i > j && (h > i || h <= j) {
			continue
		}
		s.entries[i] = s.entries[j]
		i = j
	}
	s.entries[i] = entry{}
}

// evict makes room by dropping one bucket: one that is full again if there is
// any, for that loses nothing; else the one nearest to full among evictScan,
// for that gives away least (requirement T4). A spray of new keys therefore
// drops its own: a drained key goes only where all those beside it are
// drained further.
func (s *shard) evict(t *table, now int64) {
	if now >= s.minFull {
		least := int64(1<<63 - 1)
		for range s.entries {
			i := s.hand
			s.hand = s.next(i)
			if e := &s.entries[i]; e.last != 0 {
				if e.full <= now {
					s.remove(t, i)
					return
				}
				least = min(least, e.full)
			}
		}
		s.minFull = least
	}
	victim := -1
	for seen := 0; seen < min(evictScan, s.count); s.hand = s.next(s.hand) {
		if e := &s.entries[s.hand]; e.last != 0 {
			seen++
			if victim < 0 || e.worthLess(&s.entries[victim]) {
				victim = s.hand
			}
		}
	}
	s.remove(t, victim)
	t.evicted.Add(1)
}

// worthLess reports whether dropping e gives away less than dropping f: it is
// full sooner, or, among windows, which all end together, less of it is used.
func (e *entry) worthLess(f *entry) bool {
	return e.full < f.full || e.full == f.full && e.tokens < f.tokens
}

// dropIdle looks at n places and drops the buckets there that are full and
// have not been asked for during the IdleTTL. A bucket that is not full stays,
// however short that is.
func (s *shard) dropIdle(t *table, now int64, n int) {
	for left := min(n, len(s.entries)); left > 0; {
		if s.sweep >= len(s.entries) {
			s.sweep = 0
		}
		e := &s.entries[s.sweep]
		if e.last != 0 && e.full <= now && now-e.last >= s.idle {
			s.remove(t, s.sweep) // a follower may have moved here: look again
			continue
		}
		s.sweep++
		left--
	}
}

// resize rehashes into n places, at most what the quota needs.
func (s *shard) resize(t *table, n int) {
	old := s.entries
	s.entries = make([]entry, max(min(n, s.quota*4/3+2), s.count*4/3+2))
	s.count, s.hand, s.sweep = 0, 0, 0
	for i := range old {
		if old[i].last != 0 {
			s.insert(t.hash(old[i].key), old[i])
		}
	}
}
