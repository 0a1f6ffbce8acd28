package store

import (
	"context"
	"time"
)

// ReservationTTL is how long an attempt that is never settled, because its
// process died say, keeps the place it reserved.
const ReservationTTL = 30 * time.Second

// KnownCallers is how many callers of one account are remembered, the newest.
const KnownCallers = 64

// LockLimit is the policy of a failure counter.
type LockLimit struct {
	// Max is the number of failures in a window; the one that reaches it
	// starts the lock. It is at least 1.
	Max int
	// Window begins with the first failure and does not slide.
	Window time.Duration
	// Lockout is how long the lock lasts. When it ends the count is 0.
	Lockout time.Duration
}

// Counter names one failure counter and the policy in force for it now. What
// has begun ends as it was begun: a changed Window or Lockout holds for those
// that begin later, a changed Max from the next failure on.
type Counter struct {
	Scope string // each scope is a table of its own, apart from those of buckets
	Key   Key
	Limit LockLimit
	// First counts only failures that are the first in the window of the
	// counter before this one. If that one is of an address and a credential
	// id, and this one of the address, it counts distinct ids (requirement
	// L12). Nothing is reserved in such a counter.
	First bool
}

// Account is the part of an attempt that concerns the account it is for
// (requirements L2–L4). An empty Scope means that it is for none.
type Account struct {
	Counter // its failures, whoever asks
	// Caller is who asks: the address. A caller that signed in to the account
	// within Remember, inclusively, is admitted while the account is locked, and
	// its failures are counted apart, by (Key, Caller), under the same limit.
	Caller   Key
	Remember time.Duration
	// Admitted treats the caller like one that is remembered.
	Admitted bool
	// OwnOnly has a success take back no other failures than its caller's.
	OwnOnly bool
}

// Reserve says when an attempt reserves a place among the failures left.
type Reserve uint8

// When an attempt reserves a place.
const (
	// ReserveAfterFailure reserves in counters that have a failure in their
	// window: a crowd of right credentials is never in its own way.
	ReserveAfterFailure Reserve = iota
	// ReserveAlways reserves from the first attempt on: no more than Max
	// attempts are ever under way at once, the right ones included.
	ReserveAlways
	// ReserveNever only looks.
	ReserveNever
)

// Attempt is one credential that is about to be checked.
type Attempt struct {
	Counters []Counter // of the address; all must be open, at most 30
	Account  Account
	Reserve  Reserve
	// Ticket is set by Begin and stands for what is reserved; 0: nothing is, so that
	// an attempt without a verdict need not be settled.
	Ticket uint64
}

// Outcome is what became of an attempt.
type Outcome uint8

// The outcomes.
const (
	Ignored   Outcome = iota // no verdict: gives back what was reserved
	Failed                   // the credential was checked and is wrong
	Succeeded                // it was checked and is right
)

// LockVerdict is the answer to Begin and Settle.
type LockVerdict struct {
	// Refused is the index of the counter with the longest lock, or -1. The
	// account's comes after those in Counters: len(Counters).
	Refused int
	// RetryAfter is the time until every lock in the way has ended, or, where
	// none is but all places are reserved, a second.
	RetryAfter time.Duration
	// Full says that nothing is locked yet but all places are reserved.
	Full bool
	// Known says that the account's counter was not asked, but the caller's own.
	Known bool
	// Failures is what Counters[0] has counted, this one included.
	Failures int
	// Started has bit i set if this failure started the lock of counter i.
	Started uint32
}

// Admitted reports whether the attempt may go on or, after Settle, whether its
// outcome may be told.
func (v LockVerdict) Admitted() bool { return v.Refused < 0 }

// LockScope tells a store how many counters to keep in a scope.
type LockScope struct {
	Name    string
	MaxKeys int // bound on counters, and apart from it on remembered callers; 0 means 100 000
}

// Lock is one lock that holds.
type Lock struct {
	Key      Key
	Caller   Key // zero: for everybody
	Failures int
	Left     time.Duration
}

// LockSize is how full one scope is. With Max 0 the store sets no bound of its own
// and does not know its size: the other fields tell nothing.
type LockSize struct {
	Keys    int    // counters
	Locked  int    // locks that hold, for everybody
	Callers int    // locks that hold for one caller of an account
	Known   int    // remembered callers
	Max     int    // the bound
	Evicted uint64 // counters dropped before they ended, since start
}

// Locker is implemented by stores that count failed attempts. It is safe for
// concurrent use and retains nothing that it is given; the clock is its own.
//
// However many guess at once, no more than Max failures of a counter are told:
// Settle decides and counts in one step, and withholds the outcome, whatever
// it is, if a lock holds by then. Reserving places in Begin adds to that: the
// surplus is refused before its credential is checked.
//
// A store whose keys live on several nodes may settle the account's counters
// and those of the address one after the other, as long as an outcome that
// any of them withholds is withheld.
//
// At the bound, counters that have ended go first, then those with the least
// failures, those that are locked last. A store that lives elsewhere may leave the
// bound to the server there, as long as each counter goes by itself when it has
// ended; its LockSize is then zero.
type Locker interface {
	// Begin decides whether the attempt may be made, and sets a.Ticket. A
	// refused attempt changes nothing: it neither counts nor extends a lock.
	Begin(ctx context.Context, a *Attempt) (LockVerdict, error)
	// Settle gives back what Begin reserved and takes the outcome. A failure
	// counts in every counter and may start locks. A success clears the count
	// of the account and of the caller, remembers the caller, and leaves the
	// other counters and every lock as they are. If a lock holds by now, the
	// verdict is not Admitted and nothing is counted, cleared or remembered.
	Settle(ctx context.Context, a *Attempt, o Outcome) (LockVerdict, error)
	// Unlock lifts the lock of a counter and clears its count; with a caller,
	// those of that caller. It reports whether there was a lock. What is
	// remembered stays.
	Unlock(ctx context.Context, scope string, key, caller Key) (bool, error)
	// Locks appends the locks of a scope that hold, at most n.
	Locks(ctx context.Context, scope string, n int, dst []Lock) ([]Lock, error)
	// LockSize tells how full a scope is.
	LockSize(scope string) LockSize
	// ConfigureLocks sets the bound of a scope. Counters are carried over.
	ConfigureLocks(LockScope)
}
