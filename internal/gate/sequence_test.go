package gate

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A script drives a gate and the model through the same operations and compares
// them wherever both have come to rest. Every sequence of bytes is a valid
// script, hence the fuzz target.
type script struct {
	t    *testing.T
	ops  []byte
	gate *Gate
	m    *model

	calls   []*call
	models  []*modelCall
	cancels []context.CancelFunc

	// hasty scripts go on after a cancellation before its waiter has run, which
	// may change whose turn it is and how quick the gate seems: they have one
	// flow in one lane, and nobody whose patience depends on estimates.
	hasty bool

	// restless is the last operation, if the goroutines which it woke may
	// not have run yet.
	restless operation
}

type operation byte

const (
	opNone operation = iota
	opCancel
	opAdvance
)

func (s *script) next(n int) int {
	if len(s.ops) == 0 {
		return 0
	}
	b := s.ops[0]
	s.ops = s.ops[1:]
	return int(b) % n
}

// config is a gate of up to 4 slots more than it has lanes.
func (s *script) config() Config {
	c := Config{Slots: 1 + s.next(6), Default: s.lane()}
	if s.hasty {
		return c
	}
	c.BackendLimit = s.next(4)
	c.Lanes = map[string]LaneConfig{}
	for _, name := range []string{"a", "b"} {
		if s.next(3) > 0 {
			c.Lanes[name] = s.lane()
		}
	}
	return c
}

func (s *script) lane() LaneConfig {
	if s.hasty {
		return LaneConfig{Queue: s.next(8)}
	}
	return LaneConfig{Reserve: s.next(4), Limit: s.next(6), Queue: s.next(8), Order: Order(s.next(3))}
}

// rest lets everything happen that can happen without time passing, and
// compares.
func (s *script) rest() {
	s.t.Helper()
	synctest.Wait()
	s.restless = opNone
	for i, c := range s.calls {
		if m := s.models[i]; !m.same(c) {
			s.t.Fatalf("call %d: over %v with %v after %v; the model: over %v with %v after %v",
				i, c.over, c.err, c.after, m.over, m.err, m.after)
		}
	}
	checkOccupancy(s.t, s.gate, len(s.m.held), s.m.queued())
	for _, ln := range s.m.lanes {
		got := s.gate.Lane(ln.name)
		if held := s.m.heldBy(ln); got.held != held || got.queue.n != len(ln.queue) || got.reserve != ln.Reserve || got.limit != ln.Limit {
			s.t.Errorf("lane %q: %d held, %d queued, reserve %d, limit %d; the model: %d, %d, %d, %d", ln.name,
				got.held, got.queue.n, got.reserve, got.limit, held, len(ln.queue), ln.Reserve, ln.Limit)
		}
		if !s.hasty && got.times != ln.times {
			s.t.Errorf("lane %q learned %v, the model %v", ln.name, got.times, ln.times)
		}
	}
	checkInvariants(s.t, s.gate)
	if s.t.Failed() {
		s.t.FailNow()
	}
}

func (s *script) acquire(maxWait, deadline time.Duration) {
	s.t.Helper()
	// A newcomer is answered by the length of the queue, so those who leave
	// it have to have left.
	s.rest()
	ctx, cancel := context.WithCancel(s.t.Context())
	if deadline != never {
		cancel()
		ctx, cancel = context.WithTimeout(s.t.Context(), deadline)
	}
	s.cancels = append(s.cancels, cancel)
	w := Work{MaxWait: maxWait, Kind: &Kind{}}
	lane := ""
	if !s.hasty {
		lane = []string{"", "a", "b", "c"}[s.next(4)]
		// Without a site, or six networks of one, or a site with one network.
		w.Flow = []Flow{{}, {15: 1}, {1}, {1, 7: 1}, {1, 7: 2}, {1, 7: 3}, {1, 7: 4}, {1, 7: 5}, {2}}[s.next(9)]
		w.Kind = &Kind{Lane: s.gate.Lane(lane), Backend: []string{"", "x", "y"}[s.next(3)]}
	}
	before := slices.Clone(s.calls)
	s.calls = append(s.calls, acquireFor(ctx, s.gate, w))
	s.models = append(s.models, s.m.acquire(s.m.lane(lane), w, deadline, func(could []*modelCall) *modelCall {
		// Whoever the gate has sent away must be one of those who could go.
		for i, c := range before {
			if c.over && s.m.waits(s.models[i]) && slices.Contains(could, s.models[i]) {
				return s.models[i]
			}
		}
		s.t.Fatal("nobody was sent away, or one who had a right to stay")
		return nil
	}))
	s.rest()
}

