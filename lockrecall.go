package weir

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/weir-go/weir/store"
)

// recallBound is how many locks, and apart from them how many callers, are
// remembered; those heard of least recently go first.
const recallBound = 1 << 16

// recall is what a store of failure counters that lives elsewhere has told lately:
// which locks hold, and who is known at which account. It is asked only while that
// store fails: so an outage neither frees who was locked before it nor locks out
// who would have been admitted to a locked account. While the store answers, its
// answer is what counts, for another process may have unlocked; a refusal is repeated
// for a second (see refuses).
type recall struct {
	base time.Time

	mu       sync.Mutex // guards what follows
	locks    *simplelru.LRU[lockID, seenLock]
	callers  *simplelru.LRU[lockID, int64] // until when they are known
	refusals *simplelru.LRU[refusalID, refusal]
	lifted   int64 // when a lock was last lifted here; what was asked before tells no lock
}

// seenLock is a lock that holds until an instant, and when it was heard of: an
// admission that was asked for before may be older than the lock.
type seenLock struct{ until, at int64 }

// lockID is one counter or, among callers, one address at one account.
type lockID struct {
	scope       string
	key, caller store.Key
}

func newRecall() *recall {
	r := &recall{base: time.Now()}
	r.locks, _ = simplelru.NewLRU[lockID, seenLock](recallBound, nil)
	r.callers, _ = simplelru.NewLRU[lockID, int64](recallBound, nil)
	r.refusals, _ = simplelru.NewLRU[refusalID, refusal](refusalBound, nil)
	return r
}

// now is nanoseconds since the recall was made, from 1 on.
func (r *recall) now() int64 { return int64(time.Since(r.base)) + 1 }

// after is an instant from now, without overflow.
func after(now int64, d time.Duration) int64 {
	if at := now + int64(d); at >= now {
		return at
	}
	return 1<<63 - 1
}

// counterID names the counter that a verdict means by an index.
func counterID(a *store.Attempt, i int, known bool) lockID {
	if i < len(a.Counters) {
		return lockID{scope: a.Counters[i].Scope, key: a.Counters[i].Key}
	}
	id := lockID{scope: a.Account.Scope, key: a.Account.Key}
	if known {
		id.caller = a.Account.Caller
	}
	return id
}

func callerID(acc *store.Account) lockID { return lockID{acc.Scope, acc.Key, acc.Caller} }

// counters is how many counters an attempt is under.
func counters(a *store.Attempt) int {
	if a.Account.Scope == "" {
		return len(a.Counters)
	}
	return len(a.Counters) + 1
}

// begun notes what the store said to the begin of an attempt, about which it was
// asked at the instant sent.
func (r *recall) begun(a *store.Attempt, v store.LockVerdict, sent int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(a, v, sent)
	if v.Admitted() && r.locks.Len() > 0 {
		for i := range counters(a) {
			id := counterID(a, i, v.Known)
			if l, ok := r.locks.Peek(id); ok && l.at <= sent { // lifted, or it has ended
				r.locks.Remove(id)
			}
		}
	}
}

// settled notes what the store said to an outcome, of which it was told at the
// instant sent.
func (r *recall) settled(a *store.Attempt, v store.LockVerdict, o store.Outcome, sent int64) {
	if o == store.Ignored {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(a, v, sent)
	now := r.now()
	for i := range counters(a) {
		if v.Started&(1<<i) != 0 && sent > r.lifted {
			limit := a.Account.Limit
			if i < len(a.Counters) {
				limit = a.Counters[i].Limit
			}
			r.locks.Add(counterID(a, i, v.Known), seenLock{after(now, limit.Lockout), now})
			r.remember(a, i, v.Known, limit.Lockout, sent)
		}
	}
	if acc := &a.Account; v.Admitted() && o == store.Succeeded && acc.Scope != "" && acc.Remember > 0 {
		r.callers.Add(callerID(acc), after(now, acc.Remember))
	}
}

// note notes what both answers tell. r.mu is held.
func (r *recall) note(a *store.Attempt, v store.LockVerdict, sent int64) {
	now, acc := r.now(), &a.Account
	if !v.Admitted() && !v.Full && sent > r.lifted {
		r.locks.Add(counterID(a, v.Refused, v.Known), seenLock{after(now, v.RetryAfter), now})
		r.remember(a, v.Refused, v.Known, v.RetryAfter, sent)
	}
	if acc.Scope == "" || acc.Admitted || acc.Remember <= 0 {
		return // a caller that is admitted anyway tells nothing
	}
	switch id := callerID(acc); {
	case !v.Known:
		r.callers.Remove(id)
	case !r.callers.Contains(id): // else it would be known longer each time
		r.callers.Add(id, after(now, acc.Remember))
	}
}

// admit marks an attempt of a caller that the store knew as one to be admitted to
// its account, for who stands in for the store.
func (r *recall) admit(a *store.Attempt) {
	acc := &a.Account
	if acc.Scope == "" || acc.Remember <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.callers.Peek(callerID(acc)); ok && r.now() <= until {
		acc.Admitted = true
	}
}

// locked is the longest lock in the way of an attempt that is remembered.
func (r *recall) locked(a *store.Attempt) store.LockVerdict {
	v := store.LockVerdict{Refused: -1, Known: a.Account.Scope != "" && a.Account.Admitted}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locks.Len() == 0 {
		return v
	}
	now := r.now()
	for i := range counters(a) {
		lock, ok := r.locks.Peek(counterID(a, i, v.Known))
		if wait := time.Duration(lock.until - now); ok && wait > v.RetryAfter {
			v.Refused, v.RetryAfter = i, wait
		}
	}
	return v
}

// forget drops a lock that was lifted by now.
func (r *recall) forget(scope string, key, caller store.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifted = r.now()
	r.locks.Remove(lockID{scope, key, caller})
	r.refusals.Purge() // it costs a call for each
}
