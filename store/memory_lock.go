package store

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lockBook is the failure counters of a [Memory], all under one mutex: an
// attempt concerns counters of several tables and has to find them all at one
// instant. It is held for a few map look-ups, and each attempt is followed by
// the check of a credential, which costs more than the wait.
type lockBook struct {
	mu      sync.Mutex // guards everything below
	tables  map[string]*lockTable
	tickets uint64
}

var _ Locker = (*Memory)(nil)

// table returns the table of a scope, making one with the default bound where
// nobody configured it.
func (b *lockBook) table(scope string) *lockTable {
	t := b.tables[scope]
	if t == nil {
		t = newLockTable(defaultMaxKeys)
		if b.tables == nil {
			b.tables = map[string]*lockTable{}
		}
		b.tables[scope] = t
	}
	return t
}

// asked is one counter of an attempt, found.
type asked struct {
	counter *Counter
	table   *lockTable
	key     lockKey
	index   int // as LockVerdict.Refused tells it
}

// ask appends the counters that an attempt is under at this instant. In the
// place of the account's stands the caller's own where that is what holds.
func (b *lockBook) ask(a *Attempt, now int64, list []asked) (_ []asked, known bool) {
	for i := range a.Counters {
		c := &a.Counters[i]
		list = append(list, asked{c, b.table(c.Scope), lockKey{key: c.Key}, i})
	}
	if a.Account.Scope == "" {
		return list, false
	}
	t := b.table(a.Account.Scope)
	one := asked{&a.Account.Counter, t, lockKey{key: a.Account.Key}, len(a.Counters)}
	if known = a.Account.Admitted || t.known.has(a.Account.Key, a.Account.Caller, now, a.Account.Remember); known {
		one.key.caller = a.Account.Caller
	}
	return append(list, one), known
}

// locked returns the longest lock in the way.
func locked(list []asked, now int64) LockVerdict {
	v := LockVerdict{Refused: -1}
	for _, q := range list {
		if t := q.table.find(q.key, now); t != nil {
			if wait := t.wait(now); wait > v.RetryAfter {
				v.Refused, v.RetryAfter = q.index, wait
			}
		}
	}
	return v
}

// Begin implements [Locker].
func (m *Memory) Begin(_ context.Context, a *Attempt) (LockVerdict, error) {
	a.Ticket = 0
	if m.closed.Load() {
		return LockVerdict{Refused: -1}, ErrClosed
	}
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	var array [4]asked
	now := m.now()
	list, known := b.ask(a, now, array[:0])
	v := locked(list, now)
	if v.Known = known; !v.Admitted() || a.Reserve == ReserveNever {
		return v, nil
	}
	for _, q := range list {
		if t := q.table.find(q.key, now); t != nil && !q.counter.First && t.full(q.counter.Limit) {
			v.Refused, v.RetryAfter, v.Full = q.index, time.Second, true
			return v, nil
		}
	}
	b.reserve(a, list, now)
	return v, nil
}

func (b *lockBook) reserve(a *Attempt, list []asked, now int64) {
	for _, q := range list {
		t := q.table.find(q.key, now)
		if q.counter.First || a.Reserve == ReserveAfterFailure && (t == nil || t.count == 0) {
			continue
		}
		if a.Ticket == 0 {
			b.tickets++
			a.Ticket = b.tickets
		}
		if t == nil {
			t = q.table.insert(q.key, now)
		}
		t.reserve(a.Ticket, now)
	}
}

// release gives back what the attempt reserved. Who is known may have changed
// since, so both of the account's counters are asked.
func (b *lockBook) release(a *Attempt, now int64) {
	if a.Ticket == 0 {
		return
	}
	give := func(scope string, k lockKey) {
		table := b.table(scope)
		if t := table.find(k, now); t != nil {
			t.release(a.Ticket)
			table.tidy(k)
		}
	}
	for i := range a.Counters {
		give(a.Counters[i].Scope, lockKey{key: a.Counters[i].Key})
	}
	if acc := &a.Account; acc.Scope != "" {
		give(acc.Scope, lockKey{key: acc.Key})
		give(acc.Scope, lockKey{acc.Key, acc.Caller})
	}
}

