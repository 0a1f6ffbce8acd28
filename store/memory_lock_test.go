package store

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// guess is an attempt at an account from an address, under the limits of
// requirements L1 and L2.
func guess(account, address int) Attempt {
	caller := numbered(address)
	return Attempt{
		Counters: []Counter{{Scope: "address", Key: caller, Limit: LockLimit{Max: 100, Window: 5 * time.Minute, Lockout: 10 * time.Minute}}},
		Account: Account{
			Counter: Counter{Scope: "account", Key: numbered(account), Limit: LockLimit{Max: 10, Window: time.Hour, Lockout: time.Hour}},
			Caller:  caller, Remember: 30 * 24 * time.Hour,
		},
	}
}

// try makes an attempt and settles it. It reports whether the outcome was told.
func try(t testing.TB, m *Memory, a Attempt, o Outcome) bool {
	t.Helper()
	v, err := m.Begin(t.Context(), &a)
	if err != nil {
		t.Fatal(err)
	}
	if !v.Admitted() {
		return false
	}
	if v, err = m.Settle(t.Context(), &a, o); err != nil {
		t.Fatal(err)
	}
	return v.Admitted()
}

// lockedNow reports whether an attempt is refused by a lock. It changes nothing.
func lockedNow(t testing.TB, m *Memory, a Attempt) bool {
	t.Helper()
	a.Reserve = ReserveNever
	v, err := m.Begin(t.Context(), &a)
	if err != nil {
		t.Fatal(err)
	}
	return !v.Admitted()
}

// walkLocks holds a table against its invariants.
func walkLocks(t *testing.T, tab *lockTable) {
	t.Helper()
	used, locked := 0, 0
	for i := range tab.slab {
		e := &tab.slab[i]
		if !e.used {
			if !e.tally.empty() || e.key != (lockKey{}) {
				t.Fatalf("free place %d still holds %+v", i, e)
			}
			continue
		}
		used++
		if e.tally.locked {
			locked++
		}
		if e.tally.locked && e.tally.count == 0 {
			t.Fatalf("place %d is locked by no failure", i)
		}
		if at, ok := tab.places[e.key]; !ok || int(at) != i {
			t.Fatalf("place %d is found at %d, %v", i, at, ok)
		}
	}
	switch {
	case used != len(tab.places) || used+len(tab.free) != len(tab.slab):
		t.Fatalf("%d places of %d are used; %d are known, %d free", used, len(tab.slab), len(tab.places), len(tab.free))
	case used > tab.max:
		t.Fatalf("%d counters, the bound is %d", used, tab.max)
	case locked != tab.locked:
		t.Fatalf("%d locks, counted as %d", locked, tab.locked)
	}
	callers := 0
	for _, list := range tab.known.accounts.Values() {
		callers += len(list)
	}
	if callers != tab.known.total || callers > max(tab.known.max, KnownCallers) {
		t.Fatalf("%d callers are remembered, counted as %d, the bound is %d", callers, tab.known.total, tab.known.max)
	}
}

// Requirement L8 and the race of every lockout that reads, checks and writes:
// 1000 guesses at once, each checked for a while, from one address.
func TestACrowdLearnsNoMoreThanTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name             string
		reserve          Reserve
		account, address func(i int) int
		told             int
		checked          int // at most
	}{
		{"at one account from as many addresses", ReserveAfterFailure, fixed, self, 10, 1000},
		{"at as many accounts from one address", ReserveAfterFailure, self, fixed, 100, 1000},
		{"at one account, places reserved from the start", ReserveAlways, fixed, self, 10, 10},
		{"from one address, places reserved from the start", ReserveAlways, self, fixed, 100, 100},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory()
				var told, checked atomic.Int64
				var wg sync.WaitGroup
				for i := range 1000 {
					wg.Go(func() {
						a := guess(tt.account(i), tt.address(i))
						a.Reserve = tt.reserve
						if v, _ := m.Begin(t.Context(), &a); !v.Admitted() {
							return
						}
						checked.Add(1)
						time.Sleep(50 * time.Millisecond)
						if v, _ := m.Settle(t.Context(), &a, Failed); v.Admitted() {
							told.Add(1)
						}
					})
				}
				wg.Wait()
				if told.Load() != int64(tt.told) || checked.Load() > int64(tt.checked) {
					t.Errorf("%d guesses were told and %d checked, want %d and at most %d", told.Load(), checked.Load(), tt.told, tt.checked)
				}
				t.Logf("%d checked, %d told", checked.Load(), told.Load())
			})
		})
	}
}

