package weir

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/clientip"
	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/problem"
)

// writers returns the Writer of each kind: the embedder's own, else the
// built-in one.
func writers(own map[Kind]problem.Writer) map[Kind]problem.Writer {
	byKind := map[Kind]problem.Writer{
		KindACME: problem.ACME,
		KindOCSP: problem.OCSP,
		KindCRL:  problem.Plain,
		KindEST:  problem.EST,
		KindSCEP: problem.SCEP,
		KindAPI:  problem.Negotiate(problem.HTML, problem.JSON, problem.Plain),
		KindPage: problem.ByAccept(problem.HTML, problem.JSON),
		KindS3:   problem.S3,
	}
	maps.Copy(byKind, own)
	return byKind
}

// refuse writes a refusal as the kind of endpoint wants it.
func (l *Limiter) refuse(w http.ResponseWriter, r *http.Request, p *policy, kind Kind, rej problem.Rejection) {
	rej.RetryAfter = max(jittered(rej.RetryAfter, p.cfg.RetryJitter), standingWait(w.Header()))
	rej.Help = l.opts.help
	if kind == KindACME && r.Method == http.MethodPost {
		rej.Nonce = l.callNonce(r)
	}
	if _, own := l.opts.writers[kind]; own {
		rej.SetHeaders(w.Header())
	}
	hurry(w, r)
	p.writers[kind](w, r, rej)
}

// standingWait is the wait that an outer limiter has set already: who comes back
// sooner is refused by that one. What is no Retry-After (RFC 9110, section
// 10.2.3) counts as none, and is replaced.
func standingWait(h http.Header) time.Duration {
	field := h.Get("Retry-After")
	if field == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(field, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(field); err == nil {
		return time.Until(at)
	}
	return 0
}

// jittered adds up to fraction of the wait, never less than nothing
// (requirement R5).
func jittered(wait time.Duration, fraction float64) time.Duration {
	if fraction == 0 {
		return wait
	}
	if longer := wait + time.Duration(float64(wait)*fraction*rand.Float64()); longer > wait {
		return longer
	}
	return wait // overflow: a wait of centuries needs no jitter
}

// The functions of the embedder run behind a recover each: a panic in one of
// them is counted and logged, and does not become a failed request.

func (l *Limiter) callAccount(r *http.Request) (id string, ok bool) {
	if l.opts.account == nil {
		return "", false
	}
	defer l.contain("account", &ok)
	id, ok = l.opts.account(r)
	return id, ok && id != ""
}

func (l *Limiter) callKey(t *tier, r *http.Request) (key string, ok bool) {
	defer l.contain("key", &ok)
	key, ok = t.key(r)
	return key, ok && key != ""
}

func (l *Limiter) callNonce(r *http.Request) (nonce string) {
	if l.opts.nonce == nil {
		return ""
	}
	var ok bool
	defer l.contain("nonce", &ok)
	return l.opts.nonce(r)
}

func (l *Limiter) callCredential(r *http.Request) (c Credential, ok bool) {
	if l.opts.credential == nil {
		return c, false
	}
	defer l.contain("credential", &ok)
	return l.opts.credential(r)
}

func (l *Limiter) callAudit(e AuditEvent) {
	if l.opts.audit == nil {
		return
	}
	var ok bool
	defer l.contain("audit", &ok)
	l.opts.audit(e)
}

// contain is deferred around a callback. It must be called directly by defer,
// for recover to see the panic.
func (l *Limiter) contain(callback string, ok *bool) {
	if v := recover(); v != nil {
		*ok = false
		countIn(l.counts, l.counts.panics, callback).add(1)
		if n, log := l.logs.open("panic", callback); log {
			l.log.Error("weir: a function of the program panicked; the request went on without it", "callback", callback, "panic", v, "times", n)
		}
	}
}

// storeFailed counts and logs a failed call to the store (requirement S4).
func (l *Limiter) storeFailed(op string, err error) {
	if l.shared != nil {
		return // it has told so itself
	}
	countIn(l.counts, l.counts.errors, errorKey(op, takeover.ReasonOf(err))).add(1)
	if n, log := l.logs.openEvery(storeLogInterval, "store", op); log {
		l.log.Error("weir: the store failed; counting in this process or passing, as store.on_error says", "op", op, "error", err, "times", n)
	}
}

// refusals counts the refusals of one class by one tier, guard or list, and
// holds their log lines back (requirement M6).
type refusals struct {
	counter
	gate logGate
}

// refused counts one refusal and logs it when a line is due.
func (l *Limiter) refused(n *refusals, class Class, by, name, reason string) {
	n.add(1)
	if times, due := n.gate.open(); due {
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "weir: refusing requests",
			slog.String("class", string(class)), slog.String("by", by), slog.String("name", name),
			slog.String("reason", reason), slog.Uint64("times", times))
	}
}

// logDoubt logs that a trusted proxy sends what cannot be believed.
func (l *Limiter) logDoubt(reason clientip.Reason) {
	if n, log := l.logs.open("clientip", reason.String()); log {
		l.log.Warn("weir: a trusted proxy sent no believable client address; counting its clients by what is known", "reason", reason.String(), "times", n)
	}
}

// logInterval is how often a line of one kind is logged at most, so that a
// flood fills no disk: the line says how often it happened since the last.
const logInterval = 10 * time.Second

// storeLogInterval is the same for a store that fails (requirement S4).
const storeLogInterval = time.Minute

// logGate holds the lines of one kind back.
type logGate struct {
	times atomic.Uint64
	next  atomic.Int64 // Unix nanoseconds
}

// open counts one occurrence. due is true once an interval; times is then how
// often it happened since the last line, this time included.
func (g *logGate) open() (times uint64, due bool) { return g.openEvery(logInterval) }

func (g *logGate) openEvery(interval time.Duration) (times uint64, due bool) {
	g.times.Add(1)
	now := time.Now().UnixNano()
	next := g.next.Load()
	if now < next && next-now <= int64(interval) || !g.next.CompareAndSwap(next, now+int64(interval)) {
		return 0, false
	}
	return g.times.Swap(0), true
}

// logGates are the gates of rare events, by what happened.
type logGates struct{ m sync.Map }

func (g *logGates) open(what, detail string) (times uint64, due bool) {
	return g.openEvery(logInterval, what, detail)
}

func (g *logGates) openEvery(interval time.Duration, what, detail string) (times uint64, due bool) {
	key := [2]string{what, detail}
	v, ok := g.m.Load(key)
	if !ok {
		v, _ = g.m.LoadOrStore(key, new(logGate))
	}
	return v.(*logGate).openEvery(interval)
}
