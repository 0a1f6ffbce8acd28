package redis

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// policy is what requirements L1 and L2 ask for, of the account with fewer.
func policy(failures int) store.LockLimit {
	return store.LockLimit{Max: failures, Window: 5 * time.Minute, Lockout: 10 * time.Minute}
}

func counting(scope, key string, l store.LockLimit) store.Counter {
	return store.Counter{Scope: scope, Key: ask(scope, key, 0, 0, 0).Key, Limit: l}
}

// from is an attempt of an address at an account, whose limits are those.
func from(address, account string, ofAddress, ofAccount int) *store.Attempt {
	a := &store.Attempt{Counters: []store.Counter{counting("address", address, policy(ofAddress))}}
	if account != "" {
		a.Account = store.Account{Counter: counting("account", account, policy(ofAccount)), Caller: a.Counters[0].Key, Remember: 720 * time.Hour}
	}
	return a
}

// tried makes an attempt in one store and settles it in another, as the same one
// may be: a ticket is good everywhere. It returns whether the outcome was told.
func tried(t testing.TB, begin, settle *Store, a *store.Attempt, o store.Outcome) (store.LockVerdict, bool) {
	t.Helper()
	v, err := begin.Begin(context.Background(), a)
	if err == nil && v.Admitted() {
		v, err = settle.Settle(context.Background(), a, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v, v.Admitted()
}

// replicas opens several stores on one namespace.
func replicas(t testing.TB, n int, o Options) (list []*Store) {
	t.Helper()
	o.Namespace = fresh()
	for range n {
		list = append(list, open(t, o))
	}
	return list
}

// Requirement L8 for a deployment: eight processes with 64 guesses each at once
// learn no more than one would.
func TestNoMoreThanTheLimitIsToldByAllReplicas(t *testing.T) {
	t.Parallel()
	one, cluster := redistest.Start(t), redistest.StartCluster(t)
	for _, tt := range []struct {
		name    string
		dsn     string
		spread  bool
		reserve store.Reserve
	}{
		{"on one server", "redis://" + one.Addr, false, store.ReserveAfterFailure},
		{"on one server, places reserved from the start", "redis://" + one.Addr, false, store.ReserveAlways},
		{"in a Cluster, by one slot", "redis://" + cluster.Nodes[0].Addr + "?cluster=true", false, store.ReserveAfterFailure},
		{"in a Cluster, a slot for each key", "redis://" + cluster.Nodes[0].Addr + "?cluster=true", true, store.ReserveAfterFailure},
		{"in a Cluster, a slot for each key, places reserved", "redis://" + cluster.Nodes[0].Addr + "?cluster=true", true, store.ReserveAlways},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := unhurried(tt.dsn)
			o.SlotPerKey = tt.spread
			stores := replicas(t, 8, o)
			const limit = 25
			for _, target := range []string{"account", "address"} {
				var told, checked atomic.Int64
				crowd(t, 8*64, func(i int) error {
					a := from(fmt.Sprint("a", i), target, 1000, limit)
					if target == "address" {
						a = from("one", fmt.Sprint("b", i), limit, 1000)
					}
					a.Reserve = tt.reserve
					s := stores[i%8]
					v, err := s.Begin(context.Background(), a)
					if err != nil || !v.Admitted() {
						return err
					}
					checked.Add(1)
					// Right or wrong: a success behind the lock is told as little.
					v, err = s.Settle(context.Background(), a, store.Failed)
					if err == nil && v.Admitted() {
						told.Add(1)
					}
					return err
				})
				if n := told.Load(); n > limit || n < 1 {
					t.Errorf("%s: %d guesses were told, the limit is %d", target, n, limit)
				}
				if tt.reserve == store.ReserveAfterFailure && !tt.spread && told.Load() != limit {
					t.Errorf("%s: %d guesses of %d checked were told, want %d", target, told.Load(), checked.Load(), limit)
				}
				t.Logf("%s: %d checked, %d told", target, checked.Load(), told.Load())
			}
		})
	}
}

