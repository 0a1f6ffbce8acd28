package store

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Memory keeps buckets in the process. It is the default store: nothing to set
// up, no goroutine, bounded by the scopes' MaxKeys. Its clock is monotonic, so
// a step of the wall clock changes nothing. Safe for concurrent use; the zero
// Memory is not usable, see [NewMemory].
//
// Keys of one scope are spread over shards with a lock each, and a call holds
// the locks of all its buckets while it decides: either every check is spent
// or, to the bit, none. Locks are taken in one order, keyed buckets first and
// the shared ones last, so that a hot global bucket is held only for the few
// nanoseconds of the arithmetic.
type Memory struct {
	base   time.Time
	epoch  int64                    // Unix nanoseconds at the clock's 0
	tables atomic.Pointer[[]*table] // copied on write
	closed atomic.Bool
	mu     sync.Mutex // guards writing tables
	order  uint64
	locks  lockBook
}

var (
	_ Store      = (*Memory)(nil)
	_ Peeker     = (*Memory)(nil)
	_ Configurer = (*Memory)(nil)
	_ Sizer      = (*Memory)(nil)
)

// NewMemory returns an empty memory store.
func NewMemory() *Memory {
	m := &Memory{base: time.Now()}
	m.epoch = m.base.UnixNano() - 1
	m.tables.Store(new([]*table))
	return m
}

// now is nanoseconds since the store was made, from 1 on (0 marks a free place).
func (m *Memory) now() int64 { return int64(time.Since(m.base)) + 1 }

// Admit implements [Store]. It does not look at ctx: it never waits.
func (m *Memory) Admit(_ context.Context, checks []Check, dst []State) (Verdict, []State, error) {
	return m.decide(checks, dst, true)
}

// Peek implements [Peeker].
func (m *Memory) Peek(_ context.Context, checks []Check, dst []State) (Verdict, []State, error) {
	return m.decide(checks, dst, false)
}

// slot is where one check's bucket lives, and what becomes of it.
type slot struct {
	t     *table
	sh    *shard // nil: the table's single bucket
	mu    *sync.Mutex
	hash  uint64
	rank  uint64  // place in the lock order
	index int     // place in the shard, -1 if absent
	from  bucket  // as found; a window in the shape of a bucket
	cost  float64 // of this check and of earlier ones on the same bucket
	base  float64 // of the earlier ones alone
	prior int     // 1 + the index of the check before it on the same bucket, or 0
	next  bucket  // as it will be
	left  float64 // tokens in next
	pass  bool
	spent bool // next is written if the call spends
}

// decide decides in slots on the stack, as many as are likely: to clear them is a
// good part of what a call with one check costs.
func (m *Memory) decide(checks []Check, dst []State, spend bool) (Verdict, []State, error) {
	if m.closed.Load() {
		return Verdict{}, dst, ErrClosed
	}
	switch n := len(checks); {
	case n <= 2:
		var few [2]slot
		return m.decideIn(few[:n], checks, dst, spend)
	case n <= 6: // three tiers, two windows and one more
		var some [6]slot
		return m.decideIn(some[:n], checks, dst, spend)
	}
	return m.decideMany(checks, dst, spend)
}

// decideMany is apart so that the others do not have its slots on their stack.
//
//go:noinline
func (m *Memory) decideMany(checks []Check, dst []State, spend bool) (Verdict, []State, error) {
	var many [16]slot
	if n := len(checks); n <= len(many) {
		return m.decideIn(many[:n], checks, dst, spend)
	}
	return m.decideIn(make([]slot, len(checks)), checks, dst, spend)
}

func (m *Memory) decideIn(slots []slot, checks []Check, dst []State, spend bool) (Verdict, []State, error) {
	now := m.now()
	m.lock(checks, slots)
	v := Verdict{Refused: -1}
	for i := range checks {
		c, s := &checks[i], &slots[i]
		s.load(c, slots[:i], checks, now)
		st := m.ask(c, s, now)
		if !s.pass && !c.Shadow && st.Wait > v.RetryAfter {
			v.Refused, v.RetryAfter = i, st.Wait
		}
		dst = append(dst, st)
	}
	if v.Admitted() || m.arrive(checks, slots, now) {
		report(slots, dst[len(dst)-len(checks):])
		if spend {
			for i := range slots {
				if slots[i].spent {
					m.write(&checks[i], &slots[i], now)
				}
			}
		}
	}
	unlock(slots)
	return v, dst, nil
}

