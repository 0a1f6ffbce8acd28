package weir

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// obedient is a store that gives up as soon as its caller does, and has no Ping.
type obedient struct{ store.Store }

func (o obedient) locker() store.Locker { return o.Store.(store.Locker) }

func (o obedient) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	if err := ctx.Err(); err != nil {
		return store.LockVerdict{}, err
	}
	return o.locker().Begin(ctx, a)
}

func (o obedient) Settle(ctx context.Context, a *store.Attempt, f store.Outcome) (store.LockVerdict, error) {
	if err := ctx.Err(); err != nil {
		return store.LockVerdict{}, err
	}
	return o.locker().Settle(ctx, a, f)
}

func (o obedient) Unlock(ctx context.Context, scope string, key, caller store.Key) (bool, error) {
	return o.locker().Unlock(ctx, scope, key, caller)
}

func (o obedient) Locks(ctx context.Context, scope string, n int, dst []store.Lock) ([]store.Lock, error) {
	return o.locker().Locks(ctx, scope, n, dst)
}

func (o obedient) LockSize(scope string) store.LockSize { return o.locker().LockSize(scope) }

func (o obedient) ConfigureLocks(sc store.LockScope) { o.locker().ConfigureLocks(sc) }

// pinging is an obedient store that can tell whether it is there.
type pinging struct{ obedient }

func (pinging) Ping(ctx context.Context) error { return ctx.Err() }

// A client that closes its half of the connection, or trickles its body until the
// request's time is over, still reads the answer: its guesses are counted where all
// are.
func TestGuessesOfARequestThatIsOverAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		late, cancel := context.WithDeadline(context.Background(), time.Now())
		defer cancel()
		for _, tt := range []struct {
			name string
			of   func(store.Store) store.Store
			ctx  context.Context
		}{
			{"the client has hung up, a store of the program's own", func(s store.Store) store.Store { return obedient{s} }, over},
			{"the time is over, a store of the program's own", func(s store.Store) store.Store { return obedient{s} }, late},
			{"the client has hung up, a store that can go away", func(s store.Store) store.Store { return pinging{obedient{s}} }, over},
			{"the time is over, a store that can go away", func(s store.Store) store.Store { return pinging{obedient{s}} }, late},
		} {
			for _, onError := range []string{"local", "allow"} {
				cfg := lockLimits(nil)
				cfg.Store.KeySecret, cfg.Store.OnError = secret, onError
				s := tt.of(store.NewMemory())
				told := 0
				for range 2 { // replicas
					l := newLimiter(t, cfg, WithStore(s))
					for range 30 {
						a, err := l.Attempt(tt.ctx, Credential{Account: "bob"})
						if err == nil && a.Fail() == nil {
							told++
						}
					}
					_ = l.Close()
				}
				if told != 10 {
					t.Errorf("%s, on_error %s: %d guesses were told, want 10", tt.name, onError, told)
				}
			}
		}
	})
}

// raving is a store that blames a counter that was not asked.
type raving struct{ store.Store }

func (raving) Begin(context.Context, *store.Attempt) (store.LockVerdict, error) {
	return store.LockVerdict{Refused: 7, RetryAfter: time.Hour}, nil
}

func (raving) Settle(context.Context, *store.Attempt, store.Outcome) (store.LockVerdict, error) {
	return store.LockVerdict{Refused: 9, Started: 1 << 30}, nil
}

func (raving) Unlock(context.Context, string, store.Key, store.Key) (bool, error) {
	return false, errors.ErrUnsupported
}

func (raving) Locks(_ context.Context, _ string, _ int, dst []store.Lock) ([]store.Lock, error) {
	return dst, errors.ErrUnsupported
}

func (raving) LockSize(string) store.LockSize { return store.LockSize{} }

func (raving) ConfigureLocks(store.LockScope) {}

type ravingPinging struct{ raving }

func (ravingPinging) Ping(context.Context) error { return nil }

func TestAStoreThatBlamesWhatWasNotAskedFailsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, s := range []store.Store{raving{store.NewMemory()}, ravingPinging{raving{store.NewMemory()}}} {
			r := lockReplicas(t, 1, s, nil)[0]
			if n := r.told(30, "bob"); n != 10 {
				t.Errorf("%T: %d were told, want 10", s, n)
			}
		}
	})
}