// Scenario R16: sixty failures by one node and forty by another are a hundred.
func TestFailuresOfTwoReplicasAreOneCount(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := replicas(t, 2, unhurried("redis://"+server.Addr))
	for i := range 100 {
		by := s[0]
		if i >= 60 {
			by = s[1]
		}
		v, told := tried(t, by, by, from("a", "", 100, 0), store.Failed)
		if !told || v.Failures != i+1 || (v.Started == 1) != (i == 99) {
			t.Fatalf("failure %d: %+v", i+1, v)
		}
	}
	for i := range s {
		if v, told := tried(t, s[i], s[i], from("a", "", 100, 0), store.Succeeded); told || v.Refused != 0 || v.RetryAfter > 10*time.Minute || v.RetryAfter < 9*time.Minute {
			t.Errorf("replica %d: %+v", i, v)
		}
	}
}

// What one replica has reserved, another gives back; and what one that died has
// reserved is free again when its time is over.
func TestTicketsAreGoodForAllReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	o.Namespace = fresh()
	s, other := stopStore(t, server, open(t, o)), stopStore(t, server, open(t, o))
	s.at(today)
	tried(t, s.Store, s.Store, from("a", "", 3, 0), store.Failed)
	begin := func(at *Store) (*store.Attempt, bool) {
		a := from("a", "", 3, 0)
		v, err := at.Begin(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return a, v.Admitted()
	}
	dead, ok := begin(s.Store)
	if !ok || dead.Ticket == 0 {
		t.Fatalf("the first: ticket %d", dead.Ticket)
	}
	held, ok := begin(other.Store)
	if !ok || held.Ticket == dead.Ticket {
		t.Fatalf("the second: tickets %d and %d", dead.Ticket, held.Ticket)
	}
	if _, ok := begin(s.Store); ok {
		t.Fatal("a third attempt where two may fail")
	}
	if _, err := s.Settle(t.Context(), held, store.Ignored); err != nil {
		t.Fatal(err)
	}
	if _, ok := begin(other.Store); !ok {
		t.Error("a place that another replica gave back is still taken")
	}
	s.at(today + int64(store.ReservationTTL/time.Microsecond) - 1)
	if _, ok := begin(s.Store); ok {
		t.Error("a place is free before its time")
	}
	s.at(today + int64(store.ReservationTTL/time.Microsecond))
	if _, ok := begin(s.Store); !ok {
		t.Error("a place is not free when its time is over")
	}
	if _, ok := begin(s.Store); !ok {
		t.Error("two may be under way")
	}
	// Set back by an hour, the clock keeps nobody out for longer.
	s.at(today - 3600*second)
	if _, ok := begin(s.Store); ok {
		t.Error("a clock that is set back frees a place")
	}
	s.at(today - 3600*second + int64(store.ReservationTTL/time.Microsecond))
	if _, ok := begin(s.Store); !ok {
		t.Error("a place is held until the clock is there again")
	}
}

