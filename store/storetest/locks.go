package storetest

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/store"
)

// lockedFor is a policy under which nothing ends while a test looks.
func lockedFor(failures int) store.LockLimit {
	return store.LockLimit{Max: failures, Window: time.Hour, Lockout: 2 * time.Hour}
}

// counterOf names a counter of an address.
func counterOf(scope, key string, l store.LockLimit) store.Counter {
	return store.Counter{Scope: scope, Key: ask(scope, key, 0, 0, 0).Key, Limit: l}
}

// by is an attempt of an address, under its counter alone.
func by(address string, failures int) store.Attempt {
	return store.Attempt{Counters: []store.Counter{counterOf("address", address, lockedFor(failures))}}
}

// at is an attempt of an address at an account, with a counter each.
func at(account, address string, failures int) store.Attempt {
	a := by(address, 1000)
	a.Account = store.Account{
		Counter:  counterOf("account", account, lockedFor(failures)),
		Caller:   a.Counters[0].Key,
		Remember: time.Hour,
	}
	return a
}

var lockRules = []rule{{
	name: "the last failure locks",
	why:  "count failures, start the lock with the one that reaches Max, tell that one as the failure it is, and refuse what comes after it, whatever the credential is worth (requirements L1, L7, L11)",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		for i := range 3 {
			v := s.tried(l, by("a", 3), store.Failed)
			if v.Failures != i+1 || (v.Started == 1) != (i == 2) {
				s.broken("failure %d of 3: %+v", i+1, v)
			}
		}
		s.shut(l, by("a", 3), 0, 2*time.Hour)
		s.tried(l, by("b", 3), store.Succeeded)
	},
}, {
	name: "a refused attempt changes nothing",
	why:  "neither count nor extend a lock by an attempt that was refused (requirement L11): who keeps trying would stay locked for ever",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		s.tried(l, at("bob", "a", 1), store.Failed)
		before := s.shut(l, at("bob", "b", 1), 1, 2*time.Hour)
		for range 20 {
			a := at("bob", "b", 1)
			if v := s.begin(l, &a); v.Admitted() {
				s.broken("the lock is gone")
			}
			if v := s.settle(l, &a, store.Failed); v.Admitted() {
				s.broken("an outcome was told behind a lock: %+v", v)
			}
		}
		if after := s.shut(l, at("bob", "b", 1), 1, 2*time.Hour); after.RetryAfter > before.RetryAfter {
			s.broken("the lock was extended from %v to %v", before.RetryAfter, after.RetryAfter)
		}
		if v := s.tried(l, at("eve", "b", 1), store.Failed); v.Failures != 1 {
			s.broken("attempts that bob's lock refused count for their address: %+v", v)
		}
	},
}, {
	name: "no more than the limit is told to a crowd",
	why:  "decide and count in one step when an attempt is settled (requirement L8): however many check a guess at once, Max outcomes are told and the rest is withheld, right or wrong",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		const crowd, limit = 200, 10
		told := make([]bool, crowd)
		attempts := make([]store.Attempt, crowd)
		for i := range attempts {
			attempts[i] = at("bob", fmt.Sprint("a", i), limit)
			if v := s.begin(l, &attempts[i]); !v.Admitted() {
				s.broken("attempt %d was refused before any had failed: %+v", i, v)
			}
		}
		s.crowd(crowd, func(i int) error {
			v, err := l.Settle(s.Context(), &attempts[i], store.Failed)
			told[i] = v.Admitted()
			return err
		})
		n := 0
		for _, t := range told {
			if t {
				n++
			}
		}
		if n != limit {
			s.broken("%d outcomes of %d were told, the limit is %d", n, crowd, limit)
		}
		late := at("bob", "late", limit)
		if v := s.settle(l, &late, store.Succeeded); v.Admitted() {
			s.broken("a success was told behind a lock: %+v", v)
		}
		s.shut(l, at("bob", "late", limit), 1, 2*time.Hour)
	},
}, {
	name: "attempts reserve what is left",
	why:  "let no more attempts be under way than failures are left, once there is one, and send the surplus back for a second: those would be checked in vain",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		var crowd [50]store.Attempt
		for i := range crowd { // none has failed: a crowd of the innocent
			crowd[i] = by("a", 5)
			if v := s.begin(l, &crowd[i]); !v.Admitted() || crowd[i].Ticket != 0 {
				s.broken("attempt %d with no failure before it: %+v, ticket %d", i, v, crowd[i].Ticket)
			}
		}
		s.settle(l, &crowd[0], store.Failed)
		s.fits(l, 4, func() store.Attempt { return by("a", 5) })
		always := func() store.Attempt {
			a := by("always", 5)
			a.Reserve = store.ReserveAlways
			return a
		}
		s.fits(l, 5, always)
	},
}, {
	name: "a reserved place comes back",
	why:  "give back what an attempt reserved when it is settled, whatever the outcome, and only what it reserved: otherwise honest clients lock themselves out (wazuh#39361)",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		s.tried(l, by("a", 3), store.Failed)
		for i, o := range []store.Outcome{store.Ignored, store.Succeeded, store.Ignored, store.Succeeded} {
			s.fitsAs(l, 2, o, func() store.Attempt { return by("a", 3) })
			idle := by("a", 3) // begun by nobody: it holds no place
			s.settle(l, &idle, store.Ignored)
			if v := s.begin(l, &idle); !v.Admitted() {
				s.broken("after round %d: %+v", i, v)
			}
			s.settle(l, &idle, store.Ignored)
		}
		s.tried(l, by("a", 3), store.Failed)
		s.tried(l, by("a", 3), store.Failed)
		s.shut(l, by("a", 3), 0, 2*time.Hour)
	},
}, {
	name: "to look reserves nothing",
	why:  "reserve nothing and change nothing for an attempt that only looks (ReserveNever)",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		s.tried(l, by("a", 2), store.Failed)
		for range 10 {
			a := by("a", 2)
			a.Reserve = store.ReserveNever
			if v := s.begin(l, &a); !v.Admitted() || a.Ticket != 0 {
				s.broken("%+v, ticket %d", v, a.Ticket)
			}
		}
		s.fits(l, 1, func() store.Attempt { return by("a", 2) })
	},
}, {
	name: "a success clears the account and not the address",
	why:  "take back the failures of the account that a success proves, and no others (requirement L4): the address may have guessed at many",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		for range 2 {
			s.tried(l, at("bob", "a", 3), store.Failed)
		}
		s.tried(l, at("bob", "b", 3), store.Succeeded)
		if v := s.tried(l, at("bob", "a", 3), store.Failed); v.Failures != 3 || v.Started != 0 {
			s.broken("the third failure of the address, the first of the account since: %+v", v)
		}
		s.tried(l, at("eve", "a", 3), store.Succeeded)
		if v := s.tried(l, at("bob", "a", 3), store.Failed); v.Failures != 4 {
			s.broken("the fourth failure of the address: %+v", v)
		}
	},
}, {
	name: "a success can clear its own failures only",
	why:  "take back, where the success clears its own (OwnOnly), what this caller has failed and leave what others have: a mail client that signs in every few minutes would else give a guesser new attempts each time",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		own := func(address string) store.Attempt {
			a := at("bob", address, 5)
			a.Account.OwnOnly = true
			return a
		}
		for _, address := range []string{"thief", "bob", "thief", "bob"} {
			s.tried(l, own(address), store.Failed)
		}
		s.tried(l, own("bob"), store.Succeeded)
		s.tried(l, own("bob"), store.Failed) // known now, and counted apart
		s.tried(l, own("bob"), store.Succeeded)
		for i := range 3 {
			if v := s.tried(l, own("thief"), store.Failed); (v.Started != 0) != (i == 2) {
				s.broken("failure %d of the thief's five: %+v", i+3, v)
			}
		}
	},
}, {
	name: "a caller that is known is admitted to a locked account",
	why:  "admit to a locked account who has signed in to it lately, count that one's failures apart, and lift no lock by its success (requirements L3, L11)",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		s.tried(l, at("bob", "home", 2), store.Succeeded)
		for range 2 {
			s.tried(l, at("bob", "thief", 2), store.Failed)
		}
		s.shut(l, at("bob", "elsewhere", 2), 1, 2*time.Hour)
		if v := s.tried(l, at("bob", "home", 2), store.Succeeded); !v.Known {
			s.broken("the caller is not told as known: %+v", v)
		}
		s.shut(l, at("bob", "elsewhere", 2), 1, 2*time.Hour)
		s.tried(l, at("bob", "home", 2), store.Failed)
		if v := s.tried(l, at("bob", "home", 2), store.Failed); v.Started != 2 {
			s.broken("the second failure of the known caller: %+v, want a lock of its own", v)
		}
		s.shut(l, at("bob", "home", 2), 1, 2*time.Hour)
		s.tried(l, at("eve", "home", 2), store.Succeeded)
		admitted := at("bob", "console", 2)
		admitted.Account.Admitted = true
		s.tried(l, admitted, store.Succeeded)
		forgotten := at("bob", "console", 2)
		forgotten.Account.Remember = 0
		s.shut(l, forgotten, 1, 2*time.Hour)
	},
}, {
	name: "windows and locks end",
	why:  "forget failures when their window ends, counted from the first of them, and locks when their time is over",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		brief := store.LockLimit{Max: 2, Window: 300 * time.Millisecond, Lockout: 300 * time.Millisecond}
		a := store.Attempt{Counters: []store.Counter{counterOf("brief", "a", brief)}}
		s.tried(l, a, store.Failed)
		s.eventually("the end of the window", func() bool {
			return s.tried(l, a, store.Failed).Failures == 1 || s.locksIn(l, "brief") > 0
		})
		s.eventually("the lock", func() bool {
			if s.locksIn(l, "brief") == 0 {
				s.tried(l, a, store.Failed)
			}
			return s.locksIn(l, "brief") == 1
		})
		s.eventually("the end of the lock", func() bool {
			b := a
			v := s.begin(l, &b)
			if !v.Admitted() && v.RetryAfter > brief.Lockout {
				s.broken("a lock of %v holds for another %v", brief.Lockout, v.RetryAfter)
			}
			return v.Admitted()
		})
		if v := s.tried(l, a, store.Failed); v.Failures != 1 {
			s.broken("the first failure after a lock: %+v", v)
		}
	},
}, {
	name: "the longest lock is blamed",
	why:  "tell, where several locks are in the way, the one that ends last",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		a := at("bob", "a", 1)
		a.Counters[0].Limit = store.LockLimit{Max: 1, Window: time.Hour, Lockout: time.Hour}
		if v := s.tried(l, a, store.Failed); v.Started != 3 {
			s.broken("a failure that locks both: %+v", v)
		}
		s.shut(l, a, 1, 2*time.Hour)
		a.Account = store.Account{}
		s.shut(l, a, 0, time.Hour)
	},
}, {
	name: "distinct ids are counted once each",
	why:  "count, in a counter marked First, only what is the first failure of the counter before it (requirement L12): that makes it a count of distinct credential ids",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		pair := func(id string) store.Attempt {
			spray := counterOf("spray", "a", lockedFor(3))
			spray.First = true
			return store.Attempt{Counters: []store.Counter{counterOf("pair", "a"+id, lockedFor(10)), spray}}
		}
		for range 3 {
			s.tried(l, pair("1"), store.Failed)
			s.tried(l, pair("2"), store.Failed)
		}
		s.tried(l, pair("2"), store.Succeeded)
		if v := s.tried(l, pair("3"), store.Failed); v.Started != 2 {
			s.broken("the first failure of a third id: %+v", v)
		}
		s.shut(l, pair("1"), 1, 2*time.Hour)
	},
}, {
	name: "an unlocked counter begins anew",
	why:  "lift a lock, and clear the count, when an operator says so, for this key and caller alone",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		for _, address := range []string{"a", "b"} {
			for range 2 {
				s.tried(l, by(address, 2), store.Failed)
			}
		}
		if n := s.locksIn(l, "address"); n != 2 {
			s.broken("%d locks are listed, there are 2", n)
		}
		for i, want := range []bool{true, false} {
			if was, err := l.Unlock(s.Context(), "address", by("a", 2).Counters[0].Key, store.Key{}); err != nil || was != want {
				s.broken("Unlock, time %d: %v, %v", i+1, was, err)
			}
		}
		if v := s.tried(l, by("a", 2), store.Failed); v.Failures != 1 || v.Started != 0 {
			s.broken("the first failure after Unlock: %+v", v)
		}
		s.shut(l, by("b", 2), 0, 2*time.Hour)
	},
}, {
	name: "a spray pushes out no lock",
	why:  "keep a bounded number of counters, drop those with the fewest failures first and locks last: otherwise made-up names free who is locked",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		l.ConfigureLocks(store.LockScope{Name: "address", MaxKeys: 50})
		bounded := l.LockSize("address").Max != 0 // else it lives elsewhere, and drops what has ended only
		for range 5 {
			s.tried(l, by("locked", 5), store.Failed)
		}
		for range 4 {
			s.tried(l, by("near", 5), store.Failed)
		}
		for i := range 500 {
			s.tried(l, by(fmt.Sprint("k", i), 5), store.Failed)
			if got := l.LockSize("address"); bounded && (got.Keys > 50 || got.Max != 50) {
				s.broken("after %d names under a bound of 50: %+v", i, got)
			}
		}
		s.shut(l, by("locked", 5), 0, 2*time.Hour)
		if v := s.tried(l, by("near", 5), store.Failed); v.Started != 1 {
			s.broken("the fifth failure of a key that had four: %+v", v)
		}
		if got := l.LockSize("address"); bounded && (got.Locked != 2 || got.Evicted == 0) {
			s.broken("two locks and a spray: %+v", got)
		}
	},
}, {
	name: "a closed store counts no failures",
	why:  "answer ErrClosed after Close, and panic at nothing",
	test: func(s *subject) {
		l := s.locker()
		if l == nil {
			return
		}
		_ = s.store.Close()
		a := at("bob", "a", 3)
		_, begin := l.Begin(s.Context(), &a)
		_, settle := l.Settle(s.Context(), &a, store.Failed)
		_, unlock := l.Unlock(s.Context(), "account", a.Account.Key, store.Key{})
		_, locks := l.Locks(s.Context(), "account", 10, nil)
		for verb, err := range map[string]error{"Begin": begin, "Settle": settle, "Unlock": unlock, "Locks": locks} {
			if !isClosed(err) {
				s.broken("%s: %v", verb, err)
			}
		}
		l.LockSize("account")
		l.ConfigureLocks(store.LockScope{Name: "account"})
	},
}}

