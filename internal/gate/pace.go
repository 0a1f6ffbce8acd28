package gate

import "time"

// Times learns how long work takes. Several lanes or classes may each have
// their own; the zero value has seen nothing. It is guarded by the mutex of the
// gate that it is used with, which must be only one.
type Times struct {
	mean time.Duration // 0: nothing seen
	n    int           // samples, up to enough
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
	mean := p.times.mean
	if t != nil && t.mean > 0 {
		mean = t.mean
	}
	return mean + mean/4
}
