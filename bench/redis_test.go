package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/redis"
)

// startRedis starts a server that keeps to the last processor, where the
// system can do that: the callers have the others, and it, for themselves.
func startRedis(b *testing.B) *redistest.Server {
	b.Helper()
	server, err1 := exec.LookPath(os.Getenv("REDIS_SERVER"))
	if err1 != nil {
		server, err1 = exec.LookPath("redis-server")
	}
	taskset, err2 := exec.LookPath("taskset")
	if n := runtime.NumCPU(); err1 == nil && err2 == nil && n > 1 {
		pinned := filepath.Join(b.TempDir(), "redis-server")
		script := fmt.Sprintf("#!/bin/sh\nexec %s -c %d %s \"$@\"\n", taskset, n-1, server)
		if err := os.WriteFile(pinned, []byte(script), 0o700); err != nil {
			b.Fatal(err)
		}
		b.Setenv("REDIS_SERVER", pinned)
	}
	return redistest.Start(b)
}

const (
	redisKeys    = 10_000
	redisTimeout = 20 * time.Second // a busy machine makes a call slow, not wrong
)

// redisChecks are three tiers of caller i, all with room.
func redisChecks(i int) []store.Check {
	plenty := store.Limit{Rate: 1000, Burst: float64(Roomy)}
	k := Fresh.Key(i % redisKeys)
	return []store.Check{
		{Scope: "per_ip", Key: k, Limit: plenty, Cost: 1},
		{Scope: "per_account", Key: k, Limit: plenty, Cost: 1},
		{Scope: "global", Limit: plenty, Cost: 1},
	}
}

// Decisions over a real server. p50 and p99 are what a caller waits; ns/op is
// the time from one answer to the next over all callers.
func BenchmarkRedis(b *testing.B) {
	server := startRedis(b)
	ctx := context.Background()
	// One connection for each caller, up to what a program would allow.
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, PoolSize: 64, DisableIdentity: true, ContextTimeoutEnabled: true,
		ReadTimeout: redisTimeout, WriteTimeout: redisTimeout, PoolTimeout: redisTimeout})
	defer client.Close()
	weir := must(redis.Open(ctx, redis.Options{DSN: "redis://" + server.Addr, PoolSize: 64, CommandTimeout: redisTimeout}))
	defer weir.Close()
	ours := func(tiers int) func(int) error {
		return func(i int) error {
			v, _, err := weir.Admit(ctx, redisChecks(i)[:tiers], make([]store.State, 0, 3))
			return admitted(v.Admitted(), err)
		}
	}
	rr := redis_rate.NewLimiter(client)
	plenty := redis_rate.Limit{Rate: 1000, Burst: int(Roomy), Period: time.Second}
	allow := func(key string) error {
		res, err := rr.Allow(ctx, key, plenty)
		return admitted(err == nil && res.Allowed == 1, err)
	}
	ulule := limiter.New(must(ululeredis.NewStore(client)), limiter.Rate{Period: day, Limit: int64(Roomy)})
	gcra := must(throttled.NewGCRARateLimiterCtx(must(goredisstore.NewCtx(client, "throttled:")),
		throttled.RateQuota{MaxRate: throttled.PerSec(1000), MaxBurst: 1_000_000}))
	for _, callers := range []int{1, 16, 64, 256} {
		for _, tiers := range []int{1, 3} {
			b.Run(fmt.Sprintf("callers=%d,tiers=%d", callers, tiers), func(b *testing.B) {
				run := func(name string, call func(i int) error) {
					b.Run(name, func(b *testing.B) { callRedis(b, callers, call) })
				}
				run("floor_get", func(i int) error {
					if err := client.Get(ctx, "none:"+Fresh.Text(i%redisKeys)).Err(); err != goredis.Nil {
						return fmt.Errorf("GET of no key: %w", err)
					}
					return nil
				})
				run("weir", ours(tiers))
				if tiers == 3 {
					run("redis_rate", func(i int) error {
						key := Fresh.Text(i % redisKeys)
						return first(allow("ip:"+key), func() error { return allow("account:" + key) }, func() error { return allow("global") })
					})
					return
				}
				run("redis_rate", func(i int) error { return allow(Fresh.Text(i % redisKeys)) })
				run("ulule", func(i int) error {
					c, err := ulule.Get(ctx, Fresh.Text(i%redisKeys))
					return admitted(!c.Reached, err)
				})
				run("throttled", func(i int) error {
					limited, _, err := gcra.RateLimitCtx(ctx, Fresh.Text(i%redisKeys), 1)
					return admitted(!limited, err)
				})
			})
		}
	}
}

func admitted(ok bool, err error) error {
	if err == nil && !ok {
		return fmt.Errorf("refused")
	}
	return err
}

func first(err error, more ...func() error) error {
	for _, next := range more {
		if err != nil {
			break
		}
		err = next()
	}
	return err
}

func callRedis(b *testing.B, callers int, call func(i int) error) {
	if err := call(0); err != nil { // and the server knows the script
		b.Fatal(err)
	}
	var next atomic.Int64
	waits := make([][]time.Duration, callers)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				begun := time.Now()
				if err := call(i); err != nil {
					b.Errorf("caller %s: %v", strconv.Itoa(c), err)
					return
				}
				waits[c] = append(waits[c], time.Since(begun))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(waits...)))
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(all[len(all)/2])/1e3, "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100])/1e3, "p99-us")
}
