package takeover

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/weir-go/weir/store"
)

// bucketID names a bucket or window.
type bucketID struct {
	scope string
	key   store.Key
}

// sight is what is known here of one bucket or window: what the remote store
// last said of it, and what was spent from it here since. Instants are nanoseconds
// of the process's own clock; an answer is taken to be as old as its question,
// so that what is concluded from it errs to the side of less.
type sight struct {
	limit  store.Limit
	window time.Duration // 0: a bucket
	tokens float64       // at the instant at
	at     int64
	ends   int64 // a window's end

	// While now < until, cost or more is refused: the tokens are there at free.
	until, free int64
	cost        float64

	seeded bool    // the local bucket goes on from here
	spent  float64 // here, and not yet told the remote store
}

// level is what the remote bucket can hold at now, if nothing was given back to
// it since: what it held, and what has refilled.
func (s *sight) level(now int64, l store.Limit) float64 {
	if s.window > 0 {
		if now >= s.ends {
			return l.Burst
		}
		return max(0, min(l.Burst, s.tokens+l.Burst-s.limit.Burst)) // units used stay used
	}
	tokens := s.tokens
	if now > s.at && l.Rate > 0 {
		tokens += float64(now-s.at) / 1e9 * l.Rate
	}
	return min(tokens, l.Burst)
}

// refuses reports whether the remote store's refusal holds for c.
func (s *sight) refuses(c *store.Check, now int64) bool {
	return now < s.until && c.Cost >= s.cost && c.Limit == s.limit && c.Window == s.window
}

// freeFor is when the cost of c, which is refused now, is there.
func (s *sight) freeFor(c *store.Check) int64 {
	switch more := c.Cost - s.cost; {
	case more == 0:
		return s.free
	case c.Cost > c.Limit.Burst:
		return math.MaxInt64
	case c.Window > 0:
		return s.free
	case !(c.Limit.Rate > 0) || more/c.Limit.Rate > 1e9: // 30 years
		return math.MaxInt64
	default:
		return later(s.free, time.Duration(math.Ceil(more/c.Limit.Rate*1e9)))
	}
}

// nearlyFull is the part of its burst with which a bucket is not worth
// remembering: else a spray of new addresses, each of which spends once, would
// have the ones forgotten that are used up.
const nearlyFull = 0.9

// sights are all that is known, in shards with a lock each. A call to another
// process has been made or is being saved wherever one of them is looked at, so a
// strict order of recency costs little beside it.
//
// What was asked before the local store last took over is believed only where it says
// less than is known: the server that answers may have lost everything since, and
// with the rest of what it says, what is used up would be there again.
type sights struct {
	fell   atomic.Int64 // when the local store last took over
	seed   maphash.Seed
	shards [16]shard
}

type shard struct {
	mu    sync.Mutex
	known *simplelru.LRU[bucketID, *sight]
	given int64 // when tokens of one of these were last given back, or forgotten
}

func newSights(bound int) *sights {
	s := &sights{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].known, _ = simplelru.NewLRU[bucketID, *sight](max(1, bound/len(s.shards)), nil)
	}
	return s
}

// before reports whether the local store has taken over since an instant.
func (s *sights) before(sent int64) bool { return sent <= s.fell.Load() }

// of returns the shard of a check's bucket, locked.
func (s *sights) of(c *store.Check) (*shard, bucketID) {
	id := bucketID{c.Scope, c.Key}
	sh := &s.shards[maphash.Comparable(s.seed, id)%uint64(len(s.shards))]
	sh.mu.Lock()
	return sh, id
}

// get returns what is known of a bucket, making it if need be: of one that was
// never heard of, that it is full. The shard is locked.
func (sh *shard) get(id bucketID, c *store.Check, now int64) *sight {
	if e, ok := sh.known.Get(id); ok {
		if (e.window > 0) == (c.Window > 0) {
			return e
		}
	}
	e := &sight{limit: c.Limit, window: c.Window, tokens: c.Limit.Burst, at: now, ends: endOf(c, now)}
	sh.known.Add(id, e)
	return e
}

