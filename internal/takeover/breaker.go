package takeover

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// failuresToOpen is how many calls in a row have to fail.
	failuresToOpen = 5
	// stallPart and stallFactor say at what age of the oldest call in flight the
	// remote store is taken to hang: that part of a call's time-out, or so many
	// times its 99th percentile. By its errors alone, a server that hangs would be
	// noticed only when calls time out, and all that came in the meantime wait with
	// them.
	stallPart   = 4
	stallFactor = 8
	// probation is how long after its return the first failure opens again.
	probation = time.Second
)

// breaker decides whether the remote store is asked. It reads no clock: instants
// are nanoseconds, and are passed in.
//
//	open ⇒ ctx is over, and with it every call that was in flight
//	flying > 0 ⇔ since is when the oldest call in flight was sent, or, if that is
//	             later, when the last answer came
type breaker struct {
	isOpen atomic.Bool   // is read without mu on the way in, and written under it
	floor  time.Duration // of stall

	mu       sync.Mutex // guards the following
	era      uint64     // openings so far; calls of an earlier era change nothing
	ctx      context.Context
	cancel   context.CancelFunc
	failures int // in a row
	flying   int
	since    int64
	trial    int64 // until when a single failure opens
	latency  slowest
}

// call is one call that the breaker let through.
type call struct {
	ctx context.Context // over when the breaker opens
	era uint64
	at  int64 // when it was sent
	// free says that it has no breaker of its own: the nodes it goes to have.
	free bool
}

// outcome is how a call ended.
type outcome int

const (
	answered outcome = iota // with a decision
	failed                  // with an error
	timedOut                // without an answer
	moot                    // the caller's own deadline was too short to tell
)

func newBreaker(floor time.Duration) *breaker {
	b := &breaker{floor: floor}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// stall is the age at which a call is taken to hang. mu is held.
func (b *breaker) stall() time.Duration { return max(b.floor, stallFactor*b.latency.p99()) }

// enter lets a call through, or not. opened reports that it is this call at which
// the breaker has opened: the oldest in flight is too old.
func (b *breaker) enter(now int64) (c call, ok, opened bool) {
	if b.isOpen.Load() {
		return c, false, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isOpen.Load() {
		return c, false, false
	}
	if b.flying > 0 && now-b.since >= int64(b.stall()) {
		b.open()
		return c, false, true
	}
	if b.flying++; b.flying == 1 {
		b.since = now
	}
	return call{ctx: b.ctx, era: b.era, at: now}, true, false
}

// leave notes how a call ended. opened reports that the breaker has opened for
// it, mended that it is the first to be answered after some that failed.
func (b *breaker) leave(c call, now int64, o outcome) (opened, mended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.era != b.era {
		return false, false
	}
	b.flying--
	switch o {
	case answered:
		mended = b.failures > 0
		b.failures, b.since = 0, now
		b.latency.add(time.Duration(now - c.at))
	case failed, timedOut:
		b.failures++
		if o == failed {
			b.since = now // the server answered, or its kernel did
		}
		if b.failures >= failuresToOpen || now < b.trial || o == timedOut && now-c.at >= int64(b.stall()) {
			b.open()
			return true, false
		}
	}
	return false, mended
}

// open lets no call through any more, and ends those in flight: they would wait
// for their deadline. mu is held.
func (b *breaker) open() {
	b.isOpen.Store(true)
	b.era++
	b.cancel()
}

// close lets calls through again. took is how long a probe took: a server that
// is merely far away must not be taken to hang.
func (b *breaker) close(now int64, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.failures, b.flying = 0, 0
	b.trial = now + int64(probation)
	b.latency.atLeast(took)
	b.isOpen.Store(false)
}

// stop opens the breaker from outside.
func (b *breaker) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open()
}