// Scenario R22: the server's clock decides; no call carries a time. Set back, it
// neither frees who is locked nor keeps them longer than was said.
func TestLocksFollowTheServersClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	o.Namespace = fresh()
	s, other := stopStore(t, server, open(t, o)), stopStore(t, server, open(t, o))
	locked := func(at *Store) time.Duration {
		v, err := at.Begin(t.Context(), from("a", "", 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		return v.RetryAfter
	}
	s.at(today)
	tried(t, s.Store, s.Store, from("a", "", 1, 0), store.Failed)
	const minute = 60 * second
	for _, step := range []struct {
		at   int64
		want time.Duration
	}{
		{0, 10 * time.Minute}, {3 * minute, 7 * time.Minute}, {10*minute - 1, time.Microsecond},
		{-5 * minute, 10 * time.Minute}, {0, 5 * time.Minute}, {5*minute - 1, time.Microsecond}, {5 * minute, 0},
	} {
		s.at(today + step.at)
		if a, b := locked(s.Store), locked(other.Store); a != step.want || b != step.want {
			t.Errorf("at %v: locked for %v and %v, want %v", time.Duration(step.at)*time.Microsecond, a, b, step.want)
		}
	}
}

// Requirement L3: the newest 64 callers of an account are known.
func TestTheNewestCallersAreKnown(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := stop(t, server)
	for i := range store.KnownCallers + 1 {
		s.at(today + int64(i))
		if _, told := tried(t, s.Store, s.Store, from(fmt.Sprint("a", i), "bob", 100, 3), store.Succeeded); !told {
			t.Fatal("withheld")
		}
	}
	for range 3 {
		tried(t, s.Store, s.Store, from("thief", "bob", 100, 3), store.Failed)
	}
	for i := range store.KnownCallers + 1 {
		v, _ := tried(t, s.Store, s.Store, from(fmt.Sprint("a", i), "bob", 100, 3), store.Ignored)
		begun, err := s.Begin(t.Context(), from(fmt.Sprint("a", i), "bob", 100, 3))
		if err != nil || begun.Known != (i > 0) || begun.Admitted() != (i > 0) {
			t.Errorf("caller %d: %+v %+v, %v", i, v, begun, err)
		}
	}
	ttl := server.Client().PTTL(t.Context(), string(s.keys.appendLock(nil, kindKnown, "account", from("x", "bob", 1, 1).Account.Key, store.Key{}))).Val()
	if ttl < 719*time.Hour || ttl > 800*time.Hour {
		t.Errorf("who is known for 720h is kept %v", ttl)
	}
}

// Every key outlives what it says, and goes by itself.
func TestKeysOfTheAuthLockEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	for name, tt := range map[string]struct {
		l     store.LockLimit
		o     store.Outcome
		least time.Duration
		most  time.Duration
	}{
		"a window": {store.LockLimit{Max: 2, Window: time.Hour, Lockout: time.Minute}, store.Failed, time.Hour, 67 * time.Minute},
		"a lock":   {store.LockLimit{Max: 1, Window: time.Minute, Lockout: time.Hour}, store.Failed, time.Hour, 67 * time.Minute},
		"a place":  {store.LockLimit{Max: 1, Window: time.Minute, Lockout: time.Hour}, store.Ignored, 30 * time.Second, 34 * time.Second},
		"a lock for ever": {store.LockLimit{Max: 1, Window: time.Minute, Lockout: 1<<63 - 1}, store.Failed,
			36_500 * 24 * time.Hour, 36_600 * 24 * time.Hour},
	} {
		a := &store.Attempt{Counters: []store.Counter{counting("ends", name, tt.l)}, Reserve: store.ReserveAlways}
		if _, err := s.Begin(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if tt.o == store.Failed {
			if _, err := s.Settle(t.Context(), a, tt.o); err != nil {
				t.Fatal(err)
			}
		}
		key := string(s.keys.appendLock(nil, kindLock, "ends", a.Counters[0].Key, store.Key{}))
		ttl := server.Client().PTTL(t.Context(), key).Val()
		if ttl < tt.least-20*time.Second || ttl > tt.most {
			t.Errorf("%s lives %v, want %v to %v", name, ttl, tt.least, tt.most)
		}
	}
	for _, key := range server.Client().Keys(t.Context(), "*").Val() {
		if ttl := server.Client().Do(t.Context(), "PTTL", key).Val(); ttl == int64(-1) {
			t.Errorf("key %q has no end", key)
		}
	}
	// What is over leaves nothing behind.
	a := from("free", "bob", 3, 3)
	tried(t, s, s, a, store.Ignored)
	tried(t, s, s, from("other", "bob", 3, 3), store.Failed)
	if was, err := s.Unlock(t.Context(), "address", from("other", "", 1, 0).Counters[0].Key, store.Key{}); was || err != nil {
		t.Errorf("%v, %v", was, err)
	}
	for _, key := range []string{"free", "other"} {
		name := string(s.keys.appendLock(nil, kindLock, "address", from(key, "", 1, 0).Counters[0].Key, store.Key{}))
		if n := server.Do("EXISTS", name); n != int64(0) {
			t.Errorf("%s is kept: %v", name, server.Do("GET", name))
		}
	}
}

func TestLocksAreListed(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, spread := range []bool{false, true} {
		o := unhurried("redis://" + cluster.Nodes[0].Addr + "?cluster=true")
		o.SlotPerKey = spread
		s := replicas(t, 2, o)
		for i := range 5 {
			account := "bob"
			if i >= 3 {
				account = "" // bob is locked by then
			}
			a := from(fmt.Sprint("a", i), account, 1000, 3)
			a.Counters[0].Limit = store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Duration(i+1) * time.Hour}
			tried(t, s[0], s[0], a, store.Failed)
		}
		known := from("home", "carol", 1000, 2)
		tried(t, s[0], s[0], known, store.Succeeded)
		for range 2 {
			tried(t, s[0], s[0], from("home", "carol", 1000, 2), store.Failed)
		}
		list, err := s[1].Locks(t.Context(), "address", 3, nil)
		if err != nil || len(list) != 3 {
			t.Fatalf("%v, %v", list, err)
		}
		for i, k := range list {
			want := time.Duration(5-i) * time.Hour
			if k.Key != from(fmt.Sprint("a", 4-i), "", 1, 0).Counters[0].Key || k.Failures != 1 || k.Caller != (store.Key{}) || k.Left > want || k.Left < want-time.Minute {
				t.Errorf("lock %d: %+v", i, k)
			}
		}
		if list, err = s[1].Locks(t.Context(), "account", 10, nil); err != nil || len(list) != 2 {
			t.Fatalf("%v, %v", list, err)
		}
		callers := 0
		for _, k := range list {
			want := 3
			if k.Caller != (store.Key{}) {
				want = 2
				callers++
				if k.Key != known.Account.Key || k.Caller != known.Account.Caller {
					t.Errorf("%+v, want the caller's at carol", k)
				}
			}
			if k.Failures != want {
				t.Errorf("%+v, want %d failures", k, want)
			}
		}
		if callers != 1 {
			t.Errorf("%d locks of callers, want 1: %+v", callers, list)
		}
		if was, err := s[0].Unlock(t.Context(), "account", known.Account.Key, known.Account.Caller); !was || err != nil {
			t.Errorf("%v, %v", was, err)
		}
		if list, err = s[1].Locks(t.Context(), "account", 10, nil); err != nil || len(list) != 1 {
			t.Errorf("one of two was lifted, and listed are %+v, %v", list, err)
		}
		if size := s[0].LockSize("account"); size != (store.LockSize{}) {
			t.Errorf("%+v, want what is not known", size)
		}
	}
}

