package takeover

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/store"
)

// Options say how a [Store] takes over. The zero value is sound.
type Options struct {
	// Timeout is the longest that one call may take. Default 100 ms. A deadline of
	// the caller's that is sooner holds; that the caller goes away does not end a
	// call, for it may have run.
	Timeout time.Duration
	// Stall is at what age the oldest call is taken to hang, at least. Default a
	// quarter of Timeout: who allows answers more time has them come later.
	Stall time.Duration
	// Replicas is how many processes share the remote store: while it is away, each
	// has that part of every rate and burst, but a burst of no less than the cost
	// asked. Default 1, which lets each have all.
	Replicas int
	// Keys bounds how many buckets are remembered. Default 65 536.
	Keys int
	// Recheck is how long a key is refused at most without asking again. Default a
	// second; negative turns that off, and every request asks.
	Recheck time.Duration
	// Pass makes requests that the remote store cannot decide fail with its error,
	// for the caller to let them pass uncounted, instead of deciding them here. See
	// [Store.SetPass].
	Pass bool
	// Hooks are told what happens.
	Hooks Hooks
}

// Hooks are told what happens. Each may be nil; all must be quick, since requests
// wait for them, and may be called from many goroutines.
type Hooks struct {
	// Failed is told of each call that failed: its name ("admit", "peek", "refund",
	// "probe", "owed" for what was spent here, "lease" for one that no request waits
	// for, and those of a Locker), why in one word, and the error. With Pass, it is
	// told of calls that were not made too, with [ErrOpen] and "open".
	Failed func(op, reason string, err error)
	// Degraded is told when the local store takes over, and why, and with false and
	// nil when the remote one decides again.
	Degraded func(on bool, why error)
	// Answered is told how long a call took that was answered.
	Answered func(op string, took time.Duration)
}

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(max(0, o.Timeout), 100*time.Millisecond)
	o.Stall = cmp.Or(max(0, o.Stall), o.Timeout/stallPart)
	o.Replicas = max(1, o.Replicas)
	o.Keys = cmp.Or(max(0, o.Keys), 1<<16)
	o.Recheck = cmp.Or(o.Recheck, time.Second)
	if o.Hooks.Failed == nil {
		o.Hooks.Failed = func(string, string, error) {}
	}
	if o.Hooks.Degraded == nil {
		o.Hooks.Degraded = func(bool, error) {}
	}
	if o.Hooks.Answered == nil {
		o.Hooks.Answered = func(string, time.Duration) {}
	}
	return o
}

// share is the part of a check's limit that this replica has while the remote
// store is away. A burst below the cost would refuse for ever what the shared
// bucket admits.
func (o *Options) share(c store.Check) store.Check {
	if o.Replicas > 1 {
		r := float64(o.Replicas)
		c.Limit.Rate /= r
		c.Limit.Burst = min(c.Limit.Burst, max(c.Limit.Burst/r, c.Cost))
	}
	return c
}
