package takeover

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weir-go/weir/store"
)

// maxLeased is how many buckets of one call are looked for in leases.
const maxLeased = 8

// draw is what leases do for one call.
type draw struct {
	from  *leases
	taken [maxLeased]taken
	n     int // of taken
	asks  [maxLeased]askFor
	more  int // of asks
	begin *beginning
}

// taken is the cost of one check, out of a lease.
type taken struct {
	index int // of the check
	lot       // the cost, and the soonest end of what it was taken from
	left  float64
}

// askFor is a lease that is to be asked for.
type askFor struct {
	index  int // of the check whose bucket it is
	tokens float64
}

// covers reports whether a check needs no call.
func (d *draw) covers(index int) (*taken, bool) {
	for i := range d.taken[:d.n] {
		if d.taken[i].index == index {
			return &d.taken[i], true
		}
	}
	return nil, false
}

// draw takes from leases what a call asks, as far as they have it. ok is false
// if that is nothing, and nothing is to be asked for. With look nothing is taken.
func (s *Store) draw(checks []store.Check, now int64, look bool) (d draw, ok bool) {
	l := s.leases.Load()
	if l == nil || s.Degraded() {
		return d, false
	}
	d.from = l
	for i := range checks {
		c := &checks[i]
		long, leased := l.times[c.Scope]
		switch {
		case !leased, c.Window > 0, c.Shadow, !(c.Cost > 0), math.IsInf(c.Cost, 1), d.n == maxLeased, d.more == maxLeased:
			continue
		case sameEarlier(checks, i), sameLater(checks, i): // one spend of their sum
			continue
		}
		sh := l.of(bucketID{c.Scope, c.Key})
		e := sh.get(c, now)
		have := e.have(now)
		if look {
			if have >= c.Cost {
				d.taken[d.n] = taken{index: i, left: have}
				d.n++
			}
			sh.mu.Unlock()
			continue
		}
		e.count(c.Cost, now, long)
		if more := s.worthAsking(e, c, have-c.Cost, now, long); more > 0 {
			e.asking = now + int64(s.opts.Timeout)
			d.asks[d.more] = askFor{i, more}
			d.more++
		}
		if have >= c.Cost {
			d.taken[d.n] = taken{i, e.take(c.Cost), have - c.Cost}
			d.n++
		}
		sh.mu.Unlock()
	}
	return d, d.n > 0 || d.more > 0
}

// worthAsking is how much more is to be taken in advance: half of what is asked in
// the lease's time, so that it is used up before it ends, but no more than half of
// what the bucket may hold, so that other replicas find some, nor than refills in
// that time. The lease's shard is locked.
func (s *Store) worthAsking(e *lease, c *store.Check, left float64, now int64, long time.Duration) float64 {
	want := math.Floor(min(e.asked/2, c.Limit.Rate*long.Seconds()))
	if now < e.asking || want < leaseLeast || left >= leaseLow*want {
		return 0
	}
	// With whole costs of more than one, a part of one is no use.
	if want = math.Floor(min(want, s.seen.guess(c, now)/2)); want < max(leaseLeast, c.Cost) {
		return 0
	}
	return want
}

// check asks for a lease: it refuses nothing, and takes nothing from a bucket that
// does not hold all of it.
func (a *askFor) check(checks []store.Check) store.Check {
	c := checks[a.index]
	return store.Check{Scope: c.Scope, Key: c.Key, Limit: c.Limit, Cost: a.tokens, Shadow: true}
}

// wanted are the checks that ask for leases.
func (d *draw) wanted(checks []store.Check) []store.Check {
	if d.more == 0 {
		return nil
	}
	list := make([]store.Check, d.more)
	for i := range list {
		list[i] = d.asks[i].check(checks)
	}
	return list
}

// undo puts back what a call has taken: it was refused.
func (d *draw) undo(checks []store.Check) {
	for i := range d.taken[:d.n] {
		t := &d.taken[i]
		c := &checks[t.index]
		sh := d.from.of(bucketID{c.Scope, c.Key})
		if e, ok := sh.held.Peek(bucketID{c.Scope, c.Key}); ok && e.limit == c.Limit {
			e.put(t.lot)
		}
		sh.mu.Unlock()
	}
}

// decideDrawn decides a call of which leases cover a part, or that asks for more.
func (s *Store) decideDrawn(ctx context.Context, op string, checks []store.Check, d *draw, now int64, dst []store.State) (store.Verdict, []store.State, error) {
	if d.n == len(checks) {
		if d.more > 0 {
			s.renew(d.from, d.wanted(checks))
		}
		for i := range checks {
			dst = append(dst, s.drawn(checks, i, d, now))
		}
		return store.Verdict{Refused: -1}, dst, nil
	}
	rest, index := make([]store.Check, 0, len(checks)), make([]int, 0, len(checks))
	for i := range checks {
		if _, ok := d.covers(i); !ok {
			rest, index = append(rest, checks[i]), append(index, i)
		}
	}
	more := &along{leases: d.from, checks: d.wanted(checks), begin: d.begin}
	v, states, err := s.decideAll(ctx, op, rest, more, nil)
	more.end()
	if op != "peek" && (err != nil || !v.Admitted()) {
		d.undo(checks)
	}
	if err != nil {
		return store.Verdict{}, dst, err
	}
	from := len(dst)
	dst = append(dst, make([]store.State, len(checks))...)
	for i := range checks {
		if _, ok := d.covers(i); ok {
			dst[from+i] = s.drawn(checks, i, d, now)
		}
	}
	for i, at := range index {
		dst[from+at] = states[i]
	}
	if !v.Admitted() {
		v.Refused = index[v.Refused]
	}
	return v, dst, nil
}

// drawn is the state of a check that a lease covers: what the bucket may hold, as
// far as is known here, and what is left of the lease.
func (s *Store) drawn(checks []store.Check, i int, d *draw, now int64) store.State {
	c := &checks[i]
	t, _ := d.covers(i)
	return store.State{Tokens: min(c.Limit.Burst, s.seen.guess(c, now)+t.left)}
}

// along is what goes along with a call to the remote store: checks that ask for
// leases, and an attempt to begin.
type along struct {
	leases *leases
	checks []store.Check
	told   bool // an answer has come
	begin  *beginning
}

func (a *along) any() bool { return a != nil && len(a.checks) > 0 }

// end notes that no answer came, if none has come.
func (a *along) end() {
	if a.any() && !a.told {
		a.leases.granted(a.checks, nil, 0)
	}
}

// answered notes what became of what went along with a call that asked checks.
func (s *Store) answered(a *along, checks []store.Check, states []store.State, v store.Verdict, sent int64) {
	a.told = true
	for i := range a.checks {
		// What a bucket holds, its own check tells where there is one, and whether
		// it refuses: what goes along never does.
		if !slices.ContainsFunc(checks, func(c store.Check) bool { return sameBucket(&c, &a.checks[i]) }) {
			s.seen.note(a.checks[i:i+1], states[i:i+1], v, sent, s.opts.Recheck)
		}
	}
	if !v.Admitted() {
		states = nil // nothing was spent
	}
	a.leases.granted(a.checks, states, sent)
}

// renew asks for leases without a request that waits for it.
func (s *Store) renew(l *leases, asks []store.Check) {
	s.background(func(ctx context.Context) {
		a := &along{leases: l, checks: asks}
		defer a.end()
		if c, ok := s.enterAny(); ok {
			_, _, _ = s.ask(ctx, c, "lease", nil, nil, a, nil) // the hook was told
		}
	})
}
