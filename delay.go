package weir

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/store"
)

// ladder is how long the answer to a failure is kept back, by the number of
// failures of its address (requirement L6): nothing for the first ones, then
// first, doubled each time up to longest.
type ladder struct {
	after          int
	first, longest time.Duration
}

func (d ladder) of(failures int) time.Duration {
	if failures <= d.after || d.first <= 0 {
		return 0
	}
	delay := d.first
	// Doubling in steps, not by a shift: 200ms << 64 is 0.
	for range failures - d.after - 1 {
		if delay > d.longest/2 {
			return d.longest
		}
		delay *= 2
	}
	return min(delay, d.longest)
}

// sleepers are the answers that are being kept back. They are bounded in all
// and for each address, since each holds a connection (requirement L9): the
// surplus is answered at once. The delay slows a serial guesser and spares the
// directory behind; the count is the limit.
type sleepers struct {
	mu      sync.Mutex // guards the rest
	n       int
	by      map[store.Key]int
	skipped counter // answers that found no place
	served  delays
}

// enter takes a place and reports whether there was one.
func (s *sleepers) enter(who store.Key, most, mostOfOne int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= most || s.by[who] >= mostOfOne {
		s.skipped.add(1)
		return false
	}
	if s.by == nil {
		s.by = map[store.Key]int{}
	}
	s.n++
	s.by[who]++
	return true
}

func (s *sleepers) leave(who store.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if s.by[who]--; s.by[who] <= 0 {
		delete(s.by, who)
	}
}

func (s *sleepers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

// delay sleeps before a failed answer is written, unless too many do. It ends
// early with the client or with the Limiter.
func (l *Limiter) delay(w http.ResponseWriter, r *http.Request, who store.Key, d time.Duration, limits DelayConfig) {
	s := &l.counts.sleepers
	if l.isClosed() || !s.enter(who, limits.MaxSleeping, limits.MaxPerAddress) {
		return
	}
	defer s.leave(who)
	s.served.observe(d)
	extendDeadline(w, r, d)
	sleep(r.Context(), l.closed, d)
}

func sleep(ctx context.Context, closed <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-closed:
	}
}

// extendDeadline adds the delay to the server's write deadline, which began to
// run when the request was read: a WriteTimeout shorter than the delay would
// end the connection without an answer. Only a server that has a WriteTimeout
// sets the deadline anew for the next request, so only there is it touched. If it
// cannot be moved, it returns the latest that it can be; else the zero time.
func extendDeadline(w http.ResponseWriter, r *http.Request, d time.Duration) (fixed time.Time) {
	srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || srv.WriteTimeout <= 0 {
		return time.Time{}
	}
	by := time.Now().Add(srv.WriteTimeout)
	if http.NewResponseController(w).SetWriteDeadline(by.Add(d)) != nil {
		return by
	}
	return time.Time{}
}

// delayBuckets are the upper bounds of the histogram, in seconds: the steps of
// the default ladder.
var delayBuckets = [...]float64{0.2, 0.4, 0.8, 1.6, 3.2, 5, 10, 30}

// delays counts the delays that were served.
type delays struct {
	buckets [len(delayBuckets) + 1]atomic.Uint64 // the last is for what is above all bounds
	sum     atomic.Int64                         // nanoseconds
}

func (h *delays) observe(d time.Duration) {
	i := 0
	for i < len(delayBuckets) && d.Seconds() > delayBuckets[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(d))
}

// delaySums is a histogram's state as it is exported.
type delaySums struct {
	used    bool // by a Limiter that has the auth lock
	count   uint64
	sum     float64
	buckets [len(delayBuckets)]uint64 // cumulative
}

// add adds what a Limiter has counted.
func (s *delaySums) add(n *counts) {
	s.used = s.used || n.authLock.Load()
	h := &n.sleepers.served
	below := uint64(0)
	for i := range h.buckets {
		if below += h.buckets[i].Load(); i < len(s.buckets) {
			s.buckets[i] += below
		}
	}
	s.count += below
	s.sum += time.Duration(h.sum.Load()).Seconds()
}

// metric is the histogram for Prometheus.
func (s *delaySums) metric(desc *prometheus.Desc) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.buckets))
	for i, n := range s.buckets {
		buckets[delayBuckets[i]] = n
	}
	return prometheus.MustNewConstHistogram(desc, s.count, s.sum, buckets)
}