// Settle implements [Locker].
func (m *Memory) Settle(_ context.Context, a *Attempt, o Outcome) (LockVerdict, error) {
	if m.closed.Load() {
		return LockVerdict{Refused: -1}, ErrClosed
	}
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	now := m.now()
	b.release(a, now)
	if o == Ignored {
		return LockVerdict{Refused: -1}, nil
	}
	var array [4]asked
	list, known := b.ask(a, now, array[:0])
	v := locked(list, now)
	if v.Known = known; !v.Admitted() {
		return v, nil
	}
	if o == Failed {
		b.fail(a, list, now, &v)
	} else {
		b.succeed(a, now, known)
	}
	return v, nil
}

// fail counts a failure everywhere.
func (b *lockBook) fail(a *Attempt, list []asked, now int64, v *LockVerdict) {
	count := int32(0) // of the counter before
	for i, q := range list {
		if q.counter.First && count != 1 {
			continue
		}
		t := q.table.insert(q.key, now)
		if t.fail(now, q.counter.Limit) {
			q.table.locked++
			v.Started |= 1 << q.index
		}
		if count = t.count; i == 0 && len(a.Counters) > 0 {
			v.Failures = int(count)
		}
	}
	if a.Account.OwnOnly && a.Account.Scope != "" && !v.Known {
		// Noted beside the account's, for the caller's success to take back. It
		// does not lock: that is for when the caller is known.
		t := b.table(a.Account.Scope).insert(lockKey{a.Account.Key, a.Account.Caller}, now)
		if !t.locked && int(t.count) < a.Account.Limit.Max-1 {
			t.fail(now, a.Account.Limit)
		}
	}
}

// succeed clears what a proof of the account clears, and remembers it.
func (b *lockBook) succeed(a *Attempt, now int64, known bool) {
	acc := &a.Account
	if acc.Scope == "" {
		return
	}
	table := b.table(acc.Scope)
	all, own := lockKey{key: acc.Key}, lockKey{acc.Key, acc.Caller}
	back := int32(0)
	if t := table.find(own, now); t != nil {
		if !known { // else they were never counted for the account
			back = t.count
		}
		t.forgive(t.count)
		table.tidy(own)
	}
	if t := table.find(all, now); t != nil {
		if !acc.OwnOnly {
			back = t.count
		}
		t.forgive(back)
		table.tidy(all)
	}
	if acc.Remember > 0 {
		table.known.add(acc.Key, acc.Caller, now)
	}
}

// Unlock implements [Locker].
func (m *Memory) Unlock(_ context.Context, scope string, key, caller Key) (bool, error) {
	if m.closed.Load() {
		return false, ErrClosed
	}
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	table, k := b.table(scope), lockKey{key, caller}
	t := table.find(k, m.now())
	if t == nil {
		return false, nil
	}
	was := t.locked
	if was {
		table.locked--
	}
	t.clear()
	table.tidy(k)
	return was, nil
}

// Locks implements [Locker].
func (m *Memory) Locks(_ context.Context, scope string, n int, dst []Lock) ([]Lock, error) {
	if m.closed.Load() {
		return dst, ErrClosed
	}
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.tables[scope], m.now()
	if t == nil {
		return dst, nil
	}
	for i := range t.slab {
		e := &t.slab[i]
		if !e.used || !e.tally.locked || e.tally.wait(now) <= 0 {
			continue
		}
		if n--; n < 0 {
			break
		}
		dst = append(dst, Lock{e.key.key, e.key.caller, int(e.tally.count), e.tally.wait(now)})
	}
	return dst, nil
}

// LockSize implements [Locker]. It also gives memory back: counters that have
// ended go.
func (m *Memory) LockSize(scope string) LockSize {
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tables[scope]
	if t == nil {
		return LockSize{}
	}
	t.drop(m.now(), len(t.slab))
	s := LockSize{Keys: len(t.places), Known: t.known.total, Max: t.max, Evicted: t.evicted}
	for i := range t.slab {
		switch e := &t.slab[i]; {
		case !e.tally.locked:
		case e.key.caller == (Key{}):
			s.Locked++
		default:
			s.Callers++
		}
	}
	return s
}

// ConfigureLocks implements [Locker].
func (m *Memory) ConfigureLocks(sc LockScope) {
	max := sc.MaxKeys
	if max <= 0 {
		max = defaultMaxKeys
	}
	b := &m.locks
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.table(sc.Name), m.now()
	t.max = max
	t.drop(now, len(t.slab))
	for len(t.places) > t.max {
		t.evict(now)
	}
	t.known.resize(max)
	t.slab, t.free = slices.Clip(t.slab), slices.Clip(t.free)
}
