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
	Guards  []GuardSnapshot `json:"guards"`         // by name
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

// GuardSnapshot is one guard's state.
type GuardSnapshot struct {
	Guard    string `json:"guard"`
	Slots    int    `json:"slots"`
	InFlight int    `json:"in_flight"`
	Queue    int    `json:"queue"`
	Queued   int    `json:"queued"`
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
		s.Guards = append(s.Guards, GuardSnapshot{name, g.Slots(), g.InFlight(), g.QueueCap(), g.Queued()})
	}
	return s
}