// ask decides one check, as if it were alone.
func (m *Memory) ask(c *Check, s *slot, now int64) State {
	if c.Window > 0 {
		f, w := m.frame(c), window(s.from)
		next, ok := w.take(now, f, c.Limit.Burst, s.cost)
		s.next, s.left = bucket(next), left(c.Limit.Burst, next.tokens)
		s.pass, s.spent = ok, ok || c.arrives()
		st := State{Tokens: left(c.Limit.Burst, w.used(now, f)), Reset: w.reset(now, f)}
		if !ok {
			st.Wait = w.wait(now, f, c.Limit.Burst, s.cost)
		}
		return st
	}
	s.next, s.pass = s.from.take(now, c.Limit, s.cost)
	s.left, s.spent = s.next.tokens, s.pass
	st := State{Tokens: s.from.at(now, c.Limit)}
	if !s.pass {
		st.Wait = s.from.wait(now, c.Limit, s.cost)
	}
	return st
}

func (m *Memory) frame(c *Check) frame { return frame{m.epoch, int64(c.Window)} }

// arrives reports whether the check is counted however the request ends.
func (c *Check) arrives() bool { return c.Always && c.Window > 0 && counts(c.Cost) }

// arrive fixes what a refused request leaves: what is counted Always, without
// the other checks of the same windows. It reports whether there is any.
func (m *Memory) arrive(checks []Check, slots []slot, now int64) (any bool) {
	for i := range checks {
		c, s := &checks[i], &slots[i]
		if s.spent = c.arrives(); !s.spent {
			continue
		}
		any = true
		cost := c.Cost
		for p := s.prior; p > 0; p = slots[p-1].prior {
			if before := &checks[p-1]; before.arrives() {
				cost += before.Cost
			}
		}
		next, _ := window(s.from).take(now, m.frame(c), c.Limit.Burst, cost)
		s.next, s.left = bucket(next), left(c.Limit.Burst, next.tokens)
	}
	return any
}

// report tells each state what its bucket holds once everything is spent that
// will be. Checks of one bucket tell the same: the last that is spent spends
// for those before it.
func report(slots []slot, states []State) {
	for i := range slots {
		s := &slots[i]
		switch {
		case s.spent:
			states[i].Tokens = s.left
		case s.prior > 0:
			states[i].Tokens = states[s.prior-1].Tokens
		}
		for p := s.prior; p > 0; p = slots[p-1].prior {
			states[p-1].Tokens = states[i].Tokens
		}
	}
}

// lock finds the slot of each check and takes the locks, all of them, in rank
// order. A shard that Configure replaced in the meantime sends it back to the
// start, with nothing held.
func (m *Memory) lock(checks []Check, slots []slot) {
again:
	for i := range checks {
		s, c := &slots[i], &checks[i]
		*s = slot{t: m.table(c.Scope), index: -1}
		if c.Key == (Key{}) {
			s.mu, s.rank = &s.t.single.mu, 1<<63|s.t.order<<24
		} else {
			s.hash = s.t.hash(c.Key)
			s.sh = s.t.shardOf(s.hash)
			s.mu, s.rank = &s.sh.mu, s.t.order<<24|s.hash&uint64(len(s.t.shards)-1)
		}
	}
	prev := uint64(0) // no rank is 0: the order starts at 1
	for range slots {
		// The next rank above prev: a selection sort without moving anything,
		// which for the handful of checks of a request beats any other.
		at := -1
		for i := range slots {
			if r := slots[i].rank; r > prev && (at < 0 || r < slots[at].rank) {
				at = i
			}
		}
		if at < 0 {
			break // the rest share a lock that is already held
		}
		s := &slots[at]
		s.mu.Lock()
		prev = s.rank
		if s.sh != nil && s.sh.dead {
			for i := range slots {
				if r := slots[i].rank; r <= prev {
					unlockOnce(slots, i)
				}
			}
			goto again
		}
	}
}

func unlock(slots []slot) {
	for i := range slots {
		unlockOnce(slots, i)
	}
}

