package bench

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// The floors: what no limiter can do without. They decide nothing.

var base = time.Now()

// clock reads the monotonic clock.
func clock() int64 { return int64(time.Since(base)) }

// oneAtomic adds to a counter that all goroutines share.
func oneAtomic() Decide {
	n := new(atomic.Int64)
	return func(int) bool { return n.Add(1) > 0 }
}

// oneClock reads the clock.
func oneClock() Decide { return func(int) bool { return clock() > 0 } }

// clockAndSwap is the least that a bucket could be: one clock reading and one
// compare-and-swap of a theoretical arrival time. A refusal writes nothing.
func clockAndSwap(q Quota) Decide {
	tat := new(atomic.Int64)
	step := int64(1e9 / q.perSecond())
	return func(int) bool {
		for {
			now, old := clock(), tat.Load()
			if q == Spent && old > now {
				return false
			}
			if tat.CompareAndSwap(old, max(old, now)+step) {
				return true
			}
		}
	}
}

// oneLookUp finds a key in a map of 64 parts with a lock each, and does nothing
// with what it finds.
func oneLookUp(keys Keys, n int) Decide {
	var parts [64]struct {
		mu sync.RWMutex
		m  map[store.Key]*int
		_  [32]byte
	}
	for i := range parts {
		parts[i].m = map[store.Key]*int{}
	}
	for i := range n {
		k := keys.Key(i)
		parts[k[15]&63].m[k] = new(int)
	}
	return func(i int) bool {
		k := keys.Key(i)
		p := &parts[k[15]&63]
		p.mu.RLock()
		found := p.m[k]
		p.mu.RUnlock()
		return found != nil
	}
}

// NullWriter is a ResponseWriter that costs nothing.
type NullWriter struct {
	H      http.Header
	Status int
}

// Reset makes it ready for the next response, which is to have that status. A
// refusal gets a fresh header, as from a server, for how many fields it has is
// part of its cost: from nine on the map grows. An admitted response often has
// none; its header is emptied, so that its allocations are the limiter's alone.
func (w *NullWriter) Reset(status int) {
	w.Status = http.StatusOK
	if status == http.StatusOK {
		clear(w.H)
	} else {
		w.H = http.Header{}
	}
}

func (w *NullWriter) Header() http.Header         { return w.H }
func (w *NullWriter) WriteHeader(code int)        { w.Status = code }
func (w *NullWriter) Write(b []byte) (int, error) { return len(b), nil }

// Empty is a handler that answers 200 and nothing else.
var Empty = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
