package takeover

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// arrivalDelay is how long an arrival stays uncounted at most.
const arrivalDelay = 100 * time.Millisecond

// arrivals are the costs that windows count Always and that the remote store has
// not been told of, because the request was refused here. They go along with the
// next call that asks the same window, ahead of its own cost, so that no request
// of this process is decided without those before it; if none comes, they are sent
// on their own.
type arrivals struct {
	waiting atomic.Bool // any is; is read without mu
	mu      sync.Mutex
	costs   map[bucketID]store.Check // the sums, each as a check of its window
	timer   *time.Timer
}

// add puts the arrivals of a refused call aside.
func (a *arrivals) add(s *Store, checks []store.Check) {
	for i := range checks {
		c := &checks[i]
		if !c.Always || c.Window <= 0 || !(c.Cost > 0) || c.Cost > math.MaxFloat64 {
			continue
		}
		a.mu.Lock()
		id := bucketID{c.Scope, c.Key}
		sum, ok := a.costs[id]
		if !ok {
			sum = *c
			// It is counted whatever the window holds, and refuses nothing.
			sum.Shadow, sum.Cost = true, 0
		}
		sum.Limit, sum.Window = c.Limit, c.Window
		sum.Cost += c.Cost
		if a.costs == nil {
			a.costs = map[bucketID]store.Check{}
		}
		a.costs[id] = sum
		if !a.waiting.Swap(true) {
			a.timer = time.AfterFunc(arrivalDelay, func() { s.background(s.flush) })
		}
		a.mu.Unlock()
	}
}

// of tells how much waits for the window of c.
func (a *arrivals) of(c *store.Check) float64 {
	if !a.waiting.Load() {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.costs[bucketID{c.Scope, c.Key}].Cost
}

// take removes what waits for the windows of a call, or, with nil, all.
func (a *arrivals) take(checks []store.Check) (due []store.Check) {
	if !a.waiting.Load() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if checks == nil {
		for _, c := range a.costs {
			due = append(due, c)
		}
		clear(a.costs)
	}
	for i := range checks {
		id := bucketID{checks[i].Scope, checks[i].Key}
		if sum, ok := a.costs[id]; ok && checks[i].Window == sum.Window {
			due = append(due, sum)
			delete(a.costs, id)
		}
	}
	if len(a.costs) == 0 && a.waiting.Swap(false) {
		a.timer.Stop()
	}
	return due
}

// flush counts all that waits.
func (s *Store) flush(context.Context) {
	due := s.arrivals.take(nil)
	if len(due) == 0 {
		return
	}
	if c, ok := s.enterAny(); ok {
		if _, _, err := s.ask(context.Background(), c, "admit", due, nil, nil, nil); err == nil {
			return
		}
	}
	s.countHere(due)
}
