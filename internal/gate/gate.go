package gate

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Gate lets a bounded number of callers in and a bounded number wait, first
// come, first served (requirement rows G1 and G2).
//
// The zero value admits nobody; use [New]. A Gate must not be copied. All
// methods may be called from several goroutines at once. It starts no goroutine
// and needs no Close to be collected.
type Gate struct {
	mu sync.Mutex // guards everything below

	slots    int  // how many may be in flight, at least 1
	queueCap int  // how many may wait, at least 0
	held     int  // slots taken, those of granted waiters that have not run yet included
	closed   bool // set once, never cleared

	// Two implications hold whenever mu is free:
	//
	//	queue.n > 0  =>  held >= slots   (nobody waits beside a free slot)
	//	closed       =>  queue.n == 0
	//
	// The first is why a newcomer that finds a free slot overtakes nobody.
	// held > slots and queue.n > queueCap are legal: they remain for a while
	// after Resize made the gate smaller.
	queue waitlist
}

// New returns an open gate with the given number of slots and of places to
// wait. It panics if slots is less than 1 or queue less than 0: such numbers
// are a fault of the program, and configuration is checked before it gets here.
func New(slots, queue int) *Gate {
	checkSize(slots, queue)
	return &Gate{slots: slots, queueCap: queue}
}

// Acquire takes a slot, at once if one is free, else after waiting in the
// queue. With a nil error the caller owns one slot and must give it back with
// exactly one [Gate.Release], best deferred so that a panic or a
// [runtime.Goexit] gives it back too (row G7). With any other error it owns
// nothing.
//
// maxWait bounds the time in the queue. Zero means not to wait at all: without
// a free slot the answer is [ErrQueueFull], even if the queue has room. A
// negative maxWait leaves the bound to ctx.
//
// A context that is done already gets [ErrCanceled], even if a slot is free. A
// wait that ends because ctx does or because of maxWait leaves the queue at
// once, and a slot granted in the same instant is handed on to the next waiter;
// the package comment has the order in which such events count.
//
// A call that need not wait, admitted or refused with ErrQueueFull, allocates
// nothing and does not read the clock. One that waits allocates a few small
// objects; with a positive maxWait it sets a timer and reads the clock twice.
func (g *Gate) Acquire(ctx context.Context, maxWait time.Duration) error {
	// Err and not Done: the first call of Done makes a channel, which a call
	// that need not wait has no use for. Before the lock and not under it: a
	// context can be of any type, and foreign code must not run inside our
	// critical section. Whether ctx ends between here and the lock cannot be
	// told from ctx ending just after the grant.
	if ctx.Err() != nil {
		return canceled(ctx)
	}

	g.mu.Lock()
	switch {
	case g.closed:
		g.mu.Unlock()
		return ErrClosed
	case g.held < g.slots:
		g.held++
		g.mu.Unlock()
		return nil
	case maxWait == 0 || g.queue.n >= g.queueCap:
		g.mu.Unlock()
		return ErrQueueFull
	}
	w := g.queue.join()
	g.mu.Unlock()

	return g.await(ctx, w, maxWait)
}

// await blocks until w, which is in the queue or has just been taken out of it
// by a verdict, knows how its wait ended.
func (g *Gate) await(ctx context.Context, w *waiter, maxWait time.Duration) error {
	done := ctx.Done()
	var start time.Time
	var expired <-chan time.Time // nil, never ready, without a bound
	if maxWait > 0 {
		start = time.Now()
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		expired = timer.C
	}

	timedOut := false
	select {
	case <-w.decided:
	case <-done:
	case <-expired:
		timedOut = true
	}

	// select picks at random among the cases that are ready, and more may have
	// become ready since. So look again, in the order in which they count. The
	// done channel answers in constant time; ctx.Err walks up through every
	// layer of values first. For the bound the clock is asked and not the
	// timer's channel, which has something to say only after the runtime has
	// run the timer: a grant in the very instant of the timeout can be faster.
	switch {
	case isClosed(done):
		// Leave before asking for the cause: that runs foreign code, which
		// may panic, and the slot must not go with it.
		g.leave(w)
		return canceled(ctx)
	case timedOut || maxWait > 0 && time.Since(start) >= maxWait:
		g.leave(w)
		return ErrTimeout
	}

	// Only the verdict is left to have woken us.
	if w.verdict == refused {
		return ErrClosed
	}
	return nil
}

// leave gives up whatever w has: its place in the queue, or the slot that was
// granted while w was already on its way out. This second case is where slots
// get lost if the waiter's decision to go and the gate's decision to grant are
// not made one after the other: both are made under mu, and here w learns which
// came first.
func (g *Gate) leave(w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()

	switch w.verdict {
	case undecided:
		// No slot comes free by this, so there is nobody to wake.
		g.queue.remove(w)
	case granted:
		g.held--
		g.grantLocked()
	case refused:
		// Close has taken w out already.
	}
}

// Release gives back a slot, which goes to the longest waiting caller if there
// is one. It works after [Gate.Close] too.
//
// It panics when no slot is held, because a release too many lets one caller
// too many in. A double release goes unnoticed while others hold slots; who
// cannot be sure to release only once uses [Gate.Hold].
func (g *Gate) Release() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.held == 0 {
		panic("gate: Release of a slot that is not held")
	}
	g.held--
	g.grantLocked()
}

// grantLocked gives free slots to waiters, oldest first. Everything that may
// free a slot calls it before it lets go of mu, and nothing else picks the next
// waiter. The slot is counted here, on behalf of the waiter: if the waiter
// counted it when it runs, a newcomer could slip in between.
func (g *Gate) grantLocked() {
	for g.held < g.slots {
		w := g.queue.pop()
		if w == nil {
			return
		}
		g.held++
		w.decide(granted)
	}
}

// Resize changes the number of slots and of places to wait. Additional slots go
// to waiters at once. With fewer slots than are held, nobody is interrupted and
// nobody is let in until enough have been given back. With fewer places than
// are taken, nobody is thrown out: who waits keeps its turn, newcomers are
// refused.
//
// It panics on the same numbers as [New], and has no visible effect on a closed
// gate but for what [Gate.Slots] and [Gate.QueueCap] report.
func (g *Gate) Resize(slots, queue int) {
	checkSize(slots, queue)
	g.mu.Lock()
	defer g.mu.Unlock()

	g.slots, g.queueCap = slots, queue
	g.grantLocked()
}

// Close ends the service of the gate: all who wait leave with [ErrClosed], and
// so does everybody who comes later. Slots that are held stay held until they
// are released; Close does not wait for that. It may be called again.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.closed = true
	for w := g.queue.pop(); w != nil; w = g.queue.pop() {
		w.decide(refused)
	}
}

// checkSize panics on a size that no gate can have.
func checkSize(slots, queue int) {
	if slots < 1 {
		panic(fmt.Sprintf("gate: %d slots; at least 1 is needed", slots))
	}
	if queue < 0 {
		panic(fmt.Sprintf("gate: a queue of %d; use 0 for none", queue))
	}
}

// isClosed reports whether c is closed. A nil channel, which a context that never
// ends has, is not.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
