package weir

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// tierUnfinished is the word in metrics and logs for requests that are refused
// since too many of their address have not sent all of their body yet.
const tierUnfinished = "unfinished_bodies"

// maxUnfinished is how many ACME requests of one address may be on their way at
// once, in which an account is looked for. A body comes with its header, or
// right behind it, so an honest crowd behind one address has few; one that
// trickles would keep up to 64 KiB and a goroutine each, and spend nothing.
const maxUnfinished = 64

// patience is how long a body may take whatever others do. At the bound the
// one that has taken longest, and longer than that, makes room: whoever keeps
// 64 bodies open does not lock out those behind the same address, but has to
// open 64 a second.
const patience = time.Second

// bodies are the requests of each address whose body is being read.
type bodies struct {
	patience time.Duration // see there

	mu     sync.Mutex // guards what follows
	of     map[store.Key]*crowd
	last   uint64
	crowds sync.Pool // empty ones
}

// crowd is the requests of one address, the longest first.
type crowd struct{ list []reading }

// reading is one of them. w is used with bodies.mu held, while the handler that
// it belongs to is bound to wait for that: to set a deadline later would cut off
// the connection's next request. Without w it makes no room.
type reading struct {
	id    uint64
	since time.Time
	w     http.ResponseWriter
}

// enter begins a body. ok is false if its address has too many, and none of
// them can be made to end.
func (b *bodies) enter(who store.Key, w http.ResponseWriter) (id uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of[who]
	now := time.Now()
	switch {
	case c == nil:
		if c, _ = b.crowds.Get().(*crowd); c == nil {
			c = &crowd{}
		}
		if b.of == nil {
			b.of = map[store.Key]*crowd{}
		}
		b.of[who] = c
	case len(c.list) >= maxUnfinished:
		longest := c.list[0]
		if now.Sub(longest.since) < b.patience || http.NewResponseController(longest.w).SetReadDeadline(time.Unix(1, 0)) != nil {
			return 0, false
		}
		c.list = slices.Delete(c.list, 0, 1)
	}
	b.last++
	c.list = append(c.list, reading{b.last, now, w})
	return b.last, true
}

// leave ends a body. ok is false if it had to make room for another.
func (b *bodies) leave(who store.Key, id uint64) (ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.of[who]
	if c == nil {
		return false
	}
	if i := slices.IndexFunc(c.list, func(r reading) bool { return r.id == id }); i >= 0 {
		c.list, ok = slices.Delete(c.list, i, i+1), true
	}
	if len(c.list) == 0 {
		delete(b.of, who)
		b.crowds.Put(c)
	}
	return ok
}

// readClaim reads what an ACME request says of itself. ok is false if its
// address has too many such requests unfinished; it has been refused then, its
// body unread or cut off. Who has no address of its own is not bounded: there
// may be a whole site behind a unix socket.
func (l *Limiter) readClaim(t *transit) (claim jws.Claim, ok bool) {
	if !t.who.addr.IsValid() || t.exempt {
		return jws.Read(t.r, maxBody, t.c.renewal != nil), true
	}
	id, ok := l.bodies.enter(t.who.key, t.w)
	if !ok {
		l.unfinished(t)
		return claim, false
	}
	left := false
	defer func() {
		if !left { // the body panicked
			l.bodies.leave(t.who.key, id)
		}
	}()
	claim = jws.Read(t.r, maxBody, t.c.renewal != nil)
	left = true
	if !l.bodies.leave(t.who.key, id) {
		// Even if the body is whole: the deadline may have hit net/http's watch for a
		// client that leaves, which cancels the request.
		l.unfinished(t)
		return jws.Claim{}, false
	}
	return claim, true
}

// unfinished refuses a request whose body has not been read. It is no rate that
// was exceeded: 503 (requirement R4).
func (l *Limiter) unfinished(t *transit) {
	l.arrive(t)
	if t.r.ProtoMajor == 1 {
		// Or net/http would wait for the body, before it sends the answer and again
		// before it closes the connection. A ResponseWriter that cannot do the
		// latter keeps the goroutine until the server's ReadTimeout.
		t.w.Header().Set("Connection", "close")
		_ = http.NewResponseController(t.w).SetReadDeadline(time.Unix(1, 0))
	}
	l.refused(t.c.unfinished, t.c.name, "bodies", tierUnfinished, problem.ReasonQueueFull)
	l.refuse(t.w, t.r, t.p, t.c.kind, problem.Rejection{
		Status: http.StatusServiceUnavailable, Reason: problem.ReasonQueueFull, Class: string(t.c.name), RetryAfter: time.Second,
	})
}

// linger is how long a refused request may take for the rest of its body.
const linger = 5 * time.Second

// hurry bounds how long the body of a refused request is waited for. Over
// HTTP/1.1 net/http reads what is left of one, up to 256 KiB, before it sends
// the answer, to use the connection again: one that trickles would keep a
// goroutine until the server's ReadTimeout, for ever if there is none, and
// costs nothing, being refused. A body that is there already is not held up,
// and its connection is used again. The deadline ends with the request; a
// stricter one of the server stays.
func hurry(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 || jws.Over(r) || w.Header().Get("Connection") == "close" {
		return
	}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && 0 < s.ReadTimeout && s.ReadTimeout <= linger {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(linger))
}
