package takeover

import (
	"context"

	"github.com/weir-go/weir/store"
)

// decideHere decides in the place of the remote store.
func (s *Store) decideHere(checks []store.Check, dst []store.State, look bool) (store.Verdict, []store.State, error) {
	shares := s.begin(checks)
	ctx := context.Background()
	if look {
		return s.local.Peek(ctx, shares, dst)
	}
	v, states, err := s.local.Admit(ctx, shares, dst)
	if err == nil {
		s.owe(checks, states[len(dst):], v)
	}
	return v, states, err
}

// countHere counts arrivals that the remote store did not take.
func (s *Store) countHere(due []store.Check) {
	if len(due) > 0 && !s.pass.Load() {
		_, _, _ = s.decideHere(due, nil, false) // a Memory fails only when it is closed
	}
}

// begin sees to it that the local buckets of a call go on from what is known of
// the remote ones, and returns the checks with this replica's share of the limits.
func (s *Store) begin(checks []store.Check) []store.Check {
	shares, now := checks, s.now()
	if s.opts.Replicas > 1 {
		shares = make([]store.Check, len(checks))
	}
	for i := range checks {
		c := &checks[i]
		if s.opts.Replicas > 1 {
			shares[i] = s.opts.share(*c)
		}
		sh, id := s.seen.of(c)
		e := sh.get(id, c, now)
		e.follow(c, now)
		if !e.seeded {
			e.seeded = true
			share := float64(1)
			if s.opts.Replicas > 1 && c.Limit.Burst > 0 {
				share = shares[i].Limit.Burst / c.Limit.Burst
			}
			s.set(shares[i], max(0, e.level(now, c.Limit)-e.spent)*share)
		}
		sh.mu.Unlock()
	}
	return shares
}

// follow puts the limit and length now in force on what is known. What was spent
// in a window that is over is owed to nobody.
func (e *sight) follow(c *store.Check, now int64) {
	if e.window > 0 && now >= e.ends {
		e.tokens, e.limit, e.ends, e.spent = c.Limit.Burst, c.Limit, endOf(c, now), 0
	}
	if e.limit != c.Limit {
		e.tokens = e.level(now, c.Limit)
		e.limit, e.at, e.until = c.Limit, now, 0
	}
	e.window = c.Window
}

// set makes the local bucket of a share hold so many tokens, or a window so many
// units, as far as it has the burst for it. A window cannot be made emptier: what
// was counted in it here, the remote store was told of.
func (s *Store) set(c store.Check, tokens float64) {
	ctx := context.Background()
	c.Cost, c.Shadow, c.Always = 0, true, c.Window > 0
	_, states, err := s.local.Peek(ctx, []store.Check{c}, nil)
	if err != nil {
		return
	}
	switch diff := states[0].Tokens - min(tokens, c.Limit.Burst); {
	case diff > 0:
		c.Cost = diff
		_, _, _ = s.local.Admit(ctx, []store.Check{c}, nil)
	case diff < 0 && c.Window <= 0:
		c.Cost = -diff
		_ = s.local.Refund(ctx, []store.Check{c})
	}
}

// owe notes what a call has spent here.
func (s *Store) owe(checks []store.Check, states []store.State, v store.Verdict) {
	now := s.now()
	for i := range checks {
		c := &checks[i]
		spent := v.Admitted() && (!c.Shadow || states[i].Wait == 0)
		if spent = spent || c.Always && c.Window > 0; !spent || !(c.Cost > 0) {
			continue
		}
		sh, id := s.seen.of(c)
		sh.get(id, c, now).spent += c.Cost
		sh.mu.Unlock()
	}
}
