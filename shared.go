package weir

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/internal/takeover"
	"github.com/weir-go/weir/store"
)

// A shared store is one that can go away: the backend that the Config names, or
// one of the program's own that has a Ping. The local store takes over while it
// fails (requirements S4, S8 to S10; see package takeover).

// share puts s in the place of the memory store. No request has asked it yet.
func (l *Limiter) share(s store.Store, o takeover.Options) {
	o.Hooks = takeover.Hooks{Failed: l.sharedFailed, Degraded: l.degraded, Answered: l.counts.answered}
	l.shared = takeover.New(s, l.local, o)
	l.store, l.peeker, l.configurer = l.shared, l.shared, l.shared
	l.sizer, _ = s.(store.Sizer)
	l.locker = l.local
	if locker := l.shared.Locker(); locker != nil {
		l.locker = locker
	}
	l.attempts, _ = l.locker.(store.AttemptAdmitter)
}

// unshare closes a store that share was given and that no request has asked.
func (l *Limiter) unshare() {
	_ = l.shared.Retire(true) // there is a better error to tell
	l.shared = nil
	l.store, l.peeker, l.configurer, l.sizer, l.locker = l.local, l.local, l.local, l.local, l.local
	l.attempts = nil
}

// openBackend dials the backend that the Config names, unless it is the memory of
// this process. l.mu is held.
func (l *Limiter) openBackend(cfg *Config) error {
	if l.opts.store != nil || l.shared != nil || cfg.Store.Backend == "memory" {
		return nil
	}
	r := &cfg.Store.Redis
	dsn, _ := expand(r.DSN) // validate has looked
	s, err := store.Open(context.Background(), cfg.Store.Backend, store.OpenConfig{
		Namespace: cfg.Namespace, DSN: dsn, KeyPrefix: r.KeyPrefix, Fingerprint: l.keyer.fingerprint(),
		ConnectTimeout: time.Duration(r.ConnectTimeout), CommandTimeout: time.Duration(r.CommandTimeout),
	})
	if err != nil {
		return fmt.Errorf("weir: store.backend %s: %w", cfg.Store.Backend, err)
	}
	l.share(s, takeover.Options{Timeout: time.Duration(r.CommandTimeout), Replicas: cfg.Store.Replicas})
	return nil
}

// sharedFailed counts a failed call to the shared store, and logs one line a minute.
func (l *Limiter) sharedFailed(op, reason string, err error) {
	countIn(l.counts, l.counts.errors, errorKey(op, reason)).add(1)
	if n, due := l.logs.openEvery(storeLogInterval, "shared", ""); due {
		l.log.Error("weir: the store failed; counting in this process or passing, as store.on_error says", "op", op, "reason", reason, "error", err, "times", n)
	}
}

// degraded tells when the local store takes over, and when no more.
func (l *Limiter) degraded(on bool, why error) {
	if on {
		if n, due := l.logs.openEvery(storeLogInterval, "degraded", "on"); due {
			l.log.Warn("weir: the store is not asked until it is back", "error", why, "times", n)
		}
	} else if n, due := l.logs.openEvery(storeLogInterval, "degraded", "off"); due {
		l.log.Warn("weir: the store is back", "times", n)
	}
}

// gatherShared reports what there is to tell of a shared store only.
func (l *Limiter) gatherShared(p *policy, emit func(name string, value float64, labels ...string)) {
	if !p.on || l.shared == nil {
		return
	}
	value := 0.0
	if l.shared.Degraded() {
		value = 1
	}
	emit("store_degraded", value)
}

// errorKey names a counter of failed calls.
func errorKey(op, reason string) string { return op + " " + reason }

// latencyBuckets are the upper bounds of the histogram, in seconds.
var latencyBuckets = [...]float64{0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1}

// latencies counts how long answers of a shared store took.
type latencies struct {
	buckets [len(latencyBuckets) + 1]atomic.Uint64 // the last is for what is above all bounds
	sum     atomic.Int64                           // nanoseconds
}

// answered counts one answer of a shared store.
func (n *counts) answered(_ string, took time.Duration) {
	h, i := &n.latency, 0
	for i < len(latencyBuckets) && took.Seconds() > latencyBuckets[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(int64(took))
}

// latencySums is a histogram's state as it is exported.
type latencySums struct {
	count   uint64
	sum     float64
	buckets [len(latencyBuckets)]uint64 // cumulative
}

// add adds what a Limiter has counted.
func (s *latencySums) add(n *counts) {
	h, below := &n.latency, uint64(0)
	for i := range h.buckets {
		if below += h.buckets[i].Load(); i < len(s.buckets) {
			s.buckets[i] += below
		}
	}
	s.count += below
	s.sum += time.Duration(h.sum.Load()).Seconds()
}

// metric is the histogram for Prometheus.
func (s *latencySums) metric(desc *prometheus.Desc) prometheus.Metric {
	buckets := make(map[float64]uint64, len(s.buckets))
	for i, n := range s.buckets {
		buckets[latencyBuckets[i]] = n
	}
	return prometheus.MustNewConstHistogram(desc, s.count, s.sum, buckets)
}
