package redis

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// Eight clients with 64 callers each get what one bucket has, to the token
// (requirement S7): hardly anything refills in the time that they take.
func TestManyClientsShareOneBucket(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const burst = 1000
	checks := []store.Check{ask("address", "k", 1e-6, burst, 1), ask("global", "", 1e-6, 100*burst, 1)}
	var got atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		s := open(t, unhurried("redis://"+server.Addr))
		for range 64 {
			callers.Go(func() {
				for range 5 { // 2560 in all
					v, _, err := s.Admit(t.Context(), checks, nil)
					if err != nil {
						t.Error(err)
						return
					}
					if v.Admitted() {
						got.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	if got.Load() != burst {
		t.Errorf("%d were admitted, want %d", got.Load(), burst)
	}
	// What was refused has taken nothing of the bucket behind.
	s := open(t, unhurried("redis://"+server.Addr))
	_, states := admit(t, s, ask("global", "", 1e-6, 100*burst, 0))
	if left := states[0].Tokens; math.Abs(left-99*burst) > 0.01 {
		t.Errorf("the bucket that all share holds %v, want %d", left, 99*burst)
	}
}

// A client's clock can be as wrong as it likes, for nothing that it sends tells the
// time: what it asks today and in an hour is the same, to the byte.
func TestNoClockOfAClientIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := newKeyspace("weir:", "ca", false)
		if err != nil {
			t.Fatal(err)
		}
		checks := []store.Check{ask("address", "k", 5, 10, 1), {Scope: "process", Limit: store.Limit{Burst: 100}, Cost: 1, Window: time.Minute, Always: true}}
		sent := func() (text string) {
			for _, mode := range []string{"admit", "stage", "peek", "count"} {
				c := k.admitCall(mode, checks)
				text += fmt.Sprintf("%s %v\n", c.buf, c.ends)
			}
			return text
		}
		before := sent()
		for _, later := range []time.Duration{time.Microsecond, 5 * time.Minute, time.Hour} {
			time.Sleep(later)
			if now := sent(); now != before {
				t.Errorf("%v later %q is sent, before it was %q", later, now, before)
			}
		}
	})
}
