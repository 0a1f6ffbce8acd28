package gate

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A channel of n places is the semaphore that a program would write by hand. It
// bounds what is in flight as well, but has neither a bound for the queue nor
// one for the wait, and gives slots to ended contexts.
type channelGate chan struct{}

func (c channelGate) Acquire(ctx context.Context, _ time.Duration) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channelGate) Release() { <-c }

type semaphore interface {
	Acquire(ctx context.Context, maxWait time.Duration) error
	Release()
}

var semaphores = []struct {
	name string
	open func(slots int) semaphore
}{
	{"gate", func(slots int) semaphore { return New(slots, 1<<20) }},
	{"channel", func(slots int) semaphore { return make(channelGate, slots) }},
}

func BenchmarkUncontended(b *testing.B) {
	for _, kind := range semaphores {
		b.Run("kind="+kind.name, func(b *testing.B) {
			g := kind.open(8)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if g.Acquire(ctx, time.Second) != nil {
					b.Fatal("refused")
				}
				g.Release()
			}
		})
	}
}

// Fewer slots than goroutines, so that somebody waits most of the time: one for
// two of them, eight for 256.
func BenchmarkContended(b *testing.B) {
	for _, goroutines := range []int{2, 256} {
		for _, kind := range semaphores {
			b.Run(fmt.Sprintf("goroutines=%d/kind=%s", goroutines, kind.name), func(b *testing.B) {
				g := kind.open(min(goroutines/2, 8))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				b.ReportAllocs()
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if g.Acquire(ctx, noBound) != nil {
							b.Error("refused")
							return
						}
						runtime.Gosched() // work, during which others come
						g.Release()
					}
				})
			})
		}
	}
}

// What abuse costs: every slot and every place in the queue is taken.
func BenchmarkRefused(b *testing.B) {
	g := New(1, 0)
	if g.Acquire(context.Background(), 0) != nil {
		b.Fatal("refused")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if g.Acquire(ctx, time.Second) == nil {
				b.Error("admitted")
			}
		}
	})
}
