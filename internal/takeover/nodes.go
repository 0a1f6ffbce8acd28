package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-go/weir/store"
)

// Where the remote store keeps its buckets on several nodes (store.Sharded), each
// node has a breaker. It is told of the calls to that node alone, of which there may
// be several in one call of the store, so that no node is blamed for another that
// hangs.

// nodes are the nodes that were ever called.
type nodes struct {
	mu     sync.RWMutex // guards byName
	byName map[string]*breaker
}

// of returns the breaker of a node, making it if need be.
func (n *nodes) of(name string, s *Store) *breaker {
	n.mu.RLock()
	b := n.byName[name]
	n.mu.RUnlock()
	if b != nil {
		return b
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if b = n.byName[name]; b == nil {
		b = newBreaker(s.opts.Stall)
		if n.byName == nil {
			n.byName = map[string]*breaker{}
		}
		n.byName[name] = b
	}
	return b
}

// isOpen reports whether the node of that name is not asked.
func (n *nodes) isOpen(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	b := n.byName[name]
	return b != nil && b.isOpen.Load()
}

// forget drops a node that is none any more.
func (n *nodes) forget(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.byName, name)
}

// stop opens all breakers for good.
func (n *nodes) stop() {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, b := range n.byName {
		b.stop()
	}
}

// nodeError says which node failed.
type nodeError struct {
	node string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.node, e.err) }
func (e *nodeError) Unwrap() error { return e.err }

// onErrand is the key of a context whose calls no breaker holds up: those that try
// whether a node is back, and tell it what was spent.
type onErrand struct{}

// beginAt is told of each call to a node; see store.Sharded.
func (s *Store) beginAt(ctx context.Context, name string) (context.Context, func(error) error, error) {
	if ctx.Value(onErrand{}) != nil {
		return ctx, func(err error) error { return err }, nil
	}
	b := s.nodes.of(name, s)
	c, ok, opened := b.enter(s.now())
	if opened {
		s.opened(name, b, errStalled)
	}
	if !ok {
		return ctx, nil, &nodeError{name, ErrOpen}
	}
	limited, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(c.ctx, cancel)
	return limited, func(err error) error {
		unlink()
		cancel()
		return s.endAt(ctx, name, b, c, err)
	}, nil
}

// endAt is told how a call to a node ended.
func (s *Store) endAt(ctx context.Context, name string, b *breaker, c call, err error) error {
	o := answered
	if err != nil {
		o = outcomeOf(ctx, err)
	}
	opened, mended := b.leave(c, s.now(), o)
	if err != nil {
		if c.ctx.Err() != nil && !opened {
			err = errGivenUp
		}
		err = &nodeError{name, err}
	}
	if opened {
		s.opened(name, b, err)
	}
	if mended {
		s.settleSoon()
	}
	return err
}

// outcomeOf says what an error tells of a node.
func outcomeOf(ctx context.Context, err error) outcome {
	t, _ := ctx.Value(toldKey{}).(*told)
	switch {
	case t != nil && (t.hurried && t.Err() != nil || errors.Is(t.caller.Err(), context.Canceled)):
		return moot
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return timedOut
	}
	return failed
}

// split tells of which checks the remote store is to be asked, and which stand on
// nodes that are not: those that are open, or down.
func (s *Store) split(checks []store.Check, down string) (there, here []int) {
	for i := range checks {
		name := s.sharded.Node(&checks[i])
		if s.stopped.Load() || s.nodes.isOpen(name) || down != "" && name == down {
			here = append(here, i)
		} else {
			there = append(there, i)
		}
	}
	return there, here
}

// decideAcross decides a call whose buckets may be on several nodes. Those of nodes
// that fail are decided here, the others there, and all or none is spent.
func (s *Store) decideAcross(ctx context.Context, op string, checks []store.Check, a *along, dst []store.State) (store.Verdict, []store.State, error) {
	err, down := error(ErrOpen), ""
	for range 2 { // a node that fails in this very call is left out at the second try
		there, here := s.split(checks, down)
		if len(there) == 0 {
			break
		}
		if len(here) > 0 {
			a = nil
		}
		var v store.Verdict
		var states []store.State
		if v, states, err = s.decideSplit(ctx, op, checks, there, here, a, dst); err == nil {
			return v, states, nil
		}
		at, ok := errors.AsType[*nodeError](err)
		if !ok || ctx.Err() != nil {
			break
		}
		down = at.node
	}
	if s.pass.Load() {
		if errors.Is(err, ErrOpen) {
			s.opts.Hooks.Failed(op, ReasonOf(ErrOpen), ErrOpen)
		}
		return store.Verdict{}, dst, err
	}
	return s.decideHere(checks, dst, op == "peek")
}

