package weir

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Shaping (requirement T15): a request that lacks tokens is held until it has
// them, if that takes no longer than its class or tier allows. Those that lack
// tokens of the same bucket form a line in order of arrival. Only its head asks
// the store, when its tokens are due, and nobody who may wait asks past it: so
// a dear request gets its tokens however many cheap ones come after it, and a
// crowd costs the store no more than one request does. Requests that may not
// wait are decided by the bucket alone and can delay a line.
//
// A request stands in one keyed line at most, a client's say, and as its head
// also in the line of the bucket that all share, keeping its place meanwhile.
// The other way round nothing is kept: whoever lacks tokens of a key of its own
// stands there and not in the line of all, where others would wait for it. As
// places are taken in this order only, no two requests wait for each other.

// lines are the lines of one Limiter, by bucket.
type lines struct {
	n  atomic.Int64 // requests held
	mu sync.Mutex   // guards the maps, what is in them, and that n stays within its bound
	m  map[lineID]*line
	by map[store.Key]int // requests held, by address
}

// lineID names a line: that of a bucket and, where the bucket's key is only
// claimed, of the address that claims it. Otherwise a stranger could fill the
// line of an account that it names; so it competes for the account's tokens
// (which come back, see Disown), but takes no place of the account's own.
type lineID struct {
	scope    string
	key      store.Key
	claimant store.Key // zero where nobody has to be believed
}

func (b *basket) lineOf(i int) lineID {
	id := lineID{scope: b.checks[i].Scope, key: b.checks[i].Key}
	if b.uses[i].tier.source == fromAccount {
		id.claimant = b.claimant
	}
	return id
}

// line is the requests held for one bucket, the head first. It is never empty.
type line struct {
	id         lineID
	head, tail *place
	n          int
	cost       float64 // of all in it
}

// place is one held request's place in a line.
type place struct {
	line       *line
	next, prev *place
	cost       float64
	turn       chan struct{} // closed when the place becomes the head
}

func (ls *lines) held() int64 { return ls.n.Load() }

// busy returns the last check whose bucket has a line that its request has to
// join before it asks the store, or -1. Keyed buckets are checked after the
// shared one, so they come before it here. A request that stands in a keyed
// line (own) joins the line of all only, one that stands there none: lines that
// formed since it took its place are of those that came later.
func (ls *lines) busy(b *basket, own, all bool) int {
	if ls.n.Load() == 0 || all || !slices.ContainsFunc(b.uses, (*tierUse).holds) {
		return -1
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := len(b.checks) - 1; i >= 0; i-- {
		if u := b.uses[i]; !u.holds() || own && !u.shared() {
			continue
		}
		if ls.m[b.lineOf(i)] != nil {
			return i
		}
	}
	return -1
}

// holds reports whether a request may be held for tokens of the tier.
func (u *tierUse) holds() bool { return u.maxWait > 0 && !u.shadow }

// shared reports whether the tier has one bucket for all.
func (u *tierUse) shared() bool { return u.tier.source == fromNothing }

// wait returns how long a newcomer would wait for check i behind those in
// line: their costs have to be refilled before its own is. tokens is what is
// there, alone what it would wait if there were no line. ls.mu is held.
func (ls *lines) wait(b *basket, i int, alone time.Duration, tokens float64) time.Duration {
	c, ln := &b.checks[i], ls.m[b.lineOf(i)]
	if ln == nil {
		return alone
	}
	ns := (ln.cost + c.Cost - tokens) / c.Limit.Rate * 1e9
	return max(alone, time.Duration(min(ns, float64(store.Never/2))))
}

// lineShare is the part of MaxWaiting that one keyed line may take up, and one
// address in all lines together, so that a single client does not leave the
// others standing outside.
const lineShare = 8

// full reports whether there is no place for check i among limit. A request
// that is held already, in another line, needs no place of its own among all.
// ls.mu is held.
func (ls *lines) full(b *basket, i, limit int, held bool) bool {
	share := max(1, limit/lineShare)
	if !held && (int(ls.n.Load()) >= limit || ls.by[b.who] >= share) {
		return true
	}
	ln := ls.m[b.lineOf(i)]
	return ln != nil && !b.uses[i].shared() && ln.n >= share
}

// enter counts a request from an address among those held. ls.mu is held.
func (ls *lines) enter(who store.Key) {
	ls.n.Add(1)
	if ls.by == nil {
		ls.by = map[store.Key]int{}
	}
	ls.by[who]++
}

// exit takes it off again. ls.mu is held.
func (ls *lines) exit(who store.Key) {
	ls.n.Add(-1)
	if ls.by[who]--; ls.by[who] == 0 {
		delete(ls.by, who)
	}
}

// join takes the last place in the line of check i. ls.mu is held.
func (ls *lines) join(b *basket, i int) *place {
	c, id := &b.checks[i], b.lineOf(i)
	ln := ls.m[id]
	if ln == nil {
		ln = &line{id: id}
		if ls.m == nil {
			ls.m = map[lineID]*line{}
		}
		ls.m[id] = ln
	}
	p := &place{line: ln, cost: c.Cost, turn: make(chan struct{}), prev: ln.tail}
	ln.n++
	ln.cost += c.Cost
	if ln.tail == nil {
		ln.head = p
		close(p.turn)
	} else {
		ln.tail.next = p
	}
	ln.tail = p
	return p
}

// leave gives a place up, if it is one, and lets the next be the head. ls.mu
// is held.
func (ls *lines) leave(p *place) {
	if p == nil {
		return
	}
	ln := p.line
	ln.n--
	ln.cost -= p.cost
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		ln.tail = p.prev
	}
	if p.prev != nil {
		p.prev.next = p.next
		return
	}
	if ln.head = p.next; ln.head != nil {
		close(ln.head.turn)
	} else {
		delete(ls.m, ln.id)
	}
}
