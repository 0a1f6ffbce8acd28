package weir

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"github.com/weir-go/weir/problem"
	"github.com/weir-go/weir/store"
)

// The auth lock (requirements L1–L12). A credential is about to be checked:
// [Limiter.begin] asks whether it may be, the handler checks it, and
// [Attempt.settle] takes the verdict, all against counters in the store. The
// stage around a handler does the first and the last for requests that bring
// their credential along, and serves delays and refusals for all.

// AuthLock is the stage of the auth lock alone, for one handler or for a part
// of a site: it refuses what is locked, learns the outcome from the handler
// ([AttemptFrom], [Limiter.Attempt]) or else from the status (401 and 403 are
// failures, 2xx is a success), and keeps failed answers back. A class whose
// endpoint has Auth "none", or says nothing, is taken as AuthBasic here: the
// program has asked for the stage. Without [Limiter.ClientIP] before it, it
// does that stage's work too.
func (l *Limiter) AuthLock(next http.Handler) http.Handler {
	if l.isBare() {
		return next
	}
	h := &chain{l: l, next: next, stages: stageAuth}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, r := l.visit(r)
		if v == nil || v.p.lock == nil {
			next.ServeHTTP(w, r)
			return
		}
		c, auth := v.class(), AuthBasic
		if c == ambiguous {
			l.misleading(w, r, v.p)
			return
		}
		if c != nil && c.auth != AuthNone {
			auth = c.auth
		}
		l.signIn(w, r, v, c, auth, h, nil)
	})
}

// signIn is the stage for one request. A request that is inside it already
// passes. e is its attempt, where that was asked about along with the tiers.
func (l *Limiter) signIn(w http.ResponseWriter, r *http.Request, v *visit, c *classPolicy, auth string, h *chain, e *early) {
	s := &signIn{ResponseWriter: w, l: l, r: r, v: v, c: c}
	if !v.enterSignIn(s) {
		e.drop()
		h.serve(w, r, v, c)
		return
	}
	var err *LockedError
	if e != nil {
		s.attempt, err = l.beginEarly(r.Context(), e, v, s)
	} else if cred, ok := l.credential(auth, r); ok {
		s.attempt, err = l.begin(r.Context(), v.p, v, cred, s)
	}
	if err != nil {
		v.leaveSignIn()
		l.refuseLocked(w, r, v.p, c, err)
		return
	}
	if h := w.Header(); len(h) > 0 {
		s.before = maps.Clone(h)
	}
	returned := false
	defer func() {
		if !returned {
			s.leave("panic")
		}
	}()
	h.serve(writerFor(s), r, v, c)
	returned = true
	s.finish()
}

// credential finds the credential of a request: by the program's function,
// else where the class says.
func (l *Limiter) credential(auth string, r *http.Request) (Credential, bool) {
	if c, ok := l.callCredential(r); ok {
		return c, true
	}
	return credentialOf(auth, r)
}

// begin asks whether a credential may be checked now.
func (l *Limiter) begin(ctx context.Context, p *policy, v *visit, c Credential, s *signIn) (*Attempt, *LockedError) {
	a := &Attempt{l: l, p: p, v: v, sign: s, who: asker{key: keyUnknown}}
	if v != nil {
		a.who = v.who
		if class := v.class(); class != nil {
			a.class = class.name
		}
	}
	p.lock.fill(a, &l.keyer, c, v != nil)
	return l.entered(a, l.beginLock(ctx, a))
}

// entered tells whether the attempt may be made.
func (l *Limiter) entered(a *Attempt, verdict store.LockVerdict) (*Attempt, *LockedError) {
	switch {
	case verdict.Admitted():
		return a, nil
	case a.p.lock.shadow:
		l.countShadowedLock(a.class, a.wordOf(verdict))
		a.settled = true // nothing counts while a lock would hold
		return a, nil
	}
	l.countLocked(a.class, a.wordOf(verdict))
	return nil, &LockedError{a.wordOf(verdict).String(), verdict.RetryAfter}
}

// refuseLocked answers an attempt that is not made, or whose outcome is not
// told. The answer is the same whoever is locked, and whether or not there is
// such an account (requirement L7).
func (l *Limiter) refuseLocked(w http.ResponseWriter, r *http.Request, p *policy, c *classPolicy, err *LockedError) {
	class, kind := Class(""), KindAPI
	if c != nil {
		class, kind = c.name, c.kind
	}
	l.refuse(w, r, p, kind, problem.Rejection{
		Status: http.StatusTooManyRequests, Reason: problem.ReasonLocked, Class: string(class), RetryAfter: err.RetryAfter,
	})
}

// The embedder's eyes: counts, logs, audit events.

// lockCounts is what is counted for each kind of counter.
type lockCounts struct {
	failures, lockouts counter
	refused, shadowed  refusals
}

func (l *Limiter) countLocked(class Class, w lockWord) {
	l.refused(&l.counts.locks[w].refused, class, StageAuthLock, w.String(), problem.ReasonLocked)
}

