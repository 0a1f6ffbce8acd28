package gate

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Gate lets a bounded number of callers in and a bounded number wait, in
// lanes (requirement rows G1, G2, G5, G9).
//
// The zero value is of no use; call [New]. A Gate must not be copied. All methods may be called from several
// goroutines at once. It starts no goroutine and needs no Close to be collected.
type Gate struct {
	began time.Time // the gate's clock counts from here

	mu sync.Mutex // guards everything below, and all that hangs on it

	slots        int            // how many may be in flight, at least 1
	held         int            // slots taken, those of granted waiters that have not run yet included
	unfilled     int            // reserved slots that their lanes do not hold
	backendLimit int            // the most slots of one backend; 0: no bound
	backends     map[string]int // slots held by each named backend; none at 0
	waiting      int            // in all lanes
	grants       uint64         // so far, to tell which lane was served longest ago
	closed       bool           // set once, never cleared

	// lanes are all that ever were, the default one first. For each of them
	// holds whenever mu is free:
	//
	//	queue.n > 0  =>  !mayTake(lane)   (nobody waits beside a slot for it)
	//	closed       =>  queue.n == 0
	//
	// The first is why a newcomer that finds a slot overtakes nobody. What is
	// held and who waits may exceed the bounds for a while after Configure
	// made them smaller.
	lanes []*Lane
	first Lane // lanes[0], here so that the way of most work leads through one pointer less
}

// Work is what a caller wants a slot for. The zero Work does not wait.
type Work struct {
	Kind *Kind // nil: the zero Kind
	Flow Flow  // whose work it is; within a lane flows take turns

	// MaxWait bounds the time in the queue. Zero means not to wait at all:
	// without a free slot the answer is [ErrQueueFull], even if the queue has
	// room. Negative leaves the bound to the context.
	MaxWait time.Duration
	// Deadline is when the work must be done, besides the context's deadline.
	// Zero: none.
	Deadline time.Time
}

// Kind is what much work has in common. It must not be changed once it is in use.
type Kind struct {
	Lane    *Lane  // of this gate; nil, or one that is not configured: the default lane
	Backend string // what it will keep busy; "" is not counted
	Times   *Times // where its service time is learned; nil: in its lane only
}

var zeroKind Kind

// Flow names whose work it is: a client's network, as [net/netip.Addr.As16] has its
// address. Flows of one IPv6 /48 have few turns among them. The zero Flow is one like
// any other.
type Flow [16]byte

// New returns an open gate with one lane, which has the given number of places
// to wait and serves in the order of arrival within a flow. It panics if slots
// is less than 1 or queue less than 0: such numbers are a fault of the program,
// and configuration is checked before it gets here.
func New(slots, queue int) *Gate {
	g := &Gate{began: time.Now().Add(-1), backends: map[string]int{}}
	g.first = Lane{gate: g, open: true}
	g.lanes = []*Lane{&g.first}
	g.Configure(Config{Slots: slots, Default: LaneConfig{Queue: queue}})
	return g
}

// Acquire takes a slot, at once if one is free for the lane, else after waiting
// in the lane's queue. With a nil error the caller owns the slot and must give it
// back with exactly one [Slot.Release], best deferred so that a panic or a
// [runtime.Goexit] gives it back too (row G7). With any other error it owns
// nothing, and the Slot is the zero one.
//
// A context that is done already gets [ErrCanceled], even if a slot is free. A
// wait that ends because ctx does or because of w.MaxWait leaves the queue at
// once, and a slot granted in the same instant is handed on to the next waiter;
// the package comment has the order in which such events count.
//
// A call that need not wait, admitted or refused at once, allocates nothing and
// hardly ever reads the clock. One that waits allocates a few small objects.
//
// w is only read, and only during the call: it is a pointer because copying it
// would cost more than all the rest.
func (g *Gate) Acquire(ctx context.Context, w *Work) (Slot, error) {
	// Err and not Done: the first call of Done makes a channel, which a call
	// that need not wait has no use for. Before the lock and not under it: a
	// context can be of any type, and foreign code must not run inside our
	// critical section. Whether ctx ends between here and the lock cannot be
	// told from ctx ending just after the grant.
	if ctx.Err() != nil {
		return Slot{}, canceled(ctx)
	}

	g.mu.Lock()
	ln, k := g.laneOf(w)
	var start time.Duration
	// What refusalLocked says, for most calls without asking it.
	if k.Backend != "" || g.closed || !g.mayTake(ln) {
		if err := g.refusalLocked(ln, k, w); err != nil {
			g.mu.Unlock()
			if err == errMustWait {
				return g.wait(ctx, w)
			}
			return Slot{}, err
		}
	}
	g.takeLocked(ln, k.Backend)
	if g.samplesLocked(ln) {
		start = g.now()
	}
	g.mu.Unlock()
	return Slot{ln, k, start}, nil
}

