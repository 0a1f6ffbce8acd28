// Package store holds what a limiter remembers between requests: token
// buckets, one for each key of each tier, and, where the store can ([Locker]),
// failure counters.
//
// [Store] is the one interface; [Memory] keeps everything in the process and
// is the default. Another implementation must pass the suite in
// github.com/weir-go/weir/store/storetest.
package store

import (
	"context"
	"errors"
	"math"
	"time"
)

// Never is the wait of a request that no amount of waiting would admit: its
// cost exceeds the burst, or the bucket does not refill.
const Never = time.Duration(math.MaxInt64)

// ErrClosed is returned by every call on a store after Close.
var ErrClosed = errors.New("store: closed")

// Key names one bucket of a scope. Addresses stand in it as they are (16
// bytes, masked); every other identity is a keyed hash, so that no id is ever
// kept in clear. The zero Key is the one bucket of a scope that has no keys.
type Key [16]byte

// Check asks for Cost tokens of one bucket, or, with a Window, for Cost units
// of one fixed window.
type Check struct {
	Scope string  // the tier; each scope is a table of its own
	Key   Key     // which bucket of the tier
	Limit Limit   // the limit in force now, for this key
	Cost  float64 // tokens; 0 asks only whether the bucket is not overdrawn
	// Shadow decides and reports, but neither refuses nor spends what is not
	// there (requirement T11).
	Shadow bool
	// Window makes this a fixed window of that length, aligned to the Unix
	// epoch: at most Limit.Burst units in each, all back at the boundary
	// (requirements W1, W2). Limit.Rate is not looked at. If the length changes,
	// the count goes along to the new window that the last unit lies in. A Scope
	// holds either buckets or windows, never both.
	Window time.Duration
	// Always counts the cost of a window even if the request is refused, by
	// this check or another: it counts arrivals (requirement W3). The count may
	// go above the limit. It means nothing on a bucket.
	Always bool
}

// State is what one check saw.
type State struct {
	// Tokens is what the bucket holds after the decision: the cost is already
	// gone from it when the request was admitted, or if it is counted Always,
	// and not when it was refused.
	Tokens float64
	// Wait is 0 when this check alone would have let the request pass;
	// otherwise the time until it would, if nobody else spent.
	Wait time.Duration
	// Reset is the time until a window ends; 0 for a bucket.
	Reset time.Duration
}

// Verdict is the decision over all checks of one call. The zero Verdict is
// not an admission; see [Verdict.Admitted].
type Verdict struct {
	// Refused is the index of the check to blame, the one with the longest
	// wait (requirement T14), or -1 if the request is admitted.
	Refused int
	// RetryAfter is the time until the same request would pass every check if
	// nobody else spent; 0 when admitted, [Never] when it cannot pass.
	RetryAfter time.Duration
}

// Admitted reports whether every check passed and was spent.
func (v Verdict) Admitted() bool { return v.Refused < 0 }

// Store keeps buckets. It is safe for concurrent use, retains neither checks
// nor dst after it has returned, and returns within ctx's deadline. The store
// owns the clock: nothing passed to it carries a time.
type Store interface {
	// Admit spends every check or none, in one atomic step: no other caller
	// can see some of the checks spent. A refused request changes nothing but
	// what is counted Always.
	// The state of each check is appended to dst, in order. Two checks of one
	// bucket in the same call are one spend of their sum. On error nothing is
	// known to have been spent and dst is returned as it was.
	Admit(ctx context.Context, checks []Check, dst []State) (Verdict, []State, error)
	// Refund gives back what an earlier Admit spent: tokens = min(burst,
	// tokens + cost). It is exact whatever happened on the bucket in between.
	// The caller sees to it that nothing is given back twice. Checks with a
	// Window are passed over: which window they were counted in is not known
	// any more.
	Refund(ctx context.Context, checks []Check) error
	// Close releases what the store holds; later calls return ErrClosed.
	Close() error
}

// Peeker is implemented by stores that can answer without spending. A limiter
// uses it to refuse a request before its body is read (requirement R6).
type Peeker interface {
	// Peek decides as Admit would at this instant, and changes nothing.
	Peek(ctx context.Context, checks []Check, dst []State) (Verdict, []State, error)
}

// Scope tells a store how to keep the keys of one tier.
type Scope struct {
	Name    string
	MaxKeys int           // bound on distinct keys; 0 means 100 000
	IdleTTL time.Duration // a full bucket unused for so long is dropped; 0 means 10 minutes
	// Limit, or LimitOf where keys differ, tells when a bucket that nobody asks
	// for is full again, which is when dropping it loses nothing. LimitOf must
	// be quick, must not block, and may be called from any goroutine.
	Limit   Limit
	LimitOf func(Key) Limit
	// Window says that the scope holds windows of this length, not buckets.
	Window time.Duration
}

// Configurer is implemented by stores that bound their own memory. A limiter
// calls it in New and at each Reload.
type Configurer interface {
	// Configure sets the bounds of one scope. Buckets are carried over; only a
	// smaller MaxKeys drops some, the least valuable first.
	Configure(Scope)
	// Drop forgets a scope and all its buckets.
	Drop(name string)
}

// Size is how full one scope is.
type Size struct {
	Keys    int    // distinct keys held now
	Max     int    // the bound
	Evicted uint64 // buckets dropped before they were full again, since start
}

// Sizer is implemented by stores that know how many keys they hold.
type Sizer interface {
	Size(scope string) Size
}
