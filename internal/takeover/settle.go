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
	// settleTries is how often a bucket is asked to spend what it holds, if others
	// spend from it meanwhile.
	settleTries = 3
)

// debt is what the remote store is to be told of one bucket.
type debt struct {
	id    bucketID
	was   sight // as it was when the debt was drawn up
	cost  float64
	state store.State
	sent  int64
	done  bool
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
		d := &batch[i]
		d.cost = d.owed(now, back)
		d.done = d.cost <= 0
	}
	for range settleTries {
		if err := s.spend(ctx, batch); err != nil {
			return err
		}
		open := false
		for i := range batch {
			d := &batch[i]
			if d.done || d.state.Wait == 0 || d.was.window > 0 {
				d.done = true
				continue
			}
			d.cost = d.state.Tokens // somebody was quicker: take what is left
			open, d.done = true, d.cost <= 0
		}
		if !open {
			break
		}
	}
	for i := range batch {
		s.settled(&batch[i])
	}
	return nil
}

// owed is what the bucket is to give up: what was spent here, as far as it holds
// it, and what it can only hold because the remote store has forgotten.
func (d *debt) owed(now int64, back bool) float64 {
	there := d.state.Tokens
	ought := there
	if back {
		ought = min(there, d.was.level(now, d.was.limit))
	}
	if d.was.window > 0 {
		return there - ought + d.was.spent // counted in any case
	}
	return there - max(0, ought-d.was.spent)
}

// spend asks the remote store for the costs of those not done.
func (s *Store) spend(ctx context.Context, batch []debt) error {
	var checks []store.Check
	var asked []*debt
	for i := range batch {
		if d := &batch[i]; !d.done {
			checks, asked = append(checks, d.check(d.cost)), append(asked, d)
		}
	}
	if len(checks) == 0 {
		return nil
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
	for i, d := range asked {
		d.state, d.sent = states[i], sent
	}
	return nil
}

// settled notes that the remote store was told. What was spent here since is
// still owed, and the local bucket will begin anew from what the remote one holds.
func (s *Store) settled(d *debt) {
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
	e.tokens, e.at, e.seeded = d.state.Tokens, d.sent, false
	if e.window > 0 {
		e.ends = later(d.sent, d.state.Reset)
	}
}
