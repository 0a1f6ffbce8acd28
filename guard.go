package weir

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/gate"
	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/problem"
)

// The errors of [Guard.Acquire]. Compare with errors.Is; the text says more.
var (
	ErrQueueFull = errors.New("weir: guard: queue full")
	ErrTimeout   = errors.New("weir: guard: no slot within the acquire timeout")
	ErrCanceled  = errors.New("weir: guard: canceled while waiting for a slot")
)

// Guard bounds how much work is in flight at once in front of something that
// can do only so much: an HSM's sessions, a signer, a pool (requirements
// G1–G9). Up to MaxInFlight hold a slot, up to MaxQueue wait in each lane, the
// rest is shed at once. Get one from [Limiter.Guard]; it stays the same through
// every Reload, which resizes it. Safe for concurrent use.
type Guard struct {
	name  string
	l     *Limiter
	gate  *gate.Gate            // nil: the Limiter is disabled, everything passes
	times map[Class]*gate.Times // guarded by l.mu
}

// Acquire takes a slot, waiting at most the AcquireTimeout or until ctx is
// done (requirement G6). release gives it back; it may be called more than
// once and from any goroutine. On error release is a function that does
// nothing, and the error matches one of three. [ErrQueueFull]: there is no slot
// and no place to wait, or the place went to another client that had fewer, or
// the backend has its share. [ErrTimeout]: the AcquireTimeout is over, or would
// be, or ctx would be done before the work is. [ErrCanceled]: ctx is done; this
// one matches ctx's own error too.
//
// Inside a Handler of the Limiter the work is that of the request: it goes to the
// lane of its class, takes turns with other clients, and does not wait if the
// class's Mode is fail. It takes a slot beside that of the Guard's Handler, if it
// is inside that too.
func (g *Guard) Acquire(ctx context.Context) (release func(), err error) {
	var info Info
	if v := g.l.visitOf(ctx); v != nil {
		if c := v.class(); c != nil {
			info.Class = c.name
		}
		info.Addr = v.who.addr
	}
	return g.AcquireFor(ctx, info)
}

// AcquireFor is [Guard.Acquire] for work that outlives its request, or has none.
// Of info it takes the Class, which says the lane and, by its Mode, whether to
// wait; the Prefix, or Addr, whose work takes turns with that of others; and the
// Backend. All may be left out: "", a class that is not defined, or no address are
// each one like any other. What [FromContext] said of a request fits.
func (g *Guard) AcquireFor(ctx context.Context, info Info) (release func(), err error) {
	p := g.l.policy.Load()
	if g.gate == nil || !p.on {
		return func() {}, nil
	}
	gp := p.guardOf(g.name)
	k := gp.kindOf(info.Class)
	if info.Backend != "" && info.Backend != k.Backend {
		k = &gate.Kind{Lane: k.Lane, Backend: info.Backend, Times: k.Times}
	}
	prefix := info.Prefix
	if !prefix.IsValid() {
		prefix = p.prefixOf(info.Addr.Unmap())
	}
	c := p.classes[info.Class]
	release, err = g.gate.Hold(ctx, &gate.Work{Kind: k, Flow: flowOf(prefix), MaxWait: gp.waitOf(c)})
	if err != nil {
		count := g.l.counts.class(classDirect)
		if c != nil {
			count = c.count
		}
		reason := shedReason(err)
		count.shed[reason].add(1)
		return release, shedError(reason, err)
	}
	return release, nil
}

// flowOf is the flow of what is counted as one client. It is the network and
// never the account, which whoever asks may choose.
func flowOf(p netip.Prefix) gate.Flow {
	if !p.IsValid() {
		return gate.Flow{}
	}
	return p.Masked().Addr().As16()
}

// waitOf is how long a class waits for a slot; nil is work without one.
func (gp *guardPolicy) waitOf(c *classPolicy) time.Duration {
	if c != nil && c.mode == ModeFail {
		return 0
	}
	return gp.wait
}

// classDirect is the endpoint label of work that did not come through HTTP.
const classDirect Class = "direct"

// shedReason finds the reason of a gate's refusal in shedReasons.
func shedReason(err error) int {
	for i, e := range shedErrors {
		if errors.Is(err, e.gate) {
			return i
		}
	}
	return 0
}

