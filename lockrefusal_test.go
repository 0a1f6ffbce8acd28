package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// Scenario M13: a flood at a locked account costs the store a call a second.
func TestAFloodAtALockHardlyReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, nil)
		r, other := list[0], list[1]
		if n := r.told(20, "bob"); n != 10 {
			t.Fatalf("%d told, want 10", n)
		}
		for _, one := range []struct {
			name  string
			r     lockReplica
			addrs int
		}{{"by one that has heard of the lock", r, 1}, {"by one that has not", other, 1}, {"from three addresses", r, 3}} {
			before, began := s.calls.Load(), time.Now()
			for i := range 2000 { // 200 a second
				one.r.answers(t, 429, fmt.Sprintf("192.0.2.%d:1", 60+i%one.addrs), "bob", "right", one.name)
				time.Sleep(5 * time.Millisecond)
			}
			if n, most := s.calls.Load()-before, int64(one.addrs)*(1+int64(time.Since(began)/time.Second)); n > most || n == 0 {
				t.Errorf("%s: %d calls of 2000 attempts in %v, want %d at most", one.name, n, time.Since(began), most)
			}
		}
	})
}

// Who is told to wait is told the same with and without a call, and the lock ends
// when it was said to.
func TestARefusalThatIsRepeatedTellsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := lockReplicas(t, 1, newSharedLocks(), func(c *Config) { c.AuthLock.Account.Lockout = Duration(90 * time.Second) })[0]
		r.told(20, "bob")
		for i := range 180 {
			_, err := r.Attempt(t.Context(), Credential{Account: "bob"})
			locked, ok := err.(*LockedError)
			if want := 90*time.Second - time.Duration(i)*time.Second/2; !ok || locked.Scope != "account" || locked.RetryAfter != want {
				t.Fatalf("half second %d: %v, want a wait of %v", i, err, want)
			}
			time.Sleep(time.Second / 2)
		}
		r.answers(t, 200, elsewhere, "bob", "right", "when it has ended")
	})
}

// One caller's refusal is not another's: not of who is known, nor of who is admitted
// since the request is of this machine itself.
func TestARefusalAtAnAccountIsOneCallersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		list := lockReplicas(t, 2, s, func(c *Config) { c.AuthLock.Account.AdmitLoopback = true })
		r, other := list[0], list[1]
		other.answers(t, 200, home, "bob", "right", "before")
		r.told(20, "bob")
		const local = "127.0.0.1:1"
		forwarded := guesser{r.h, local, "bob"}.request(t.Context(), "right") // so it is not direct
		forwarded.Header.Set("X-Forwarded-For", "203.0.113.1")
		for range 3 {
			w := httptest.NewRecorder()
			if r.h.ServeHTTP(w, forwarded); w.Code != http.StatusTooManyRequests {
				t.Errorf("by a proxy on this machine: %d, want 429", w.Code)
			}
			r.answers(t, 429, elsewhere, "bob", "right", "locked")
			r.answers(t, 200, home, "bob", "right", "known to the store only")
			r.answers(t, 200, local, "bob", "right", "of this machine")
		}
		for range 10 {
			r.answers(t, 401, home, "bob", "wrong", "known")
		}
		r.answers(t, 429, home, "bob", "right", "locked for this caller too")
		r.answers(t, 200, local, "bob", "right", "of this machine")
		if _, err := r.Unlock(t.Context(), Credential{Account: "bob"}, netip.MustParseAddr("192.0.2.50")); err != nil {
			t.Fatal(err)
		}
		r.answers(t, 200, home, "bob", "right", "unlocked here, at once")
		r.answers(t, 200, elsewhere, "bob", "right", "unlocked here, at once")
	})
}

// A lock of an outage that holds after it does not send each guess to the store.
func TestAFloodAtALockOfAnOutageHardlyReachesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, nil)[0]
		s.away.Store(true)
		r.told(30, "bob")
		back(t, s, r)
		before := s.calls.Load()
		for range 1000 {
			r.answers(t, 429, elsewhere, "bob", "right", "locked in the outage")
		}
		if n := s.calls.Load() - before; n != 1 {
			t.Errorf("%d calls of 1000 attempts at one instant, want 1", n)
		}
		if n, err := r.Unlock(t.Context(), Credential{Account: "bob"}, netip.Addr{}); n != 1 || err != nil {
			t.Errorf("%d lifted, %v", n, err)
		}
		r.answers(t, 200, elsewhere, "bob", "right", "unlocked")
	})
}

// Answers may come in another order than they were decided in.
func TestAnOlderAnswerDoesNotUndoANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := store.Attempt{Counters: []store.Counter{{Scope: "address", Limit: store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}}}}
		locked, admitted := store.LockVerdict{Refused: 0, RetryAfter: time.Hour}, store.LockVerdict{Refused: -1}
		r := newRecall()
		early := r.now()
		time.Sleep(time.Millisecond)
		r.begun(&a, locked, r.now())
		time.Sleep(time.Millisecond)
		r.begun(&a, admitted, early)
		if v := r.locked(&a); v.Admitted() {
			t.Error("a late admission makes a lock forgotten")
		}
		asked := r.now()
		time.Sleep(time.Millisecond)
		r.forget("address", store.Key{}, store.Key{})
		for name, tell := range map[string]func(){
			"a late refusal":  func() { r.begun(&a, locked, asked) },
			"a late lock":     func() { r.settled(&a, store.LockVerdict{Refused: -1, Started: 1}, store.Failed, asked) },
			"a late decision": func() { r.refused(&a, locked, asked) },
		} {
			if tell(); !r.locked(&a).Admitted() || !r.refuses(&a).Admitted() {
				t.Errorf("%s brings back what was lifted", name)
			}
		}
		time.Sleep(time.Millisecond)
		if r.begun(&a, locked, r.now()); r.locked(&a).Admitted() || r.refuses(&a).Admitted() {
			t.Error("what is locked again is not remembered")
		}
		time.Sleep(refusalRecheck)
		if !r.refuses(&a).Admitted() {
			t.Error("a refusal is repeated for more than a second")
		}
	})
}

// All places taken is no lock: it may be over at once.
func TestThatAllPlacesAreTakenIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharedLocks()
		r := lockReplicas(t, 1, s, nil)[0]
		r.answers(t, http.StatusUnauthorized, home, "bob", "wrong", "before")
		var held []*Attempt
		for range 9 {
			a, err := r.Attempt(t.Context(), Credential{Account: "bob"})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, a)
		}
		r.answers(t, 429, elsewhere, "bob", "right", "full")
		held[0].Ignore()
		r.answers(t, 200, elsewhere, "bob", "right", "no more")
	})
}
