package takeover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

const (
	hourly = 1.0 / 3600
	// usualStall is at what age a call is taken to hang by default.
	usualStall = 25 * time.Millisecond
)

var errDown = errors.New("down")

// far is a remote store whose faults a test sets: a [store.Memory] behind them.
type far struct {
	*store.Memory
	mu    sync.Mutex
	fault func(ctx context.Context) error // before the store is asked; nil: none
	calls atomic.Int64
}

func newFar() *far { return &far{Memory: store.NewMemory()} }

func (f *far) breaks(fault func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *far) down() { f.breaks(func(context.Context) error { return errDown }) }
func (f *far) up()   { f.breaks(nil) }

// hangs has calls end by their deadline only.
func (f *far) hangs() {
	f.breaks(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
}

// slow has every call take d.
func (f *far) slow(d time.Duration) {
	f.breaks(func(ctx context.Context) error {
		if !sleep(ctx, d) {
			return ctx.Err()
		}
		return nil
	})
}

// forget is a restart: the server has lost everything.
func (f *far) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Memory = store.NewMemory()
}

func (f *far) meet(ctx context.Context) (*store.Memory, error) {
	f.calls.Add(1)
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		if err := fault(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Memory, nil
}

func (f *far) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	m, err := f.meet(ctx)
	if err != nil {
		return store.Verdict{}, dst, err
	}
	return m.Admit(ctx, checks, dst)
}

func (f *far) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	m, err := f.meet(ctx)
	if err != nil {
		return store.Verdict{}, dst, err
	}
	return m.Peek(ctx, checks, dst)
}

func (f *far) Refund(ctx context.Context, checks []store.Check) error {
	m, err := f.meet(ctx)
	if err != nil {
		return err
	}
	return m.Refund(ctx, checks)
}

// log collects what the hooks are told.
type log struct {
	mu       sync.Mutex
	failures map[string]int // by op and reason
	turns    []bool
}

func (l *log) hooks() Hooks {
	l.failures = map[string]int{}
	return Hooks{
		Failed: func(op, reason string, _ error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.failures[op+" "+reason]++
		},
		Degraded: func(on bool, _ error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.turns = append(l.turns, on)
		},
	}
}

func (l *log) failed(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failures[what]
}

// turned is how the local store has taken over, and the remote one come back.
func (l *log) turned() []bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.turns)
}

// failedAs are all failures, by op and reason.
func (l *log) failedAs() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.failures)
}

// bubble runs a test in virtual time, with a Store before a remote one.
func bubble(t *testing.T, o Options, f func(t *testing.T, s *Store, remote *far, l *log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := new(log)
		o.Hooks = l.hooks()
		remote := newFar()
		s := New(remote, store.NewMemory(), o)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, s, remote, l)
	})
}

// ask returns a check for cost tokens of a key under a limit.
func ask(key string, rate, burst, cost float64) store.Check {
	c := store.Check{Scope: "tier", Limit: store.Limit{Rate: rate, Burst: burst}, Cost: cost}
	copy(c.Key[:], key)
	return c
}

// within makes a window of a check.
func within(length time.Duration, c store.Check) store.Check {
	c.Scope, c.Window = "window", length
	return c
}

// verdict asks, and fails the test on an error.
func verdict(t testing.TB, s store.Store, checks ...store.Check) store.Verdict {
	t.Helper()
	v, states, err := s.Admit(context.Background(), checks, nil)
	if err != nil {
		t.Fatalf("Admit: %v", err)
	}
	if len(states) != len(checks) {
		t.Fatalf("%d states of %d checks", len(states), len(checks))
	}
	return v
}

func admitted(t testing.TB, s store.Store, checks ...store.Check) {
	t.Helper()
	if v := verdict(t, s, checks...); !v.Admitted() {
		t.Errorf("refused for %v, want admitted: %+v", v.RetryAfter, checks)
	}
}

func refused(t testing.TB, s store.Store, checks ...store.Check) {
	t.Helper()
	if v := verdict(t, s, checks...); v.Admitted() {
		t.Errorf("admitted, want refused: %+v", checks)
	}
}

// drain asks n times and returns how often it was admitted.
func drain(t testing.TB, s store.Store, n int, checks ...store.Check) (count int) {
	t.Helper()
	for range n {
		if verdict(t, s, checks...).Admitted() {
			count++
		}
	}
	return count
}

func admits(t testing.TB, s store.Store, want, tries int, checks ...store.Check) {
	t.Helper()
	if got := drain(t, s, tries, checks...); got != want {
		t.Errorf("%d of %d admitted, want %d: %+v", got, tries, want, checks)
	}
}

// degrade has calls of a key of its own fail until the local store has taken over.
func degrade(t testing.TB, s *Store, remote *far) {
	t.Helper()
	remote.down()
	for range 3 * failuresToOpen { // calls before may still be answered in between
		verdict(t, s, ask("nobody's", 1, 1e6, 1))
	}
	if !s.Degraded() {
		t.Fatal("the remote store still decides after so many failures")
	}
}

// returns has the remote store answer again, and waits until it decides.
func returns(t testing.TB, s *Store, remote *far) {
	t.Helper()
	remote.up()
	time.Sleep(time.Second)
	synctest.Wait()
	if s.Degraded() {
		t.Fatal("the remote store answers, and does not decide a second later")
	}
}
