package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// becomes waits until claim holds, and reports whether it ever did.
func becomes(ctx context.Context, claim func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !claim() {
		select {
		case <-look.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// The first to get the session keeps it until all others stand in the queue.
func TestClientsThatFinalizeAtOnceTakeTurnsAndAllEndWell(t *testing.T) {
	t.Parallel()
	const callers = 4
	cfg := limits()
	cfg.Guards = map[string]weir.GuardConfig{
		guardHSM: {MaxInFlight: 1, MaxQueue: callers - 1, AcquireTimeout: weir.Duration(time.Minute)},
	}
	var (
		s      *site
		first  sync.Once
		queued atomic.Bool
	)
	signer := &hsm{work: func(ctx context.Context) {
		first.Do(func() {
			queued.Store(becomes(ctx, func() bool { return s.guard().Queued == callers-1 }))
		})
	}}
	s = opened(t, cfg, withBehind(signer.inFrontOf))

	accounts := make([]*clients.Account, callers)
	failed := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		accounts[i] = registered(t, s, []registerFunc{clients.RegisterX, clients.RegisterLego}[i%2])
		wg.Go(func() { _, failed[i] = accounts[i].Obtain(t.Context(), fmt.Sprintf("host%d.example.test", i)) })
	}
	wg.Wait()

	for i, account := range accounts {
		require.NoError(t, failed[i])
		require.Zero(t, account.Stats().Refused())
		require.Equal(t, 1, account.Stats().Count(acmeserver.PathFinalize))
		onlyOrdersRefused(t, s, account.Stats())
	}
	require.True(t, queued.Load(), "the others did not wait in the queue")
	require.Equal(t, 1, signer.most(), "in the HSM at once")
	require.EqualValues(t, callers, s.counted(weir.ClassACMEFinalize).Admitted)
	require.Equal(t, weir.GuardSnapshot{Guard: guardHSM, Slots: 1, Queue: callers - 1}, s.guard(), "all slots came back")
}
