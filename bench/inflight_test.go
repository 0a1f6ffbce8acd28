package bench

import (
	"context"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/bulkhead"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"golang.org/x/sync/semaphore"

	"github.com/weir-go/weir"
)

// inFlight bounds how much is at work at once.
type inFlight struct {
	name string
	// open makes one of so many slots. What it returns takes a slot, waiting for
	// it if wait says so, and gives it back with done.
	open func(b *testing.B, slots int, wait bool) (take func() (done func(), ok bool))
}

func guardOf(slots, queue int) (*weir.Limiter, *weir.Guard) {
	cfg := Bare(Setup{Bound: 100})
	cfg.Endpoints[0].Guard = "hsm"
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: slots, MaxQueue: queue, AcquireTimeout: weir.Duration(time.Hour)}}
	l := NewWeir(cfg)
	return l, l.Guard("hsm")
}

// fill takes the slots of a guard and its one place to wait: ours has no call
// that does not wait, what it refuses is that its queue is full.
func fill(b *testing.B, l *weir.Limiter, g *weir.Guard, slots int) {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	for range slots {
		_, _ = g.Acquire(ctx)
	}
	go func() { _, _ = g.Acquire(ctx) }()
	for l.Snapshot().Guards[0].Queued == 0 {
		runtime.Gosched()
	}
}

var nothing = func() {}

var inFlights = []inFlight{
	{"floor_atomic", func(*testing.B, int, bool) func() (func(), bool) {
		n := new(atomic.Int64)
		done := func() { n.Add(-1) }
		return func() (func(), bool) { n.Add(1); return done, true }
	}},
	{"weir", func(b *testing.B, slots int, wait bool) func() (func(), bool) {
		l, g := guardOf(slots, pick(wait, 1<<16, 1))
		if !wait {
			fill(b, l, g, slots)
		}
		ctx := context.Background()
		return func() (func(), bool) { done, err := g.Acquire(ctx); return done, err == nil }
	}},
	{"semaphore", func(b *testing.B, slots int, wait bool) func() (func(), bool) {
		s, ctx := semaphore.NewWeighted(int64(slots)), context.Background()
		done := func() { s.Release(1) }
		if !wait {
			return func() (func(), bool) { return done, s.TryAcquire(1) }
		}
		return func() (func(), bool) { return done, s.Acquire(ctx, 1) == nil }
	}},
	{"channel", func(b *testing.B, slots int, wait bool) func() (func(), bool) {
		c := make(chan struct{}, slots)
		ctx, cancel := context.WithCancel(context.Background())
		b.Cleanup(cancel)
		done := func() { <-c }
		if !wait {
			return func() (func(), bool) {
				select {
				case c <- struct{}{}:
					return done, true
				default:
					return nothing, false
				}
			}
		}
		return func() (func(), bool) {
			select {
			case c <- struct{}{}:
				return done, true
			case <-ctx.Done():
				return nothing, false
			}
		}
	}},
	{"failsafe", func(b *testing.B, slots int, wait bool) func() (func(), bool) {
		h, ctx := bulkhead.New[any](uint(slots)), context.Background()
		if !wait {
			return func() (func(), bool) { return h.ReleasePermit, h.TryAcquirePermit() }
		}
		return func() (func(), bool) {
			return h.ReleasePermit, h.AcquirePermitWithMaxWait(ctx, time.Minute) == nil
		}
	}},
}

// The guard before the work: slots for all, fewer slots than callers, and no
// slot at all for whom nobody waits; and as middleware, where ours must not
// lose the slot of a handler that panics.
func BenchmarkGuard(b *testing.B) {
	b.Run("free", func(b *testing.B) {
		for _, f := range inFlights {
			b.Run(f.name, func(b *testing.B) {
				take := f.open(b, 1024, true)
				decide(b, []uint32{0}, alike(func(int) bool { done, ok := take(); done(); return ok }), true)
			})
		}
	})
	b.Run("contended,callers=64,slots=8", func(b *testing.B) {
		for _, f := range inFlights[1:] {
			b.Run(f.name, func(b *testing.B) {
				take := f.open(b, 8, true)
				b.SetParallelism(64 / runtime.GOMAXPROCS(0))
				decide(b, []uint32{0}, alike(func(int) bool {
					done, ok := take()
					runtime.Gosched() // work, during which others come
					done()
					return ok
				}), true)
			})
		}
	})
	b.Run("full", func(b *testing.B) {
		for _, f := range inFlights[1:] {
			b.Run(f.name, func(b *testing.B) {
				take := f.open(b, 1, false)
				take()
				decide(b, []uint32{0}, alike(func(int) bool { _, ok := take(); return ok }), false)
			})
		}
	})
	b.Run("middleware", func(b *testing.B) {
		reqs := requests(1, false)
		_, guard := guardOf(1024, 1)
		for _, m := range []struct {
			name string
			wrap func(http.Handler) http.Handler
		}{
			{"floor_empty", func(h http.Handler) http.Handler { return h }},
			{"weir", guard.Handler},
			{"semaphore", func(next http.Handler) http.Handler {
				s := semaphore.NewWeighted(1024)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if s.Acquire(r.Context(), 1) != nil {
						http.Error(w, "busy", http.StatusServiceUnavailable)
						return
					}
					defer s.Release(1)
					next.ServeHTTP(w, r)
				})
			}},
			{"failsafe", func(next http.Handler) http.Handler {
				return failsafehttp.NewHandler(next, bulkhead.New[*http.Response](1024))
			}},
		} {
			b.Run(m.name, func(b *testing.B) { serve(b, m.wrap(Empty), reqs, []uint32{0}, 200) })
		}
	})
}