// locker returns the store's power to count failures, or nil.
func (s *subject) locker() store.Locker {
	l, _ := s.store.(store.Locker)
	return l
}

func (s *subject) begin(l store.Locker, a *store.Attempt) store.LockVerdict {
	s.Helper()
	v, err := l.Begin(s.Context(), a)
	if err != nil {
		s.broken("Begin(%+v) failed: %v", *a, err)
	}
	s.soundLock("Begin", a, v)
	return v
}

func (s *subject) settle(l store.Locker, a *store.Attempt, o store.Outcome) store.LockVerdict {
	s.Helper()
	v, err := l.Settle(s.Context(), a, o)
	if err != nil {
		s.broken("Settle(%+v, %d) failed: %v", *a, o, err)
	}
	s.soundLock("Settle", a, v)
	return v
}

func (s *subject) soundLock(verb string, a *store.Attempt, v store.LockVerdict) {
	s.Helper()
	if v.Refused < -1 || v.Refused > len(a.Counters) || v.Admitted() != (v.RetryAfter == 0) || v.RetryAfter < 0 {
		s.broken("%s(%+v) answers %+v", verb, *a, v)
	}
}

// tried claims that the attempt is admitted and its outcome told.
func (s *subject) tried(l store.Locker, a store.Attempt, o store.Outcome) store.LockVerdict {
	s.Helper()
	if v := s.begin(l, &a); !v.Admitted() {
		s.broken("Begin(%+v) refused: %+v", a, v)
	}
	v := s.settle(l, &a, o)
	if !v.Admitted() {
		s.broken("Settle(%+v, %d) withheld: %+v", a, o, v)
	}
	return v
}

