package redis

import (
	"context"
	crand "crypto/rand"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store"
)

var _ store.Locker = (*Store)(nil)

// maxListed is how many locks of a scope are listed at most: as many as the index
// has.
const maxListed = 10_000

// Begin implements [store.Locker]: one round trip. A call whose answer was lost may
// have reserved places; they are free again after [store.ReservationTTL].
func (s *Store) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	a.Ticket = 0
	if s.closed.Load() {
		return store.LockVerdict{Refused: -1}, store.ErrClosed
	}
	parts := s.keys.lockParts(a)
	ticket := newTicket()
	word := reserveWords[a.Reserve]
	s.askLocks(parts, func(p *lockPart) { s.askBegin(ctx, p, ticket, word) })
	v, err := merged(parts, len(a.Counters))
	var reserved []*lockPart
	for _, p := range parts {
		if p.err == nil && p.reply.reserved {
			reserved = append(reserved, p)
		}
	}
	switch {
	case len(reserved) == 0:
	case err == nil && v.Admitted():
		a.Ticket = ticket
	default: // another slot refuses, or fails
		s.giveUpPlaces(ctx, reserved, ticket)
	}
	return v, err
}

// Settle implements [store.Locker]: one round trip, or, with a slot for each key,
// one to look and then one for each Key. A call whose answer was lost may have
// counted.
func (s *Store) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (store.LockVerdict, error) {
	open := store.LockVerdict{Refused: -1}
	if s.closed.Load() {
		return open, store.ErrClosed
	}
	if o == store.Ignored && a.Ticket == 0 {
		return open, nil
	}
	parts := s.keys.lockParts(a)
	word := outcomeWords[o]
	switch {
	case len(parts) > 1 && o != store.Ignored:
		return s.settleBySlot(ctx, a, parts, word)
	case len(parts) == 1:
		s.askSettle(ctx, parts[0], a.Ticket, word, 0)
	default:
		s.askLocks(parts, func(p *lockPart) { s.askSettle(ctx, p, a.Ticket, word, 0) })
	}
	v, err := merged(parts, len(a.Counters))
	if err != nil {
		return open, err
	}
	s.indexStarted(ctx, parts)
	return v, nil
}

func (s *Store) askBegin(ctx context.Context, p *lockPart, ticket uint64, word string) {
	s.askLock(ctx, "begin", s.locks.begin, p, s.keys.attemptCall(p, ticket, word, 0), false)
}

func (s *Store) askSettle(ctx context.Context, p *lockPart, ticket uint64, word string, before int) {
	s.askLock(ctx, "settle", s.locks.settle, p, s.keys.attemptCall(p, ticket, word, before), true)
}

func (s *Store) askLock(ctx context.Context, op string, sc script, p *lockPart, c *call, settled bool) {
	text, err := s.run(ctx, op, sc, c)
	if err == nil {
		if p.reply, err = readLock(text, p, settled); err != nil {
			err = s.fail(op, badReply{err})
		}
	}
	p.err = err
}

// newTicket draws a ticket: replicas that do not know of each other must not give
// out the same one.
func newTicket() uint64 { return rand.Uint64() | 1 }

// Unlock implements [store.Locker]: one round trip, or two with a slot for each
// key.
func (s *Store) Unlock(ctx context.Context, scope string, key, caller store.Key) (bool, error) {
	if s.closed.Load() {
		return false, store.ErrClosed
	}
	return s.unlock(ctx, "unlock", scope, key, caller)
}

func (s *Store) unlock(ctx context.Context, op, scope string, key, caller store.Key) (bool, error) {
	c := newCall(1)
	c.lockKey(s.keys, kindLock, scope, key, caller)
	if !s.keys.slotPerKey {
		c.indexKey(s.keys, scope)
	}
	id := idOf(key, caller)
	c.text(id)
	text, err := s.run(ctx, op, s.locks.unlock, c)
	if err != nil {
		return false, err
	}
	in := reader{rest: text}
	was, count := in.whole(), in.whole()
	if in.bad || in.rest != "" || was > 1 {
		return false, s.fail(op, badReply{errReply(text)})
	}
	if was == 1 && s.keys.slotPerKey {
		_ = s.noteLock(ctx, op, scope, id, int(count), 0) // see Locks
	}
	return was == 1, nil
}

// Locks implements [store.Locker]: one round trip. It reads an index that each
// lock enters when it starts, and which keeps the 10 000 of a scope that end last.
// A lock that the server has evicted to save memory is listed until it would have
// ended; with a slot for each key, one whose entry was lost is not.
func (s *Store) Locks(ctx context.Context, scope string, n int, dst []store.Lock) ([]store.Lock, error) {
	if s.closed.Load() {
		return dst, store.ErrClosed
	}
	if n <= 0 {
		return dst, nil
	}
	return s.locksOf(ctx, "locks", scope, n, dst)
}

func (s *Store) locksOf(ctx context.Context, op, scope string, n int, dst []store.Lock) ([]store.Lock, error) {
	c := newCall(1)
	c.indexKey(s.keys, scope)
	c.integer(int64(min(n, maxListed)))
	text, err := s.run(ctx, op, s.locks.locks, c)
	if err != nil {
		return dst, err
	}
	list, err := readLocks(text, dst)
	if err != nil {
		err = s.fail(op, badReply{err})
	}
	return list, err
}

// LockSize implements [store.Locker]. It is not known: to count the keys of a
// scope would take a walk over all keys of the server.
func (s *Store) LockSize(string) store.LockSize { return store.LockSize{} }

// ConfigureLocks implements [store.Locker] and does nothing: the server holds as
// many counters as it has memory for, each until it has ended.
func (s *Store) ConfigureLocks(store.LockScope) {}

// probeLocks makes sure that the server does what the auth lock will ask: it locks
// a counter that nobody else has for a second, lists the lock and lifts it.
func (s *Store) probeLocks(ctx context.Context) error {
	c := store.Counter{Limit: store.LockLimit{Max: 1, Window: time.Second, Lockout: time.Second}}
	_, _ = crand.Read(c.Key[:]) // never fails
	p := &lockPart{index: []int{0}, counters: []store.Counter{c}}
	for _, step := range []func() error{
		func() error {
			s.askLock(ctx, "open", s.locks.settle, p, s.keys.attemptCall(p, 0, outcomeWords[store.Failed], 0), true)
			return p.err
		},
		func() error { return s.noteLock(ctx, "open", "", idOf(c.Key, store.Key{}), 1, time.Second) },
		func() error { _, err := s.locksOf(ctx, "open", "", 1, nil); return err },
		func() error { _, err := s.unlock(ctx, "open", "", c.Key, store.Key{}); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
