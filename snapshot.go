package weir

import (
	"maps"
	"slices"
)

// Snapshot is what an operator wants to see of a [Limiter]. Counts are since
// it was made, or since the process began in the case of several Reloads.
type Snapshot struct {
	Enabled bool            `json:"enabled"`
	Classes []ClassSnapshot `json:"classes"`        // by name
	Tiers   []TierSnapshot  `json:"tiers"`          // keyed tiers, by name
	Guards  []GuardSnapshot `json:"guards"`         // by name, each followed by its lanes
	Holding int             `json:"holding"`        // requests held for tokens now
	Auth    *AuthSnapshot   `json:"auth,omitempty"` // nil: the auth lock is off
}

// ClassSnapshot counts the requests of one class.
type ClassSnapshot struct {
	Class     Class             `json:"class"`
	Admitted  uint64            `json:"admitted"`  // passed all tiers
	Throttled map[string]uint64 `json:"throttled"` // refused, by tier
	Shed      map[string]uint64 `json:"shed"`      // by the guard, by reason
	Held      uint64            `json:"held"`
	Exempt    uint64            `json:"exempt"`
	Denied    uint64            `json:"denied"`
}

// TierSnapshot is how full one keyed tier is.
type TierSnapshot struct {
	Scope   string `json:"scope"` // the tier, or tier/class where a class has buckets of its own
	Keys    int    `json:"keys"`
	MaxKeys int    `json:"max_keys"`
	Evicted uint64 `json:"evicted"`
}

// GuardSnapshot is the state of one guard or, where Lane is set, of a lane of it.
type GuardSnapshot struct {
	Guard    string   `json:"guard"`
	Lane     string   `json:"lane,omitempty"`
	Slots    int      `json:"slots"` // of a lane: how many it may hold
	Reserve  int      `json:"reserve,omitempty"`
	InFlight int      `json:"in_flight"`
	Queue    int      `json:"queue"`
	Queued   int      `json:"queued"`
	Wait     Duration `json:"wait"` // estimate for a newcomer that comes last; of a guard: to its default lane; 0: not known
}

// Snapshot returns the state of the Limiter. It is consistent for each number,
// not across them.
func (l *Limiter) Snapshot() Snapshot {
	p := l.policy.Load()
	s := Snapshot{Enabled: p.on, Holding: int(l.lines.held()), Auth: l.lockSnapshot(p)}
	n := l.counts
	n.mu.Lock()
	for _, class := range slices.Sorted(maps.Keys(n.classes)) {
		k := n.classes[class]
		c := ClassSnapshot{
			Class: class, Admitted: k.admitted.value(), Held: k.held.value(),
			Exempt: k.exempt.value(), Denied: k.denied.value(),
			Throttled: map[string]uint64{}, Shed: map[string]uint64{},
		}
		for tier, v := range k.throttled {
			c.Throttled[tier] = v.value()
		}
		for i, reason := range shedReasons {
			c.Shed[reason] = k.shed[i].value()
		}
		s.Classes = append(s.Classes, c)
	}
	n.mu.Unlock()
	if p.on && l.sizer != nil {
		for _, sc := range p.scopes {
			size := l.sizer.Size(sc.name)
			s.Tiers = append(s.Tiers, TierSnapshot{sc.label, size.Keys, size.Max, size.Evicted})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.guards)) {
		g := p.guards[name].gate
		wait, _ := g.Wait(nil)
		s.Guards = append(s.Guards, GuardSnapshot{
			Guard: name, Slots: g.Slots(), InFlight: g.InFlight(),
			Queue: g.QueueCap(), Queued: g.Queued(), Wait: Duration(wait),
		})
		for _, ln := range g.Lanes() {
			if lane, has := laneName(p, name, ln.Lane); has {
				wait, _ := g.Wait(g.Lane(ln.Lane))
				s.Guards = append(s.Guards, GuardSnapshot{
					Guard: name, Lane: lane, Slots: ln.Limit, Reserve: ln.Reserve, InFlight: ln.InFlight,
					Queue: ln.Queue, Queued: ln.Queued, Wait: Duration(wait),
				})
			}
		}
	}
	return s
}