// A lock that has ended leaves the index when the next one starts.
func TestTheIndexForgetsLocksThatHaveEnded(t *testing.T) {
	t.Parallel()
	s := stop(t, redistest.Start(t))
	index := string(s.keys.appendIndex(nil, "address"))
	for i := range 3 {
		s.at(today + int64(i)*600*second)
		tried(t, s.Store, s.Store, from(fmt.Sprint("a", i), "", 1, 0), store.Failed)
		if n := s.server.Do("ZCARD", index); n != int64(1) {
			t.Errorf("%v locks in the index after lock %d, want 1", n, i+1)
		}
	}
}

// A spray of locks does not make the index grow without bound.
func TestTheIndexOfLocksIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	index := string(s.keys.appendIndex(nil, "address"))
	for range 3 {
		script := "local t = redis.call('TIME') for i = 1, 4000 do redis.call('ZADD', KEYS[1], t[1] * 1000000 + 3600000000 + i, ARGV[1] .. i) end return 'ok'"
		server.Do("EVAL", script, 1, index, fmt.Sprintf("%x", fresh()))
		tried(t, s, s, from(fresh(), "", 1, 0), store.Failed)
	}
	if n := server.Do("ZCARD", index); n.(int64) > maxListed {
		t.Errorf("%d locks in the index, want %d at most", n, maxListed)
	}
	if ttl := server.Client().PTTL(t.Context(), index).Val(); ttl < 59*time.Minute || ttl > 70*time.Minute {
		t.Errorf("the index lives %v, want as long as its last lock", ttl)
	}
}

func TestEachVerbOfTheAuthLockIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	a := from("a", "bob", 1, 3)
	nobody := new(store.Attempt)
	tried(t, s, s, from("warm", "up", 100, 100), store.Failed) // the server knows the scripts from now on
	for _, tt := range []struct {
		name string
		want int64
		call func() error
	}{
		{"begin", 1, func() error { _, err := s.Begin(t.Context(), a); return err }},
		{"settle a failure that locks", 1, func() error { _, err := s.Settle(t.Context(), a, store.Failed); return err }},
		{"begin behind a lock", 1, func() error { _, err := s.Begin(t.Context(), a); return err }},
		{"settle a success", 1, func() error { _, err := s.Settle(t.Context(), from("b", "bob", 1, 3), store.Succeeded); return err }},
		{"ignore what holds no place", 0, func() error { _, err := s.Settle(t.Context(), from("b", "bob", 1, 3), store.Ignored); return err }},
		{"unlock", 1, func() error {
			_, err := s.Unlock(t.Context(), "address", a.Counters[0].Key, store.Key{})
			return err
		}},
		{"locks", 1, func() error { _, err := s.Locks(t.Context(), "address", 10, nil); return err }},
		{"no locks", 0, func() error { _, err := s.Locks(t.Context(), "address", 0, nil); return err }},
		{"an attempt under no counter", 0, func() error {
			if _, err := s.Begin(t.Context(), nobody); err != nil {
				return err
			}
			_, err := s.Settle(t.Context(), nobody, store.Failed)
			return err
		}},
	} {
		before := scriptCalls(t, server)
		if err := tt.call(); err != nil {
			t.Fatal(tt.name, err)
		}
		if got := scriptCalls(t, server) - before; got != tt.want {
			t.Errorf("%s: %d script calls, want %d", tt.name, got, tt.want)
		}
	}
}

// The documented rights are enough, and each of them is needed; what lacks one is
// found out when the store is opened, not at the first guess.
func TestEachRightIsNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var rights []string
	for word := range strings.FieldsSeq(aclRule) {
		if right, ok := strings.CutPrefix(word, "+"); ok {
			rights = append(rights, right)
		}
	}
	for _, missing := range rights {
		grant(t, server.Client(), "secret", "-"+missing)
		o := unhurried("redis://weir:secret@" + server.Addr)
		o.Namespace = fresh()
		if missing == "eval" {
			server.Do("SCRIPT", "FLUSH") // else it is not asked for
		}
		_, err := Open(t.Context(), o)
		if err == nil {
			t.Errorf("it starts without the right to %s", missing)
			continue
		}
		fails(t, err, ReasonDenied)
	}
}

// A lock that was replicated outlives the master.
func TestALockOutlivesAFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	s := open(t, unhurried("redis://"+r.Sentinels[0].Addr+"?master_name="+redistest.MasterName))
	tried(t, s, s, from("a", "bob", 100, 1), store.Failed)
	key := string(s.keys.appendLock(nil, kindLock, "account", from("a", "bob", 1, 1).Account.Key, store.Key{}))
	eventually(t, "replication", func() bool {
		v, err := r.Replica.Client().Get(t.Context(), key).Result()
		return err == nil && v == r.Master.Do("GET", key)
	})
	r.Master.Kill()
	eventually(t, "the failover", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		v, err := s.Begin(ctx, from("b", "bob", 100, 1))
		if err == nil && v.Admitted() {
			t.Fatal("the lock is gone")
		}
		return err == nil
	})
}
