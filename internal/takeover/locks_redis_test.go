package takeover_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
)

// failures is how many lock an account.
const failures = 10

// locking is a configuration with the auth lock, for accounts.
func locking(dsn string) weir.Config {
	cfg := config(dsn)
	cfg.Tiers = weir.TiersConfig{}
	cfg.AuthLock.Enabled = true
	cfg.AuthLock.Account.MaxFailures = failures
	cfg.AuthLock.Address.MaxFailures = 100_000
	return cfg
}

// lockReplicas are n Limiters of one namespace.
func lockReplicas(t *testing.T, n int, cfg weir.Config) (list []*limited) {
	t.Helper()
	for range n {
		list = append(list, limit(t, cfg))
	}
	return list
}

// guess makes one attempt at an account with a wrong password, and reports whether
// that was told. No attempt may fail otherwise.
func (l *limited) guess(account string) (told bool) {
	a, err := l.limiter.Attempt(l.t.Context(), weir.Credential{ID: account, Account: account})
	if err == nil {
		err = a.Fail()
	}
	if locked, ok := errors.AsType[*weir.LockedError](err); err != nil && (!ok || locked.Scope != "account" || locked.RetryAfter <= 0) {
		l.t.Errorf("an attempt at %s failed: %v", account, err)
	}
	return err == nil
}

// attack has a crowd on every replica guess at an account until it is over, and
// returns how many guesses were told.
func attack(list []*limited, account string, crowd, each int, during func()) int {
	var told atomic.Int64
	var wg sync.WaitGroup
	for _, l := range list {
		for range crowd {
			wg.Go(func() {
				for range each {
					if l.guess(account) {
						told.Add(1)
					}
				}
			})
		}
	}
	if during != nil {
		during()
	}
	wg.Wait()
	return int(told.Load())
}

// Requirements L8 and S6: eight replicas with 64 callers each tell what one would.
func TestAllReplicasTogetherTellNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	list := lockReplicas(t, 8, locking("redis://"+server.Addr))
	for _, account := range []string{"alice", "bob"} {
		if told := attack(list, account, 64, 2, nil); told != failures {
			t.Errorf("%s: %d guesses were told, want %d", account, told, failures)
		}
	}
	for i, l := range list {
		if n := l.metric("_store_errors_total"); n > 0 {
			t.Errorf("replica %d: %v errors of a healthy server:\n%s", i, n, l.log)
		}
	}
}

// However the server is lost in the middle of an attack, no attempt fails, each
// replica goes on counting, and what is locked stays so when it is back.
func TestAnAttackWhileTheServer(t *testing.T) {
	for _, f := range faults[:2] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Do("ACL", "SETUSER", "weir", "on", ">"+password, "~*", "&*", "+@all")
			heal := func() {
				f.heal(server)
				server.Do("ACL", "SETUSER", "weir", "on", ">"+password, "~*", "&*", "+@all")
			}
			begun := time.Now()
			cfg := locking("redis://weir:" + password + "@" + server.Addr)
			cfg.Store.Redis.CommandTimeout = weir.Duration(f.timeout)
			list := lockReplicas(t, 3, cfg)
			// Locked before: known to the first replica by its refusal.
			for range failures {
				list[1].guess("before")
			}
			for _, l := range list {
				for l.guess("before") { // unless it has taken the busy server to hang, and counts alone
					if f.timeout >= patience {
						t.Fatal("not locked")
					}
				}
			}
			told := attack(list, "during", 8, 400, func() { f.begin(server) })
			if most := failures * (1 + len(list)); told > most || told < failures {
				t.Errorf("%d guesses were told, want %d to %d", told, failures, most)
			}
			for i, l := range list {
				degraded := func() bool { l.guess("nobody " + fmt.Sprint(time.Now().UnixNano())); return l.degraded() }
				l.eventually("the outage is noticed", degraded)
				if l.guess("before") {
					t.Errorf("replica %d: the outage has freed who was locked", i)
				}
				if l.guess("during") {
					t.Errorf("replica %d: not locked in the outage", i)
				}
			}
			heal()
			for i, l := range list {
				l.eventually("the store is back", func() bool { return !l.degraded() })
				if l.guess("during") {
					t.Errorf("replica %d: the return has freed who was locked", i)
				}
				if strings.Contains(l.log.String(), password) {
					t.Error("the log has the password")
				}
				l.oneErrorAMinute(begun)
			}
			// Everything is as before.
			if told := attack(list, "after", 8, 4, nil); told > failures*(1+len(list)) || told < failures {
				t.Errorf("%d guesses were told after the outage", told)
			}
		})
	}
}

// eventually waits until try is true.
func (l *limited) eventually(what string, try func() bool) {
	l.t.Helper()
	for begun := time.Now(); !try(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			l.t.Fatalf("%s: not within %v\n%s", what, patience, l.log)
		}
	}
}

// What one replica unlocks is unlocked for all, for others within a second.
func TestUnlockIsForAllReplicas(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	list := lockReplicas(t, 2, locking("redis://"+server.Addr))
	for i := range failures {
		list[i%2].guess("bob")
	}
	for _, l := range list {
		if l.guess("bob") {
			t.Fatal("not locked")
		}
		if auth := l.limiter.Snapshot().Auth; auth.Locked["account"] != 1 || len(auth.Locks) != 1 {
			t.Errorf("shown: %+v", auth)
		}
	}
	if n, err := list[0].limiter.Unlock(t.Context(), weir.Credential{Account: "bob"}, netip.Addr{}); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if !list[0].guess("bob") {
		t.Error("still locked where it was unlocked")
	}
	list[1].eventually("unlocked for the other replica", func() bool { return list[1].guess("bob") })
}

// Scenario M10, by the configuration.
func TestAReplicaWithAnotherSecretDoesNotStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	limit(t, cfg)
	cfg.Store.KeySecret = "another one of sixteen bytes"
	if _, err := weir.New(cfg); err == nil || !strings.Contains(err.Error(), "key secret") || strings.Contains(err.Error(), cfg.Store.KeySecret) {
		t.Errorf("error %v", err)
	}
}

// Requirement L10: no user name stands in a key or a value.
func TestNoNameStandsInTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := locking("redis://" + server.Addr)
	l := limit(t, cfg)
	for range failures {
		l.guess("a-name-to-look-for")
	}
	keys := 0
	for _, key := range server.Client().Keys(t.Context(), "*").Val() {
		keys++
		dump := server.Client().Dump(t.Context(), key).Val()
		if strings.Contains(key+dump, "a-name-to-look-for") {
			t.Errorf("key %q names the account", key)
		}
	}
	if keys < 2 {
		t.Errorf("%d keys: the failures were not counted there", keys)
	}
}
