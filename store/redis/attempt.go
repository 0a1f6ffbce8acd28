package redis

import (
	"context"
	_ "embed"
	"strings"

	"github.com/weir-go/weir/store"
)

//go:embed attempt.lua
var attemptSource string

var attemptScript = newAttemptScript(admitSource, lockSource+beginSource)

// newAttemptScript makes one script of two. The parameters of each function hide the
// KEYS and ARGV of the whole, so that both run as they are.
func newAttemptScript(admit, begin string) script {
	in := func(name, source string) string {
		return "local function " + name + "(KEYS, ARGV)\n" + source + "\nend\n"
	}
	return newScript(in("admit", admit) + in("begin", begin) + attemptSource)
}

var _ store.AttemptAdmitter = (*Store)(nil)

// AdmitAttempt implements [store.AttemptAdmitter]: one round trip and one atomic step.
// With a slot for each key it answers [store.ErrNotBegun]. A call whose answer was
// lost may have spent, and may have reserved places, which are free again after
// [store.ReservationTTL].
func (s *Store) AdmitAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt) (store.Verdict, []store.State, store.LockVerdict, error) {
	a.Ticket = 0
	open := store.LockVerdict{Refused: -1}
	if !s.closed.Load() && len(checks) > 0 && !s.keys.slotPerKey {
		if parts := s.keys.lockParts(a); len(parts) == 1 {
			return s.askAttempt(ctx, checks, dst, a, parts[0])
		}
	}
	v, states, err := s.Admit(ctx, checks, dst)
	if err == nil && v.Admitted() {
		err = store.ErrNotBegun
	}
	return v, states, open, err
}

// askAttempt runs attempt.lua over checks and counters that share a slot.
func (s *Store) askAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt, p *lockPart) (store.Verdict, []store.State, store.LockVerdict, error) {
	const op = "admit"
	open := store.LockVerdict{Refused: -1}
	ticket := newTicket()
	c := together(s.keys.admitCall(modeAdmit, checks), s.keys.attemptCall(p, ticket, reserveWords[a.Reserve], 0))
	text, err := s.runAt(ctx, &checks[0], op, s.attempt, c)
	if err != nil {
		return store.Verdict{}, dst, open, err
	}
	v, states, reply, err := readAttempt(text, checks, dst, p)
	if err != nil {
		return store.Verdict{}, dst, open, s.fail(op, badReply{err})
	}
	if !v.Admitted() {
		return v, states, open, nil
	}
	if p.reply = reply; reply.reserved {
		a.Ticket = ticket
	}
	lock, err := merged([]*lockPart{p}, len(a.Counters))
	return v, states, lock, err
}

// readAttempt reads the reply of attempt.lua. The second part is there if the first
// one admits.
func readAttempt(text string, checks []store.Check, dst []store.State, p *lockPart) (v store.Verdict, states []store.State, reply lockReply, err error) {
	first, second, begun := strings.Cut(text, "\n")
	v, states, _, err = decision(first, checks, dst)
	switch {
	case err == nil && begun != v.Admitted():
		err = errReply(text)
	case err == nil && begun:
		reply, err = readLock(second, p, false)
	}
	if err != nil {
		return store.Verdict{}, dst, lockReply{}, err
	}
	return v, states, reply, nil
}

// together is the call of attempt.lua that makes two.
func together(admit, begin *call) *call {
	c := &call{
		buf:  make([]byte, 0, len(admit.buf)+len(begin.buf)+8),
		ends: make([]int, 0, len(admit.ends)+len(begin.ends)+2),
		keys: admit.keys + begin.keys,
	}
	c.take(admit, 0, admit.keys)
	c.take(begin, 0, begin.keys)
	c.integer(int64(admit.keys))
	c.integer(int64(len(admit.ends) - admit.keys))
	c.take(admit, admit.keys, len(admit.ends))
	c.take(begin, begin.keys, len(begin.ends))
	return c
}

// take appends some words of another call.
func (c *call) take(from *call, first, end int) {
	for i := first; i < end; i++ {
		start := 0
		if i > 0 {
			start = from.ends[i-1]
		}
		c.buf = append(c.buf, from.buf[start:from.ends[i]]...)
		c.end()
	}
}
