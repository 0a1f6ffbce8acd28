package weir

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/gate"
	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/problem"
)

// The errors of [Guard.Acquire]. Compare with errors.Is.
var (
	ErrQueueFull = errors.New("weir: guard: queue full")
	ErrTimeout   = errors.New("weir: guard: no slot within the acquire timeout")
	ErrCanceled  = errors.New("weir: guard: canceled while waiting for a slot")
)

// Guard bounds how much work is in flight at once in front of something that
// can do only so much: an HSM's sessions, a signer, a pool (requirements
// G1–G4). Up to MaxInFlight hold a slot, up to MaxQueue wait in order of
// arrival, the rest is shed at once. Get one from [Limiter.Guard]; it stays
// the same through every Reload, which resizes it. Safe for concurrent use.
type Guard struct {
	name string
	l    *Limiter
	gate *gate.Gate // nil: the Limiter is disabled, everything passes
}

// Acquire takes a slot, waiting at most the AcquireTimeout or until ctx is
// done (requirement G6). release gives it back; it may be called more than
// once and from any goroutine. On error release is a function that does
// nothing, and the error matches [ErrQueueFull], [ErrTimeout] or [ErrCanceled],
// the last of which also matches ctx's own error. A request that is inside the
// Guard's Handler takes a second slot here.
func (g *Guard) Acquire(ctx context.Context) (release func(), err error) {
	p := g.l.policy.Load()
	if g.gate == nil || !p.on {
		return func() {}, nil
	}
	wait := p.guardWait[g.name]
	release, err = g.gate.Hold(ctx, wait)
	if err != nil {
		k := g.l.counts.class(classDirect)
		reason := shedReason(err)
		k.shed[reason].add(1)
		return release, shedError(reason, err)
	}
	return release, nil
}

// classDirect is the endpoint label of work that did not come through HTTP.
const classDirect Class = "direct"

func shedReason(err error) int {
	switch {
	case errors.Is(err, gate.ErrTimeout):
		return 1
	case errors.Is(err, gate.ErrCanceled):
		return 2
	}
	return 0
}

// guardError is a public sentinel together with what ended the wait.
type guardError struct{ sentinel, cause error }

func (e *guardError) Error() string   { return e.sentinel.Error() }
func (e *guardError) Unwrap() []error { return []error{e.sentinel, e.cause} }

func shedError(reason int, err error) error {
	switch reason {
	case 0:
		return ErrQueueFull
	case 1:
		return ErrTimeout
	}
	return &guardError{ErrCanceled, err}
}

// Handler holds a slot for as long as next runs, a panic or a hijack included.
// A request that is inside the same Guard already passes and shares its slot,
// which is held until the last of its parts has returned. It is the guard stage
// alone; [Limiter.Handler] has it built in for classes that name a guard.
//
// Work that goes on after next has returned, as it does behind
// [http.TimeoutHandler], has no slot any more, unless a Handler of the same
// Guard stands next to it too.
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
	wait := v.p.guardWait[g.name]
	if c != nil && c.mode == ModeFail {
		wait = 0
	}
	if c.readsWhole() && !g.full(wait) && r.Body != nil && r.Body != http.NoBody {
		// A client that sends slowly, or not at all, is not to do so in a slot;
		// and over HTTP/1.1 one that leaves is noticed only when its body has
		// been read. A longer body is the server's ReadTimeout's business.
		jws.Peek(r, maxBody)
	}
	if err := g.gate.Acquire(r.Context(), wait); err != nil {
		g.shed(w, r, v, c, err)
		return
	}
	v.enter(g)
	defer v.leave(g)
	next.ServeHTTP(w, r)
}

// full reports whether a request would be shed at once, with its body unread.
func (g *Guard) full(wait time.Duration) bool {
	return g.gate.InFlight() >= g.gate.Slots() && (wait == 0 || g.gate.Queued() >= g.gate.QueueCap())
}

// slot is one slot that a request holds. However often its way leads through
// the guard at the same time, nested or side by side, it holds one.
type slot struct {
	guard *Guard
	users int // how many times it is inside
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
		if v.slots[i].guard == g {
			v.slots[i].users++
			return true
		}
	}
	return false
}

// enter records the slot of g that the request has just got. Where another part
// of the request was quicker, that one's is enough.
func (v *visit) enter(g *Guard) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.shareLocked(g) {
		g.gate.Release()
		return
	}
	if v.slots == nil {
		v.slots = v.first[:0]
	}
	v.slots = append(v.slots, slot{g, 1})
}

// leave gives the slot back when the last part of the request leaves.
func (v *visit) leave(g *Guard) {
	v.mu.Lock()
	defer v.mu.Unlock()
	i := slices.IndexFunc(v.slots, func(s slot) bool { return s.guard == g })
	if v.slots[i].users--; v.slots[i].users == 0 {
		v.slots = slices.Delete(v.slots, i, i+1)
		g.gate.Release()
	}
}

// shed answers a request that got no slot. Its tokens stay spent, so that
// retries stay limited.
func (g *Guard) shed(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy, err error) {
	reason := shedReason(err)
	k, class, kind := g.l.counts.class(classDirect), Class(""), KindAPI
	if c != nil {
		k, class, kind = c.count, c.name, c.kind
	}
	g.l.refused(&k.shed[reason], class, "guard", g.name, shedReasons[reason])
	g.l.refuse(w, r, v.p, kind, problem.Rejection{
		Status: http.StatusServiceUnavailable, Reason: shedReasons[reason], Class: string(class),
		// Whoever waits when this is written has been served or has given up
		// by then, so a client that comes back meets another queue.
		RetryAfter: max(time.Second, v.p.guardWait[g.name]),
	})
}

// guardNamed returns the one Guard of that name, making it if need be. l.mu is
// held.
func (l *Limiter) guardNamed(name string) *Guard {
	g := l.guards[name]
	if g == nil {
		g = &Guard{name: name, l: l, gate: gate.New(1, 0)}
		l.guards[name] = g
		_ = l.counts.class(classDirect) // exported from the start, see newCounts
	}
	return g
}