// shedErrors are the gate's errors in the order of shedReasons, and what callers
// of Acquire get for them.
var shedErrors = [...]struct{ gate, public error }{
	{gate.ErrQueueFull, ErrQueueFull},
	{gate.ErrTimeout, ErrTimeout},
	{gate.ErrCanceled, ErrCanceled},
	{gate.ErrDeadline, ErrTimeout},
	{gate.ErrBackendShare, ErrQueueFull},
}

// guardError is a public sentinel together with what ended the wait.
type guardError struct{ sentinel, cause error }

func (e *guardError) Error() string   { return e.sentinel.Error() }
func (e *guardError) Unwrap() []error { return []error{e.sentinel, e.cause} }

// earlyError tells what the sentinel that it matches does not.
type earlyError struct{ sentinel, cause error }

func (e *earlyError) Error() string { return "weir: guard: " + e.cause.Error() }
func (e *earlyError) Unwrap() error { return e.sentinel }

func shedError(reason int, err error) error {
	public := shedErrors[reason].public
	switch shedErrors[reason].gate {
	case gate.ErrCanceled:
		return &guardError{public, err}
	case gate.ErrDeadline, gate.ErrBackendShare:
		return &earlyError{public, err}
	}
	return public
}

// Handler holds a slot for as long as next runs, a panic or a hijack included.
// A request that is inside the same Guard already passes and shares its slot,
// which is held until the last of its parts has returned. It is the guard stage
// alone; [Limiter.Handler] has it built in for classes that name a guard.
//
// Work that goes on after next has returned, as it does behind
// [http.TimeoutHandler], has no slot any more, unless a Handler of the same
// Guard stands next to it too: one slot is then held until both have returned.
// [Limiter.Handler] logs an advice where it finds a TimeoutHandler right inside
// and no Guard has been asked for. Outside the Limiter it does no harm.
func (g *Guard) Handler(next http.Handler) http.Handler {
	if g.gate == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, r := g.l.visit(r)
		if v == nil {
			next.ServeHTTP(w, r)
			return
		}
		if c := v.class(); c != ambiguous {
			g.serve(w, r, v, c, next)
		} else {
			g.l.misleading(w, r, v.p)
		}
	})
}

// serve runs next in a slot. c is the class that asks for it, nil for none.
func (g *Guard) serve(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy, next http.Handler) {
	if v.share(g) {
		defer v.leave(g)
		next.ServeHTTP(w, r)
		return
	}
	work := gate.Work{Flow: gate.Flow(v.who.key)}
	if c != nil && c.guard == g {
		work.Kind, work.MaxWait = c.work, c.acquireWait
	} else { // a Handler by hand
		gp := v.p.guardOf(g.name)
		if work.Kind, work.MaxWait = gp.other, gp.waitOf(c); c != nil {
			work.Kind = gp.kindOf(c.name)
		}
	}
	if c.readsWhole() && r.Body != nil && r.Body != http.NoBody && !g.gate.Sheds(&work) {
		// A client that sends slowly, or not at all, is not to do so in a slot;
		// and over HTTP/1.1 one that leaves is noticed only when its body has
		// been read. A longer body is the server's ReadTimeout's business.
		jws.Peek(r, maxBody)
	}
	slot, waited, err := g.acquire(w, r, &work)
	if err != nil {
		if waited {
			_ = extendDeadline(w, r, 0)
		}
		g.shed(w, r, v, c, work.Kind, err)
		return
	}
	v.enter(g, slot)
	defer v.leave(g)
	if waited { // behind defer: it calls the ResponseWriter, which is not ours
		_ = extendDeadline(w, r, 0)
	}
	next.ServeHTTP(w, r)
}

// acquire takes a slot for a request. If it has to wait for one, the time does
// not count against the server's WriteTimeout, which is meant for the handler:
// without that a request could get its slot and then no answer through. The
// deadline is moved before the wait, for over HTTP/2 it ends the stream when it
// is reached, and is to be set anew after it. Where it cannot be moved (a writer
// without Unwrap) it is the deadline of the work.
func (g *Guard) acquire(w http.ResponseWriter, r *http.Request, work *gate.Work) (slot gate.Slot, waited bool, err error) {
	wait := work.MaxWait
	work.MaxWait = 0
	slot, err = g.gate.Acquire(r.Context(), work)
	if wait == 0 || err != gate.ErrQueueFull {
		return slot, false, err
	}
	if work.MaxWait = wait; g.gate.Sheds(work) {
		return slot, false, err // no place to wait either: a flood costs no more than that
	}
	if by := extendDeadline(w, r, wait); !by.IsZero() {
		work.Deadline = by
	}
	slot, err = g.gate.Acquire(r.Context(), work)
	return slot, true, err
}

