package weir

import (
	"net/http"
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

// bodies counts the requests of each address whose body is being read.
type bodies struct {
	mu sync.Mutex
	n  map[store.Key]int
}

func (b *bodies) enter(who store.Key) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n[who] >= maxUnfinished {
		return false
	}
	if b.n == nil {
		b.n = map[store.Key]int{}
	}
	b.n[who]++
	return true
}

func (b *bodies) leave(who store.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n[who]--; b.n[who] == 0 {
		delete(b.n, who)
	}
}

// readClaim reads what an ACME request says of itself. ok is false if its
// address has too many such requests unfinished; it has been refused then with
// its body unread. Who has no address of its own is not bounded: there may be a
// whole site behind a unix socket.
func (l *Limiter) readClaim(t *transit) (claim jws.Claim, ok bool) {
	if t.who.addr.IsValid() && !t.exempt {
		if !l.bodies.enter(t.who.key) {
			l.unfinished(t)
			return claim, false
		}
		defer l.bodies.leave(t.who.key)
	}
	return jws.Read(t.r, maxBody, t.c.renewal != nil), true
}

// unfinished refuses a request with its body unread. It is no rate that was
// exceeded: 503 (requirement R4).
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
