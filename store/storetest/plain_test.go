package storetest

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/store"
)

// plain is a store as one would explain it: a map under a lock. It passes the
// suite; each defect, switched on, is a mistake that some limiter really made.
type plain struct {
	defect  string
	mu      sync.Mutex
	buckets map[place]*plainBucket
	scopes  map[string]store.Scope
	evicted map[string]uint64
	closed  bool
	base    time.Time
	calls   atomic.Int64
	states  []store.State // kept by "retains dst"
	checks  []store.Check // kept by "retains checks"
}

type place struct {
	scope string
	key   store.Key
}

type plainBucket struct {
	tokens float64
	last   time.Duration
	limit  store.Limit // of the last write
	first  store.Limit
}

var (
	_ store.Peeker     = (*plain)(nil)
	_ store.Configurer = (*plain)(nil)
	_ store.Sizer      = (*plain)(nil)
)

func newPlain(defect string) *plain {
	return &plain{
		defect: defect, base: time.Now(), buckets: map[place]*plainBucket{},
		scopes: map[string]store.Scope{}, evicted: map[string]uint64{},
	}
}

func (p *plain) is(defect string) bool { return p.defect == defect }

func (p *plain) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	if p.is("a crowd overspends") {
		// Decide in one critical section and spend in another.
		v, dst, err := p.decide(checks, dst, false)
		if err != nil || !v.Admitted() {
			return v, dst, err
		}
		runtime.Gosched()
		for _, c := range checks {
			p.decide([]store.Check{shadowed(c)}, nil, true)
		}
		return v, dst, nil
	}
	if p.is("spends before it refuses") || p.is("spends, then gives back") {
		return p.oneByOne(ctx, checks, dst)
	}
	return p.decide(checks, dst, true)
}

// oneByOne spends check by check, as a chain of independent limiters does.
func (p *plain) oneByOne(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	v, states, err := p.decide(checks, dst, false)
	if err != nil {
		return v, dst, err
	}
	for i := range checks {
		w, _, _ := p.decide(checks[i:i+1], nil, true)
		if w.Admitted() {
			runtime.Gosched()
			continue
		}
		if p.is("spends, then gives back") {
			_ = p.Refund(ctx, checks[:i])
		}
		if v.Admitted() { // someone else was faster
			v = store.Verdict{Refused: i, RetryAfter: w.RetryAfter}
		}
		break
	}
	return v, states, nil
}

func (p *plain) Peek(_ context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return p.decide(checks, dst, p.is("peek spends"))
}

func (p *plain) decide(checks []store.Check, dst []store.State, spend bool) (store.Verdict, []store.State, error) {
	now := time.Since(p.base)
	if p.is("the clock rewinds") && p.calls.Add(1)%4 == 0 {
		now -= time.Millisecond // read before a long wait for the lock
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return store.Verdict{}, dst, store.ErrClosed
	}
	if p.is("dst is overwritten") {
		dst = dst[:0]
	}
	v := store.Verdict{Refused: -1}
	left := map[place]float64{}
	start := len(dst)
	for i, c := range checks {
		at := p.placeOf(c)
		if _, ok := left[at]; !ok || p.is("duplicates are judged alone") {
			left[at] = p.tokens(at, c.Limit, now)
		}
		st := store.State{}
		if c.Cost >= 0 && left[at]-c.Cost >= -1e-9 || p.is("one above the burst") && left[at]-c.Cost >= -1 && c.Cost <= c.Limit.Burst {
			left[at] = max(0, left[at]-c.Cost)
		} else {
			st.Wait = p.wait(left[at], now, at, c, checks[:i])
			if st.Wait > v.RetryAfter && (!c.Shadow || p.is("a shadow refuses")) && (v.Admitted() || !p.is("the first is blamed")) {
				v = store.Verdict{Refused: i, RetryAfter: st.Wait}
			}
		}
		dst = append(dst, st)
	}
	for i, c := range checks {
		at := p.placeOf(c)
		if v.Admitted() {
			dst[start+i].Tokens = left[at]
		} else {
			dst[start+i].Tokens = p.tokens(at, c.Limit, now)
		}
	}
	if spend && (v.Admitted() || p.is("a refused request leaves a key")) {
		for i, c := range checks {
			if dst[start+i].Wait == 0 {
				tokens := left[p.placeOf(c)]
				if !v.Admitted() {
					tokens = p.tokens(p.placeOf(c), c.Limit, now)
				}
				p.write(p.placeOf(c), tokens, c.Limit, now)
			}
		}
	}
	p.misuse(checks, dst)
	return v, dst, nil
}

// misuse keeps the caller's slices, or writes to them.
func (p *plain) misuse(checks []store.Check, dst []store.State) {
	switch p.defect {
	case "retains dst":
		if len(p.states) > 0 {
			p.states[0].Tokens = 0
		}
		p.states = dst
	case "retains checks": // and takes what they say now for what was asked then
		for _, c := range p.checks {
			if b := p.buckets[p.placeOf(c)]; b != nil {
				b.tokens = max(0, b.tokens-c.Cost/1000)
			} else {
				p.write(p.placeOf(c), max(0, c.Limit.Burst-c.Cost), c.Limit, time.Since(p.base))
			}
		}
		p.checks = checks
	case "changes checks":
		for i := range checks {
			checks[i].Cost = 0
		}
	}
}

