package weir

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-go/weir/store"
)

// LockedError says that an attempt was refused or its outcome withheld: too
// many have failed. It does not tell whether the credential was right.
type LockedError struct {
	// Scope is what is locked: "address", "ceiling" (all credentials of an
	// address), "spray" (distinct credentials of an address), "account", or
	// "caller" (an address that a locked account still admitted).
	Scope string
	// RetryAfter is the time until every lock in the way has ended. A second
	// can also mean that as many attempts are under way as may still fail.
	RetryAfter time.Duration
}

// Error names the scope and the wait, and nobody.
func (e *LockedError) Error() string {
	return fmt.Sprintf("weir: too many failed attempts, the %s is locked for %v", e.Scope, e.RetryAfter.Round(time.Second))
}

var errSettled = errors.New("weir: the attempt has been settled before")

// Attempt is one credential that is being checked. Exactly one of Fail, Succeed
// and Ignore settles it; the first one counts, so that
//
//	defer attempt.Ignore()
//
// is safe and gives back what was reserved, whatever happens. Safe for
// concurrent use. The nil *Attempt is one that nobody counts.
type Attempt struct {
	l     *Limiter
	p     *policy
	who   asker
	class Class
	sign  *signIn // the answer that it holds for; nil outside the AuthLock stage
	v     *visit  // nil outside a Limiter's handlers

	mu       sync.Mutex // guards what follows
	settled  bool
	by       store.Locker // that began it; nil: it is not counted
	at       store.Attempt
	counters [3]store.Counter // room for at.Counters
	words    [4]lockWord      // of at.Counters, then of the account
}

// Fail says that the credential was checked and is wrong, and nothing else: a
// credential that is missing, malformed or expired, or a directory that cannot
// be reached, is for Ignore (requirement L5). If a lock holds by now it returns
// a *LockedError, and the caller must not learn that the credential was wrong.
// The failure is counted even if the client has gone. A token that the request
// took from an account goes back, as by [Disown].
//
// Behind the [Limiter.AuthLock] stage (which [Limiter.Handler] includes) the
// answer is then kept back for the delay that is due, and one that must not be
// told is replaced by a refusal. Fail itself does not wait.
func (a *Attempt) Fail() error { return a.settle(store.Failed) }

// Succeed says that the credential was checked, the last factor included, and
// is right. Call it before anything is made of it: if a lock holds by now it
// returns a *LockedError, and there must be no session.
func (a *Attempt) Succeed() error { return a.settle(store.Succeeded) }

// Ignore ends the attempt without a verdict.
func (a *Attempt) Ignore() { _ = a.settle(store.Ignored) }

func (a *Attempt) settle(o store.Outcome) error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	if a.settled {
		a.mu.Unlock()
		return errSettled
	}
	a.settled = true
	v := store.LockVerdict{Refused: -1}
	if a.by != nil && (o != store.Ignored || a.at.Ticket != 0) { // else there is nothing to settle
		v = a.l.settleLock(a, o)
	}
	a.mu.Unlock()
	return a.conclude(o, v)
}

// release gives back what was reserved and leaves the attempt open: a verdict
// that comes later still counts.
func (a *Attempt) release() (open bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return false
	}
	if a.by != nil && a.at.Ticket != 0 {
		a.l.settleLock(a, store.Ignored)
		a.at.Ticket = 0
	}
	return true
}

// conclude counts what became of the attempt and tells the answer.
func (a *Attempt) conclude(o store.Outcome, v store.LockVerdict) error {
	lock := a.p.lock
	if !v.Admitted() {
		err := &LockedError{a.wordOf(v).String(), v.RetryAfter}
		if lock.shadow {
			a.l.countShadowedLock(a.class, a.wordOf(v))
			return nil
		}
		a.l.countLocked(a.class, a.wordOf(v))
		a.sign.withhold(err)
		return err
	}
	if a.by == nil {
		return nil
	}
	switch o {
	case store.Ignored:
		return nil
	case store.Succeeded:
		a.sign.accept()
		return nil
	}
	a.l.countFailure(a, v)
	if a.v != nil {
		a.v.disown()
	}
	if !lock.shadow {
		a.sign.slow(lock.ladder.of(v.Failures))
	}
	return nil
}

// wordOf names the counter that a verdict blames.
func (a *Attempt) wordOf(v store.LockVerdict) lockWord { return a.word(v.Refused, v.Known) }

func (a *Attempt) word(index int, known bool) lockWord {
	if known && index == len(a.at.Counters) {
		return lockCaller
	}
	return a.words[index]
}

// Attempt begins the check of a credential, for handlers that learn it from a
// form or a body. It returns a *LockedError if it may not be checked now; the
// handler then refuses, or just returns if it stands behind the
// [Limiter.AuthLock] stage, which answers for it. Settle the Attempt when the
// verdict is there. An attempt that the stage itself has begun for the same
// request is taken back.
//
// ctx is the request's. Outside a Limiter's handlers no address is known and
// only the account counts. On a Limiter without the auth lock every attempt is
// admitted and none counts.
func (l *Limiter) Attempt(ctx context.Context, c Credential) (*Attempt, error) {
	v := l.visitOf(ctx)
	var p *policy
	if v != nil {
		p = v.p
	} else {
		p = l.policy.Load()
	}
	if p.lock == nil {
		return nil, nil
	}
	var sign *signIn
	if v != nil {
		sign = v.signIn()
	}
	sign.takeBack()
	a, err := l.begin(ctx, p, v, c, sign)
	if err != nil {
		sign.withhold(err)
		return nil, err // not the pointer: a nil *LockedError is an error
	}
	return a, nil
}

// AttemptFrom returns the attempt that the [Limiter.AuthLock] stage has begun
// for the request, or nil, which is safe to use. From then on it is the
// handler's to settle: the status of the answer is no verdict any more.
func AttemptFrom(ctx context.Context) *Attempt {
	for v := visitFrom(ctx); v != nil; v = visitFrom(v.Context) {
		if a := v.signIn().claim(); a != nil {
			return a
		}
	}
	return nil
}