func fixed(int) int  { return 7 }
func self(i int) int { return i + 100 }

// Requirements L10 and T4 for locks: two million made-up names from as many
// addresses, with a lock and a count that must survive them.
func TestTwoMillionSprayedNamesPushOutNoLock(t *testing.T) {
	m := NewMemory()
	for range 10 {
		try(t, m, guess(1, 1), Failed)
	}
	for range 8 {
		try(t, m, guess(2, 1), Failed)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	names := 2_000_000
	if raceDetector {
		names /= 10
	}
	for i := range names {
		try(t, m, guess(1000+i, 1000+i), Failed)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d bytes for two tables of 100 000 counters", grown)
	if !raceDetector && grown > 48<<20 {
		t.Errorf("two tables at their bound of 100 000 counters take %d bytes", grown)
	}
	if !lockedNow(t, m, guess(1, 3)) {
		t.Error("the spray has pushed out a lock")
	}
	try(t, m, guess(2, 3), Failed)
	if try(t, m, guess(2, 3), Failed); !lockedNow(t, m, guess(2, 3)) {
		t.Error("the spray has pushed out a count of 8")
	}
	for _, scope := range []string{"address", "account"} {
		walkLocks(t, m.locks.tables[scope])
		if got := m.LockSize(scope); got.Keys > 100_000 || int(got.Evicted) < names-100_000 {
			t.Errorf("scope %s after %d names: %+v", scope, names, got)
		}
	}
}

func TestATableFullOfLocksGivesUpTheOneThatEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		m.ConfigureLocks(LockScope{Name: "address", MaxKeys: 20})
		once := func(i int) Attempt {
			return Attempt{Counters: []Counter{{Scope: "address", Key: numbered(i), Limit: LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}}}}
		}
		for i := range 21 {
			try(t, m, once(i), Failed)
			time.Sleep(time.Second)
		}
		for i := range 21 {
			if got := lockedNow(t, m, once(i)); got != (i > 0) {
				t.Errorf("lock %d of 21 in a table of 20 holds: %v", i, got)
			}
		}
		walkLocks(t, m.locks.tables["address"])
	})
}

func TestACallerIsKnownForThirtyDays(t *testing.T) {
	const days30 = 30 * 24 * time.Hour
	for _, tt := range []struct {
		name  string
		after time.Duration
		known bool
	}{
		{"at once", 0, true},
		{"on the last nanosecond", days30, true},
		{"not one later", days30 + 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := NewMemory()
				try(t, m, guess(1, 1), Succeeded)
				time.Sleep(tt.after)
				for range 10 {
					try(t, m, guess(1, 2), Failed)
				}
				if got := !lockedNow(t, m, guess(1, 1)); got != tt.known {
					t.Errorf("admitted to the locked account: %v, want %v", got, tt.known)
				}
			})
		})
	}
}

func TestTheNewestSixtyFourCallersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		for i := range 65 {
			try(t, m, guess(1, i), Succeeded)
			time.Sleep(time.Second)
		}
		for range 10 {
			try(t, m, guess(1, 1000), Failed)
		}
		for i := range 65 {
			if got := !lockedNow(t, m, guess(1, i)); got != (i > 0) {
				t.Errorf("caller %d of 65 is known: %v", i, got)
			}
		}
		walkLocks(t, m.locks.tables["account"])
	})
}

func TestRememberedCallersAreBounded(t *testing.T) {
	m := NewMemory()
	m.ConfigureLocks(LockScope{Name: "account", MaxKeys: 100})
	for account := range 300 {
		for address := range account % 3 {
			try(t, m, guess(account, address), Succeeded)
		}
	}
	for i := range 200 { // one account alone cannot fill it
		try(t, m, guess(9999, i), Succeeded)
	}
	walkLocks(t, m.locks.tables["account"])
	if got := m.LockSize("account"); got.Known > 100 || got.Known < 64 {
		t.Errorf("under a bound of 100: %+v", got)
	}
	m.ConfigureLocks(LockScope{Name: "account", MaxKeys: 10})
	walkLocks(t, m.locks.tables["account"])
}

func TestCountersThatHaveEndedLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		for i := range 20_000 {
			try(t, m, guess(i, i), Failed)
		}
		time.Sleep(24 * time.Hour)
		for _, scope := range []string{"address", "account"} {
			if got := m.LockSize(scope); got.Keys != 0 || got.Evicted != 0 {
				t.Errorf("scope %s after a day: %+v", scope, got)
			}
			if tab := m.locks.tables[scope]; tab.slab != nil {
				t.Errorf("scope %s keeps %d empty places", scope, len(tab.slab))
			}
		}
	})
}

func TestAPlaceOfADeadProcessComesBackAfterThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		for range 9 {
			try(t, m, guess(1, 1), Failed)
		}
		dead := guess(1, 1)
		_, _ = m.Begin(t.Context(), &dead)
		for _, tt := range []struct {
			after time.Duration
			free  bool
		}{{0, false}, {ReservationTTL - 1, false}, {1, true}} {
			time.Sleep(tt.after)
			a := guess(1, 2)
			if v, _ := m.Begin(t.Context(), &a); v.Admitted() != tt.free {
				t.Fatalf("%v after the attempt of a dead process: %+v", tt.after, v)
			}
		}
		// A verdict that comes later than that is one all the same.
		if v, _ := m.Settle(t.Context(), &dead, Failed); v.Started != 2 {
			t.Errorf("the tenth failure, late: %+v", v)
		}
	})
}

func TestALowerBoundKeepsWhatIsWorthMost(t *testing.T) {
	m := NewMemory()
	for i := range 1000 {
		for range 1 + i%10 {
			try(t, m, guess(i, i), Failed)
		}
	}
	m.ConfigureLocks(LockScope{Name: "account", MaxKeys: 100})
	if got := m.LockSize("account"); got.Keys != 100 || got.Locked != 100 {
		t.Errorf("1000 counters, 100 of them locked, under a bound of 100: %+v", got)
	}
	walkLocks(t, m.locks.tables["account"])
}

func TestLocksAreListedUpToABound(t *testing.T) {
	m := NewMemory()
	for i := range 5 {
		for range 10 {
			try(t, m, guess(i, i), Failed)
		}
	}
	for _, n := range []int{0, 3, 5, 100} {
		got, err := m.Locks(t.Context(), "account", n, nil)
		if err != nil || len(got) != min(n, 5) {
			t.Errorf("%d of at most %d locks, %v", len(got), n, err)
		}
		for _, l := range got {
			if l.Failures != 10 || l.Left <= 0 || l.Left > time.Hour {
				t.Errorf("%+v", l)
			}
		}
	}
	if got, err := m.Locks(t.Context(), "never seen", 10, nil); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAttemptsUnderLoadLeaveTheTablesSound(t *testing.T) {
	m := NewMemory()
	m.ConfigureLocks(LockScope{Name: "account", MaxKeys: 50})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 3000 {
				a := guess((g*31+i)%97, i%53)
				if v, err := m.Begin(t.Context(), &a); err == nil && v.Admitted() {
					_, _ = m.Settle(t.Context(), &a, Outcome(i%3))
				}
				switch i % 500 {
				case 0:
					m.LockSize("account")
				case 1:
					m.ConfigureLocks(LockScope{Name: "account", MaxKeys: 20 + i%40})
				case 2:
					_, _ = m.Unlock(t.Context(), "account", numbered(i%97), Key{})
				}
			}
		})
	}
	wg.Wait()
	walkLocks(t, m.locks.tables["account"])
	walkLocks(t, m.locks.tables["address"])
}

func BenchmarkAttempt(b *testing.B) {
	for _, bc := range []struct {
		name  string
		setup func(m *Memory)
		o     Outcome
	}{
		{"state=clean/outcome=success", func(*Memory) {}, Succeeded},
		{"state=one_failure/outcome=ignored", func(m *Memory) { try(b, m, guess(1, 1), Failed) }, Ignored},
		{"state=locked", func(m *Memory) {
			for range 10 {
				try(b, m, guess(1, 1), Failed)
			}
		}, Failed},
	} {
		b.Run(bc.name, func(b *testing.B) {
			m := NewMemory()
			bc.setup(m)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				a := guess(1, 1)
				for pb.Next() {
					if v, _ := m.Begin(b.Context(), &a); v.Admitted() {
						_, _ = m.Settle(b.Context(), &a, bc.o)
					}
				}
			})
		})
	}
	b.Run("spray=at_the_bound", func(b *testing.B) {
		m := NewMemory()
		for i := range 120_000 {
			try(b, m, guess(i, i), Failed)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			try(b, m, guess(1<<20+i, 1<<20+i), Failed)
		}
	})
}
