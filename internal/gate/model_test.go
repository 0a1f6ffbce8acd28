package gate

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// A model is the gate in slow motion: one goroutine, slices for queues, nothing
// counted that can be found by looking, time as a number, and no event in the
// middle of another. It says what the answer to every call is and when it comes.
// The arithmetic of pace.go and order.go is the gate's own; it has its own tests.
type model struct {
	slots, backendLimit int
	lanes               []*modelLane // the default one first
	held                []*modelCall
	grants              uint64
	closed              bool
	now                 time.Duration // by the gate's clock
}

type modelLane struct {
	LaneConfig
	name    string
	open    bool
	queue   []*modelCall // in the order of arrival
	turns   []turn       // of those in queue, the next first
	granted uint64
	pace
}

// A modelCall is one Acquire as the model sees it.
type modelCall struct {
	work     Work
	turn     turn
	lane     *modelLane
	at       time.Duration // when it was made
	start    time.Duration // when its work began; 0: not measured
	due      time.Duration // when it gives up by its bound
	deadline time.Duration // of the context: it gives up by that, too

	over  bool
	err   error
	after time.Duration
}

func (c *modelCall) answer(now time.Duration, err error) {
	c.over, c.err, c.after = true, err, now-c.at
}

func newModel(c Config) *model {
	m := &model{now: 1, lanes: []*modelLane{{open: true}}}
	m.configure(c)
	return m
}

func (m *model) lane(name string) *modelLane {
	for _, ln := range m.lanes {
		if ln.name == name {
			return ln
		}
	}
	ln := &modelLane{name: name, LaneConfig: LaneConfig{Limit: m.slots}}
	m.lanes = append(m.lanes, ln)
	return ln
}

func (m *model) heldBy(ln *modelLane) (n int) {
	for _, c := range m.held {
		if c.lane == ln {
			n++
		}
	}
	return n
}

func (m *model) full(backend string) bool {
	n := 0
	for _, c := range m.held {
		if c.work.Kind.Backend == backend {
			n++
		}
	}
	return backend != "" && m.backendLimit > 0 && n >= m.backendLimit
}

// free reports whether there is a slot for a lane: one must be left for each that
// another lane has reserved and does not hold, unless it is the lane's own.
func (m *model) free(ln *modelLane) bool {
	if len(m.held) >= m.slots || m.heldBy(ln) >= ln.Limit {
		return false
	}
	if m.heldBy(ln) < ln.Reserve {
		return true
	}
	others := 0
	for _, other := range m.lanes {
		if other != ln {
			others += max(0, other.Reserve-m.heldBy(other))
		}
	}
	return m.slots-len(m.held)-1 >= others
}

func (m *model) newest(ln *modelLane) bool {
	return ln.Order == NewestFirst || ln.Order == ControlledDelay && ln.standing(m.now)
}

// turnOf is whose turn a newcomer waits for: its flow's own, unless others of its
// site wait in the turn that is for the rest of them, or have four already.
func (ln *modelLane) turnOf(key Flow) turn {
	site := Flow{}
	copy(site[:6], key[:6])
	own, rest := turn{of: key}, turn{of: site, rest: true}
	ofSite := 0
	for _, t := range ln.turns {
		if !t.rest && site == Flow(slices.Concat(t.of[:6], make([]byte, 10))) {
			ofSite++
		}
	}
	if site != (Flow{}) && !slices.Contains(ln.turns, own) && (ofSite >= 4 || slices.Contains(ln.turns, rest)) {
		return rest
	}
	return own
}

// of returns those of a queue that share a turn, oldest first.
func (ln *modelLane) of(key turn) (list []*modelCall) {
	for _, c := range ln.queue {
		if c.turn == key {
			list = append(list, c)
		}
	}
	return list
}

func (ln *modelLane) longest() (n int) {
	for _, key := range ln.turns {
		n = max(n, len(ln.of(key)))
	}
	return n
}

