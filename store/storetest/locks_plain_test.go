package storetest

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-go/weir/store"
)

// plainLocks is failure counters as one would explain them: a map under a
// lock, nothing dropped before a scope is full, everything searched for. Each
// defect, switched on, is a mistake that some lockout really made.
type plainLocks struct {
	*plain
	lockDefect string
	book       sync.Mutex
	counters   map[counterPlace]*plainCounter
	known      map[counterPlace]time.Duration // last sign-in of a caller
	bounds     map[string]int
	evicted    map[string]uint64
	tickets    uint64
	shut       bool
}

type counterPlace struct {
	scope       string
	key, caller store.Key
}

type plainCounter struct {
	failures int
	ends     time.Duration // the window, or the lock
	locked   bool
	reserved map[uint64]time.Duration // until when, by ticket
}

func newPlainLocks(defect string) *plainLocks {
	return &plainLocks{
		plain: newPlain(""), lockDefect: defect, counters: map[counterPlace]*plainCounter{},
		known: map[counterPlace]time.Duration{}, bounds: map[string]int{}, evicted: map[string]uint64{},
	}
}

func (p *plainLocks) has(defect string) bool { return p.lockDefect == defect }

// counter returns a counter as it is now, made if it is not there.
func (p *plainLocks) counter(at counterPlace, now time.Duration) *plainCounter {
	c := p.counters[at]
	if c == nil {
		c = &plainCounter{reserved: map[uint64]time.Duration{}}
		p.counters[at] = c
	}
	if c.failures > 0 && now >= c.ends {
		c.failures, c.locked = 0, false
	}
	for ticket, until := range c.reserved {
		if until <= now {
			delete(c.reserved, ticket)
		}
	}
	return c
}

type plainAsked struct {
	store.Counter
	at counterPlace
}

func (p *plainLocks) ask(a *store.Attempt, now time.Duration) (list []plainAsked, known bool) {
	for _, c := range a.Counters {
		list = append(list, plainAsked{c, counterPlace{c.Scope, c.Key, store.Key{}}})
	}
	acc := a.Account
	if acc.Scope == "" {
		return list, false
	}
	at := counterPlace{acc.Scope, acc.Key, store.Key{}}
	last, ok := p.known[counterPlace{acc.Scope, acc.Key, acc.Caller}]
	if acc.Admitted || ok && acc.Remember > 0 && now-last <= acc.Remember {
		at.caller, known = acc.Caller, true
	}
	return append(list, plainAsked{acc.Counter, at}), known
}

func (p *plainLocks) longest(list []plainAsked, now time.Duration) store.LockVerdict {
	v := store.LockVerdict{Refused: -1}
	for i, q := range list {
		if c := p.counter(q.at, now); c.locked && c.ends-now > v.RetryAfter {
			v.Refused, v.RetryAfter = i, c.ends-now
			if p.has("the first lock is blamed") {
				break
			}
		}
	}
	return v
}

func (p *plainLocks) Begin(_ context.Context, a *store.Attempt) (store.LockVerdict, error) {
	p.book.Lock()
	defer p.book.Unlock()
	a.Ticket = 0
	if p.shut {
		return store.LockVerdict{Refused: -1}, store.ErrClosed
	}
	now := time.Since(p.base)
	list, known := p.ask(a, now)
	v := p.longest(list, now)
	v.Known = known
	if !v.Admitted() && p.has("a refused attempt extends the lock") {
		for _, q := range list {
			if c := p.counter(q.at, now); c.locked {
				c.ends = now + 2*q.Limit.Lockout
			}
		}
	}
	if !v.Admitted() || a.Reserve == store.ReserveNever && !p.has("to look reserves") {
		return v, nil
	}
	for i, q := range list {
		c := p.counter(q.at, now)
		if n := len(c.reserved); !q.First && n > 0 && c.failures+n >= q.Limit.Max {
			return store.LockVerdict{Refused: i, RetryAfter: time.Second, Full: true, Known: known}, nil
		}
	}
	for _, q := range list {
		c := p.counter(q.at, now)
		if !q.First && (c.failures > 0 || a.Reserve == store.ReserveAlways) && !p.has("nothing is reserved") {
			if a.Ticket == 0 {
				p.tickets++
				a.Ticket = p.tickets
			}
			c.reserved[a.Ticket] = now + store.ReservationTTL
		}
	}
	return v, nil
}

func (p *plainLocks) AdmitAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt) (store.Verdict, []store.State, store.LockVerdict, error) {
	a.Ticket = 0
	open := store.LockVerdict{Refused: -1}
	if p.has("an attempt is begun first") {
		_, _ = p.Begin(ctx, a)
		a.Ticket = 0
	}
	v, states, err := p.Admit(ctx, checks, dst)
	if err != nil || !v.Admitted() {
		return v, states, open, err
	}
	if p.has("an attempt is never begun") {
		return v, states, open, nil
	}
	lock, err := p.Begin(ctx, a)
	if !lock.Admitted() && p.has("the locked get their tokens back") {
		_ = p.Refund(ctx, checks)
	}
	if err != nil {
		return store.Verdict{}, dst, lock, err
	}
	return v, states, lock, nil
}

