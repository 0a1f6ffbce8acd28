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

// Everything that has a budget goes to Redis in one round trip, the auth lock
// excepted, whose counters are the process's own.
func TestBudgetOfRedis(t *testing.T) {
	server := redistest.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	counter := new(trips)
	client.AddHook(counter)
	for i, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			st, err := redis.New(t.Context(), client, redis.Options{Namespace: fmt.Sprint("n", i), CommandTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			s.Config.Store.KeySecret = strings.Repeat("k", 32)
			h, w := s.Handler(weir.WithStore(st)), &NullWriter{H: http.Header{}}
			s.Before(h)
			const n = 50
			before := counter.n.Load()
			server.Do("CONFIG", "RESETSTAT")
			for range n {
				w.Reset(s.Status)
				h.ServeHTTP(w, s.Request)
				if w.Status != s.Status {
					t.Fatalf("status %d, want %d", w.Status, s.Status)
				}
			}
			within(t, "round trips", float64(counter.n.Load()-before)/n, 1)
			commands, budget := commandsOf(t, server), redisBudget(budgets[s.Name])
			for name, calls := range commands {
				if name == "config|resetstat" || name == "info" {
					continue
				}
				within(t, "of "+name, calls/n, budget[name])
			}
			if commands["evalsha"] == 0 {
				t.Errorf("the server saw no script: %v", commands)
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
