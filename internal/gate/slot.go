package gate

import "time"

// A Slot is the right to be in flight. It is a small value that remembers where
// it belongs; copies of it are the same slot.
type Slot struct {
	lane  *Lane
	kind  *Kind
	start time.Duration // when the work began; 0: not measured
}

// Release gives the slot back; it goes to a waiter if there is one for whom it
// is free. It works after [Gate.Close] too.
//
// It panics on the zero Slot and when nothing is held, because a release too
// many lets one caller too many in. A double release goes unnoticed while others
// hold slots of that lane; who cannot be sure to release only once uses
// [Gate.Hold].
func (s Slot) Release() {
	if s.lane == nil {
		panic("gate: Release of the zero Slot")
	}
	g := s.lane.gate
	var end time.Duration
	if s.start > 0 {
		end = g.now()
	}
	g.mu.Lock()
	if s.lane.held == 0 {
		g.mu.Unlock()
		panic("gate: Release of a slot that is not held")
	}
	if s.start > 0 {
		s.lane.times.learn(s.start, end)
		if s.kind.Times != nil {
			s.kind.Times.learn(s.start, end)
		}
	}
	g.giveLocked(s.lane, s.kind.Backend)
	if g.waiting > 0 {
		g.grantLocked()
	}
	g.mu.Unlock()
}

// Of reports whether the slot is one of g.
func (s Slot) Of(g *Gate) bool { return s.lane != nil && s.lane.gate == g }
