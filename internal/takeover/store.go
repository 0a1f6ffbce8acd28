package takeover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// Store is a remote store with a local one that takes over while it fails. It is
// safe for concurrent use; the zero Store is not usable, see [New]. While the
// remote store fails, a goroutine tries whether it is back; Close and Retire end
// it.
type Store struct {
	remote   store.Store
	peeker   store.Peeker // nil: the remote store cannot look without spending
	local    *store.Memory
	opts     Options
	base     time.Time
	breaker  *breaker      // of all calls, or, if the store is sharded, of those of a Locker
	sharded  store.Sharded // nil: all is on one node
	nodes    nodes
	opens    atomic.Int32 // nodes whose breaker is open
	stopped  atomic.Bool
	seen     *sights
	arrivals arrivals
	leases   atomic.Pointer[leases] // nil: none are taken
	pass     atomic.Bool
	closed   atomic.Bool
	settling atomic.Bool // a goroutine tells the remote store what was spent here

	mu      sync.Mutex // guards retired, and the start of what work waits for
	retired bool
	work    sync.WaitGroup
	ctx     context.Context // of all work in the background
	cancel  context.CancelFunc
}

var (
	_ store.Store      = (*Store)(nil)
	_ store.Peeker     = (*Store)(nil)
	_ store.Configurer = (*Store)(nil)
	_ store.Sizer      = (*Store)(nil)
	_ store.Adviser    = (*Store)(nil)
)

// New puts a Store before a remote one. Of local, which nobody else must spend
// from, it takes what it needs to decide meanwhile.
func New(remote store.Store, local *store.Memory, o Options) *Store {
	s := &Store{remote: remote, local: local, opts: o.withDefaults(), base: time.Now()}
	s.peeker, _ = remote.(store.Peeker)
	s.seen = newSights(s.opts.Keys)
	s.pass.Store(o.Pass)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.breaker = newBreaker(s.opts.Stall)
	if sharded, ok := remote.(store.Sharded); ok && sharded.Watch(s.beginAt) {
		s.sharded = sharded
	}
	return s
}

// now is nanoseconds since the Store was made, from 1 on.
func (s *Store) now() int64 { return int64(time.Since(s.base)) + 1 }

// SetPass says whether, from now on, what the remote store cannot decide fails
// with an error instead of being decided here.
func (s *Store) SetPass(on bool) { s.pass.Store(on) }

// Degraded reports whether the local store decides now: about everything, or, of a
// remote store with several nodes, about what one of them has.
func (s *Store) Degraded() bool { return s.breaker.isOpen.Load() || s.opens.Load() > 0 }

// Admit implements [store.Store]. Its only errors are [store.ErrClosed] and, with
// Pass, those of the remote store and [ErrOpen].
func (s *Store) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return s.decide(ctx, "admit", checks, nil, dst)
}

// Peek implements [store.Peeker]. Of a remote store that cannot look without
// spending it tells what it has refused, and of all else that it would pass.
func (s *Store) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return s.decide(ctx, "peek", checks, nil, dst)
}

// decide decides, and begins the attempt of g, if that is not nil, where the remote
// store is asked and admits.
func (s *Store) decide(ctx context.Context, op string, checks []store.Check, g *beginning, dst []store.State) (store.Verdict, []store.State, error) {
	if s.closed.Load() {
		return store.Verdict{}, dst, store.ErrClosed
	}
	if s.leases.Load() != nil {
		now := s.now()
		if d, ok := s.draw(checks, now, op == "peek"); ok {
			d.begin = g
			return s.decideDrawn(ctx, op, checks, &d, now, dst)
		}
	}
	return s.decideAll(ctx, op, checks, &along{begin: g}, dst)
}

