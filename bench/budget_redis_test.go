//go:build !race

package bench

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store/redis"
)

// trips counts how often a client waits for its server: a command alone or a
// pipeline of some.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next goredis.DialHook) goredis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *trips) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error { t.n.Add(1); return next(ctx, cmd) }
}

func (t *trips) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error { t.n.Add(1); return next(ctx, cmds) }
}

// redisClient is a client of the server that counts its round trips.
func redisClient(t *testing.T, server *redistest.Server) (*goredis.Client, *trips) {
	t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	counter := new(trips)
	client.AddHook(counter)
	return client, counter
}

// redisStore is a store in a namespace of its own.
func redisStore(t *testing.T, client *goredis.Client, namespace string) *redis.Store {
	t.Helper()
	st, err := redis.New(t.Context(), client, redis.Options{Namespace: namespace, CommandTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Everything that has a budget goes to Redis in one round trip, with the begin of an
// attempt where there is one; its outcome is told in a second.
func TestBudgetOfRedis(t *testing.T) {
	server := redistest.Start(t)
	client, counter := redisClient(t, server)
	for i, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			s.Config.Store.KeySecret = strings.Repeat("k", 32)
			h, w := s.Handler(weir.WithStore(redisStore(t, client, fmt.Sprint("n", i)))), &NullWriter{H: http.Header{}}
			s.Before(h)
			serve := func() {
				w.Reset(s.Status)
				h.ServeHTTP(w, s.Request)
				if w.Status != s.Status {
					t.Fatalf("status %d, want %d", w.Status, s.Status)
				}
			}
			serve() // the server learns the scripts
			const n = 50
			before := counter.n.Load()
			server.Do("CONFIG", "RESETSTAT")
			for range n {
				serve()
			}
			budget := redisBudget(budgets[s.Name], s.Config.AuthLock.Enabled && s.Status == http.StatusOK)
			within(t, "round trips", float64(counter.n.Load()-before)/n, budget["evalsha"])
			commands := commandsOf(t, server)
			for name, calls := range commands {
				if name == "config|resetstat" || name == "info" {
					continue
				}
				within(t, "of "+name, calls/n, budget[name])
			}
			if len(commands) == 0 {
				t.Error("the server has seen nothing")
			}
		})
	}
}

// An attempt costs one round trip before the handler, together with all that is
// asked of the request, and one after it where there is something to settle
// (requirement S6).
func TestBudgetOfAnAttemptInRedis(t *testing.T) {
	server := redistest.Start(t)
	client, counter := redisClient(t, server)
	for i, tt := range []struct {
		name    string
		before  int // failures
		bare    bool
		status  int // of the handler
		entered bool
		trips   int64 // before the handler has answered, and after
		settled int64
	}{
		{name: "a right credential", status: 200, entered: true, trips: 1, settled: 1},
		{name: "a wrong one, and the account's token goes back", status: 401, entered: true, trips: 1, settled: 2},
		{name: "no verdict", status: 404, entered: true, trips: 1},
		{name: "no verdict after a failure, which had a place reserved", before: 1, status: 404, entered: true, trips: 1, settled: 1},
		{name: "no credential", bare: true, status: 401, entered: true, trips: 1},
		{name: "locked out", before: 3, status: 200, trips: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Full(Setup{Quota: Roomy, Bound: 1000})
			cfg.Store.KeySecret = strings.Repeat("k", 32)
			cfg.AuthLock.Account.MaxFailures = 3
			inside, status := int64(-1), http.StatusUnauthorized
			wired := func(namespace string) func(bare bool) {
				l := NewWeir(cfg, weir.WithStore(redisStore(t, client, namespace)))
				t.Cleanup(func() { _ = l.Close() })
				h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					inside = counter.n.Load()
					w.WriteHeader(status)
				}))
				return func(bare bool) {
					r := Scenarios()[0].Request.Clone(t.Context())
					if !bare {
						r.SetBasicAuth("device-7", "x")
					}
					h.ServeHTTP(&NullWriter{H: http.Header{}}, r)
				}
			}
			learn := wired(fmt.Sprint("learn", i)) // the server learns the scripts
			learn(false)
			learn(true)
			send := wired(fmt.Sprint("a", i))
			for range tt.before {
				send(false)
			}
			inside, status = -1, tt.status
			before := counter.n.Load()
			send(tt.bare)
			after := counter.n.Load()
			if (inside >= 0) != tt.entered {
				t.Fatalf("the handler was asked: %v, want %v", inside >= 0, tt.entered)
			}
			if inside < 0 {
				inside = after
			}
			if inside-before != tt.trips || after-inside != tt.settled {
				t.Errorf("%d round trips before the answer and %d after, want %d and %d", inside-before, after-inside, tt.trips, tt.settled)
			}
		})
	}
}

// commandsOf is how often each command was run, those of scripts included.
func commandsOf(t *testing.T, server *redistest.Server) map[string]float64 {
	t.Helper()
	calls := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(fmt.Sprint(server.Do("INFO", "commandstats"))))
	for lines.Scan() {
		name, rest, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		number, _, _ := strings.Cut(rest, ",")
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		calls[name] = n
	}
	return calls
}
