package gate

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// A semaphore runs work in a slot.
type semaphore func(ctx context.Context, work func()) error

var semaphores = []struct {
	name string
	open func(slots int) semaphore
}{
	{"gate", func(slots int) semaphore {
		g := New(slots, 1<<20)
		return func(ctx context.Context, work func()) error {
			s, err := g.Acquire(ctx, &Work{MaxWait: noBound})
			if err != nil {
				return err
			}
			work()
			s.Release()
			return nil
		}
	}},
	// A channel of n places is the semaphore that a program would write by hand.
	// It bounds what is in flight as well, but has neither a bound for the queue
	// nor one for the wait, and gives slots to ended contexts.
	{"channel", func(slots int) semaphore {
		c := make(chan struct{}, slots)
		return func(ctx context.Context, work func()) error {
			select {
			case c <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			work()
			<-c
			return nil
		}
	}},
}

func BenchmarkUncontended(b *testing.B) {
	for _, kind := range semaphores {
		b.Run("kind="+kind.name, func(b *testing.B) {
			do := kind.open(8)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if do(ctx, func() {}) != nil {
					b.Fatal("refused")
				}
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
				do := kind.open(min(goroutines/2, 8))
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				b.ReportAllocs()
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						// Work, during which others come.
						if do(ctx, runtime.Gosched) != nil {
							b.Error("refused")
							return
						}
					}
				})
			})
		}
	}
}

// What abuse costs: every slot and every place in the queue is taken, by as many
// flows as there are places, and newcomers are of another.
func BenchmarkRefused(b *testing.B) {
	for _, queue := range []int{0, 64, 2048} {
		b.Run(fmt.Sprintf("queue=%d", queue), func(b *testing.B) {
			g := New(1, queue)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for i := range queue + 1 {
				go func() { _, _ = g.Acquire(ctx, &Work{Flow: Flow{byte(i), byte(i >> 8)}, MaxWait: noBound}) }()
			}
			for g.InFlight()+g.Queued() <= queue {
				runtime.Gosched()
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := g.Acquire(ctx, &Work{Flow: Flow{15: 1}, MaxWait: time.Hour}); err == nil {
						b.Error("admitted")
					}
				}
			})
		})
	}
}
