package weir

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// maxLocksShown bounds the list of locks in a snapshot.
const maxLocksShown = 1000

// LockSnapshot is one lock that holds.
type LockSnapshot struct {
	Scope string `json:"scope"` // see LockedError.Scope
	// ID is the address for the scopes that have one; else it stands for the
	// account or the credential, as AuditEvent.Account does.
	ID         string        `json:"id"`
	Failures   int           `json:"failures"`
	RetryAfter time.Duration `json:"retry_after"` // until it ends, in nanoseconds
}

// AuthSnapshot is the auth lock's state. Its maps are by scope.
type AuthSnapshot struct {
	Failures map[string]uint64 `json:"failures"`
	Lockouts map[string]uint64 `json:"lockouts"` // locks that started
	Refused  map[string]uint64 `json:"refused"`
	Locked   map[string]int    `json:"locked"` // locks that hold; with a store that does not know, those in Locks
	Delaying int               `json:"delaying"`
	Locks    []LockSnapshot    `json:"locks"` // those that end last first; at most 1000 of each scope
}

// lockSnapshot returns nil where the auth lock is off.
func (l *Limiter) lockSnapshot(p *policy) *AuthSnapshot {
	if p.lock == nil {
		return nil
	}
	s := &AuthSnapshot{
		Failures: map[string]uint64{}, Lockouts: map[string]uint64{}, Refused: map[string]uint64{},
		Locked: map[string]int{}, Delaying: l.counts.sleepers.count(),
	}
	for w := range lockWords {
		n := &l.counts.locks[w]
		s.Failures[w.String()], s.Lockouts[w.String()], s.Refused[w.String()] = n.failures.value(), n.lockouts.value(), n.refused.value()
	}
	for _, w := range p.lock.words() {
		list := l.listLocks(p, w)
		s.Locked[w.String()] = 0
		if size := l.locker.LockSize(p.lock.scopes[w]); size.Max > 0 {
			if s.Locked[w.String()] = size.Locked; w == lockAccount {
				s.Locked[lockCaller.String()] = size.Callers
			}
		} else { // a store that does not know
			for _, one := range list {
				s.Locked[one.Scope]++
			}
		}
		s.Locks = append(s.Locks, list...)
	}
	slices.SortStableFunc(s.Locks, func(a, b LockSnapshot) int { return cmp.Compare(b.RetryAfter, a.RetryAfter) })
	return s
}

// listLocks asks the store for the locks of one scope. To those of a store that
// lives elsewhere come the ones that this process has begun while it stood in; while
// the store fails these are all there is to show.
func (l *Limiter) listLocks(p *policy, w lockWord) []LockSnapshot {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	locks, err := l.locker.Locks(ctx, p.lock.scopes[w], maxLocksShown, nil)
	if err != nil {
		l.storeFailed("locks", err)
	}
	if l.locker != store.Locker(l.local) && l.stoodIn.Load() {
		here, _ := l.local.Locks(ctx, p.lock.scopes[w], maxLocksShown-len(locks), nil)
		there := locks
		for _, k := range here {
			if !slices.ContainsFunc(there, func(o store.Lock) bool { return o.Key == k.Key && o.Caller == k.Caller }) {
				locks = append(locks, k)
			}
		}
	}
	list := make([]LockSnapshot, 0, len(locks))
	for _, k := range locks {
		one := LockSnapshot{Scope: w.String(), ID: keyText(k.Key), Failures: k.Failures, RetryAfter: k.Left}
		switch {
		case w == lockAccount && k.Caller != (store.Key{}):
			one.Scope = lockCaller.String()
		case w == lockCeiling, w == lockSpray, w == lockAddress && !p.lock.pair:
			one.ID = p.addressText(k.Key)
		}
		list = append(list, one)
	}
	return list
}

// addressText is the network that a key of an address stands for.
func (p *policy) addressText(k store.Key) string {
	switch k {
	case keyUnknown:
		return "unknown"
	case keyUnix:
		return "unix"
	}
	return p.prefixOf(netip.AddrFrom16(k).Unmap()).String()
}

// gatherLocks reports the samples of the auth lock. Before it was ever on there
// are none.
func (l *Limiter) gatherLocks(p *policy, emit func(name string, value float64, labels ...string)) {
	if !l.counts.authLock.Load() {
		return
	}
	for w := range lockWords {
		n, scope := &l.counts.locks[w], w.String()
		emit("auth_failures_total", float64(n.failures.value()), scope)
		emit("auth_lockouts_total", float64(n.lockouts.value()), scope)
		emit("auth_refused_total", float64(n.refused.value()), scope)
		emit("auth_shadowed_total", float64(n.shadowed.value()), scope)
	}
	emit("auth_delaying", float64(l.counts.sleepers.count()))
	emit("auth_delay_skipped_total", float64(l.counts.sleepers.skipped.value()))
	emit("auth_unsettled_total", float64(l.counts.unsettled.value()))
	if p == nil || p.lock == nil {
		return
	}
	for _, w := range p.lock.words() {
		size := l.locker.LockSize(p.lock.scopes[w])
		if size.Max == 0 {
			continue // not known: none is better than a wrong one
		}
		emit("auth_locked", float64(size.Locked), w.String())
		if w == lockAccount {
			emit("auth_locked", float64(size.Callers), lockCaller.String())
		}
		emit("auth_key_count", float64(size.Keys), w.String())
		emit("auth_max_keys", float64(size.Max), w.String())
		emit("auth_evicted_total", float64(size.Evicted), w.String())
	}
}
