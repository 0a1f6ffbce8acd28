package takeover

import (
	"hash/maphash"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/weir-go/weir/store"
)

const (
	// leaseKeys is how many buckets one may hold tokens of in advance, in each of
	// 16 shards: the ones asked least recently lose theirs.
	leaseKeys = 256
	// leaseLeast is the least that is worth taking in advance. At less, a call for
	// the lease saves no other.
	leaseLeast = 2
	// leaseLow is the part of a lease with which more is asked for, so that it is
	// there before this one is used up.
	leaseLow = 0.25
	// maxLots is how many leases of one bucket are told apart.
	maxLots = 8
)

// leases are tokens that this process has spent of remote buckets in advance, and
// gives to its requests without a call (requirement S10).
//
// A lot is usable for the lease's time, from the instant at which the call was
// sent that brought it. What is admitted in a window of length W was therefore
// taken from the bucket within the window or the lease's time before it, and so is
// no more than burst + rate·(W + time), whatever the number of replicas. To give
// back what is left at the end would save a little, and break that where the
// giving back is late: it expires.
type leases struct {
	times  map[string]time.Duration // by scope; is not written any more
	seed   maphash.Seed
	shards [16]leaseShard
}

type leaseShard struct {
	mu   sync.Mutex
	held *simplelru.LRU[bucketID, *lease]
}

// lease is what is held of one bucket.
type lease struct {
	limit  store.Limit
	lots   []lot   // by their ends
	asked  float64 // lately: an average over the lease's time, times that time
	at     int64   // when it was that much
	asking int64   // until then a call that asks for more is under way
}

// lot is so many tokens until then.
type lot struct {
	tokens float64
	until  int64
}

func newLeases(times map[string]time.Duration) *leases {
	l := &leases{times: maps.Clone(times), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].held, _ = simplelru.NewLRU[bucketID, *lease](leaseKeys, nil)
	}
	return l
}

// SetLeases says of which scopes tokens are taken in advance from now on, and for
// how long. Of the others, or if anything has changed of all, what is held is lost.
func (s *Store) SetLeases(times map[string]time.Duration) {
	was := s.leases.Load()
	switch {
	case len(times) == 0:
		s.leases.Store(nil)
	case was == nil || !maps.Equal(was.times, times):
		s.leases.Store(newLeases(times))
	}
}

// of returns the shard of a bucket, locked.
func (l *leases) of(id bucketID) *leaseShard {
	sh := &l.shards[maphash.Comparable(l.seed, id)%uint64(len(l.shards))]
	sh.mu.Lock()
	return sh
}

// get returns the lease of a bucket under the limit in force: that of another
// limit has ended. The shard is locked.
func (sh *leaseShard) get(c *store.Check, now int64) *lease {
	id := bucketID{c.Scope, c.Key}
	e, ok := sh.held.Get(id)
	if !ok {
		e = &lease{limit: c.Limit, at: now}
		sh.held.Add(id, e)
	}
	if e.limit != c.Limit {
		e.limit, e.lots, e.asking = c.Limit, e.lots[:0], 0
	}
	return e
}

// count follows how much is asked.
func (e *lease) count(cost float64, now int64, long time.Duration) {
	if now > e.at {
		e.asked *= math.Exp(-float64(now-e.at) / float64(long))
		e.at = now
	}
	e.asked += cost
}

// have drops what has ended, and tells what is left.
func (e *lease) have(now int64) (sum float64) {
	over := 0
	for over < len(e.lots) && (now >= e.lots[over].until || e.lots[over].tokens <= 0) {
		over++
	}
	e.lots = append(e.lots[:0], e.lots[over:]...)
	for _, lot := range e.lots {
		sum += lot.tokens
	}
	return sum
}

// take takes a cost that is there, out of what ends first.
func (e *lease) take(cost float64) lot {
	out := lot{cost, e.lots[0].until}
	for i := range e.lots {
		part := min(cost, e.lots[i].tokens)
		e.lots[i].tokens -= part
		if cost -= part; cost <= 0 {
			break
		}
	}
	return out
}

// put adds a lot. Of too many, the two that end first become one, which ends with
// the sooner.
func (e *lease) put(add lot) {
	at := 0
	for at < len(e.lots) && e.lots[at].until < add.until {
		at++
	}
	if at < len(e.lots) && e.lots[at].until == add.until {
		e.lots[at].tokens += add.tokens
		return
	}
	e.lots = append(e.lots, lot{})
	copy(e.lots[at+1:], e.lots[at:])
	e.lots[at] = add
	if len(e.lots) > maxLots {
		e.lots[0].tokens += e.lots[1].tokens
		e.lots = append(e.lots[:1], e.lots[2:]...)
	}
}

// granted notes what became of leases asked for in a call sent at the instant
// sent; nil states are none.
func (l *leases) granted(asks []store.Check, states []store.State, sent int64) {
	for i := range asks {
		c := &asks[i]
		sh := l.of(bucketID{c.Scope, c.Key})
		if e, ok := sh.held.Peek(bucketID{c.Scope, c.Key}); ok && e.limit == c.Limit {
			e.asking = 0
			if states != nil && states[i].Wait == 0 {
				e.put(lot{c.Cost, later(sent, l.times[c.Scope])})
			}
		}
		sh.mu.Unlock()
	}
}

// drop ends the leases of a scope, or of one bucket of it, or, of no scope, all.
func (l *leases) drop(scope string, key *store.Key) {
	if l == nil {
		return
	}
	for i := range l.shards {
		sh := &l.shards[i]
		sh.mu.Lock()
		for _, id := range sh.held.Keys() {
			if (scope == "" || id.scope == scope) && (key == nil || id.key == *key) {
				if e, ok := sh.held.Peek(id); ok {
					e.lots = e.lots[:0]
				}
			}
		}
		sh.mu.Unlock()
	}
}
