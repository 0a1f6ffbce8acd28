package gate

import "time"

// Times learns how long work takes. Several lanes or classes may each have
// their own; the zero value has seen nothing. It is guarded by the mutex of the
// gate that it is used with, which must be only one.
type Times struct {
	mean time.Duration // 0: nothing seen
	n    int           // samples, up to enough

	// By the gate's clock. Work that seems too slow for its deadline is not
	// measured where nobody finds a free slot, and so would seem it for ever.
	fresh time.Duration // until when the mean is held against anybody
	trial time.Duration // when work began that was let through in spite of it; 0: none
}

// freshness is how long after the last measurement a mean is believed.
const freshness = time.Second

// doubtful reports whether it is time to try again: one at a time, and not before
// a trial that is under way, or was lost, could have ended.
func (t *Times) doubtful(now time.Duration) bool { return now >= t.fresh }

// try notes that work begins now as a trial.
func (t *Times) try(now time.Duration) {
	t.trial, t.fresh = now, now+max(t.mean, freshness)
}

// lost notes that work which began then ended unmeasured.
func (t *Times) lost(start time.Duration) {
	if start == t.trial {
		t.trial, t.fresh = 0, 0
	}
}

// learn adds what was measured. A trial that was quicker than the mean replaces it,
// one that was not keeps others away for as long as it took.
func (t *Times) learn(start, end time.Duration) {
	d, rest := end-start, freshness
	switch {
	case start != t.trial:
		t.add(d)
	case d < t.mean:
		t.mean, t.trial = max(d, 1), 0
	default:
		t.add(d)
		t.trial, rest = 0, max(d, freshness)
	}
	t.fresh = max(t.fresh, end+rest)
}

// enough is after how many samples the mean moves by an eighth of a sample, and
// no sample counts for more than four times the mean: eight slots that hung for
// half a minute, say, and all come back at once, must not have the gate refuse
// for minutes what takes milliseconds again.
const enough = 8

func (t *Times) add(d time.Duration) {
	d = max(d, 1)
	if t.n < enough {
		t.n++
		t.mean += (d - t.mean) / time.Duration(t.n)
	} else {
		t.mean += (min(d, 4*t.mean) - t.mean) / enough
	}
	t.mean = max(t.mean, 1)
}

// pace is how quickly a lane moves.
type pace struct {
	times    Times         // of all work of the lane
	interval time.Duration // mean time from one grant to a waiter to the next; 0: not known
	moved    time.Duration // when the queue last moved, or began
	began    time.Duration // when the queue was last empty
}

// backlogBegins notes that somebody is about to wait where nobody did. Until
// there have been grants the interval is what the service time says.
func (ln *Lane) backlogBegins(now time.Duration) {
	ln.moved, ln.began = now, now
	ln.interval = ln.times.mean / time.Duration(max(1, ln.held))
}

// moves notes a grant. Grants come in bunches where work ends in bunches, so
// neither is a long interval cut, as a long service time is, nor a short one left
// out: the mean would not be one. A stall is forgotten after some dozens of
// grants, which at the old pace is soon.
func (p *pace) moves(now time.Duration) {
	d := now - p.moved
	p.moved = now
	if p.interval == 0 {
		p.interval = d
		return
	}
	p.interval = max(1, p.interval+(d-p.interval)/16)
}

func (p *pace) known() bool { return p.interval > 0 }

// wait estimates how long somebody waits with so many ahead. If there was no
// grant for long, what is behind the gate hangs, and nothing says that it will
// not do so for as long again.
func (p *pace) wait(ahead int, now time.Duration) time.Duration {
	return time.Duration(ahead)*p.interval + max(p.interval, now-p.moved)
}

// need is how much time must be left for work to be worth starting: its usual
// service time and a quarter, or 0 if that is not known.
func (p *pace) need(t *Times) time.Duration {
	mean := p.timesOf(t).mean
	return mean + mean/4
}

// timesOf returns the times to judge by: t, or the lane's if t knows nothing.
func (p *pace) timesOf(t *Times) *Times {
	if t != nil && t.mean > 0 {
		return t
	}
	return &p.times
}

// inTime reports whether work may be started that must be done in so much time.
func (p *pace) inTime(t *Times, left, now time.Duration) bool {
	return left >= p.need(t) || left > 0 && p.timesOf(t).doubtful(now)
}

// starts notes that such work is.
func (p *pace) starts(t *Times, left, now time.Duration) {
	if left < p.need(t) {
		p.timesOf(t).try(now)
	}
}