// acquire asks for a slot. deadline is the time until the context ends, never
// for not at all, and 0 if it has ended. The model does not say which of several
// flows with equally many waiters loses one, so it is told by victim.
func (m *model) acquire(ln *modelLane, w Work, deadline time.Duration, victim func([]*modelCall) *modelCall) *modelCall {
	if !ln.open {
		ln = m.lanes[0]
	}
	c := &modelCall{work: w, lane: ln, at: m.now, due: never, deadline: never}
	if deadline != never {
		c.deadline = m.now + deadline
	}
	c.turn = ln.turnOf(w.Flow)
	mine, newest := len(ln.of(c.turn)), m.newest(ln)
	switch {
	case deadline == 0:
		c.answer(m.now, ErrCanceled)
	case m.closed:
		c.answer(m.now, ErrClosed)
	case m.full(w.Kind.Backend):
		c.answer(m.now, ErrBackendShare)
	case m.free(ln):
		m.grants++
		ln.granted = m.grants
		m.held = append(m.held, c)
		if ln.times.n < enough || len(m.held) > m.slots/2 || m.grants%64 == 0 {
			c.start = m.now
		}
		c.answer(m.now, nil)
	case w.MaxWait == 0,
		len(ln.queue) > ln.Queue, ln.Queue == 0,
		len(ln.queue) == ln.Queue && !newest && ln.longest() < mine+2:
		c.answer(m.now, ErrQueueFull)
	case m.hopeless(ln, c):
		c.answer(m.now, ErrDeadline)
	default:
		m.join(ln, c, victim)
	}
	return c
}

func (m *model) hopeless(ln *modelLane, c *modelCall) bool {
	need := ln.need(nil)
	if c.deadline != never && c.deadline-m.now < need {
		if need = 0; !ln.times.doubtful(m.now) {
			return true
		}
	}
	if len(ln.queue) == 0 || m.newest(ln) || !ln.known() {
		return false
	}
	// Who is served before it, by serving all.
	turns, left, ahead := slices.Clone(ln.turns), map[turn]int{}, 0
	for _, key := range turns {
		left[key] = len(ln.of(key))
	}
	if left[c.turn]++; left[c.turn] == 1 {
		turns = append(turns, c.turn)
	}
	for ; ; ahead++ {
		key := turns[0]
		if left[key]--; key == c.turn && left[key] == 0 {
			break
		}
		if turns = turns[1:]; left[key] > 0 {
			turns = append(turns, key)
		}
	}
	wait := ln.wait(ahead, m.now)
	return ahead > 0 && (c.work.MaxWait > 0 && wait > c.work.MaxWait || c.deadline != never && wait > c.deadline-m.now-need)
}

func (m *model) join(ln *modelLane, c *modelCall, victim func([]*modelCall) *modelCall) {
	if len(ln.queue) == 0 {
		ln.moved, ln.began = m.now, m.now
		ln.interval = ln.times.mean / time.Duration(max(1, m.heldBy(ln)))
	}
	newest := m.newest(ln)
	if len(ln.queue) == ln.Queue {
		var could []*modelCall
		for _, key := range ln.turns {
			switch list := ln.of(key); {
			case len(list) < ln.longest():
			case newest && len(list) == 1:
				could = append(could[:0], list[0]) // the last in turn
			case newest:
				could = append(could, list[0])
			default:
				could = append(could, list[len(list)-1])
			}
		}
		gone := victim(could)
		m.leave(gone)
		gone.answer(m.now, ErrQueueFull)
		c.turn = ln.turnOf(c.work.Flow) // that can have been the last of a turn
	}
	if len(ln.of(c.turn)) == 0 {
		if newest {
			ln.turns = slices.Insert(ln.turns, 0, c.turn)
		} else {
			ln.turns = append(ln.turns, c.turn)
		}
	}
	ln.queue = append(ln.queue, c)
	wait := c.work.MaxWait
	if ln.Order == ControlledDelay {
		most := ln.burstWait()
		if ln.standing(m.now) {
			most = ln.standingWait()
		}
		if wait < 0 || wait > most {
			wait = most
		}
	}
	if wait > 0 {
		c.due = m.now + wait
	}
}

// leave takes a call out of its queue.
func (m *model) leave(c *modelCall) {
	ln := c.lane
	ln.queue = slices.DeleteFunc(ln.queue, func(o *modelCall) bool { return o == c })
	if len(ln.of(c.turn)) == 0 {
		ln.turns = slices.DeleteFunc(ln.turns, func(key turn) bool { return key == c.turn })
	}
}

