package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

// Store keeps buckets and windows in Redis or a server that speaks its protocol.
// See the package documentation for what it promises. It is safe for concurrent
// use; the zero Store is not usable, see [Open] and [New].
type Store struct {
	client  goredis.UniversalClient
	owned   bool // Close closes the client
	opts    Options
	keys    keyspace
	admit   script
	locks   lockScripts
	attempt script
	secrets secrets
	watch   watcher // nil: nobody watches the nodes
	closed  atomic.Bool

	pipe   *goredis.AutoPipeliner // nil: plain calls only
	flying atomic.Int64           // calls under way

	refunds sync.WaitGroup // refunds under way whose callers may be gone

	reloaded atomic.Int64 // Unix nanoseconds of the last look at the Cluster's slots
}

var (
	_ store.Store  = (*Store)(nil)
	_ store.Peeker = (*Store)(nil)
)

// Admit implements [store.Store]: one round trip, or two with a slot for each
// key. Every error but [store.ErrClosed] is an [*Error].
func (s *Store) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return s.decide(ctx, "admit", modeAdmit, checks, dst)
}

// Peek implements [store.Peeker]. It writes nothing, but for one case: a bucket
// whose time lies ahead of the server's clock, which was set back, is put right.
func (s *Store) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return s.decide(ctx, "peek", modePeek, checks, dst)
}

func (s *Store) decide(ctx context.Context, op, mode string, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	switch {
	case s.closed.Load():
		return store.Verdict{}, dst, store.ErrClosed
	case len(checks) == 0:
		return store.Verdict{Refused: -1}, dst, nil
	case s.keys.slotPerKey:
		return s.decideBySlot(ctx, op, mode, checks, dst)
	}
	v, states, _, err := s.ask(ctx, op, mode, checks, dst)
	return v, states, err
}

// ask runs admit.lua over checks that share a slot.
func (s *Store) ask(ctx context.Context, op, mode string, checks []store.Check, dst []store.State) (store.Verdict, []store.State, float64, error) {
	reply, err := s.runAt(ctx, &checks[0], op, s.admit, s.keys.admitCall(mode, checks))
	if err != nil {
		return store.Verdict{}, dst, 0, err
	}
	v, states, at, err := decision(reply, checks, dst)
	if err != nil {
		err = s.fail(op, badReply{err})
	}
	return v, states, at, err
}

// Refund implements [store.Store]: one round trip, or one for each slot.
func (s *Store) Refund(ctx context.Context, checks []store.Check) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	back := make([]given, 0, len(checks))
	for i := range checks {
		if c := &checks[i]; c.Window <= 0 && c.Cost > 0 && c.Limit.Burst >= 0 {
			back = append(back, given{check: c})
		}
	}
	return s.giveBack(ctx, back)
}

func (s *Store) giveBack(ctx context.Context, back []given) error {
	if len(back) == 0 {
		return nil
	}
	if !s.keys.slotPerKey {
		_, err := s.run(ctx, "refund", refundScript, s.keys.refundCall(back))
		return err
	}
	var errs []error
	for len(back) > 0 {
		n := 1
		for i := 1; i < len(back); i++ { // those of the first one's slot to the front
			if back[i].check.Key == back[0].check.Key {
				back[i], back[n] = back[n], back[i]
				n++
			}
		}
		if _, err := s.runAt(ctx, back[0].check, "refund", refundScript, s.keys.refundCall(back[:n])); err != nil {
			errs = append(errs, err)
		}
		back = back[n:]
	}
	return errors.Join(errs...)
}

// Ping does what Admit does, to a key that nobody asks for, so that it fails
// whenever Admit would: PING is answered by servers that are read-only, out of
// memory or will not run a script. The key is gone two seconds later.
func (s *Store) Ping(ctx context.Context) error { return s.probe(ctx, "ping") }

func (s *Store) probe(ctx context.Context, op string) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	_, err := s.run(ctx, op, s.admit, s.keys.probeCall())
	return err
}

// Close implements [store.Store]. It closes the client that [Open] made; the one
// given to [New] is its owner's to close.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.refunds.Wait() // no longer than a command may take
	if !s.owned {
		return nil
	}
	if s.pipe != nil {
		_ = s.pipe.Close()
	}
	_ = s.client.Close() // it tells of connections that were broken anyway
	return nil
}

// reloadInterval is how often a Cluster is asked for its slots on account of
// failed calls. go-redis on its own does that only after a redirection, not when
// a node no longer answers.
const reloadInterval = 250 * time.Millisecond

// lookAgain has the slots of a Cluster read again after a failure.
func (s *Store) lookAgain(ctx context.Context) {
	c, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return
	}
	last, now := s.reloaded.Load(), time.Now().UnixNano()
	if now-last >= int64(reloadInterval) && s.reloaded.CompareAndSwap(last, now) {
		c.ReloadState(context.WithoutCancel(ctx)) // returns at once
	}
}