// shut claims that a lock of about that length refuses the attempt, and which.
func (s *subject) shut(l store.Locker, a store.Attempt, counter int, lockout time.Duration) store.LockVerdict {
	s.Helper()
	v := s.begin(l, &a)
	if v.Admitted() || v.Full || v.Refused != counter || v.RetryAfter > lockout || v.RetryAfter < lockout-time.Minute {
		s.broken("Begin(%+v): %+v, want a lock of counter %d for about %v", a, v, counter, lockout)
	}
	return v
}

// fits claims how many attempts may be under way at once.
func (s *subject) fits(l store.Locker, want int, a func() store.Attempt) {
	s.Helper()
	s.fitsAs(l, want, store.Ignored, a)
}

// fitsAs is fits, and settles those that were under way with an outcome.
func (s *subject) fitsAs(l store.Locker, want int, o store.Outcome, a func() store.Attempt) {
	s.Helper()
	under := make([]store.Attempt, want)
	for i := range under {
		under[i] = a()
		if v := s.begin(l, &under[i]); !v.Admitted() || under[i].Ticket == 0 {
			s.broken("attempt %d of %d that fit: %+v, ticket %d", i+1, want, v, under[i].Ticket)
		}
	}
	surplus := a()
	if v := s.begin(l, &surplus); v.Admitted() || !v.Full || v.RetryAfter != time.Second || surplus.Ticket != 0 {
		s.broken("attempt %d where %d fit: %+v, ticket %d", want+1, want, v, surplus.Ticket)
	}
	for i := range under {
		s.settle(l, &under[i], o)
	}
}

// locksIn returns how many locks a scope lists.
func (s *subject) locksIn(l store.Locker, scope string) int {
	s.Helper()
	locks, err := l.Locks(s.Context(), scope, 1000, nil)
	if err != nil {
		s.broken("Locks(%q) failed: %v", scope, err)
	}
	return len(locks)
}
