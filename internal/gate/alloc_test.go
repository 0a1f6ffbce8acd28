//go:build !race

package gate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The race detector adds allocations of its own, hence the build tag. The
// bubble turns a call that waits into a wrong count or a deadlock that is
// noticed, not into a test that hangs.
func TestAllocations(t *testing.T) {
	for _, tt := range []struct {
		name string
		most float64
		gate func(*testing.T) *Gate
		do   func(context.Context, *Gate)
	}{
		{"a free slot", 0, idle, func(ctx context.Context, g *Gate) {
			_ = g.acquire(ctx, time.Second)
			g.release()
		}},
		// Two for the context itself. Asking it for Done would be a third.
		{"a free slot and a fresh context", 2, idle, func(_ context.Context, g *Gate) {
			ctx, cancel := context.WithCancel(context.Background())
			_ = g.acquire(ctx, time.Second)
			g.release()
			cancel()
		}},
		{"a full queue", 0, busy, func(ctx context.Context, g *Gate) { _ = g.acquire(ctx, time.Second) }},
		{"no wish to wait", 0, busy, func(ctx context.Context, g *Gate) { _ = g.acquire(ctx, 0) }},
		{"a closed gate", 0, closed, func(ctx context.Context, g *Gate) { _ = g.acquire(ctx, time.Second) }},
		{"a free slot by Hold", 2, idle, func(ctx context.Context, g *Gate) {
			release, _ := g.Hold(ctx, &Work{MaxWait: time.Second})
			release()
			release()
		}},
		{"a full queue by Hold", 0, busy, func(ctx context.Context, g *Gate) {
			release, _ := g.Hold(ctx, &Work{MaxWait: time.Second})
			release()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := tt.gate(t)
				got := testing.AllocsPerRun(1000, func() { tt.do(t.Context(), g) })
				if got > tt.most {
					t.Errorf("got %v allocations, want at most %v", got, tt.most)
				}
			})
		})
	}
}

func idle(*testing.T) *Gate   { return New(1, 1) }
func busy(t *testing.T) *Gate { return full(t, 1, 0) }

func closed(*testing.T) *Gate {
	g := New(1, 1)
	g.Close()
	return g
}
