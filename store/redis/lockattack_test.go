package redis

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// Whoever keeps thousands of attempts under way neither makes a counter grow without
// bound nor keeps others out, unless that was asked for.
func TestPlacesOfACounterAreBounded(t *testing.T) {
	t.Parallel()
	s := alone(t, redistest.Start(t))
	const most = 1000
	begin := func(key string, r store.Reserve) (*store.Attempt, store.LockVerdict) {
		a := from(key, "", 1_000_000, 0)
		a.Reserve = r
		v, err := s.Begin(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return a, v
	}
	size := func(key string) int64 {
		return s.client.StrLen(t.Context(), string(s.keys.appendLock(nil, kindLock, "address", from(key, "", 1, 0).Counters[0].Key, store.Key{}))).Val()
	}
	for _, key := range []string{"after", "always"} {
		reserve := store.ReserveAfterFailure
		if key == "always" {
			reserve = store.ReserveAlways
		}
		tried(t, s, s, from(key, "", 1_000_000, 0), store.Failed)
		var first *store.Attempt
		for i := range most {
			a, v := begin(key, reserve)
			if !v.Admitted() || a.Ticket == 0 {
				t.Fatalf("%s: attempt %d: %+v, ticket %d", key, i, v, a.Ticket)
			}
			if first == nil {
				first = a
			}
		}
		full := size(key)
		for range 20 {
			a, v := begin(key, reserve)
			if a.Ticket != 0 || v.Full != (key == "always") || v.Admitted() == v.Full {
				t.Fatalf("%s: beyond the bound: %+v, ticket %d", key, v, a.Ticket)
			}
			if v.Admitted() { // what holds no place is settled all the same
				if v, err := s.Settle(t.Context(), a, store.Failed); err != nil || !v.Admitted() || v.Failures < 2 {
					t.Fatalf("%s: %+v, %v", key, v, err)
				}
			}
		}
		if now := size(key); now > full+8 || full > 35*most+100 {
			t.Errorf("%s: %d bytes, then %d", key, full, now)
		}
		if _, err := s.Settle(t.Context(), first, store.Ignored); err != nil {
			t.Fatal(err)
		}
		if a, _ := begin(key, reserve); a.Ticket == 0 {
			t.Errorf("%s: a place that was given back is not free", key)
		}
	}
}

// However often the server forgets its scripts in the middle of an attack, the
// limit is told, and each call is made.
func TestTheLimitHoldsWhileTheServerForgetsItsScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	stores := replicas(t, 4, unhurried("redis://"+server.Addr))
	const limit = 40
	ctx, stop := context.WithCancel(t.Context())
	flushed := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			_ = server.Client().ScriptFlush(context.Background()).Err()
		}
		flushed <- n
	}()
	var told atomic.Int64
	crowd(t, 4*48, func(i int) error { // more than are sent on connections of their own
		a := from("a", "bob", 1000, limit)
		v, err := stores[i%4].Begin(context.Background(), a)
		if err == nil && v.Admitted() {
			if v, err = stores[(i+1)%4].Settle(context.Background(), a, store.Failed); err == nil && v.Admitted() {
				told.Add(1)
			}
		}
		return err
	})
	stop()
	if n := <-flushed; told.Load() > limit || told.Load() < 1 || n == 0 {
		t.Errorf("%d told, the limit is %d; %d flushes", told.Load(), limit, n)
	}
}

// What others have written under our names is no counter: it fails no call, and no
// more than the limit is told.
func TestWhatIsNotOursIsNoCounter(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, value := range []string{
		"", "x", "0", "::::", "5:1:2", "-1:0:9999999999999999:0:", "1e9:0:1e99:1:", strings.Repeat("9", 400) + ":0:" + strings.Repeat("9", 400) + ":1:",
		"1:1:9999999999999999:0:" + strings.Repeat("z", 34), "1:1:9999999999999999:0:abc@1,", "0:0:0:0:" + strings.Repeat("f", 16) + "@" + strings.Repeat("9", 16) + ",",
		"1:1:2:0:\x00\xff", idOf(from("a", "", 1, 0).Counters[0].Key, store.Key{}) + "@,", "\x00",
	} {
		s := alone(t, server)
		a := from("a", "bob", 1000, 3)
		names := []string{
			string(s.keys.appendLock(nil, kindLock, "address", a.Counters[0].Key, store.Key{})),
			string(s.keys.appendLock(nil, kindLock, "account", a.Account.Key, store.Key{})),
			string(s.keys.appendLock(nil, kindLock, "account", a.Account.Key, a.Account.Caller)),
			string(s.keys.appendLock(nil, kindKnown, "account", a.Account.Key, store.Key{})),
		}
		for _, name := range names {
			server.Do("SET", name, value)
		}
		told := 0
		for range 12 {
			b := from("a", "bob", 1000, 3)
			v, err := s.Begin(t.Context(), b)
			if err == nil && v.Admitted() {
				v, err = s.Settle(t.Context(), b, store.Failed)
			}
			if err != nil {
				t.Fatalf("%.40q: %v", value, err)
			}
			if v.Admitted() {
				told++
			}
		}
		if told > 3 {
			t.Errorf("%.40q: %d were told, want 3 at most", value, told)
		}
		for _, name := range names {
			server.Do("DEL", name)
			server.Do("LPUSH", name, "a list")
		}
		told = 0
		for range 6 {
			if _, ok := tried(t, s, s, from("a", "bob", 1000, 3), store.Failed); ok {
				told++
			}
		}
		if told != 3 {
			t.Errorf("over lists, %d were told, want 3", told)
		}
	}
}

// An attempt that takes longer than its place holds is settled like others: the
// limit does not hang on places.
func TestTheLimitHoldsWithoutPlaces(t *testing.T) {
	t.Parallel()
	s := stop(t, redistest.Start(t))
	s.at(today)
	tried(t, s.Store, s.Store, from("a", "bob", 100, 5), store.Failed)
	told := 1
	var late []*store.Attempt
	for round := range int64(4) { // whoever waits until places are free again has four times as many under way
		s.at(today + round*31*second)
		for range 10 {
			a := from("a", "bob", 100, 5)
			if v, err := s.Begin(t.Context(), a); err == nil && v.Admitted() {
				late = append(late, a)
			}
		}
	}
	for _, a := range late {
		if v, err := s.Settle(t.Context(), a, store.Failed); err == nil && v.Admitted() {
			told++
		}
	}
	if len(late) != 16 || told != 5 {
		t.Errorf("%d under way, %d told, want 16 and 5", len(late), told)
	}
	if v, err := s.Begin(t.Context(), from("b", "bob", 100, 5)); err != nil || v.Admitted() || v.RetryAfter < 9*time.Minute {
		t.Errorf("%+v, %v", v, err)
	}
}