// refusalLocked says why a newcomer gets no slot at once; nil if it does. It is
// errMustWait for one that has to look for a place in the queue.
func (g *Gate) refusalLocked(ln *Lane, k *Kind, w *Work) error {
	switch {
	case g.closed:
		return ErrClosed
	case g.overShareLocked(k.Backend):
		return ErrBackendShare
	case g.mayTake(ln):
		return nil
	case w.MaxWait == 0 || ln.full(w.Flow):
		return ErrQueueFull
	}
	return errMustWait
}

// samplesLocked reports whether work that begins without waiting is to be
// measured. Reading the clock costs more than all the rest, so a gate with room to
// spare measures one in 64.
func (g *Gate) samplesLocked(ln *Lane) bool {
	return ln.times.n < enough || g.grants%64 == 0 || g.held > g.slots/2
}

// wait finds a place in the queue and waits there.
func (g *Gate) wait(ctx context.Context, w *Work) (Slot, error) {
	by := w.Deadline
	if d, ok := ctx.Deadline(); ok && (by.IsZero() || d.Before(by)) {
		by = d
	}
	now := g.now()
	deadline := never
	if !by.IsZero() {
		// From now and not from began: a deadline that somebody wrote by the
		// calendar is otherwise off by as much as the calendar was set since.
		if left := time.Until(by); left < never-now {
			deadline = now + left
		}
	}

	g.mu.Lock()
	ln, k := g.laneOf(w)
	switch err := g.refusalLocked(ln, k, w); { // again: much can have happened meanwhile
	case err == nil:
		g.takeLocked(ln, k.Backend)
		g.mu.Unlock()
		return Slot{ln, k, now}, nil
	case err != errMustWait:
		g.mu.Unlock()
		return Slot{}, err
	case ln.hopelessLocked(w, k, now, deadline):
		g.mu.Unlock()
		return Slot{}, ErrDeadline
	}
	p := g.joinLocked(ln, k, w, now, deadline)
	g.mu.Unlock()

	return p.await(ctx)
}

// joinLocked puts a newcomer into the queue, in the place of another if it is
// full.
func (g *Gate) joinLocked(ln *Lane, k *Kind, w *Work, now, deadline time.Duration) *waiter {
	if ln.queue.n == 0 {
		ln.backlogBegins(now)
	}
	newest := ln.newestFirst(now)
	if ln.queue.n >= ln.queueCap {
		g.removeLocked(ln.queue.victim(newest)).decide(displaced)
	}
	p := &waiter{
		lane: ln, kind: k,
		maxWait: ln.bound(w.MaxWait, now), due: never, deadline: deadline,
		decided: make(chan struct{}),
	}
	if p.maxWait > 0 && p.maxWait < never-now {
		p.due = now + p.maxWait
	}
	ln.queue.join(p, w.Flow, newest)
	g.waiting++
	return p
}

// removeLocked takes a waiter out of its queue, and returns it.
func (g *Gate) removeLocked(p *waiter) *waiter {
	p.lane.queue.remove(p)
	g.waiting--
	return p
}

func (g *Gate) takeLocked(ln *Lane, backend string) {
	g.held++
	if ln.held < ln.reserve {
		g.unfilled--
	}
	ln.held++
	g.grants++
	ln.granted = g.grants
	if backend != "" {
		g.backends[backend]++
	}
}