func (l *Limiter) countShadowedLock(class Class, w lockWord) {
	l.refused(&l.counts.locks[w].shadowed, class, "shadow", StageAuthLock+"/"+w.String(), problem.ReasonLocked)
}

// countUnsettled notes a handler that has claimed an attempt and forgotten it.
func (l *Limiter) countUnsettled(c *classPolicy, why string) {
	l.counts.unsettled.add(1)
	class := Class("")
	if c != nil {
		class = c.name
	}
	if n, due := l.logs.open("unsettled", string(class)); due {
		l.log.Warn("weir: an attempt was not settled; it counts as no verdict", "class", class, "after", why, "times", n)
	}
}

// countFailure counts a failure, and reports each lock that it has started.
func (l *Limiter) countFailure(a *Attempt, v store.LockVerdict) {
	n := len(a.at.Counters)
	for i := range n {
		if i == 0 || !a.at.Counters[i].First {
			l.counts.locks[a.words[i]].failures.add(1)
		}
	}
	if a.at.Account.Scope != "" {
		l.counts.locks[a.word(n, v.Known)].failures.add(1)
	}
	for i := 0; i <= n; i++ {
		if v.Started&(1<<i) != 0 {
			l.lockStarted(a, i, v.Known)
		}
	}
}

// lockStarted logs and audits the start of a lock (requirement M4: never each
// request that it refuses).
func (l *Limiter) lockStarted(a *Attempt, i int, known bool) {
	w := a.word(i, known)
	l.counts.locks[w].lockouts.add(1)
	counter := &a.at.Account.Counter
	if i < len(a.at.Counters) {
		counter = &a.at.Counters[i]
	}
	e := AuditEvent{
		Event: AuditLocked, Scope: w.String(), Class: a.class, Network: a.p.prefixOf(a.who.addr),
		Failures: counter.Limit.Max, Duration: counter.Limit.Lockout,
	}
	if a.at.Account.Scope != "" {
		e.Account = keyText(a.at.Account.Key)
	}
	if n, due := l.logs.open("locked", w.String()); due {
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "weir: too many failed attempts: a lock has started",
			slog.String("scope", e.Scope), slog.String("class", string(e.Class)), slog.String("account", e.Account),
			slog.Duration("duration", e.Duration), slog.Uint64("times", n))
	}
	l.callAudit(e)
}

// keyText is a key as it is shown: enough to tell two apart.
func keyText(k store.Key) string { return hex.EncodeToString(k[:8]) }

// AuditLocked is the AuditEvent.Event of a lock that starts.
const AuditLocked = "auth_locked"

// AuditEvent is something that a security log wants to keep; see [WithAudit].
// It names no account in clear.
type AuditEvent struct {
	Event   string       // AuditLocked
	Scope   string       // what is locked; see LockedError.Scope
	Class   Class        // of the request; "" if it has none
	Network netip.Prefix // of the client, as it is counted; invalid if unknown
	// Account stands for the account of the attempt, the same text each time
	// as long as the key secret is; "" if there is none. [LockSnapshot] has it
	// too.
	Account  string
	Failures int           // that started the lock
	Duration time.Duration // of the lock
}

// Unlock lifts the locks of an account, an address, or both, clears their
// counts and returns how many locks there were. An empty Credential.Account or
// an invalid addr means none. With both, the lock of this address at this
// account goes too. With AddressLockConfig.PerCredential Credential.ID says
// which credential at the address; the counts of the address as a whole are
// cleared in any case.
//
// With a shared store that is for all processes, for others within a second, but for
// what others have locked themselves while the store was away: that ends by itself. If
// the store fails, what this process has locked is lifted all the same, and the error
// is returned.
func (l *Limiter) Unlock(ctx context.Context, c Credential, addr netip.Addr) (lifted int, err error) {
	p := l.policy.Load()
	if p.lock == nil {
		return 0, nil
	}
	a := &Attempt{who: asker{addr: addr.Unmap()}}
	if addr.IsValid() {
		a.who.key = p.prefixOf(addr.Unmap()).Addr().As16()
	}
	p.lock.fill(a, &l.keyer, c, addr.IsValid())
	var errs []error
	lift := func(scope string, key, caller store.Key) {
		lockers := []store.Locker{l.locker}
		if l.locker != store.Locker(l.local) { // what it has locked while it stood in
			lockers = append(lockers, l.local)
			defer l.recall.forget(scope, key, caller) // then: answers that are under way still tell of the lock
		}
		for _, locker := range lockers {
			was, err := locker.Unlock(ctx, scope, key, caller)
			if was {
				lifted++
			}
			errs = append(errs, err)
		}
	}
	for _, counter := range a.at.Counters {
		lift(counter.Scope, counter.Key, store.Key{})
	}
	if acc := &a.at.Account; acc.Scope != "" {
		lift(acc.Scope, acc.Key, store.Key{})
		if addr.IsValid() {
			lift(acc.Scope, acc.Key, acc.Caller)
		}
	}
	return lifted, errors.Join(errs...)
}
