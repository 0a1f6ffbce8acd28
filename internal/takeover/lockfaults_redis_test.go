package takeover_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
)

// Whatever happens to the server between the begin of an attempt and its verdict,
// and however often: no attempt fails, and each replica tells the limit once beside
// what the server has told.
func TestTheLimitHoldsWhileTheServerAgainAndAgain(t *testing.T) {
	for _, f := range faults[1:] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			server.Do("ACL", "SETUSER", "weir", "on", ">"+password, "~*", "&*", "+@all")
			list := lockReplicas(t, 3, locking("redis://weir:"+password+"@"+server.Addr))
			var late []*weir.Attempt // begun by the server, and settled in the outage
			for _, l := range list {
				for range 5 {
					if a, err := l.limiter.Attempt(t.Context(), weir.Credential{Account: "bob"}); err == nil {
						late = append(late, a)
					}
				}
			}
			told := 0
			for range 3 {
				f.begin(server)
				for _, a := range late {
					if a.Fail() == nil {
						told++
					}
				}
				late = nil
				told += attack(list, "bob", 4, 30, nil)
				f.heal(server)
				told += attack(list, "bob", 4, 30, nil)
				for _, l := range list {
					l.eventually("the store is back", func() bool { return !l.degraded() })
				}
			}
			if most := failures * (1 + len(list)); told > most || told < failures {
				t.Errorf("%d guesses were told, want %d to %d", told, failures, most)
			}
			for _, l := range list {
				if strings.Contains(l.log.String(), password) {
					t.Error("the log has the password")
				}
			}
		})
	}
}

// A Limiter that is closed in the middle of an attack goes on counting here, and
// no call is stuck.
func TestCloseInTheMiddleOfAnAttack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	list := lockReplicas(t, 2, locking("redis://"+server.Addr))
	told := attack(list, "bob", 16, 200, func() {
		for _, l := range list {
			if err := l.limiter.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	if most := failures * (1 + len(list)); told > most || told < failures {
		t.Errorf("%d guesses were told, want %d to %d", told, failures, most)
	}
	for _, l := range list {
		if l.guess("bob") {
			t.Error("not locked after Close")
		}
	}
}

// A Reload in the middle of an outage frees nobody.
func TestAReloadInAnOutageFreesNobody(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := locking("redis://" + server.Addr)
	l := limit(t, cfg)
	attack([]*limited{l}, "before", 4, 5, nil)
	server.Kill()
	attack([]*limited{l}, "during", 4, 5, nil)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			changed := cfg
			changed.AuthLock.MaxKeys = 1000 + i%7
			changed.AuthLock.Account.Window = weir.Duration(time.Hour + time.Duration(i%5)*time.Minute)
			if err := l.limiter.Reload(changed); err != nil {
				t.Error(err)
			}
		}
	}()
	told := 0
	for range 200 {
		for _, account := range []string{"before", "during"} {
			if l.guess(account) {
				told++
			}
		}
	}
	close(stop)
	<-done
	if told != 0 {
		t.Errorf("%d guesses were told behind locks", told)
	}
}
