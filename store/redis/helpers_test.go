package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

const hourly = 1.0 / 3600

// unhurried are options for tests: a busy machine makes them slow, not red.
func unhurried(dsn string) Options {
	return Options{DSN: dsn, CommandTimeout: 20 * time.Second, ConnectTimeout: 20 * time.Second}
}

// inVain is how long a test tries to open what cannot be opened, but is not known to
// be so for good: long enough for one answer of a busy machine.
const inVain = 3 * time.Second

// open opens a store that the test closes.
func open(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// namespaces gives each call a namespace that nobody had before.
var namespaces atomic.Int64

func fresh() string { return fmt.Sprint("n", namespaces.Add(1)) }

// alone opens a store on the server that shares no bucket with others.
func alone(t testing.TB, server *redistest.Server) *Store {
	t.Helper()
	o := unhurried("redis://" + server.Addr)
	o.Namespace = fresh()
	return open(t, o)
}

// ask returns a check for cost tokens of a key under a limit.
func ask(scope, key string, rate, burst, cost float64) store.Check {
	c := store.Check{Scope: scope, Limit: store.Limit{Rate: rate, Burst: burst}, Cost: cost}
	copy(c.Key[:], key)
	return c
}

// within makes a window of a check.
func within(length time.Duration, c store.Check) store.Check {
	c.Window = length
	return c
}

func costing(cost float64, c store.Check) store.Check {
	c.Cost = cost
	return c
}

func shadowed(c store.Check) store.Check {
	c.Shadow = true
	return c
}

func arriving(c store.Check) store.Check {
	c.Always = true
	return c
}

// admit calls Admit, which must not fail.
func admit(t testing.TB, s *Store, checks ...store.Check) (store.Verdict, []store.State) {
	t.Helper()
	v, states, err := s.Admit(context.Background(), checks, nil)
	if err != nil {
		t.Fatalf("Admit(%v): %v", checks, err)
	}
	return v, states
}

func admitted(t testing.TB, s *Store, checks ...store.Check) []store.State {
	t.Helper()
	v, states := admit(t, s, checks...)
	if !v.Admitted() {
		t.Fatalf("refused: %v: %+v %+v", checks, v, states)
	}
	return states
}

func refused(t testing.TB, s *Store, checks ...store.Check) (store.Verdict, []store.State) {
	t.Helper()
	v, states := admit(t, s, checks...)
	if v.Admitted() {
		t.Fatalf("admitted: %v: %+v", checks, states)
	}
	return v, states
}

// fails claims that a call fails for a reason.
func fails(t testing.TB, err error, want Reason) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want an *Error with reason %q", err, err, want)
	}
	if e.Reason != want {
		t.Fatalf("reason %q (%v), want %q", e.Reason, err, want)
	}
	return e
}

// crowd runs f on n goroutines at once and fails with the first error.
func crowd(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("caller %d: %v", i, err)
		}
	}
}

// contents are all keys of a server with their values.
func contents(t testing.TB, c *goredis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if v, err := c.Get(t.Context(), keys.Val()).Result(); err == nil {
			all[keys.Val()] = v
		}
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// everyKeyEnds claims that all keys of a server are ours and go by themselves.
func everyKeyEnds(t testing.TB, c *goredis.Client, prefix string) {
	t.Helper()
	for key := range contents(t, c) {
		if !strings.HasPrefix(key, prefix) {
			t.Errorf("key %q does not begin with %q", key, prefix)
		}
		// -1 is no end; -2 is a key that has ended by now.
		if ttl := c.Do(t.Context(), "PTTL", key).Val(); ttl == int64(-1) {
			t.Errorf("key %q has no end", key)
		}
	}
}

// eventually waits until try is true.
func eventually(t testing.TB, what string, try func() bool) {
	t.Helper()
	for begun := time.Now(); !try(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%s did not happen", what)
		}
	}
}