// giveLocked takes a slot back. Whoever calls it calls grantLocked next.
func (g *Gate) giveLocked(ln *Lane, backend string) {
	g.held--
	ln.held--
	if ln.held < ln.reserve {
		g.unfilled++
	}
	if backend != "" {
		if g.backends[backend]--; g.backends[backend] == 0 {
			delete(g.backends, backend)
		}
	}
}

func (g *Gate) overShareLocked(backend string) bool {
	return backend != "" && g.backendLimit > 0 && g.backends[backend] >= g.backendLimit
}

// grantLocked gives free slots to waiters. Everything that may free a slot calls
// it before it lets go of mu, and nothing else picks the next waiter. The slot
// is counted here, on behalf of the waiter: if the waiter counted it when it
// runs, a newcomer could slip in between.
//
// A waiter that can make no use of a slot is sent away now, and its flow keeps
// its turn: one whose wait is over, one that could not be done in time, and one
// whose backend has its share meanwhile. Those who have gone for a reason of
// their own hand on what they get.
func (g *Gate) grantLocked() {
	if g.waiting == 0 {
		return
	}
	now := g.now()
	for ln := g.nextLocked(); ln != nil; ln = g.nextLocked() {
		p := ln.queue.next(ln.newestFirst(now))
		f := p.flow
		g.removeLocked(p)
		switch {
		case p.due <= now:
			p.decide(expired)
		case g.overShareLocked(p.kind.Backend):
			p.decide(overShare)
		case !ln.inTime(p.kind.Times, p.deadline-now, now):
			p.decide(tooLate)
		default:
			ln.starts(p.kind.Times, p.deadline-now, now)
			ln.queue.served(f)
			ln.moves(now)
			g.takeLocked(ln, p.kind.Backend)
			p.start = now
			p.decide(granted)
		}
	}
}

// nextLocked picks the lane whose waiter gets a free slot, nil if there is none:
// one that holds less than its reserve, else the one that holds least, so that
// lanes share what is not reserved by slots and not by grants: slow work does not
// crowd out quick work. Of equals it is the one that was served longest ago.
func (g *Gate) nextLocked() (best *Lane) {
	for _, ln := range g.lanes {
		if ln.queue.n > 0 && g.mayTake(ln) && (best == nil || ln.before(best)) {
			best = ln
		}
	}
	return best
}

// Lane returns the lane of that name, one for ever, configured or not.
func (g *Gate) Lane(name string) *Lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.laneLocked(name)
}

func (g *Gate) laneLocked(name string) *Lane {
	if i := slices.IndexFunc(g.lanes, func(ln *Lane) bool { return ln.name == name }); i >= 0 {
		return g.lanes[i]
	}
	ln := &Lane{gate: g, name: name, limit: g.slots}
	g.lanes = append(g.lanes, ln)
	return ln
}

// laneOf returns the lane for a newcomer, and its kind.
func (g *Gate) laneOf(w *Work) (*Lane, *Kind) {
	k := w.Kind
	if k == nil {
		k = &zeroKind
	}
	if k.Lane != nil && k.Lane.open {
		return k.Lane, k
	}
	return &g.first, k
}

// Close ends the service of the gate: all who wait leave with [ErrClosed], and
// so does everybody who comes later. Slots that are held stay held until they
// are released; Close does not wait for that. It may be called again.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.closed = true
	for _, ln := range g.lanes {
		for ln.queue.n > 0 {
			g.removeLocked(ln.queue.first.first).decide(shut)
		}
	}
}

// now is the gate's clock; it is above 0. It counts from the gate's beginning, for
// a duration is a third of a time and compares faster.
func (g *Gate) now() time.Duration { return time.Since(g.began) }

// clock is now, for an order that depends on it, and 0 for any other.
func (g *Gate) clock(o Order) time.Duration {
	if o == ControlledDelay {
		return g.now()
	}
	return 0
}

// never is later than any time the clock reaches.
const never = time.Duration(1<<63 - 1)
