package weir

import (
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// refusalRecheck is how long a refusal by a store that lives elsewhere is repeated
	// without asking it again: a flood of guesses at what is locked costs it one call a
	// second for each that guesses. A lock that another process lifts holds here for
	// that much longer, at most.
	refusalRecheck = time.Second
	// refusalBound is how many refusals are remembered; those met least recently go.
	refusalBound = 1 << 14
)

// refusalID is what was refused: whoever is under a counter or, at an account, one
// caller, since others may be known there. known says that it was the caller's own
// counter that is locked, which is that of a caller who is admitted.
type refusalID struct {
	lockID
	known bool
}

// refusal is a lock that holds until an instant, and when to ask about it again.
type refusal struct{ until, again int64 }

func refusalOf(a *store.Attempt, i int, known bool) refusalID {
	if i < len(a.Counters) {
		return refusalID{lockID: counterID(a, i, false)}
	}
	return refusalID{callerID(&a.Account), known}
}

// remember notes that counter i was locked for a time, as a question sent at an
// instant was answered. r.mu is held.
func (r *recall) remember(a *store.Attempt, i int, known bool, wait time.Duration, sent int64) {
	until := after(r.now(), wait)
	r.refusals.Add(refusalOf(a, i, known), refusal{until, min(until, after(sent, refusalRecheck))})
}

// refused remembers a refusal that this process has decided on by itself after it
// had asked the store.
func (r *recall) refused(a *store.Attempt, v store.LockVerdict, sent int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent > r.lifted {
		r.remember(a, v.Refused, v.Known, v.RetryAfter, sent)
	}
}

// refuses is the longest lock in the way of an attempt that the store has told of
// within the last second.
func (r *recall) refuses(a *store.Attempt) store.LockVerdict {
	v := store.LockVerdict{Refused: -1}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals.Len() == 0 {
		return v
	}
	now := r.now()
	look := func(i int, known bool) {
		f, ok := r.refusals.Get(refusalOf(a, i, known))
		if wait := time.Duration(f.until - now); ok && now < f.again && wait > v.RetryAfter {
			v = store.LockVerdict{Refused: i, RetryAfter: wait, Known: known}
		}
	}
	for i := range a.Counters {
		look(i, false)
	}
	if acc := &a.Account; acc.Scope != "" {
		look(len(a.Counters), true)
		if !acc.Admitted {
			look(len(a.Counters), false)
		}
	}
	return v
}
