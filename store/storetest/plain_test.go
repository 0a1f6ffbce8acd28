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
	windows map[place]*plainWindow
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

type plainWindow struct {
	used  float64
	last  time.Time
	begun time.Time // of "windows begin with the first request"
	limit float64   // of the first call in the window
}

var (
	_ store.Peeker     = (*plain)(nil)
	_ store.Configurer = (*plain)(nil)
	_ store.Sizer      = (*plain)(nil)
)

func newPlain(defect string) *plain {
	return &plain{
		defect: defect, base: time.Now(), buckets: map[place]*plainBucket{}, windows: map[place]*plainWindow{},
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
	tally := tally{p: p, now: p.base.Add(now), asked: map[place]float64{}, counted: map[place]float64{}}
	start := len(dst)
	for i, c := range checks {
		at := p.placeOf(c)
		if c.Window > 0 {
			st := tally.ask(at, c)
			if st.Wait > v.RetryAfter && (!c.Shadow || p.is("a shadow refuses")) {
				v = store.Verdict{Refused: i, RetryAfter: st.Wait}
			}
			dst = append(dst, st)
			continue
		}
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
	tally.settle(checks, dst[start:], v, spend)
	for i, c := range checks {
		at := p.placeOf(c)
		if c.Window > 0 {
			continue
		}
		if v.Admitted() {
			dst[start+i].Tokens = left[at]
		} else {
			dst[start+i].Tokens = p.tokens(at, c.Limit, now)
		}
	}
	if spend && (v.Admitted() || p.is("a refused request leaves a key")) {
		for i, c := range checks {
			if dst[start+i].Wait == 0 && c.Window == 0 {
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
		for k, w := range p.windows {
			used := w.used
			if p.is("the drained are dropped") {
				used = -used
			}
			if k.scope == at.scope && k.key != (store.Key{}) && used < best {
				victim, best = k, used
			}
		}
		delete(p.buckets, victim)
		delete(p.windows, victim)
		p.evicted[at.scope]++
	}
}

// tally decides the windows of one call.
type tally struct {
	p       *plain
	now     time.Time
	asked   map[place]float64 // by earlier checks of the call
	counted map[place]float64 // of them, what is counted in the end
}

func (t *tally) ask(at place, c store.Check) store.State {
	st := store.State{Reset: t.p.end(at, c, t.now).Sub(t.now)}
	limit, sane := c.Limit.Burst, c.Cost >= 0 && !math.IsInf(c.Cost, 1)
	if w := t.p.windows[at]; w != nil && t.p.is("a raised limit waits for the next window") {
		limit = min(limit, w.limit)
	}
	sum := c.Cost
	if !t.p.is("duplicates are judged alone") {
		sum += t.asked[at]
	}
	switch {
	case sane && t.p.used(at, c, t.now)+sum <= limit:
	case !sane || !(sum <= c.Limit.Burst):
		st.Wait = store.Never
	case t.p.is("the wait of a window is its length"):
		st.Wait = c.Window
	default:
		st.Wait = st.Reset
	}
	if st.Wait == 0 || !c.Shadow || c.Always {
		t.asked[at] += c.Cost
	}
	return st
}

// settle counts what is to be counted and tells what that leaves.
func (t *tally) settle(checks []store.Check, states []store.State, v store.Verdict, spend bool) {
	arrives := func(c store.Check) bool {
		return c.Always && !t.p.is("arrivals count only if they pass") || t.p.is("a refused request is counted in its window")
	}
	for i, c := range checks {
		passed := v.Admitted() && states[i].Wait == 0
		if at := t.p.placeOf(c); c.Window > 0 && c.Cost > 0 && !math.IsInf(c.Cost, 1) && (passed || arrives(c)) {
			t.counted[at] += c.Cost
		}
	}
	for i, c := range checks {
		at := t.p.placeOf(c)
		if c.Window == 0 {
			continue
		}
		states[i].Tokens = c.Limit.Burst - t.p.used(at, c, t.now) - t.counted[at]
		if !t.p.is("a lowered limit leaves less than nothing") {
			states[i].Tokens = max(0, states[i].Tokens)
		}
	}
	for _, c := range checks {
		if at := t.p.placeOf(c); spend && c.Window > 0 && t.counted[at] > 0 {
			t.p.count(at, c, t.now, t.counted[at])
			delete(t.counted, at)
		}
	}
}

// end is when the window ends that now, or the last write if that was later,
// lies in.
func (p *plain) end(at place, c store.Check, now time.Time) time.Time {
	w := p.windows[at]
	if w != nil && w.last.After(now) && !p.is("the clock rewinds") {
		now = w.last
	}
	if p.is("windows begin with the first request") {
		if w != nil && now.Before(w.begun.Add(c.Window)) {
			return w.begun.Add(c.Window)
		}
		return now.Add(c.Window)
	}
	return now.Add(c.Window - time.Duration(now.UnixNano()%int64(c.Window)))
}

// used is the count in the window.
func (p *plain) used(at place, c store.Check, now time.Time) float64 {
	w := p.windows[at]
	if w == nil || w.last.Before(p.end(at, c, now).Add(-c.Window)) || p.is("the clock rewinds") && !w.last.Before(p.end(at, c, now)) {
		return 0
	}
	return w.used
}

func (p *plain) count(at place, c store.Check, now time.Time, cost float64) {
	used, end := p.used(at, c, now), p.end(at, c, now)
	w := p.windows[at]
	if w == nil {
		p.makeRoom(at, now.Sub(p.base))
		w = &plainWindow{}
		p.windows[at] = w
	}
	if used == 0 {
		w.begun, w.limit = end.Add(-c.Window), c.Limit.Burst
	}
	w.used = used + cost
	if now.After(w.last) || p.is("the clock rewinds") {
		w.last = now
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
		if w := p.windows[p.placeOf(c)]; w != nil && p.is("a refund reaches windows") {
			w.used = max(0, w.used-c.Cost)
		}
		b := p.buckets[p.placeOf(c)]
		switch {
		case c.Window > 0:
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
	clear(p.windows)
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
	for k := range p.windows {
		if k.scope == name {
			delete(p.windows, k)
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
	for k := range p.windows {
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
