package redis

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// With a slot for each key, the counters of an attempt are asked by Key: those of
// the address, of the credential at it, and of the account, whose callers are in
// its slot. To begin asks all at once; what one refuses gives up the places in the
// others. To settle looks at all of them first, and then counts in one after the
// other, the account last. Each decides for itself: one that is locked by then
// withholds the outcome, though the ones before it have counted it. So no counter
// tells more than its limit; around the start of a lock, others may have counted
// failures that were never told, no more than attempts were under way.

// lockParts splits the counters of an attempt by slot.
func (k keyspace) lockParts(a *store.Attempt) (parts []*lockPart) {
	account := &a.Account
	if account.Scope == "" {
		account = nil
	}
	if !k.slotPerKey {
		if len(a.Counters) == 0 && account == nil {
			return nil
		}
		p := &lockPart{index: make([]int, len(a.Counters)), counters: a.Counters, account: account}
		for i := range p.index {
			p.index[i] = i
		}
		return append(parts, p)
	}
	for i, c := range a.Counters {
		// Only neighbours: one may hang on what the one before it counts.
		var p *lockPart
		if n := len(parts); n > 0 && parts[n-1].counters[0].Key == c.Key {
			p = parts[n-1]
		} else {
			p = new(lockPart)
			parts = append(parts, p)
		}
		p.index, p.counters = append(p.index, i), append(p.counters, c)
	}
	if account != nil {
		parts = append(parts, &lockPart{account: account})
	}
	return parts
}

// askLocks asks several slots at once.
func (s *Store) askLocks(parts []*lockPart, ask func(*lockPart)) {
	if len(parts) == 0 {
		return
	}
	var wg sync.WaitGroup
	for _, p := range parts[1:] {
		wg.Go(func() { ask(p) })
	}
	ask(parts[0])
	wg.Wait()
}

// place is where counter i of a part stands in an attempt of n counters.
func (p *lockPart) place(i, n int) int {
	if i < len(p.index) {
		return p.index[i]
	}
	return n
}

// merged is the verdict of all parts: the longest lock, or else the first counter
// whose places are all reserved.
func merged(parts []*lockPart, n int) (store.LockVerdict, error) {
	v := store.LockVerdict{Refused: -1}
	for _, p := range parts {
		if p.err != nil {
			return store.LockVerdict{Refused: -1}, p.err
		}
		r := p.reply.v
		v.Known = v.Known || r.Known
		if slices.Contains(p.index, 0) {
			v.Failures = r.Failures
		}
		for i := range len(p.counters) + 1 {
			if r.Started&(1<<i) != 0 {
				v.Started |= 1 << p.place(i, n)
			}
		}
		if !r.Admitted() && (v.Admitted() || v.Full && !r.Full || v.Full == r.Full && r.RetryAfter > v.RetryAfter) {
			v.Refused, v.RetryAfter, v.Full = p.place(r.Refused, n), r.RetryAfter, r.Full
		}
	}
	if !v.Admitted() { // what another slot has counted is not told
		v.Failures, v.Started = 0, 0
	}
	return v, nil
}

// settleBySlot settles an attempt of several slots.
func (s *Store) settleBySlot(ctx context.Context, a *store.Attempt, parts []*lockPart, word string) (store.LockVerdict, error) {
	s.askLocks(parts, func(p *lockPart) { s.askBegin(ctx, p, 0, reserveWords[store.ReserveNever]) })
	v, err := merged(parts, len(a.Counters))
	if err != nil {
		return store.LockVerdict{Refused: -1}, err
	}
	if !v.Admitted() {
		s.giveUpPlaces(ctx, parts, a.Ticket)
		return v, nil
	}
	before := 0
	for i, p := range parts {
		s.askSettle(ctx, p, a.Ticket, word, before)
		if p.err != nil {
			return store.LockVerdict{Refused: -1}, p.err
		}
		if before = p.reply.last; !p.reply.v.Admitted() {
			s.giveUpPlaces(ctx, parts[i+1:], a.Ticket)
			break
		}
	}
	if v, err = merged(parts, len(a.Counters)); err == nil {
		s.indexStarted(ctx, parts)
	}
	return v, err
}

// giveUpPlaces gives back what a ticket may have reserved. A loss frees itself.
func (s *Store) giveUpPlaces(ctx context.Context, parts []*lockPart, ticket uint64) {
	if ticket == 0 || len(parts) == 0 {
		return
	}
	given := make([]*lockPart, len(parts)) // the replies of parts are still wanted
	for i, p := range parts {
		given[i] = &lockPart{index: p.index, counters: p.counters, account: p.account}
	}
	s.askLocks(given, func(p *lockPart) { s.askSettle(ctx, p, ticket, outcomeWords[store.Ignored], 0) })
}

// indexStarted enters the locks that have started where the index has a slot of
// its own. A lock holds whether or not it is listed.
func (s *Store) indexStarted(ctx context.Context, parts []*lockPart) {
	if !s.keys.slotPerKey {
		return
	}
	for _, p := range parts {
		counts := p.reply.counts
		for i := range len(p.counters) + 1 {
			if p.reply.v.Started&(1<<i) == 0 {
				continue
			}
			var c store.Counter
			var caller store.Key
			if i < len(p.counters) {
				c = p.counters[i]
			} else if c = p.account.Counter; p.reply.v.Known {
				caller = p.account.Caller
			}
			_ = s.noteLock(ctx, "settle", c.Scope, idOf(c.Key, caller), counts[0], c.Limit.Lockout)
			counts = counts[1:]
		}
	}
}

func (s *Store) noteLock(ctx context.Context, op, scope, id string, count int, lockout time.Duration) error {
	c := newCall(1)
	c.indexKey(s.keys, scope)
	c.text(id + ":" + strconv.Itoa(count))
	c.integer(micros(lockout))
	_, err := s.run(ctx, op, s.locks.index, c)
	return err
}

// idOf names a counter within its scope.
func idOf(key, caller store.Key) string {
	id := hex.EncodeToString(key[:])
	if caller != (store.Key{}) {
		id += hex.EncodeToString(caller[:])
	}
	return id
}

func errReply(text string) error { return fmt.Errorf("no answer of our script: %.40q", text) }