// endOf is when the window ends in which now lies, by this machine's clock.
func endOf(c *store.Check, now int64) int64 {
	if c.Window <= 0 {
		return 0
	}
	return now + int64(c.Window) - time.Now().UnixNano()%int64(c.Window)
}

// guess is what a remote bucket may hold at now, as far as is known here.
func (s *sights) guess(c *store.Check, now int64) float64 {
	sh, id := s.of(c)
	defer sh.mu.Unlock()
	if e, ok := sh.known.Peek(id); ok && e.window == c.Window {
		return max(0, e.level(now, c.Limit))
	}
	return c.Limit.Burst
}

// note remembers what the remote store said of a call sent at the instant sent.
func (s *sights) note(checks []store.Check, states []store.State, v store.Verdict, sent int64, recheck time.Duration) {
	for i := range checks {
		c, st := &checks[i], &states[i]
		// Of several checks of one bucket the last one tells what it holds, and
		// none tells what it would have refused alone.
		if sameLater(checks, i) {
			continue
		}
		refused := !v.Admitted() && !c.Shadow && st.Wait > 0 && c.Cost > 0 && recheck > 0 && !sameEarlier(checks, i)
		sh, id := s.of(c)
		e, ok := sh.known.Get(id)
		switch {
		case ok && e.at > sent:
			sh.mu.Unlock()
			continue // an answer to a later question came sooner
		case ok && e.window == c.Window && s.before(sent) && st.Tokens >= e.level(sent, c.Limit):
			sh.mu.Unlock()
			continue
		case !ok && !refused && st.Tokens >= nearlyFull*c.Limit.Burst:
			sh.mu.Unlock()
			continue
		}
		e = sh.get(id, c, sent)
		e.limit, e.window, e.tokens, e.at = c.Limit, c.Window, st.Tokens, sent
		e.ends = later(sent, st.Reset)
		e.until, e.seeded = 0, false
		// Tokens given back while the question was under way may be there now.
		if refused && sent > sh.given {
			e.free = later(sent, st.Wait)
			e.until, e.cost = min(e.free, later(sent, recheck)), c.Cost
		}
		sh.mu.Unlock()
	}
}

// giveBack notes that the cost of a check is given back. It reports whether the
// remote store has to be told: not if it never was that the cost was spent.
func (s *sights) giveBack(c *store.Check, now int64) (tell bool) {
	if c.Window > 0 || !(c.Cost > 0) {
		return false
	}
	sh, id := s.of(c)
	defer sh.mu.Unlock()
	sh.given = now
	e, ok := sh.known.Peek(id)
	if !ok {
		return true
	}
	e.until = 0
	if e.spent >= c.Cost {
		e.spent -= c.Cost
		return false
	}
	e.tokens = min(e.level(now, c.Limit)+c.Cost, c.Limit.Burst)
	e.at = max(e.at, now)
	return true
}

// forget drops what is known of a bucket, and what is owed to it.
func (s *sights) forget(scope string, key store.Key, now int64) {
	c := store.Check{Scope: scope, Key: key}
	sh, id := s.of(&c)
	defer sh.mu.Unlock()
	sh.given = now
	sh.known.Remove(id)
}

// drop forgets a whole scope.
func (s *sights) drop(scope string, now int64) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.given = now
		for _, id := range sh.known.Keys() {
			if id.scope == scope {
				sh.known.Remove(id)
			}
		}
		sh.mu.Unlock()
	}
}

func sameBucket(a, b *store.Check) bool { return a.Scope == b.Scope && a.Key == b.Key }

func sameLater(checks []store.Check, i int) bool {
	for j := i + 1; j < len(checks); j++ {
		if sameBucket(&checks[i], &checks[j]) {
			return true
		}
	}
	return false
}

func sameEarlier(checks []store.Check, i int) bool {
	for j := range i {
		if sameBucket(&checks[i], &checks[j]) {
			return true
		}
	}
	return false
}

// later adds without overflow.
func later(at int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + int64(d)
}