// decideAll decides without leases. What goes along to the remote store has no
// part in that.
func (s *Store) decideAll(ctx context.Context, op string, checks []store.Check, a *along, dst []store.State) (store.Verdict, []store.State, error) {
	if s.sharded != nil {
		return s.decideAcross(ctx, op, checks, a, dst)
	}
	look := op == "peek"
	if !s.Degraded() {
		if v, states, ok := s.refusal(checks, dst, s.now(), look); ok {
			return v, states, nil
		}
	}
	if look && s.peeker == nil && !s.Degraded() {
		return store.Verdict{Refused: -1}, append(dst, make([]store.State, len(checks))...), nil
	}
	c, ok := s.enter()
	err := error(ErrOpen)
	if ok {
		var due []store.Check
		if !look {
			due = s.arrivals.take(checks)
		}
		var v store.Verdict
		var states []store.State
		if v, states, err = s.ask(ctx, c, op, checks, due, a, dst); err == nil {
			return v, states, nil
		}
		s.countHere(due)
	}
	if s.pass.Load() {
		if !ok {
			s.opts.Hooks.Failed(op, ReasonOf(err), err)
		}
		return store.Verdict{}, dst, err
	}
	return s.decideHere(checks, dst, look)
}

// enter asks the breaker for leave to call the remote store.
func (s *Store) enter() (call, bool) {
	c, ok, opened := s.breaker.enter(s.now())
	if opened {
		s.opened("", s.breaker, errStalled)
	}
	return c, ok
}

// enterAny is enter, but for a call about buckets: if those are on several nodes,
// each has a breaker of its own.
func (s *Store) enterAny() (call, bool) {
	if s.sharded != nil {
		return s.anyNode(), true
	}
	return s.enter()
}

// ask asks the remote store, after what is due for the same windows, and with
// what goes along for leases.
func (s *Store) ask(ctx context.Context, c call, op string, checks, due []store.Check, a *along, dst []store.State) (v store.Verdict, states []store.State, err error) {
	all, into := checks, dst
	own := len(due) + len(checks)
	if own > len(checks) || a.any() {
		all = slices.Concat(due, checks)
		if a.any() {
			all = append(all, a.checks...)
		}
		into = nil
	}
	err = s.call(ctx, c, op, func(ctx context.Context) (err error) {
		if op == "peek" {
			v, states, err = s.peeker.Peek(ctx, all, into)
		} else if a != nil && a.begin != nil {
			v, states, err = a.begin.admit(ctx, all, into)
		} else {
			v, states, err = s.remote.Admit(ctx, all, into)
		}
		// What goes along is in shadow, and never to blame; nor is what is due.
		if err == nil && (len(states) != len(into)+len(all) || v.Refused >= own || !v.Admitted() && v.Refused < len(due)) {
			err = errStates
		}
		return err
	})
	if err != nil {
		return store.Verdict{}, dst, err
	}
	told := states[len(into):]
	if op != "peek" || !v.Admitted() { // what a look would have spent is not spent
		s.seen.note(all[:own], told[:own], v, c.at, s.opts.Recheck)
	}
	if a.any() {
		s.answered(a, checks, told[own:], v, c.at)
	}
	if own == len(all) && len(due) == 0 {
		return v, states, nil
	}
	if !v.Admitted() {
		v.Refused -= len(due)
	}
	return v, append(dst, told[len(due):own]...), nil
}

// call makes one call within its time. The caller's going away does not end it: it
// may have run, and a connection given up in the middle is lost to others.
func (s *Store) call(ctx context.Context, c call, op string, f func(context.Context) error) error {
	deadline := time.Now().Add(s.opts.Timeout)
	hurried := false
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline, hurried = d, true
	}
	limited, cancel := context.WithDeadline(c.ctx, deadline)
	defer cancel()
	err := contained(&told{limited, ctx, hurried}, f)
	now := s.now()
	o := answered
	switch {
	case err == nil:
		s.opts.Hooks.Answered(op, time.Duration(now-c.at))
	case hurried && limited.Err() != nil || errors.Is(ctx.Err(), context.Canceled):
		o = moot
	case limited.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		o = timedOut
	default:
		o = failed
	}
	if c.free {
		if err != nil && o != moot && !errors.Is(err, ErrOpen) {
			s.opts.Hooks.Failed(op, ReasonOf(err), err)
		}
		return err
	}
	opened, mended := s.breaker.leave(c, now, o)
	if err != nil && o != moot {
		if c.ctx.Err() != nil && !opened {
			err = errGivenUp
		}
		s.opts.Hooks.Failed(op, ReasonOf(err), err)
	}
	if opened {
		s.opened("", s.breaker, err)
	}
	if mended {
		s.settleSoon()
	}
	return err
}