// slot is one slot that a request holds. However often its way leads through
// the guard at the same time, nested or side by side, it holds one.
type slot struct {
	held  gate.Slot
	users int // how many times it is inside the guard
}

// share reports whether the request is inside g, and if so has it enter once
// more.
func (v *visit) share(g *Guard) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shareLocked(g)
}

func (v *visit) shareLocked(g *Guard) bool {
	for i := range v.slots {
		if v.slots[i].held.Of(g.gate) {
			v.slots[i].users++
			return true
		}
	}
	return false
}

// enter records the slot of g that the request has just got. Where another part
// of the request was quicker, that one's is enough.
func (v *visit) enter(g *Guard, held gate.Slot) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shareLocked(g) {
		held.Release()
		return
	}
	if v.slots == nil {
		v.slots = v.first[:0]
	}
	v.slots = append(v.slots, slot{held, 1})
}

// leave gives the slot back when the last part of the request leaves.
func (v *visit) leave(g *Guard) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.slots, func(s slot) bool { return s.held.Of(g.gate) })
	if v.slots[i].users--; v.slots[i].users == 0 {
		held := v.slots[i].held
		v.slots = slices.Delete(v.slots, i, i+1)
		held.Release()
	}
}

// shed answers a request that got no slot. Its tokens stay spent, so that
// retries stay limited.
func (g *Guard) shed(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy, k *gate.Kind, err error) {
	reason := shedReason(err)
	count, class, kind := g.l.counts.class(classDirect), Class(""), KindAPI
	if c != nil {
		count, class, kind = c.count, c.name, c.kind
	}
	g.l.refused(&count.shed[reason], class, "guard", g.name, shedReasons[reason])
	g.l.refuse(w, r, v.p, kind, problem.Rejection{
		Status: http.StatusServiceUnavailable, Reason: shedReasons[reason], Class: string(class),
		RetryAfter: g.retryAfter(k, v.p.guardOf(g.name).wait),
	})
}

// retryAfter is how long a newcomer would have to wait now, as far as that is
// known (requirement G8). Before any work has been measured it is the acquire
// timeout: whoever waits now has been served or has given up by then. The upper
// bound is for a backend that hangs: how long it will is not known, and nobody
// should stay away for an hour because it did so for half of one.
func (g *Guard) retryAfter(k *gate.Kind, timeout time.Duration) time.Duration {
	wait, known := g.gate.Wait(k.Lane)
	if !known {
		wait = timeout
	}
	return min(max(wait, time.Second), maxRetryAfter)
}

const maxRetryAfter = time.Minute

var timeoutHandler = reflect.TypeOf(http.TimeoutHandler(nil, 0, ""))

// adviseTimeout looks for a http.TimeoutHandler right inside the chain: it answers
// while the work behind it goes on, without the slot that was for it. Where the
// program has asked for a Guard before, it may stand next to the work already.
func (l *Limiter) adviseTimeout(next http.Handler) {
	if reflect.TypeOf(next) != timeoutHandler {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.policy.Load(); len(p.guards) > 0 && len(l.wiredGuards) == 0 {
		l.log.Warn("weir: advice", "field", "guards", "advice", "a http.TimeoutHandler stands inside the Limiter: work goes on after it has answered, and its slot is free by then; put it outside, or the Handler of Limiter.Guard next to the work")
	}
}

// guardNamed returns the one Guard of that name, making it if need be. l.mu is
// held.
func (l *Limiter) guardNamed(name string) *Guard {
	g := l.guards[name]
	if g == nil {
		g = &Guard{name: name, l: l, gate: gate.New(1, 0), times: map[Class]*gate.Times{}}
		l.guards[name] = g
		_ = l.counts.class(classDirect) // exported from the start, see newCounts
	}
	return g
}