// unlockOnce releases the lock of slot i unless an earlier slot shares it.
func unlockOnce(slots []slot, i int) {
	for j := range i {
		if slots[j].rank == slots[i].rank {
			return
		}
	}
	slots[i].mu.Unlock()
}

// load finds the bucket of a check: as stored, or full if it was never touched.
// A bucket that earlier checks of the call already ask is asked for the sum.
func (s *slot) load(c *Check, before []slot, checks []Check, now int64) {
	s.from, s.cost = bucket{c.Limit.Burst, now}, c.Cost
	if c.Window > 0 {
		s.from.tokens = 0 // of a window, what is used
	}
	if s.sh == nil {
		if s.t.single.used {
			s.from = s.t.single.b
		}
	} else if s.index = s.sh.find(c.Key, s.hash); s.index >= 0 {
		e := &s.sh.entries[s.index]
		s.from = bucket{e.tokens, e.last}
	}
	for j := len(before) - 1; j >= 0; j-- {
		if b := &before[j]; b.rank == s.rank && checks[j].Key == c.Key {
			s.prior, s.base = j+1, b.cost
			if checks[j].Shadow && !b.spent {
				s.base = b.base
			}
			break
		}
	}
	if s.cost += s.base; !(c.Cost >= 0) {
		s.cost = math.NaN() // a negative cost takes nothing off the sum
	}
}

// write puts what the check leaves in its place, but makes no key for a bucket
// that is full: it is no different from one never touched (a cost of 0 asks
// like that). Indexes found before an insertion into the same shard may have
// moved, so anything but the plain case looks again.
func (m *Memory) write(c *Check, s *slot, now int64) {
	if s.sh == nil {
		s.t.single.b, s.t.single.used = s.next, true
		return
	}
	var full int64
	var fresh bool
	if c.Window > 0 {
		full, fresh = window(s.next).fullAt(m.frame(c)), s.next.tokens == 0
	} else {
		full, fresh = s.next.fullAt(c.Limit), s.left >= c.Limit.Burst
	}
	if s.index < 0 && fresh {
		return
	}
	if s.index >= 0 && s.sh.entries[s.index].key == c.Key {
		s.sh.set(s.index, s.next, full)
		return
	}
	s.sh.put(s.t, c.Key, s.hash, s.next, full, now)
}

// Refund implements [Store]. A bucket that is no longer held was full, so it
// needs nothing back.
func (m *Memory) Refund(_ context.Context, checks []Check) error {
	if m.closed.Load() {
		return ErrClosed
	}
	var one [1]slot
	for i := range checks {
		c, s := &checks[i], &one[0]
		if c.Window > 0 {
			continue
		}
		m.lock(checks[i:i+1], one[:])
		switch {
		case s.sh == nil:
			if s.t.single.used {
				s.t.single.b = s.t.single.b.refund(c.Limit, c.Cost)
			}
		default:
			if i := s.sh.find(c.Key, s.hash); i >= 0 {
				e := &s.sh.entries[i]
				b := bucket{e.tokens, e.last}.refund(c.Limit, c.Cost)
				s.sh.set(i, b, b.fullAt(c.Limit))
			}
		}
		s.mu.Unlock()
	}
	return nil
}

// Close implements [Store]. It drops everything.
func (m *Memory) Close() error {
	m.closed.Store(true)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables.Store(new([]*table))
	m.locks.mu.Lock()
	defer m.locks.mu.Unlock()
	m.locks.tables = nil
	return nil
}

// table returns the table of a scope, making one with default bounds where
// nobody configured it. Scopes are few and their names are the same strings
// each time, so a walk over them is cheaper than a map.
func (m *Memory) table(scope string) *table {
	for _, t := range *m.tables.Load() {
		if t.name == scope {
			return t
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tableLocked(Scope{Name: scope})
}

// tableLocked finds or makes the table of a scope; m.mu must be held. One made
// for a call that Close overtook is not kept.
func (m *Memory) tableLocked(sc Scope) *table {
	tables := *m.tables.Load()
	if i := indexOf(tables, sc.Name); i >= 0 {
		return tables[i]
	}
	m.order++
	t := newTable(sc, m.order)
	if !m.closed.Load() {
		tables = append(slices.Clip(tables), t)
		m.tables.Store(&tables)
	}
	return t
}