// told is a call's context: over when the call is to end, and with what the
// caller's context has to tell.
type told struct {
	context.Context
	caller  context.Context
	hurried bool // the caller's deadline is sooner than the call's own
}

// toldKey is the key under which a call's context tells of itself.
type toldKey struct{}

func (c *told) Value(key any) any {
	if key == (toldKey{}) {
		return c
	}
	if v := c.Context.Value(key); v != nil { // what package context keeps there
		return v
	}
	return c.caller.Value(key)
}

// contained turns a panic into an error.
func contained(ctx context.Context, f func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Panic{v}
		}
	}()
	return f(ctx)
}

// Refund implements [store.Store]. What was spent here and is not told yet is
// given back here; of the rest, what the remote store cannot take back now is
// lost to it, and given back here.
func (s *Store) Refund(ctx context.Context, checks []store.Check) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	var told, here []store.Check
	now := s.now()
	for i := range checks {
		if c := checks[i]; s.seen.giveBack(&c, now) {
			told = append(told, c)
		} else {
			here = append(here, s.opts.share(c))
		}
	}
	if s.sharded != nil {
		there, away := s.split(told, "")
		here = append(here, pick(told, away)...)
		told = pick(told, there)
	}
	if len(told) > 0 {
		c, ok := s.enterAny()
		if !ok || s.call(ctx, c, "refund", func(ctx context.Context) error { return s.remote.Refund(ctx, told) }) != nil {
			here = append(here, told...)
		}
	}
	return s.local.Refund(ctx, here)
}

// Forget drops what is known of a bucket, so that the next request asks the
// remote store about it: somebody has reset it there.
func (s *Store) Forget(scope string, key store.Key) {
	s.leases.Load().drop(scope, &key)
	s.seen.forget(scope, key, s.now())
}

// Configure implements [store.Configurer], for both stores.
func (s *Store) Configure(sc store.Scope) {
	if c, ok := s.remote.(store.Configurer); ok {
		c.Configure(sc)
	}
	share := func(l store.Limit) store.Limit { return s.opts.share(store.Check{Limit: l}).Limit }
	sc.Limit = share(sc.Limit)
	if of := sc.LimitOf; of != nil {
		sc.LimitOf = func(k store.Key) store.Limit { return share(of(k)) }
	}
	s.local.Configure(sc)
}

// Drop implements [store.Configurer], for both stores.
func (s *Store) Drop(name string) {
	if c, ok := s.remote.(store.Configurer); ok {
		c.Drop(name)
	}
	s.local.Drop(name)
	s.leases.Load().drop(name, nil)
	s.seen.drop(name, s.now())
}

// Size implements [store.Sizer]: the remote store's size if it decides and knows
// it, else the local one's.
func (s *Store) Size(scope string) store.Size {
	if z, ok := s.remote.(store.Sizer); ok && !s.Degraded() {
		return z.Size(scope)
	}
	return s.local.Size(scope)
}

// Advise implements [store.Adviser] for the remote store.
func (s *Store) Advise(ctx context.Context) (advice []string) {
	if a, ok := s.remote.(store.Adviser); ok {
		_ = contained(ctx, func(ctx context.Context) error { advice = a.Advise(ctx); return nil }) // no advice, then
	}
	return advice
}

// Retire ends all work in the background. With stop, the remote store is closed
// and the local one decides from now on; without, the remote store decides for as
// long as it answers.
func (s *Store) Retire(stop bool) error {
	s.mu.Lock()
	was := s.retired
	s.retired = true
	s.mu.Unlock()
	if was {
		return nil
	}
	s.flush(s.ctx)
	if stop {
		s.stopped.Store(true)
		s.breaker.stop()
		s.nodes.stop()
	}
	s.cancel()
	s.work.Wait()
	if !stop {
		return nil
	}
	return s.remote.Close()
}

// Close implements [store.Store]. It closes both stores.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	err := s.Retire(true)
	return errors.Join(err, s.local.Close())
}