// release ends the work of the holder at a place.
func (s *script) release(i int) {
	s.t.Helper()
	if len(s.m.held) == 0 {
		mustPanic(s.t, "Release with nothing held", s.gate.release)
		s.rest()
		return
	}
	m := s.m.held[i%len(s.m.held)]
	if s.hasty {
		// Who has the slot is not known before the gate is at rest.
		m.start = 0
		s.m.release(m)
		s.gate.release()
	} else {
		s.m.release(m)
		s.calls[slices.Index(s.models, m)].slot.Release()
	}
	s.rest()
}

// step does one operation. After a cancellation, and when time has passed, it
// may go on at once with one of those that give slots away: what has happened
// before a grant must count before it, whoever runs first.
func (s *script) step() {
	s.t.Helper()
	const ms = time.Millisecond
	op := s.next(16)
	if s.hasty && op >= 3 && op <= 7 {
		op = 1
	}
	switch op {
	case 0:
		s.acquire(0, never)
	case 1, 2:
		s.acquire(noBound, never)
	case 3, 4:
		s.acquire(time.Duration(1+s.next(20))*ms, never)
	case 5:
		s.acquire(noBound, 0)
	case 6, 7:
		// Half a millisecond off the beat: a context needs a goroutine to
		// end, so nothing may be certain about its very instant.
		s.acquire(time.Duration(s.next(20)-1)*ms, time.Duration(1+s.next(20))*ms+ms/2)
	case 8, 9:
		if s.restless == opAdvance {
			s.rest()
		}
		if n := len(s.calls); n > 0 {
			i := max(0, n-1-s.next(12))
			s.m.cancel(s.models[i])
			s.cancels[i]()
			if s.restless = opCancel; !s.hasty {
				s.rest()
			}
		}
	case 10, 11, 12:
		s.release(s.next(6))
	case 13:
		c := s.config()
		s.m.configure(c)
		s.gate.Configure(c)
		s.rest()
	case 14:
		d := time.Duration(1+s.next(10)) * ms
		s.m.advance(d)
		time.Sleep(d)
		s.restless = opAdvance
	case 15:
		if s.next(32) == 1 {
			s.m.close()
			s.gate.Close()
		}
		s.rest()
	}
}

// play runs a whole script and then takes the gate down to nothing.
func play(t *testing.T, ops []byte) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, ops: ops}
		s.hasty = s.next(4) == 0
		c := s.config()
		s.gate = New(1, 0)
		s.gate.Configure(c)
		s.m = newModel(c)
		for len(s.ops) > 0 {
			s.step()
		}
		s.rest()
		for i, cancel := range s.cancels {
			s.m.cancel(s.models[i])
			cancel()
			if !s.hasty {
				s.rest()
			}
		}
		s.rest()
		for len(s.m.held) > 0 {
			s.release(0)
		}
		if !s.m.closed {
			c.Lanes, c.BackendLimit, c.Default.Limit, c.Default.Reserve = nil, 0, 0, 0
			s.gate.Configure(c)
			checkIdle(t, s.gate)
		}
	})
}

func TestRandomSequencesAgreeWithTheModel(t *testing.T) {
	sequences := 400
	if testing.Short() {
		sequences = 80
	}
	for range sequences {
		ops := make([]byte, 300)
		for i := range ops {
			ops[i] = byte(rand.Uint32())
		}
		if play(t, ops); t.Failed() {
			t.Fatalf("script: %#v", ops)
		}
	}
}

func FuzzSequencesAgreeWithTheModel(f *testing.F) {
	f.Add([]byte{0, 0, 7, 1, 1, 1, 8, 2, 10, 0, 10, 0})               // a waiter canceled, then grants
	f.Add([]byte{0, 3, 7, 1, 1, 1, 1, 1, 1, 13, 0, 0, 10, 10, 13, 3}) // a shrink and a growth
	f.Add([]byte{0, 0, 7, 1, 1, 1, 8, 0, 15, 1, 10, 10})              // closed with waiters, one of them leaving
	f.Add([]byte("1071C\x04\xe5\xe5\xe5\xe5\xe587.\x04Z"))
	f.Add([]byte("107\xf2,,,,,,1C\x04\xe5\xe5\xe5\xe5\xe587.\x04Z"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		play(t, ops[:min(len(ops), 600)])
	})
}
