package gate

import "time"

// An Order says which flow's turn it is, and which of a flow's waiters is
// served, when a slot comes free, and who goes when the queue is full.
type Order uint8

const (
	// Fair serves flows in turn and each in the order of its arrivals. When the
	// queue is full, a flow with fewer waiters takes the place of the newest
	// waiter of the flow with most.
	Fair Order = iota

	// NewestFirst serves the flow that came to the queue last, and of each flow
	// the newest waiter. A flow that was served goes behind all others. When the
	// queue is full, the oldest waiter of the flow with most waiters goes, or of
	// the oldest flow if all have one. Under overload those who are served
	// waited hardly at all, and those who are not waited in vain.
	NewestFirst

	// ControlledDelay is Fair as long as the queue empties now and then. Once it
	// stands, it serves as NewestFirst does, and newcomers may wait only a
	// service time. That is the queue that Facebook described: Ben Maurer, "Fail
	// at Scale", ACM Queue 13(8), 2015, with times that follow what is measured.
	ControlledDelay
)

// standing reports whether there has been a queue for so long that it is no
// burst.
func (p *pace) standing(now time.Duration) bool { return now-p.began > p.burstWait() }

// burstWait is how long one may wait in a queue that empties now and then, and
// after which a queue that has not emptied stands.
func (p *pace) burstWait() time.Duration { return max(100*time.Millisecond, 5*p.times.mean) }

// standingWait is how long one may wait in a queue that stands.
func (p *pace) standingWait() time.Duration {
	if p.times.mean == 0 {
		return 20 * time.Millisecond
	}
	return max(5*time.Millisecond, p.times.mean)
}