func (p *plainLocks) Settle(_ context.Context, a *store.Attempt, o store.Outcome) (store.LockVerdict, error) {
	if p.has("counts in two steps") {
		p.book.Lock()
		list, _ := p.ask(a, time.Since(p.base))
		v := p.longest(list, time.Since(p.base))
		p.book.Unlock()
		if !v.Admitted() {
			return v, nil
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	p.book.Lock()
	defer p.book.Unlock()
	if p.shut {
		return store.LockVerdict{Refused: -1}, store.ErrClosed
	}
	now := time.Since(p.base)
	if !p.has("a place is not given back") {
		for _, c := range p.counters {
			delete(c.reserved, a.Ticket)
		}
	}
	if o == store.Ignored {
		return store.LockVerdict{Refused: -1}, nil
	}
	list, known := p.ask(a, now)
	v := p.longest(list, now)
	if v.Known = known; !v.Admitted() && !p.has("counts in two steps") {
		return v, nil
	}
	v = store.LockVerdict{Refused: -1, Known: known}
	if o == store.Failed {
		p.fail(a, list, now, &v)
	} else {
		p.succeed(a, now, known)
	}
	return v, nil
}

func (p *plainLocks) fail(a *store.Attempt, list []plainAsked, now time.Duration, v *store.LockVerdict) {
	for i, q := range list {
		if q.First && p.counter(list[i-1].at, now).failures != 1 {
			continue
		}
		p.makeRoom(q.at, now)
		c := p.counter(q.at, now)
		if p.count(c, now, q.Limit, q.Limit.Max) {
			v.Started |= 1 << i
		}
		if i == 0 && len(a.Counters) > 0 {
			v.Failures = c.failures
		}
	}
	if acc := a.Account; acc.OwnOnly && acc.Scope != "" && !v.Known {
		own := p.counter(counterPlace{acc.Scope, acc.Key, acc.Caller}, now)
		if own.failures < acc.Limit.Max-1 {
			p.count(own, now, acc.Limit, acc.Limit.Max)
		}
	}
}

func (p *plainLocks) count(c *plainCounter, now time.Duration, l store.LockLimit, max int) (locks bool) {
	if c.failures == 0 {
		c.ends = now + l.Window
	}
	if p.has("locks one too late") {
		max++
	}
	if c.failures++; c.failures >= max {
		c.locked, c.ends = true, now+l.Lockout
	}
	return c.locked
}

func (p *plainLocks) succeed(a *store.Attempt, now time.Duration, known bool) {
	if p.has("a success clears the address") {
		for _, c := range a.Counters {
			p.counter(counterPlace{c.Scope, c.Key, store.Key{}}, now).failures = 0
		}
	}
	acc := a.Account
	if acc.Scope == "" {
		return
	}
	own := p.counter(counterPlace{acc.Scope, acc.Key, acc.Caller}, now)
	all := p.counter(counterPlace{scope: acc.Scope, key: acc.Key}, now)
	if p.has("a success lifts the lock") {
		all.locked, all.failures = false, 0
	}
	if !all.locked {
		if acc.OwnOnly && known {
			// Its failures were counted apart.
		} else if acc.OwnOnly && !p.has("a success clears all") {
			all.failures = max(0, all.failures-own.failures)
		} else {
			all.failures = 0
		}
	}
	if !own.locked {
		own.failures = 0
	}
	if acc.Remember > 0 && !p.has("nobody is remembered") {
		who := acc.Caller
		if p.has("anybody is remembered") {
			who = store.Key{}
		}
		p.remember(counterPlace{acc.Scope, acc.Key, who}, now)
	}
}

// remember keeps the newest callers of an account.
func (p *plainLocks) remember(at counterPlace, now time.Duration) {
	p.known[at] = now
	var callers []counterPlace
	for k := range p.known {
		if k.scope == at.scope && k.key == at.key {
			callers = append(callers, k)
		}
	}
	sort.Slice(callers, func(i, j int) bool { return p.known[callers[i]] > p.known[callers[j]] })
	for i := store.KnownCallers; i < len(callers); i++ {
		delete(p.known, callers[i])
	}
}

// makeRoom drops the least of a full scope.
func (p *plainLocks) makeRoom(at counterPlace, now time.Duration) {
	bound := p.bounds[at.scope]
	if bound == 0 || p.counters[at] != nil && !p.idle(p.counters[at]) {
		return
	}
	for p.size(at.scope) >= bound && !p.has("counters are unbounded") {
		var victim counterPlace
		var least *plainCounter
		for k, c := range p.counters {
			if k.scope != at.scope || p.idle(c) {
				continue
			}
			lighter := least == nil || least.locked && !c.locked ||
				least.locked == c.locked && c.failures < least.failures
			if p.has("a spray frees the locked") {
				lighter = least == nil || c.ends < least.ends
			}
			if lighter {
				victim, least = k, c
			}
		}
		delete(p.counters, victim)
		p.evicted[at.scope]++
	}
}

func (p *plainLocks) idle(c *plainCounter) bool { return c.failures == 0 && len(c.reserved) == 0 }

func (p *plainLocks) size(scope string) (n int) {
	for k, c := range p.counters {
		if k.scope == scope && !p.idle(c) {
			n++
		}
	}
	return n
}

func (p *plainLocks) Unlock(_ context.Context, scope string, key, caller store.Key) (bool, error) {
	p.book.Lock()
	defer p.book.Unlock()
	if p.shut {
		return false, store.ErrClosed
	}
	c := p.counter(counterPlace{scope, key, caller}, time.Since(p.base))
	was := c.locked
	if p.has("unlocking keeps the count") {
		c.locked = false
		return was, nil
	}
	c.failures, c.locked = 0, false
	return was, nil
}

func (p *plainLocks) Locks(_ context.Context, scope string, n int, dst []store.Lock) ([]store.Lock, error) {
	p.book.Lock()
	defer p.book.Unlock()
	if p.shut {
		return dst, store.ErrClosed
	}
	now := time.Since(p.base)
	for k := range p.counters {
		if c := p.counter(k, now); k.scope == scope && c.locked && n > 0 {
			dst = append(dst, store.Lock{Key: k.key, Caller: k.caller, Failures: c.failures, Left: c.ends - now})
			n--
		}
	}
	return dst, nil
}

func (p *plainLocks) LockSize(scope string) (s store.LockSize) {
	p.book.Lock()
	defer p.book.Unlock()
	now := time.Since(p.base)
	for k := range p.counters {
		if c := p.counter(k, now); k.scope == scope && c.locked {
			if k.caller == (store.Key{}) {
				s.Locked++
			} else {
				s.Callers++
			}
		}
	}
	for k := range p.known {
		if k.scope == scope {
			s.Known++
		}
	}
	s.Keys, s.Max, s.Evicted = p.size(scope), p.bounds[scope], p.evicted[scope]
	return s
}

func (p *plainLocks) ConfigureLocks(sc store.LockScope) {
	p.book.Lock()
	defer p.book.Unlock()
	p.bounds[sc.Name] = sc.MaxKeys
}

func (p *plainLocks) Close() error {
	p.book.Lock()
	defer p.book.Unlock()
	p.shut = !p.has("counts after close")
	return p.plain.Close()
}

func TestPlainLocksKeepTheContract(t *testing.T) {
	defect := os.Getenv(defectVar)
	if defect != "" {
		patience = 500 * time.Millisecond
	}
	Run(t, func(*testing.T) store.Store { return newPlainLocks(defect) })
}

// As for buckets: a wrong store must fail, by the rule that it breaks.
func TestDefectsOfLocksAreFound(t *testing.T) {
	for _, tt := range []struct{ defect, rule string }{
		{"locks one too late", "the last failure locks"},
		{"a refused attempt extends the lock", "a refused attempt changes nothing"},
		{"counts in two steps", "no more than the limit is told to a crowd"},
		{"nothing is reserved", "attempts reserve what is left"},
		{"a place is not given back", "a reserved place comes back"},
		{"to look reserves", "to look reserves nothing"},
		{"a success clears the address", "a success clears the account and not the address"},
		{"a success clears all", "a success can clear its own failures only"},
		{"a success lifts the lock", "a caller that is known is admitted to a locked account"},
		{"nobody is remembered", "a caller that is known is admitted to a locked account"},
		{"anybody is remembered", "a caller that is known is admitted to a locked account"},
		{"the first lock is blamed", "the longest lock is blamed"},
		{"unlocking keeps the count", "an unlocked counter begins anew"},
		{"counters are unbounded", "a spray pushes out no lock"},
		{"a spray frees the locked", "a spray pushes out no lock"},
		{"counts after close", "a closed store counts no failures"},
		{"an attempt is never begun", "one call admits and begins"},
		{"an attempt is begun first", "a refused request begins no attempt"},
		{"the locked get their tokens back", "who is locked out still pays"},
	} {
		t.Run(tt.defect, func(t *testing.T) {
			t.Parallel()
			if out, failed := breaks(t, tt.defect, tt.rule); !failed {
				t.Errorf("rule %q took no offence\n%s", tt.rule, out)
			}
		})
	}
}

// breaks holds a store with the defect against one rule. Run ends a subtest
// that fails, and with it the test, so it needs a process.
func breaks(t *testing.T, defect, rule string) (out string, failed bool) {
	t.Helper()
	name := strings.ReplaceAll(rule, " ", "_")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPlainLocksKeepTheContract$/^"+name+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), defectVar+"="+defect)
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode() == 1 && strings.Contains(string(raw), "--- FAIL: TestPlainLocksKeepTheContract/"+name)
}
