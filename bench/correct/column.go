package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// quota is what a limiter is asked to enforce: n in each per. A limiter with
// buckets lets burst pass at once; 0 means n, as most of the libraries have it.
// A counter of windows has no burst.
type quota struct {
	n     int
	per   time.Duration
	burst int
}

func (q quota) size() int {
	if q.burst > 0 {
		return q.burst
	}
	return q.n
}

// rate is tokens a second.
func (q quota) rate() float64 { return float64(q.n) / q.per.Seconds() }

func perHour(n int) quota { return quota{n: n, per: time.Hour} }

// answer is what a limiter says to one take. wait is how long it says to wait,
// untold if it does not, and store.Never if it says that waiting is in vain.
type answer struct {
	ok   bool
	wait time.Duration
	err  error
}

const untold time.Duration = -1

const never = store.Never

// take asks a limiter for cost tokens of a key. Keys are IPv4 addresses.
type take func(key string, cost int) answer

// A column is one implementation, with its answers as far as the question can
// be put to it: nil is a feature that it has not.
//
// Where it has several kinds, or an option that bears on the question, the first
// of a list is what comes of its documentation's first example.
type column struct {
	name string
	// wall says that its clock cannot be put in a bubble of virtual time: it is
	// that of another process, or read past package time.
	wall bool
	// hot is a quota for many callers of one key; windows says that it
	// counts windows, for which the bound is another.
	hot     quota
	windows bool

	keyed   []kind                                              // the bare decision
	direct  []mount                                             // middleware that keys on the peer's address
	proxied []mount                                             // the same behind one trusted proxy
	costs   bool                                                // keyed takes more than one token
	bounded bool                                                // keyed respects a bound on keys
	refund  func(t *testing.T, q quota) refunding               // one bucket whose tokens can be given back
	zeros   []zero                                              // limits of nothing
	dear    func() error                                        // makes a limiter whose requests can never pass
	chain   func(t *testing.T, wide, narrow quota) pair         // two limits on one client
	reload  func(t *testing.T, from, to quota) changing         // limits that change
	shared  []sharing                                           // two limiters on one store
	redis   func(t *testing.T, q quota, addr string) mounted    // its store is a Redis server
	clock   func(t *testing.T, q quota) func(at time.Time) bool // told the time
	guards  []guard                                             // at most so many at once
}

type mounted = func(http.Handler) http.Handler

type kind struct {
	as string
	// open returns a fresh limiter; bound is how many keys it may remember, 0
	// for as many as it does by itself.
	open func(t *testing.T, q quota, bound int) take
	// wall says that this kind alone keeps its state in a Redis server, so its clock
	// is the wall's, and it takes fewer calls.
	wall bool
}

type mount struct {
	as   string
	open func(t *testing.T, q quota) mounted
}

type zero struct {
	as   string
	open func(t *testing.T) (take, error)
}

type guard struct {
	as   string
	open func(t *testing.T, slots int) mounted
}

type sharing struct {
	as   string
	wall bool // its store is a Redis server
	open func(t *testing.T, a, b quota) (takeA, takeB func() bool)
}

// refunding is one bucket.
type refunding struct {
	take func() (back func()) // takes one token; back gives it back
	left func() int           // drains it, and says of how many
}

// pair is a narrow limit on the path /narrow within a wide one on all paths.
type pair struct {
	as string
	h  http.Handler
}

// changing is one key whose limit changes.
type changing struct {
	as     string
	take   func() bool
	change func()
}

// within runs f in a bubble of virtual time, where sleeping is free and exact,
// if the column's clock allows it; else it passes as it does on the wall.
func (c *column) within(t *testing.T, f func(t *testing.T)) { inTime(t, c.wall, f) }

func inTime(t *testing.T, wall bool, f func(t *testing.T)) {
	if wall {
		f(t)
		return
	}
	synctest.Test(t, f)
}

// serverHot is what many callers ask of a Redis server.
var serverHot = quota{n: 1000, per: time.Second, burst: 100}

func columns() []*column {
	return []*column{
		weirs(), xrate(), httprates(), ulule(), throttleds(), tollbooths(), golimiter(), mennanov(), failsafes(),
		redisrate(), realclientips(), semaphores(),
	}
}