// decideSplit asks the remote store about some checks and the local one about the
// rest, in this order: what the local store would say, which costs nothing; then the
// remote one, which spends; then the local one spends. So a request that the local
// store refuses takes nothing from the others, and seldom is a remote spend to be
// given back: where another request has taken the last local token meanwhile.
func (s *Store) decideSplit(ctx context.Context, op string, checks []store.Check, there, here []int, a *along, dst []store.State) (store.Verdict, []store.State, error) {
	look := op == "peek"
	far, near := pick(checks, there), pick(checks, here)
	v := store.Verdict{Refused: -1}
	states := append(dst, make([]store.State, len(checks))...)
	out := states[len(dst):]
	if pass := s.pass.Load(); len(near) > 0 && pass {
		// Those of the lost node are not counted, as OnError says; the others are.
		for _, i := range here {
			out[i] = store.State{Tokens: max(0, checks[i].Limit.Burst)}
		}
		if !look {
			s.opts.Hooks.Failed(op, ReasonOf(ErrOpen), ErrOpen)
		}
		near = nil
	} else if len(near) > 0 {
		w, told, err := s.decideHere(near, nil, true)
		if err != nil {
			return v, dst, err
		}
		put(out, told, here)
		if !w.Admitted() {
			v = store.Verdict{Refused: here[w.Refused], RetryAfter: w.RetryAfter}
			if !look {
				s.countHere(arriving(near))
				s.arrivals.add(s, far)
			}
			for i, at := range there {
				out[at] = s.guessed(&far[i])
			}
			return v, states, nil
		}
	}
	w, told, err := s.decideThere(ctx, op, far, a)
	if err != nil {
		return v, dst, err
	}
	put(out, told, there)
	if !w.Admitted() {
		if !look {
			s.countHere(arriving(near))
		}
		return store.Verdict{Refused: there[w.Refused], RetryAfter: w.RetryAfter}, states, nil
	}
	if len(near) == 0 || look {
		return v, states, nil
	}
	w, told, err = s.decideHere(near, nil, false)
	if err != nil {
		return v, dst, err
	}
	put(out, told, here)
	if !w.Admitted() {
		_ = s.Refund(ctx, far) // as far as it can be: a window keeps its count
		v = store.Verdict{Refused: here[w.Refused], RetryAfter: w.RetryAfter}
	}
	return v, states, nil
}

// decideThere has the remote store decide, unless it is known to refuse.
func (s *Store) decideThere(ctx context.Context, op string, checks []store.Check, a *along) (store.Verdict, []store.State, error) {
	look := op == "peek"
	if v, states, ok := s.refusal(checks, nil, s.now(), look); ok {
		return v, states, nil
	}
	if look && s.peeker == nil {
		return store.Verdict{Refused: -1}, make([]store.State, len(checks)), nil
	}
	var due []store.Check
	if !look {
		due = s.arrivals.take(checks)
	}
	v, states, err := s.ask(ctx, s.anyNode(), op, checks, due, a, nil)
	if err != nil {
		s.countHere(due)
	}
	return v, states, err
}

// guessed is what is told of a check that nobody was asked about.
func (s *Store) guessed(c *store.Check) store.State {
	now := s.now()
	st := store.State{Tokens: s.seen.guess(c, now)}
	if c.Window > 0 {
		st.Reset = waitUntil(now, endOf(c, now))
	}
	return st
}

// anyNode is a call that the nodes' breakers look after.
func (s *Store) anyNode() call { return call{ctx: context.Background(), at: s.now(), free: true} }

// arriving are the windows that count a request although it is refused.
func arriving(checks []store.Check) (list []store.Check) {
	for _, c := range checks {
		if c.Always && c.Window > 0 && c.Cost > 0 {
			c.Shadow = true
			list = append(list, c)
		}
	}
	return list
}

func pick(checks []store.Check, index []int) []store.Check {
	if len(index) == len(checks) {
		return checks
	}
	list := make([]store.Check, len(index))
	for i, at := range index {
		list[i] = checks[at]
	}
	return list
}

func put(out, states []store.State, index []int) {
	for i, at := range index {
		out[at] = states[i]
	}
}

// awayFrom leaves out debts to nodes that are not asked, or, with a name, all but
// that node's.
func (s *Store) awayFrom(debts []debt, only string) []debt {
	return slices.DeleteFunc(debts, func(d debt) bool {
		c := d.check(0)
		name := s.sharded.Node(&c)
		return only != "" && name != only || only == "" && s.nodes.isOpen(name)
	})
}