// tokens returns what the bucket holds now.
func (p *plain) tokens(at place, l store.Limit, now time.Duration) float64 {
	b := p.buckets[at]
	if b == nil {
		return l.Burst
	}
	if p.is("the limit is that of the first call") {
		l = b.first
	}
	t := b.tokens
	if l.Rate > 0 && now > b.last {
		t += (now - b.last).Seconds() * l.Rate
	}
	if p.is("refill knows no burst") {
		return t
	}
	if p.is("refunds know no burst") {
		return min(t, max(l.Burst, b.tokens))
	}
	return min(t, l.Burst)
}

// wait searches nothing: it divides, and adds a nanosecond for the rounding.
func (p *plain) wait(left float64, now time.Duration, at place, c store.Check, before []store.Check) time.Duration {
	sum := c.Cost
	for _, b := range before {
		if p.placeOf(b) == at && !b.Shadow {
			sum += b.Cost
		}
	}
	if !(sum <= c.Limit.Burst) || !(c.Limit.Rate > 0) || !(c.Cost >= 0) {
		if p.is("never is soon") {
			return 100 * time.Millisecond
		}
		return store.Never
	}
	ns := (c.Cost-left)/c.Limit.Rate*1e9 + 1
	if b := p.buckets[at]; b != nil && b.last > now {
		ns += float64(b.last - now)
	}
	if p.is("the wait is half") {
		ns /= 2
	}
	if ns >= math.MaxInt64/2 {
		return store.Never
	}
	return time.Duration(ns)
}

func (p *plain) write(at place, tokens float64, l store.Limit, now time.Duration) {
	b := p.buckets[at]
	if b == nil {
		if tokens >= l.Burst && !p.is("a refused request leaves a key") {
			return
		}
		p.makeRoom(at, now)
		b = &plainBucket{first: l}
		p.buckets[at] = b
	}
	b.tokens, b.limit = tokens, l
	if now > b.last || p.is("the clock rewinds") {
		b.last = now
	}
}

// makeRoom drops the bucket nearest to full when the scope is at its bound.
func (p *plain) makeRoom(at place, now time.Duration) {
	bound, ok := p.scopes[at.scope]
	if !ok || bound.MaxKeys == 0 || p.is("keys are unbounded") || at.key == (store.Key{}) {
		return
	}
	for p.keys(at.scope) >= bound.MaxKeys {
		var victim place
		best := math.Inf(1)
		for k, b := range p.buckets {
			missing := b.limit.Burst - p.tokens(k, b.limit, now)
			if p.is("the drained are dropped") {
				missing = -missing
			}
			if k.scope == at.scope && k.key != (store.Key{}) && missing < best {
				victim, best = k, missing
			}
		}
		delete(p.buckets, victim)
		p.evicted[at.scope]++
	}
}

func (p *plain) placeOf(c store.Check) place {
	switch p.defect {
	case "scopes share keys":
		return place{"", c.Key}
	case "names are joined":
		joined := c.Scope + string(c.Key[:])
		for i := len(joined) - 1; i >= 0 && joined[i] == 0; i-- {
			joined = joined[:i]
		}
		return place{joined, store.Key{}}
	}
	return place{c.Scope, c.Key}
}

func (p *plain) Refund(_ context.Context, checks []store.Check) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		if p.is("refund ignores close") {
			return nil
		}
		return store.ErrClosed
	}
	for _, c := range checks {
		b := p.buckets[p.placeOf(c)]
		switch {
		case b == nil && p.is("a stranger's refund is an error"):
			return errors.New("no such key")
		case b == nil || p.is("refunds are lost") || !(c.Cost > 0):
		case p.is("refunds know no burst"):
			b.tokens += c.Cost
		default:
			b.tokens = min(c.Limit.Burst, b.tokens+c.Cost)
		}
	}
	return nil
}

func (p *plain) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed && p.is("close is once") {
		return store.ErrClosed
	}
	p.closed = true
	clear(p.buckets)
	return nil
}

func (p *plain) Configure(sc store.Scope) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scopes[sc.Name] = sc
}

func (p *plain) Drop(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.buckets {
		if k.scope == name {
			delete(p.buckets, k)
		}
	}
}

func (p *plain) keys(scope string) int {
	n := 0
	for k := range p.buckets {
		if k.scope == scope && k.key != (store.Key{}) {
			n++
		}
	}
	return n
}

func (p *plain) Size(scope string) store.Size {
	p.mu.Lock()
	defer p.mu.Unlock()
	return store.Size{Keys: p.keys(scope), Max: p.scopes[scope].MaxKeys, Evicted: p.evicted[scope]}
}

// bare hides every optional power of a store.
type bare struct{ store.Store }