func (m *model) waits(c *modelCall) bool { return slices.Contains(c.lane.queue, c) }

func (m *model) cancel(c *modelCall) {
	if m.waits(c) {
		m.leave(c)
		c.answer(m.now, ErrCanceled)
	}
}

// release ends the work of a call that holds a slot.
func (m *model) release(c *modelCall) {
	m.held = slices.DeleteFunc(m.held, func(o *modelCall) bool { return o == c })
	if c.start > 0 {
		c.lane.times.learn(c.start, m.now)
	}
	m.grant()
}

func (m *model) grant() {
	for {
		var best *modelLane
		for _, ln := range m.lanes {
			if len(ln.queue) > 0 && m.free(ln) && (best == nil || m.before(ln, best)) {
				best = ln
			}
		}
		if best == nil {
			return
		}
		list := best.of(best.turns[0])
		c := list[0]
		if m.newest(best) {
			c = list[len(list)-1]
		}
		m.leave(c)
		switch {
		case m.full(c.work.Kind.Backend):
			c.answer(m.now, ErrBackendShare)
		case c.deadline != never && c.deadline-m.now < best.need(nil) && !best.times.doubtful(m.now):
			c.answer(m.now, ErrDeadline)
		default:
			if c.deadline != never && c.deadline-m.now < best.need(nil) {
				best.times.try(m.now)
			}
			if len(list) > 1 {
				best.turns = append(best.turns[1:], best.turns[0])
			}
			best.moves(m.now)
			m.grants++
			best.granted = m.grants
			c.start = m.now
			m.held = append(m.held, c)
			c.answer(m.now, nil)
		}
	}
}

func (m *model) before(a, b *modelLane) bool {
	an, bn := m.heldBy(a), m.heldBy(b)
	if (an < a.Reserve) != (bn < b.Reserve) {
		return an < a.Reserve
	}
	if an != bn {
		return an < bn
	}
	return a.granted < b.granted
}

func (m *model) configure(c Config) {
	m.slots, m.backendLimit = c.Slots, c.BackendLimit
	for _, ln := range m.lanes[1:] {
		ln.open, ln.LaneConfig = false, LaneConfig{Order: ln.Order}
	}
	m.lanes[0].LaneConfig = c.Default
	for _, name := range slices.Sorted(maps.Keys(c.Lanes)) {
		ln := m.lane(name)
		ln.open, ln.LaneConfig = true, c.Lanes[name]
	}
	sum := 0
	for _, ln := range m.lanes {
		if ln.Limit == 0 || ln.Limit > m.slots {
			ln.Limit = m.slots
		}
		ln.Reserve = min(ln.Reserve, ln.Limit)
		sum += ln.Reserve
	}
	for ; sum >= m.slots && sum > 0; sum-- {
		lanes := slices.SortedFunc(slices.Values(m.lanes), func(a, b *modelLane) int {
			if a.Reserve != b.Reserve {
				return b.Reserve - a.Reserve
			}
			if a.name > b.name {
				return -1
			}
			return 1
		})
		lanes[0].Reserve--
	}
	m.grant()
}

func (m *model) close() {
	m.closed = true
	for _, ln := range m.lanes {
		for _, c := range ln.queue {
			c.answer(m.now, ErrClosed)
		}
		ln.queue, ln.turns = nil, nil
	}
}

func (m *model) queued() (n int) {
	for _, ln := range m.lanes {
		n += len(ln.queue)
	}
	return n
}

// advance lets time pass. Whoever gives up on the way does so at its own time
// and sets nothing else in motion, so the order among them does not matter.
func (m *model) advance(d time.Duration) {
	m.now += d
	for _, ln := range m.lanes {
		for _, c := range slices.Clone(ln.queue) {
			if at := min(c.due, c.deadline); at <= m.now {
				m.leave(c)
				if err := ErrTimeout; c.deadline < c.due {
					c.answer(at, ErrCanceled)
				} else {
					c.answer(at, err)
				}
			}
		}
	}
}

// same reports whether the gate answered a call as the model did.
func (c *modelCall) same(got *call) bool {
	if c.over != got.over {
		return false
	}
	return !c.over || errors.Is(got.err, c.err) && got.after == c.after
}
