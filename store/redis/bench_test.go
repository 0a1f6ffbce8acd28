package redis

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// Run with
//
//	go test -run '^$' -bench Admit ./store/redis
//
// tiers=3 is one decision over a global, an address's and an account's bucket;
// get is one GET; trips=3 is what a limiter per bucket does: a script call for
// each, one after the other. server-us is the processor time of the server for
// one of them, p50-us and p99-us what the caller waits.
func BenchmarkAdmit(b *testing.B) {
	server := redistest.Start(b)
	dsn := "redis://" + server.Addr
	plain := unhurried(dsn)
	plain.PoolSize, plain.Coalesce = 64, -1
	shared := plain
	shared.Coalesce = 1
	mixed := plain
	mixed.Coalesce = 16
	for _, callers := range []int{1, 16, 64, 256} {
		for _, kind := range []struct {
			name string
			o    Options
			call func(s *Store, i int) error
		}{
			{"get", plain, func(s *Store, i int) error {
				if err := s.client.Get(b.Context(), "weir:{weir}none").Err(); err != goredis.Nil {
					return err
				}
				return nil
			}},
			{"tiers=1", plain, func(s *Store, i int) error { return passes(b, s, tiers(i)[:1]) }},
			{"tiers=3", plain, func(s *Store, i int) error { return passes(b, s, tiers(i)) }},
			{"tiers=3,refused", plain, func(s *Store, i int) error { return turnedAway(b, s, spent(tiers(i))) }},
			{"tiers=3,coalesce=1", shared, func(s *Store, i int) error { return passes(b, s, tiers(i)) }},
			{"tiers=3,coalesce=16", mixed, func(s *Store, i int) error { return passes(b, s, tiers(i)) }},
			{"trips=3", plain, func(s *Store, i int) error {
				checks := tiers(i)
				for j := range checks {
					if err := passes(b, s, checks[j:j+1]); err != nil {
						return err
					}
				}
				return nil
			}},
		} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, kind.name), func(b *testing.B) {
				s := open(b, kind.o)
				server.Do("FLUSHALL")
				if err := kind.call(s, 0); err != nil { // and the server knows the script
					b.Fatal(err)
				}
				benchmark(b, server, callers, func(i int) error { return kind.call(s, i) })
			})
		}
	}
}

func benchmark(b *testing.B, server *redistest.Server, callers int, call func(i int) error) {
	var next atomic.Int64
	waits := make([][]time.Duration, callers)
	before := processorTime(b, server)
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range callers {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= b.N; i = int(next.Add(1)) {
				begun := time.Now()
				if err := call(i); err != nil {
					b.Error(err)
					return
				}
				waits[g] = append(waits[g], time.Since(begun))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Sorted(slices.Values(slices.Concat(waits...)))
	b.ReportMetric(float64(all[len(all)/2])/1e3, "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100])/1e3, "p99-us")
	b.ReportMetric(float64(processorTime(b, server)-before)/1e3/float64(b.N), "server-us")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// processorTime is what the server's one thread has used.
func processorTime(b *testing.B, server *redistest.Server) (sum time.Duration) {
	lines := bufio.NewScanner(strings.NewReader(fmt.Sprint(server.Do("INFO", "cpu"))))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(seconds * 1e9)
		}
	}
	return sum
}

// tiers are the checks of caller i, which all pass.
func tiers(i int) []store.Check {
	plenty := store.Limit{Rate: 1000.0 / 3, Burst: 1e9}
	key := func(kind byte) (k store.Key) {
		k[0], k[14], k[15] = kind, byte(i>>8&0x3f), byte(i)
		return k
	}
	return []store.Check{
		{Scope: "per_ip", Key: key(1), Limit: plenty, Cost: 1},
		{Scope: "per_account", Key: key(2), Limit: plenty, Cost: 1},
		{Scope: "global", Limit: plenty, Cost: 1},
	}
}

// spent makes the first check ask what its bucket never has.
func spent(checks []store.Check) []store.Check {
	checks[0].Limit.Burst = 0.5
	return checks
}

func passes(b *testing.B, s *Store, checks []store.Check) error {
	v, _, err := s.Admit(b.Context(), checks, make([]store.State, 0, 3))
	if err == nil && !v.Admitted() {
		return fmt.Errorf("refused: %+v", v)
	}
	return err
}

func turnedAway(b *testing.B, s *Store, checks []store.Check) error {
	v, _, err := s.Admit(b.Context(), checks, make([]store.State, 0, 3))
	if err == nil && v.Admitted() {
		return fmt.Errorf("admitted")
	}
	return err
}

// One attempt, begun and settled, and what of it is the server's own time: nearly
// all attempts settle without a lock; a crowd at one key carries places along.
func BenchmarkAttempt(b *testing.B) {
	server := redistest.Start(b)
	for _, held := range []int{0, 10, 100, 1000} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			s := alone(b, server)
			attempt := func() *store.Attempt {
				a := from("a", "bob", 1_000_000_000, 1_000_000_000)
				a.Reserve = store.ReserveAlways
				return a
			}
			for range held {
				if _, err := s.Begin(b.Context(), attempt()); err != nil {
					b.Fatal(err)
				}
			}
			server.Do("CONFIG", "RESETSTAT")
			for b.Loop() {
				a := attempt()
				v, err := s.Begin(b.Context(), a)
				if err == nil && v.Admitted() {
					_, err = s.Settle(b.Context(), a, store.Failed)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			for line := range strings.Lines(fmt.Sprint(server.Do("INFO", "commandstats"))) {
				if _, rest, ok := strings.Cut(line, "cmdstat_evalsha:calls="); ok {
					var calls, us float64
					if _, err := fmt.Sscanf(rest, "%f,usec=%f,", &calls, &us); err == nil {
						b.ReportMetric(us/calls, "server-µs/call")
					}
				}
			}
		})
	}
}
