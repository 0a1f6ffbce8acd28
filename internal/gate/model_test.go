package gate

import (
	"errors"
	"slices"
	"time"
)

// A model is the gate in slow motion: one goroutine, a slice for a queue, time
// as a number, and no event in the middle of another. It says what the answer
// to every call is and when it comes.
type model struct {
	slots, queueCap int
	held            int
	closed          bool
	now             time.Duration
	queue           []*modelCall
}

// A modelCall is one Acquire as the model sees it.
type modelCall struct {
	at      time.Duration // when it was made
	leaveAt time.Duration // when it gives up, if it gets no slot before
	leaveBy error         // why it gives up then

	over  bool
	err   error
	after time.Duration
}

func (c *modelCall) answer(now time.Duration, err error) {
	c.over, c.err, c.after = true, err, now-c.at
}

// never is later than any virtual time the tests reach.
const never = time.Duration(1<<63 - 1)

// acquire asks for a slot. maxWait is as in Acquire; deadline is the time until
// the context ends, never for not at all, and 0 if it has ended.
func (m *model) acquire(maxWait, deadline time.Duration) *modelCall {
	c := &modelCall{at: m.now, leaveAt: never}
	if maxWait > 0 {
		c.leaveAt, c.leaveBy = m.now+maxWait, ErrTimeout
	}
	if deadline != never && m.now+deadline < c.leaveAt {
		c.leaveAt, c.leaveBy = m.now+deadline, ErrCanceled
	}
	switch {
	case deadline == 0:
		c.answer(m.now, ErrCanceled)
	case m.closed:
		c.answer(m.now, ErrClosed)
	case m.held < m.slots:
		m.held++
		c.answer(m.now, nil)
	case maxWait == 0 || len(m.queue) >= m.queueCap:
		c.answer(m.now, ErrQueueFull)
	default:
		m.queue = append(m.queue, c)
	}
	return c
}

func (m *model) cancel(c *modelCall) {
	if i := slices.Index(m.queue, c); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
		c.answer(m.now, ErrCanceled)
	}
}

// release reports false when nothing is held.
func (m *model) release() bool {
	if m.held == 0 {
		return false
	}
	m.held--
	m.grant()
	return true
}

func (m *model) grant() {
	for m.held < m.slots && len(m.queue) > 0 {
		m.held++
		m.queue[0].answer(m.now, nil)
		m.queue = slices.Delete(m.queue, 0, 1)
	}
}

func (m *model) resize(slots, queue int) {
	m.slots, m.queueCap = slots, queue
	m.grant()
}

func (m *model) close() {
	m.closed = true
	for _, c := range m.queue {
		c.answer(m.now, ErrClosed)
	}
	m.queue = nil
}

// advance lets time pass. Whoever gives up on the way does so at its own time
// and sets nothing else in motion, so the order among them does not matter.
func (m *model) advance(d time.Duration) {
	m.now += d
	m.queue = slices.DeleteFunc(m.queue, func(c *modelCall) bool {
		if c.leaveAt > m.now {
			return false
		}
		c.answer(c.leaveAt, c.leaveBy)
		return true
	})
}

// same reports whether the gate answered a call as the model did.
func (c *modelCall) same(got *call) bool {
	if c.over != got.over {
		return false
	}
	return !c.over || errors.Is(got.err, c.err) && got.after == c.after
}
