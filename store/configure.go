package store

import (
	"cmp"
	"slices"
)

// Configure implements [Configurer]. While it runs, calls on this scope wait:
// about 100 ms for a million keys when MaxKeys changes, 10 ms otherwise. After
// Close it does nothing.
func (m *Memory) Configure(sc Scope) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Load() {
		return
	}
	old := m.tableLocked(sc)
	for i := range old.shards {
		old.shards[i].mu.Lock()
	}
	for i := range old.shards {
		old.shards[i].configure(&sc, m.epoch)
	}
	if boundOf(sc) != old.maxKeys {
		t := newTable(sc, old.order)
		t.seed, t.single, t.evicted = old.seed, old.single, old.evicted
		t.carry(old, m.now())
		tables := slices.Clone(*m.tables.Load())
		tables[indexOf(tables, sc.Name)] = t
		m.tables.Store(&tables)
	}
	for i := range old.shards {
		old.shards[i].mu.Unlock()
	}
}

// configure sets what a scope rules within a shard. A slower refill makes
// every bucket full later than it was thought to be, a faster one earlier. A
// scope that names no limit leaves that as the last check of each key had it:
// to take it for a burst of 0 would call every bucket full.
func (s *shard) configure(sc *Scope, epoch int64) {
	s.idle, s.minFull = idleOf(*sc), 0
	for i := range s.entries {
		e := &s.entries[i]
		if e.last == 0 {
			continue
		}
		if sc.Window > 0 {
			e.full = window{e.tokens, e.last}.fullAt(frame{epoch, int64(sc.Window)})
		} else if l := sc.limitOf(e.key); l.Burst > 0 {
			e.full = bucket{e.tokens, e.last}.fullAt(l)
		}
	}
}

// carry moves the buckets of old, whose locks are all held, to t, which nobody
// else knows yet, and leaves the old shards dead.
func (t *table) carry(old *table, now int64) {
	groups := make([][]entry, len(t.shards))
	for i := range old.shards {
		s := &old.shards[i]
		for _, e := range s.entries {
			if e.last != 0 {
				g := &groups[t.hash(e.key)&uint64(len(groups)-1)]
				*g = append(*g, e)
			}
		}
		s.dead = true
	}
	for i, g := range groups {
		t.shards[i].fill(t, g, now)
	}
}

// fill puts entries into an empty shard: all of them, or those furthest from
// full where they are more than the quota. To put them one by one would let
// each newcomer displace a bucket that is worth more.
func (s *shard) fill(t *table, entries []entry, now int64) {
	if len(entries) > s.quota {
		slices.SortFunc(entries, func(a, b entry) int {
			return cmp.Or(cmp.Compare(b.full, a.full), cmp.Compare(b.tokens, a.tokens)) // as worthLess has it
		})
		for _, e := range entries[s.quota:] {
			if e.full > now {
				t.evicted.Add(1)
			}
		}
		entries = entries[:s.quota]
	}
	if len(entries) == 0 {
		return
	}
	s.resize(t, len(entries)*2)
	for _, e := range entries {
		s.insert(t.hash(e.key), e)
	}
}

func (sc *Scope) limitOf(k Key) Limit {
	if sc.LimitOf != nil {
		return sc.LimitOf(k)
	}
	return sc.Limit
}

// Drop implements [Configurer].
func (m *Memory) Drop(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tables := slices.DeleteFunc(slices.Clone(*m.tables.Load()), func(t *table) bool { return t.name == name })
	m.tables.Store(&tables)
}

// Size implements [Sizer]. It also gives memory back: idle buckets go, and
// shards that a spray had filled shrink.
func (m *Memory) Size(scope string) Size {
	tables := *m.tables.Load()
	i := indexOf(tables, scope)
	if i < 0 {
		return Size{}
	}
	t, now, keys := tables[i], m.now(), 0
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.dropIdle(t, now, len(s.entries))
		if len(s.entries) > 64 && s.count*8 < len(s.entries) {
			s.resize(t, s.count*2)
		}
		keys += s.count
		s.mu.Unlock()
	}
	return Size{Keys: keys, Max: t.maxKeys, Evicted: t.evicted.Load()}
}

func indexOf(tables []*table, name string) int {
	return slices.IndexFunc(tables, func(t *table) bool { return t.name == name })
}
