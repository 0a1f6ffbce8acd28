package redis

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-go/weir/store"
)

// A Cluster runs a script only over keys of one slot. With a slot for each key,
// the checks of a request are asked in two steps: first those of the caller's own
// keys, all slots at once; then the ones without a key, which everybody shares
// and which have one slot together, only if the first step admitted. A flood that
// is refused by what it has used up itself thus never holds a shared token. (To
// spend everywhere at once and give back was measured to leave honest callers
// three quarters of what was theirs.)
//
// What one of several slots admitted and another refused is given back at once.
// Until then, one round trip, or for good if the refund fails, the caller's own
// bucket lacks that cost; it refills, so what is lost is at most one cost a
// failed call and never more than the burst. Nothing is ever admitted that one
// bucket would not have admitted.

// part is the checks of a call that share a slot.
type part struct {
	index  []int // where they stand in the call
	checks []store.Check
	v      store.Verdict
	states []store.State
	at     float64 // when they were decided, by the server's clock, in microseconds
	err    error
}

// partsOf splits checks by slot; own are those with a key, shared is the rest.
func partsOf(checks []store.Check) (own []*part, shared *part) {
	for i := range checks {
		c := &checks[i]
		var p *part
		if c.Key == (store.Key{}) {
			if shared == nil {
				shared = new(part)
			}
			p = shared
		} else if at := slices.IndexFunc(own, func(p *part) bool { return p.checks[0].Key == c.Key }); at >= 0 {
			p = own[at]
		} else {
			p = new(part)
			own = append(own, p)
		}
		p.index = append(p.index, i)
		p.checks = append(p.checks, *c)
	}
	return own, shared
}

func (s *Store) decideBySlot(ctx context.Context, op, mode string, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	own, shared := partsOf(checks)
	if parts := len(own); parts == 0 || parts == 1 && shared == nil {
		v, states, _, err := s.ask(ctx, op, mode, checks, dst)
		return v, states, err
	}
	staged := mode
	if mode == modeAdmit {
		staged = modeStage
	}
	s.askAll(ctx, op, staged, own)
	parts := own
	admitted := !slices.ContainsFunc(own, func(p *part) bool { return p.err != nil || !p.v.Admitted() })
	if shared != nil {
		// Arrivals are counted whatever the caller's own checks say, and a refusal
		// tells how long all of them take.
		if !admitted && mode == modeAdmit {
			mode = modeCount
		}
		shared.v, shared.states, _, shared.err = s.ask(ctx, op, mode, shared.checks, nil)
		parts = append(parts, shared)
		admitted = admitted && shared.err == nil && shared.v.Admitted()
	}
	if !admitted {
		var back []given
		for _, p := range parts {
			if p.err == nil && p.v.Admitted() && (p != shared || mode == modePeek) {
				back = p.untell(back)
			}
		}
		if staged == modeStage {
			s.compensate(ctx, back)
		}
	}
	v := store.Verdict{Refused: -1}
	states := append(dst, make([]store.State, len(checks))...)
	for _, p := range parts {
		if p.err != nil {
			return store.Verdict{}, dst, p.err
		}
		for i, st := range p.states {
			states[len(dst)+p.index[i]] = st
		}
		if p.v.RetryAfter == 0 {
			continue
		}
		// Of equal waits the first check is blamed, as elsewhere.
		if at := p.index[p.v.Refused]; p.v.RetryAfter > v.RetryAfter || p.v.RetryAfter == v.RetryAfter && at < v.Refused {
			v = store.Verdict{Refused: at, RetryAfter: p.v.RetryAfter}
		}
	}
	return v, states, nil
}

// askAll asks several slots at once.
func (s *Store) askAll(ctx context.Context, op, mode string, parts []*part) {
	var wg sync.WaitGroup
	for _, p := range parts[1:] {
		wg.Go(func() { p.v, p.states, p.at, p.err = s.ask(ctx, op, mode, p.checks, nil) })
	}
	p := parts[0]
	p.v, p.states, p.at, p.err = s.ask(ctx, op, mode, p.checks, nil)
	wg.Wait()
}

// untell takes back what the states of a part tell: it was admitted, but the
// request is not. It appends what was spent. A shadow that failed has spent
// nothing, and arrivals stay counted.
func (p *part) untell(back []given) []given {
	for i := range p.checks {
		c := &p.checks[i]
		if p.states[i].Wait > 0 || c.Window > 0 && c.Always || !(c.Cost > 0) {
			continue
		}
		back = append(back, given{c, p.at})
		for j := range p.checks {
			if st := &p.states[j]; sameBucket(c, &p.checks[j]) {
				st.Tokens = min(st.Tokens+c.Cost, p.checks[j].Limit.Burst)
			}
		}
	}
	return back
}

// compensate gives back what parts of a refused call have spent. A part whose
// call failed is left alone, even if it may have run: to give back what was not
// spent would mint tokens. The caller's going away does not stop it, nor does it
// make a caller late.
func (s *Store) compensate(ctx context.Context, back []given) {
	if len(back) == 0 {
		return
	}
	done := make(chan struct{})
	s.refunds.Go(func() {
		defer close(done)
		_ = s.giveBack(context.WithoutCancel(ctx), back) // a loss is the caller's own bucket's, and bounded
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}
