package store

// lockKey is a counter's key and, for a counter of one caller of an account,
// that caller.
type lockKey struct{ key, caller Key }

// lockScan is how many counters that are not locked are compared for the one
// to drop.
const lockScan = 8

// lockEntry is one counter in the slab. A free place has a tally that is empty
// and the zero key.
type lockEntry struct {
	key   lockKey
	tally tally
	used  bool
}

// lockTable holds the counters of one scope: a map from key to place in a slab.
// The slab is what the search for a victim walks; a map could not be walked
// from where the last search ended.
type lockTable struct {
	max     int
	places  map[lockKey]int32
	slab    []lockEntry
	free    []int32
	locked  int // entries whose tally is locked, those that have ended unseen included
	hand    int // where the next search for a victim starts
	sweep   int // where the next look for ended counters starts
	evicted uint64
	known   *known
}

func newLockTable(max int) *lockTable {
	return &lockTable{max: max, places: map[lockKey]int32{}, known: newKnown(max)}
}

// find returns the tally of k as of now, or nil. It is valid until the next
// call that inserts.
func (t *lockTable) find(k lockKey, now int64) *tally {
	i, ok := t.places[k]
	if !ok {
		return nil
	}
	e := &t.slab[i]
	t.roll(e, now)
	return &e.tally
}

func (t *lockTable) roll(e *lockEntry, now int64) {
	was := e.tally.locked
	e.tally.roll(now)
	if was && !e.tally.locked {
		t.locked--
	}
}

// insert returns the tally of k, making it if need be.
func (t *lockTable) insert(k lockKey, now int64) *tally {
	if found := t.find(k, now); found != nil {
		return found
	}
	t.drop(now, 2)
	for len(t.places) >= t.max {
		t.evict(now)
	}
	var i int32
	if n := len(t.free); n > 0 {
		i, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if i = int32(len(t.slab)); len(t.slab) == cap(t.slab) { // append would overshoot the bound
			t.slab = append(make([]lockEntry, 0, min(t.max, 2*len(t.slab)+64)), t.slab...)
		}
		t.slab = append(t.slab, lockEntry{})
	}
	t.slab[i] = lockEntry{key: k, used: true}
	t.places[k] = i
	return &t.slab[i].tally
}

// tidy removes k if nothing is left of it.
func (t *lockTable) tidy(k lockKey) {
	if i, ok := t.places[k]; ok && t.slab[i].tally.empty() {
		t.remove(i)
	}
}

func (t *lockTable) remove(i int32) {
	e := &t.slab[i]
	if e.tally.locked {
		t.locked--
	}
	delete(t.places, e.key)
	*e = lockEntry{}
	t.free = append(t.free, i)
}

// drop looks at n places and removes the counters there that have ended.
func (t *lockTable) drop(now int64, n int) {
	for range min(n, len(t.slab)) {
		if t.sweep >= len(t.slab) {
			t.sweep = 0
		}
		if e := &t.slab[t.sweep]; e.used {
			if t.roll(e, now); e.tally.empty() {
				t.remove(int32(t.sweep))
			}
		}
		t.sweep++
	}
	if len(t.places) == 0 && len(t.slab) > 1024 { // what a spray has filled goes back
		t.places, t.slab, t.free, t.hand, t.sweep = map[lockKey]int32{}, nil, nil, 0, 0
	}
}

// evict drops one counter. A lock goes only if the table holds nothing else
// (and then the one that ends first among lockScan): a spray of made-up names
// can be as long as it likes.
func (t *lockTable) evict(now int64) {
	// Where locked < len(places) the walk meets one that is not locked.
	victim, seen := -1, 0
	onlyLocks := t.locked >= len(t.places)
	for range t.slab {
		i := t.hand
		if t.hand++; t.hand >= len(t.slab) {
			t.hand = 0
		}
		e := &t.slab[i]
		if !e.used {
			continue
		}
		if t.roll(e, now); e.tally.empty() {
			t.remove(int32(i))
			return
		}
		if e.tally.locked && !onlyLocks {
			continue
		}
		if victim < 0 || e.worthLess(&t.slab[victim]) {
			victim = i
		}
		if seen++; seen >= lockScan {
			break
		}
	}
	t.remove(int32(victim))
	t.evicted++
}

// worthLess reports whether dropping e forgets less than dropping f.
func (e *lockEntry) worthLess(f *lockEntry) bool {
	if e.tally.locked != f.tally.locked {
		return f.tally.locked
	}
	if a, b := e.tally.weight(), f.tally.weight(); a != b && !e.tally.locked {
		return a < b
	}
	return e.tally.end < f.tally.end
}
