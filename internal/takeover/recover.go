package takeover

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	// probeFirst and probeMost are how long it takes from one probe to the next:
	// twice as long each time, give or take a fifth, so that replicas do not come
	// all at once. With the most, the second probe and what is owed, a store is
	// noticed within a second of its return.
	probeFirst = 50 * time.Millisecond
	probeMost  = 400 * time.Millisecond
	// probeTime is what a probe gets at least: it may have to connect first.
	probeTime = 250 * time.Millisecond
)

// opened is called by whoever has opened a breaker: that of a node, or of all.
func (s *Store) opened(node string, b *breaker, why error) {
	if b != s.breaker {
		s.opens.Add(1)
	}
	s.seen.fell.Store(s.now())
	s.leases.Load().drop("", nil)
	s.opts.Hooks.Degraded(true, why)
	s.background(func(ctx context.Context) { s.recover(ctx, node, b) })
}

// background runs f in a goroutine that Close waits for, unless it is too late.
func (s *Store) background(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.retired {
		s.work.Go(func() { f(s.ctx) })
	}
}

// recover waits until the remote store, or a node of it, is back: until it has
// answered twice in a row what a request would ask it, and was told what was spent
// meanwhile.
func (s *Store) recover(ctx context.Context, node string, b *breaker) {
	ctx = context.WithValue(ctx, onErrand{}, true)
	for pause := probeFirst; sleep(ctx, jittered(pause)); pause = min(2*pause, probeMost) {
		first, err := s.probe(ctx, node, b)
		if errors.Is(err, store.ErrNoNode) {
			if s.settleMoved(ctx) == nil && s.back(node, b, 0) {
				s.nodes.forget(node)
				return
			}
			continue
		}
		if err != nil || !sleep(ctx, probeFirst) {
			continue
		}
		second, err := s.probe(ctx, node, b)
		if err != nil || s.settleReturn(ctx, node, b) != nil {
			continue
		}
		if s.back(node, b, min(first, second)) {
			s.settleSoon() // what was spent between the last telling and now
		}
		return
	}
}

// back has the remote store, or the node, decide again, unless it is too late.
func (s *Store) back(node string, b *breaker, took time.Duration) bool {
	s.mu.Lock()
	retired := s.retired
	if !retired {
		b.close(s.now(), took)
	}
	s.mu.Unlock()
	if retired {
		return false
	}
	if b != s.breaker {
		s.opens.Add(-1)
	}
	if !s.Degraded() {
		s.opts.Hooks.Degraded(false, nil)
	}
	return true
}

// probe tries what a request would ask: a server that is read-only, out of memory
// or will not run a script still answers a lesser question.
func (s *Store) probe(ctx context.Context, node string, b *breaker) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, max(s.opts.Timeout, probeTime))
	defer cancel()
	begun := s.now()
	err = contained(ctx, func(ctx context.Context) error {
		if b != s.breaker {
			return s.sharded.PingNode(ctx, node)
		}
		if p, ok := s.remote.(store.Pinger); ok {
			return p.Ping(ctx)
		}
		_, _, err := s.remote.Admit(ctx, []store.Check{{Scope: "weir/probe", Limit: store.Limit{Rate: 1e6, Burst: 1e6}, Cost: 1, Shadow: true}}, nil)
		return err
	})
	if err != nil {
		if s.ctx.Err() == nil && !errors.Is(err, store.ErrNoNode) {
			s.opts.Hooks.Failed("probe", ReasonOf(err), err)
		}
		return 0, err
	}
	took = time.Duration(s.now() - begun)
	s.opts.Hooks.Answered("probe", took)
	return took, nil
}

// settleSoon tells the remote store in the background what was spent here.
func (s *Store) settleSoon() {
	if s.settling.CompareAndSwap(false, true) {
		s.background(func(ctx context.Context) {
			defer s.settling.Store(false)
			_ = s.settleAll(ctx) // the hook was told; what is left stays owed
		})
	}
}

func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep reports whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
