package takeover

import (
	"context"
	"slices"

	"github.com/weir-go/weir/store"
)

const (
	// settleBatch is how many buckets the remote store is told of in one call.
	settleBatch = 32
	// settleFirst is how many it is told of before it decides again; the others
	// follow. It bounds what its return takes, and so how long more is spent here.
	settleFirst = 4096
	// settleTries is how often a bucket is asked to spend, if others spend from it
	// meanwhile, or if the server loses it meanwhile.
	settleTries = 3
	// settleLeast is the part of a burst that is worth asking for.
	settleLeast = 1e-9
)

// debt is what the remote store is to be told of one bucket.
type debt struct {
	id    bucketID
	was   sight // as it was when the debt was drawn up
	left  sight // as it is at most once the debt is paid
	cost  float64
	state store.State
	sent  int64
}

// check asks the bucket of a debt for cost. It refuses nothing, and takes nothing
// from a bucket that does not hold it; a window counts it in any case.
func (d *debt) check(cost float64) store.Check {
	return store.Check{Scope: d.id.scope, Key: d.id.key, Limit: d.was.limit, Window: d.was.window, Cost: cost, Shadow: true, Always: d.was.window > 0 && cost > 0}
}

// settleReturn tells the remote store, or a node of it, what was spent here, and
// holds it to what each bucket can have refilled since it was seen last: it may
// have come back empty.
func (s *Store) settleReturn(ctx context.Context, node string, b *breaker) error {
	switch {
	case s.sharded == nil:
		return s.settle(ctx, s.debts(true, settleFirst), true)
	case b == s.breaker: // of a Locker, which has no debts here
		return nil
	}
	debts := s.awayFrom(s.debts(true, 0), node)
	return s.settle(ctx, debts[:min(settleFirst, len(debts))], true)
}

// settleMoved tells the nodes that have taken over what another had. Which buckets
// those are is not known any more; they are among the ones that were decided here.
func (s *Store) settleMoved(ctx context.Context) error {
	return s.settle(ctx, slices.DeleteFunc(s.awayFrom(s.debts(true, 0), ""), func(d debt) bool { return !d.was.seeded }), true)
}

// settleAll tells the remote store what was spent here, as far as it is there.
func (s *Store) settleAll(ctx context.Context) error {
	debts := s.debts(false, 0)
	if s.sharded != nil {
		debts = s.awayFrom(debts, "")
		ctx = context.WithValue(ctx, onErrand{}, true)
	}
	return s.settle(ctx, debts, false)
}

// settle pays debts; back says that they are to be held against what was seen.
func (s *Store) settle(ctx context.Context, debts []debt, back bool) error {
	for len(debts) > 0 {
		batch := debts[:min(settleBatch, len(debts))]
		debts = debts[len(batch):]
		if err := s.tell(ctx, batch, back); err != nil {
			return err
		}
	}
	return nil
}

// debts draws up what is owed, and on the return what is not full. n bounds them; 0
// is no bound.
func (s *Store) debts(back bool, n int) (debts []debt) {
	now := s.now()
	for i := range s.seen.shards {
		sh := &s.seen.shards[i]
		sh.mu.Lock()
		for _, id := range sh.known.Keys() {
			e, _ := sh.known.Peek(id)
			if e.window > 0 && now >= e.ends {
				e.spent = 0
				continue
			}
			if e.spent > 0 || back && e.level(now, e.limit) < e.limit.Burst {
				debts = append(debts, debt{id: id, was: *e})
			}
		}
		sh.mu.Unlock()
		if n > 0 && len(debts) >= n {
			return debts[:n]
		}
	}
	return debts
}

// tell tells the remote store of a batch.
func (s *Store) tell(ctx context.Context, batch []debt, back bool) error {
	for i := range batch {
		batch[i].cost = 0
	}
	if err := s.spend(ctx, batch); err != nil { // a cost of 0 asks what is there
		return err
	}
	now := s.now()
	for i := range batch {
		batch[i].owe(now, back)
	}
	for try := 0; try < settleTries && slices.ContainsFunc(batch, func(d debt) bool { return d.cost > 0 }); try++ {
		if err := s.spend(ctx, batch); err != nil {
			return err
		}
		now := s.now()
		for i := range batch {
			batch[i].oweMore(now, back)
		}
	}
	for i := range batch {
		s.settled(&batch[i], back)
	}
	return nil
}

// owe says what the bucket is to give up: what was spent here, as far as it holds
// it, and what it can only hold because the remote store has forgotten.
func (d *debt) owe(now int64, back bool) {
	there := d.state.Tokens
	ought := there
	if back {
		ought = min(there, d.was.level(now, d.was.limit))
	}
	// It refills from the question on, not from the answer: else a slow answer
	// before a quick one would look like tokens that cannot be there.
	d.left = sight{limit: d.was.limit, window: d.was.window, tokens: max(0, ought-d.was.spent), at: d.sent, ends: later(d.sent, d.state.Reset)}
	d.cost = there - d.left.tokens
	if d.was.window > 0 {
		d.cost = there - ought + d.was.spent // counted in any case
	}
}

// oweMore says what is to be given up still. That the bucket has held what it
// should does not say that it does now: between two calls, or while one is under
// way, the server may have lost everything.
func (d *debt) oweMore(now int64, back bool) {
	switch {
	case d.state.Wait > 0 && d.was.window <= 0:
		d.cost = d.state.Tokens // somebody was quicker: take what is left
	case back:
		d.cost = d.state.Tokens - d.left.level(now, d.left.limit)
	default:
		d.cost = 0
	}
	if d.cost < settleLeast*d.left.limit.Burst {
		d.cost = 0 // or a rounding error
	}
}

// spend asks the remote store for what is owed. Of those that owe nothing it asks
// what they hold, which tells whether they were lost meanwhile.
func (s *Store) spend(ctx context.Context, batch []debt) error {
	checks := make([]store.Check, len(batch))
	for i := range batch {
		checks[i] = batch[i].check(batch[i].cost)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	sent := s.now()
	var states []store.State
	err := contained(ctx, func(ctx context.Context) (err error) {
		_, states, err = s.remote.Admit(ctx, checks, nil)
		if err == nil && len(states) != len(checks) {
			err = errStates
		}
		return err
	})
	if err != nil {
		s.opts.Hooks.Failed("owed", ReasonOf(err), err)
		return err
	}
	for i := range batch {
		batch[i].state, batch[i].sent = states[i], sent
	}
	return nil
}

// settled notes that the remote store was told. What was spent here since is
// still owed, and the local bucket will begin anew from what the remote one holds,
// unless that cannot be.
func (s *Store) settled(d *debt, back bool) {
	c := d.check(0)
	sh, id := s.seen.of(&c)
	defer sh.mu.Unlock()
	e, ok := sh.known.Peek(id)
	if !ok || e.window != d.was.window {
		return
	}
	e.spent = max(0, e.spent-d.was.spent)
	if e.at > d.sent {
		return
	}
	tokens := d.state.Tokens
	if back {
		tokens = min(tokens, d.left.level(d.sent, d.left.limit))
	}
	// Of the calls the first one counts: that which spends may go to a server that
	// has come back empty since.
	doubted := s.seen.before(d.left.at) || !back && s.Degraded()
	if known := max(0, e.level(d.sent, e.limit)-d.was.spent); doubted && known <= tokens {
		e.tokens, e.at = known, d.sent // and the local bucket goes on
		return
	}
	e.tokens, e.at, e.seeded = tokens, d.sent, false
	if e.window > 0 {
		e.ends = later(d.sent, d.state.Reset)
	}
}
