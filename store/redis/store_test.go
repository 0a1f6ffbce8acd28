package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// Replicas share a budget. None of them tells a time, so their clocks do not
// matter.
func TestEightReplicasAdmitWhatOneBucketAllows(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	replicas := make([]*Store, 8)
	o.Coalesce = -1
	for i := range replicas {
		if i == 4 { // half of them pipeline
			o.Coalesce = 4
		}
		replicas[i] = open(t, o)
	}
	slow, global := ask("per_ip", "k", hourly, 700, 1), ask("global", "", hourly, 1e6, 1)
	arrivals := arriving(within(24*time.Hour, ask("process", "", 0, 1e6, 1)))
	var got atomic.Int64
	crowd(t, 8*64, func(i int) error {
		for range 6 {
			v, _, err := replicas[i%8].Admit(t.Context(), []store.Check{arrivals, slow, global}, nil)
			if err != nil {
				return err
			}
			if v.Admitted() {
				got.Add(1)
			}
		}
		return nil
	})
	if got.Load() != 700 {
		t.Errorf("%d admitted, want 700", got.Load())
	}
	s := replicas[0]
	if left := admitted(t, s, costing(0, global))[0].Tokens; left < 1e6-700 || left > 1e6-699 {
		t.Errorf("the global bucket holds %v, want 700 less than full", left)
	}
	if left := admitted(t, s, costing(0, arrivals))[0].Tokens; left != 1e6-8*64*6 {
		t.Errorf("the arrivals leave %v, want %v", left, 1e6-8*64*6)
	}
}

// With refill, the bound is burst + rate × time, by the server's clock.
func TestReplicasNeverOutrunTheRate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	replicas := []*Store{open(t, unhurried("redis://"+server.Addr)), open(t, unhurried("redis://"+server.Addr))}
	const rate, burst = 500, 20
	c := ask("per_ip", "k", rate, burst, 1)
	begun := server.Client().Time(t.Context()).Val()
	var got atomic.Int64
	crowd(t, 64, func(i int) error {
		for range 20 {
			v, _, err := replicas[i%2].Admit(t.Context(), []store.Check{c}, nil)
			if err != nil {
				return err
			}
			if v.Admitted() {
				got.Add(1)
			}
		}
		return nil
	})
	took := server.Client().Time(t.Context()).Val().Sub(begun)
	if most := burst + rate*took.Seconds() + 1; float64(got.Load()) > most || got.Load() < burst {
		t.Errorf("%d admitted in %v, at most %.0f and at least %d were due", got.Load(), took, most, burst)
	}
}

// One request is one command, whatever it asks; so is a refund, and a call that
// asks nothing is none.
func TestARequestIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	checks := []store.Check{
		ask("global", "", hourly, 100, 1), ask("per_ip", "a", hourly, 100, 1), ask("per_account", "b", hourly, 100, 1),
		within(time.Hour, ask("subject", "b", 0, 100, 1)), arriving(within(time.Hour, ask("process", "", 0, 100, 1))),
	}
	admitted(t, s, checks...)
	if err := s.Refund(t.Context(), checks); err != nil { // and the server knows both scripts
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want int64
		call func() error
	}{
		{"admit", 1, func() error { _, _, err := s.Admit(t.Context(), checks, nil); return err }},
		{"peek", 1, func() error { _, _, err := s.Peek(t.Context(), checks, nil); return err }},
		{"refund", 1, func() error { return s.Refund(t.Context(), checks) }},
		{"admit nothing", 0, func() error { _, _, err := s.Admit(t.Context(), nil, nil); return err }},
		{"refund nothing", 0, func() error { return s.Refund(t.Context(), nil) }},
		{"refund windows", 0, func() error { return s.Refund(t.Context(), checks[3:]) }},
		{"refund no cost", 0, func() error { return s.Refund(t.Context(), []store.Check{costing(0, checks[0])}) }},
	} {
		before := scriptCalls(t, server)
		if err := tt.call(); err != nil {
			t.Fatal(err)
		}
		if got := scriptCalls(t, server) - before; got != tt.want {
			t.Errorf("%s: %d script calls, want %d", tt.name, got, tt.want)
		}
	}
}

// scriptCalls is how many scripts the server has run, or refused to.
func scriptCalls(t testing.TB, server *redistest.Server) (calls int64) {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(server.Do("INFO", "commandstats"))) {
		for _, command := range []string{"cmdstat_eval:", "cmdstat_evalsha:"} {
			if rest, ok := strings.CutPrefix(line, command+"calls="); ok {
				var n int64
				if _, err := fmt.Sscanf(rest, "%d,", &n); err != nil {
					t.Fatal(err)
				}
				calls += n
			}
		}
	}
	return calls
}

// What is refused, or only looked at, leaves every key as it was, to the bit.
func TestARefusalWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	drained := ask("drained", "k", hourly, 1, 1)
	others := []store.Check{
		ask("per_ip", "a", 0.3, 10, 0.7), ask("global", "", 12.5, 100, 1.1), within(time.Hour, ask("window", "a", 0, 10, 2)),
		ask("never seen", "x", 1, 10, 1), within(time.Minute, ask("never seen", "w", 0, 10, 1)), ask("no limit", "x", 1, 0, 1),
	}
	admitted(t, s, drained)
	admitted(t, s, others[:3]...)
	before := contents(t, server.Client())
	for range 3 {
		refused(t, s, append(others, drained)...)
		refused(t, s, drained, others[0])
		if _, _, err := s.Peek(t.Context(), others, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Peek(t.Context(), append(others, drained), nil); err != nil {
			t.Fatal(err)
		}
	}
	if after := contents(t, server.Client()); !maps.Equal(before, after) {
		t.Errorf("keys changed\nfrom %v\nto   %v", before, after)
	}
}

func TestAFullBucketLeavesNoKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	before := len(contents(t, server.Client()))
	admitted(t, s, ask("free", "k", 1, 10, 0), within(time.Hour, ask("free", "w", 0, 10, 0)), shadowed(ask("above", "k", 1, 10, 11)))
	if err := s.Refund(t.Context(), []store.Check{ask("stranger", "k", 1, 10, 3)}); err != nil {
		t.Fatal(err)
	}
	if after := contents(t, server.Client()); len(after) != before {
		t.Errorf("keys of buckets that are full: %v", after)
	}
}

// A key that somebody else wrote is taken for one that is not there: no request
// fails for it, and the next that spends puts it right.
func TestForeignValuesAreNoBuckets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	c, w := ask("foreign", "k", hourly, 5, 1), within(time.Hour, ask("foreign", "k", 0, 5, 1))
	for _, value := range []string{
		"", ":", "x", "5", "5:", ":5", "nan:1", "-nan:1", "-1:1", "5:nan", "5:inf", "5:-1", "1e:1", "0x:1", "5:1:2", strings.Repeat("9", 5000) + "x:1", "\x00:\x00",
	} {
		for _, c := range []store.Check{c, w} {
			key := string(s.keys.append(nil, &c))
			server.Do("SET", key, value)
			if err := s.Refund(t.Context(), []store.Check{c}); err != nil {
				t.Errorf("%q: refund: %v", value, err)
			}
			if got := admitted(t, s, c)[0].Tokens; got < 4 || got > 4.1 {
				t.Errorf("%q: %v left of 5 after one was spent", value, got)
			}
			server.Do("DEL", key)
			server.Do("LPUSH", key, value)
			if err := s.Refund(t.Context(), []store.Check{c}); err != nil {
				t.Errorf("list: refund: %v", err)
			}
			admitted(t, s, c)
			if got := admitted(t, s, c)[0].Tokens; got < 3 || got > 3.1 {
				t.Errorf("list %q: %v left of 5 after two were spent", value, got)
			}
			server.Do("DEL", key)
		}
	}
	everyKeyEnds(t, server.Client(), "weir:")
}

// A script that the server forgets is sent again, by however many at once, and
// counts once.
func TestForgottenScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	for _, coalesce := range []int{-1, 2} {
		server := redistest.Start(t)
		o := unhurried("redis://" + server.Addr)
		o.Coalesce = coalesce
		s := open(t, o)
		c := ask("per_ip", "k", hourly, 1e6, 1)
		crowd(t, 16, func(i int) error {
			for j := range 50 {
				if i == 0 && j%5 == 0 {
					if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil {
						return err
					}
				}
				if v, _, err := s.Admit(t.Context(), []store.Check{c}, nil); err != nil || !v.Admitted() {
					return fmt.Errorf("%+v, %w", v, err)
				}
				if j%2 == 0 {
					if err := s.Refund(t.Context(), []store.Check{c}); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if got := admitted(t, s, costing(0, c))[0].Tokens; got < 1e6-400 || got > 1e6-399 {
			t.Errorf("16 callers spent 800 and gave 400 back: %v of 1e6 left", got)
		}
	}
}

func TestAServerThatComesBackEmptyIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	c := ask("per_ip", "k", hourly, 2, 1)
	empty := func() {
		t.Helper()
		admitted(t, s, c)
		admitted(t, s, c)
		refused(t, s, c)
	}
	empty()
	server.Do("FLUSHALL")
	empty()
	server.Kill()
	if _, _, err := s.Admit(t.Context(), []store.Check{c}, nil); err == nil {
		t.Error("admitted by a server that is not there")
	}
	server.Restart()
	eventually(t, "an answer of the server that came back", func() bool { return s.Ping(t.Context()) == nil })
	empty()
	everyKeyEnds(t, server.Client(), "weir:")
}

func TestCloseLeavesTheProgramsClientOpen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	s, err := New(t.Context(), client, Options{CommandTimeout: 20 * time.Second, Coalesce: 1})
	if err != nil {
		t.Fatal(err)
	}
	admitted(t, s, ask("per_ip", "k", 1, 1, 1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Admit(t.Context(), nil, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("ping after Close: %v", err)
	}
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Errorf("the program's client: %v", err)
	}
}

// Close returns though the server hangs and calls have been given up.
func TestCloseBesideAHungServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, Options{DSN: "redis://" + server.Addr, CommandTimeout: 50 * time.Millisecond, ConnectTimeout: 20 * time.Second, Coalesce: 1})
	server.Pause()
	crowd(t, 40, func(int) error {
		if _, _, err := s.Admit(t.Context(), []store.Check{ask("hung", "k", 1, 1, 1)}, nil); reasonOf(err) == "" {
			return fmt.Errorf("%w, want a timeout", err)
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Admit(t.Context(), []store.Check{ask("hung", "k", 1, 1, 1)}, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// Two limiters on one server share counts if, and only if, they have one
// namespace and one prefix.
func TestNamespacesAndPrefixesAreApart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	c := ask("per_ip", "k", hourly, 1, 1)
	for _, names := range [][2]string{{"weir:", "weir"}, {"weir:", "other"}, {"other:", "weir"}, {"weir", "weir"}, {"a:weir:", "weir"}, {"w", "eir"}} {
		o.KeyPrefix, o.Namespace = names[0], names[1]
		admitted(t, open(t, o), c)
		refused(t, open(t, o), c)
	}
}
