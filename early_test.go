package weir

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir/store"
)

// oneCall is a sharedLocks that admits and begins in one call.
type oneCall struct {
	*sharedLocks
	together atomic.Int64
}

func newOneCall() *oneCall { return &oneCall{sharedLocks: newSharedLocks()} }

func (s *oneCall) AdmitAttempt(ctx context.Context, checks []store.Check, dst []store.State, a *store.Attempt) (store.Verdict, []store.State, store.LockVerdict, error) {
	a.Ticket = 0
	open := store.LockVerdict{Refused: -1}
	s.together.Add(1)
	if err := s.meet("admit"); err != nil {
		return store.Verdict{}, dst, open, err
	}
	v, states, err := s.Memory.Admit(ctx, checks, dst)
	if err != nil || !v.Admitted() {
		return v, states, open, err
	}
	lock, err := s.Memory.Begin(ctx, a)
	return v, states, lock, err
}

// places is how many are reserved of an address's failures.
func places(t *testing.T, s *store.Memory, l *Limiter, addr string) (held int) {
	t.Helper()
	p := l.policy.Load()
	for {
		a := store.Attempt{Reserve: store.ReserveAlways, Counters: []store.Counter{{
			Scope: p.lock.scopes[lockAddress], Key: l.ask(p, from(addr)).key, Limit: p.lock.limits[lockAddress],
		}}}
		v, err := s.Begin(t.Context(), &a)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Admitted() {
			return p.lock.limits[lockAddress].Max - held
		}
		held++
		defer func() { _, _ = s.Settle(context.Background(), &a, store.Ignored) }()
	}
}

// verdicts is a handler that checks HTTP Basic, or does what the request's header
// Verdict says.
var verdicts = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	info, _ := FromContext(r.Context())
	w.Header().Set("Info", fmt.Sprintf("%s %s %s %.3f %v", info.Class, info.Account, info.Tier, info.Remaining, info.Burst))
	switch r.Header.Get("Verdict") {
	case "none":
		http.Error(w, "not found", http.StatusNotFound)
	case "claim":
		a := AttemptFrom(r.Context())
		defer a.Ignore()
		if _, password, _ := r.BasicAuth(); password == "right" {
			fmt.Fprintln(w, a.Succeed())
		} else {
			fmt.Fprintln(w, a.Fail())
		}
	case "own":
		user, _, _ := r.BasicAuth()
		a, err := limiterOf(r).Attempt(r.Context(), Credential{Account: user})
		if err != nil {
			return
		}
		fmt.Fprintln(w, a.Fail())
	case "panic":
		panic(http.ErrAbortHandler)
	default:
		passwordIs("right").ServeHTTP(w, r)
	}
})

// limiterOf is the Limiter that the request is inside.
func limiterOf(r *http.Request) *Limiter { return visitFrom(r.Context()).l }

// randomRequest makes requests of one random kind.
func randomRequest(r *rand.Rand) func() *http.Request {
	target := []string{"/est", "/est", "/est", "/api", "/token", "/open", "/form", "/form"}[r.IntN(8)]
	addr := []string{addr1, "192.0.2.2", "192.0.2.3", "198.51.100.9", "203.0.113.66"}[r.IntN(5)]
	user := []string{"bob", "eve", "denied", "exempt", "", "\xff"}[min(r.IntN(12), 5)]
	password := []string{"right", "wrong", "wrong"}[r.IntN(3)]
	verdict := []string{"", "", "", "none", "claim", "own", "panic"}[r.IntN(7)]
	bare := r.IntN(8) == 0
	return func() *http.Request {
		q := request("POST", target, addr, "a body")
		switch {
		case bare:
		case target == "/token":
			q.Header.Set("Authorization", "Bearer "+user+password)
		default:
			q.SetBasicAuth(user, password)
		}
		q.Header.Set("Verdict", verdict)
		return q
	}
}

// answerOf is all that a client learns, and when.
func answerOf(h http.Handler, r *http.Request) (text string) {
	w, began := httptest.NewRecorder(), time.Now()
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint("panic ", v)
		}
	}()
	h.ServeHTTP(w, r)
	var header strings.Builder
	_ = w.Header().Write(&header)
	return fmt.Sprintf("%d after %v\n%s\n%s", w.Code, time.Since(began), &header, w.Body)
}

// allMetrics is every metric but those that tell how the store was asked.
func allMetrics(t *testing.T, reg prometheus.Gatherer) (list []string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if name := f.GetName(); name != "weir_store_seconds" && name != "weir_store_errors_total" {
			for _, m := range f.GetMetric() {
				list = append(list, name+" "+m.String())
			}
		}
	}
	slices.Sort(list)
	return list
}

// Whatever is asked, and whatever fails, one call answers what two do, to the letter
// and to the instant, and counts the same.
func TestOneCallAnswersWhatTwoDo(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"tiers": func(*Config) {},
		"held":  func(c *Config) { c.Tiers.MaxWait = Duration(5 * time.Second) },
		"windows": func(c *Config) {
			c.Windows.Enabled, c.Windows.PerSubject, c.Windows.PerAddress, c.Windows.Process = true, 6, 8, 30
		},
		"reserve always":   func(c *Config) { c.AuthLock.ReserveAlways = true },
		"each credential":  func(c *Config) { c.AuthLock.Address.PerCredential = true },
		"lock in shadow":   func(c *Config) { c.Shadow = []string{StageAuthLock} },
		"tier in shadow":   func(c *Config) { c.Shadow = []string{TierPerIP} },
		"on error allow":   func(c *Config) { c.Store.OnError = "allow" },
		"headers always":   func(c *Config) { c.Headers.RateLimit, c.Headers.IETF = "always", true },
		"own failures":     func(c *Config) { c.AuthLock.Account.ClearSameAddress = true },
		"tiers with lease": func(c *Config) { c.Store.Leases = map[string]Duration{TierGlobal: Duration(100 * time.Millisecond)} },
	} {
		t.Run(name, func(t *testing.T) {
			calls := int64(0)
			for seed := range uint64(4) {
				synctest.Test(t, func(t *testing.T) { calls += compareCalls(t, rand.New(rand.NewPCG(seed, 77)), change) })
			}
			if calls < 100 {
				t.Errorf("%d calls for both at once: too few to tell anything", calls)
			}
		})
	}
}

func compareCalls(t *testing.T, r *rand.Rand, change func(*Config)) (calls int64) {
	one, two := newOneCall(), newSharedLocks()
	cfg := lockLimits(func(a *AuthLockConfig) {
		a.Delay.After, a.Address.MaxFailures, a.Account.MaxFailures = 2, 4, 4
	})
	cfg.Store.KeySecret = secret
	cfg.Tiers.Global = TierConfig{Rate: 50, Burst: 500}
	cfg.Tiers.PerIP, cfg.Tiers.PerAccount = TierConfig{Rate: 0.5, Burst: 6}, TierConfig{Rate: 0.5, Burst: 8}
	cfg.Deny.Networks, cfg.Exempt.Networks = []string{"203.0.113.66/32"}, []string{"198.51.100.9/32"}
	cfg.Deny.Accounts, cfg.Exempt.Accounts = []string{"denied"}, []string{"exempt"}
	change(&cfg)
	regs := [2]*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	limiters := [2]*Limiter{newLimiter(t, cfg, WithStore(one), WithRegisterer(regs[0])), newLimiter(t, cfg, WithStore(two), WithRegisterer(regs[1]))}
	var handlers [2]http.Handler
	for i, l := range limiters {
		defer func() { _ = l.Close() }()
		mux := http.NewServeMux()
		mux.Handle("/", verdicts)
		mux.Handle("/form", l.Protect("api", verdicts)) // inside the whole chain again
		handlers[i] = l.Handler(mux)
	}
	away := func(on bool) {
		one.away.Store(on)
		two.away.Store(on)
	}
	for step := range 250 {
		switch r.IntN(20) {
		case 0, 1, 2:
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		case 3:
			time.Sleep(10 * time.Minute)
		case 4:
			away(true)
		}
		if one.away.Load() && r.IntN(6) == 0 {
			// When the store is asked again, and told what was spent, is left to chance:
			// on until that is done and all is full.
			away(false)
			time.Sleep(2 * time.Second)
			for _, h := range handlers {
				send(h, request("POST", "/open", "192.0.2.77", ""))
			}
			time.Sleep(30 * time.Second)
		}
		crowd := make([]func() *http.Request, 1+r.IntN(2)*r.IntN(2)) // at the same instant at times
		for i := range crowd {
			crowd[i] = randomRequest(r)
		}
		for _, q := range crowd {
			var got [2]string
			together(2, func(i int) { got[i] = answerOf(handlers[i], q()) })
			if got[0] != got[1] {
				t.Fatalf("step %d: %s %s from %s\n%s\nwant\n%s", step, q().Method, q().URL, q().RemoteAddr, got[0], got[1])
			}
		}
	}
	if got, want := allMetrics(t, regs[0]), allMetrics(t, regs[1]); !slices.Equal(got, want) {
		t.Errorf("metrics\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return one.together.Load()
}

// How often the store is asked, by what becomes of a request (requirement S6).
func TestARequestWithItsCredentialAsksTheStoreOnceBefore(t *testing.T) {
	for name, tt := range map[string]struct {
		request func(g guesser) *http.Request
		opts    []Option
		before  func(g guesser)
		calls   int64
		status  int
	}{
		"right":                   {request: attempting("right", ""), calls: 2, status: 200},
		"wrong":                   {request: attempting("wrong", ""), calls: 2, status: 401},
		"no verdict":              {request: attempting("right", "none"), calls: 1, status: 404},
		"no credential":           {request: func(g guesser) *http.Request { return request("POST", "/est", g.addr, "") }, calls: 1, status: 401},
		"no attempt":              {request: func(g guesser) *http.Request { return request("POST", "/open", g.addr, "") }, calls: 1, status: 401},
		"locked out":              {request: attempting("right", ""), before: failing(3), calls: 1, status: 429},
		"no verdict, with places": {request: attempting("right", "none"), before: failing(1), calls: 2, status: 404},
		"the handler's own":       {request: attempting("right", "own"), calls: 3, status: 200},
		"by the program's function": {
			request: attempting("right", ""), calls: 3, status: 200,
			opts: []Option{WithCredential(func(*http.Request) (Credential, bool) { return Credential{Account: "x"}, true })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newOneCall()
				cfg := lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 3 })
				cfg.Store.KeySecret = secret
				cfg.Tiers.PerIP = perHour(100)
				l := newLimiter(t, cfg, append(tt.opts, WithStore(s))...)
				defer func() { _ = l.Close() }()
				g := guesser{l.Handler(verdicts), addr1, "bob"}
				if tt.before != nil {
					tt.before(g)
				}
				before := s.calls.Load()
				w := send(g.h, tt.request(g))
				if got := s.calls.Load() - before; got != tt.calls || w.Code != tt.status {
					t.Errorf("%d calls, status %d; want %d and %d", got, w.Code, tt.calls, tt.status)
				}
			})
		})
	}
}

func attempting(password, verdict string) func(guesser) *http.Request {
	return func(g guesser) *http.Request {
		r := g.request(context.Background(), password)
		r.Header.Set("Verdict", verdict)
		return r
	}
}

func failing(n int) func(guesser) {
	return func(g guesser) {
		for range n {
			g.guess("wrong")
		}
	}
}

// oneCallReplicas are Limiters on one store that admits and begins in one call.
func oneCallReplicas(t *testing.T, n int, s *oneCall) []lockReplica {
	t.Helper()
	return lockReplicas(t, n, s, func(c *Config) { c.Tiers.Global = perHour(1e6) })
}

// What this process has locked in the store's place holds when the store is back.
func TestALockOfAnOutageHoldsBeforeTheOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneCall()
		list := oneCallReplicas(t, 2, s)
		r := list[0]
		s.away.Store(true)
		if got := r.told(30, "bob"); got != 10 {
			t.Errorf("%d guesses told during the outage, want 10", got)
		}
		back(t, s.sharedLocks, list...)
		before := s.together.Load()
		r.answers(t, 429, elsewhere, "bob", "right", "locked here")
		r.answers(t, 200, elsewhere, "eve", "right", "not locked")
		list[1].answers(t, 200, elsewhere, "bob", "right", "by a process that has locked nothing")
		if got := s.together.Load() - before; got != 2 {
			t.Errorf("%d calls for both at once, want 2: of those that are not locked here", got)
		}
	})
}

// What the one call has told of locks and callers holds when the store goes away.
func TestAnOutageKeepsWhatTheOneCallHasTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneCall()
		list := oneCallReplicas(t, 2, s)
		r, other := list[0], list[1]
		other.answers(t, 200, home, "bob", "right", "remembered by the store")
		if got := other.told(30, "bob"); got != 10 {
			t.Errorf("%d guesses told, want 10", got)
		}
		r.answers(t, 429, elsewhere, "bob", "right", "told that it is locked")
		r.answers(t, 200, home, "bob", "right", "told that it is known")
		s.away.Store(true)
		r.answers(t, 429, "192.0.2.61:1", "bob", "right", "locked during the outage")
		r.answers(t, 200, home, "bob", "right", "known during the outage")
	})
}

// Requirement T15: a request that is held holds no place among the failures left.
func TestAHeldRequestBeginsItsAttemptWhenItIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneCall()
		cfg := lockLimits(func(a *AuthLockConfig) { a.ReserveAlways = true })
		cfg.Store.KeySecret = secret
		cfg.Tiers.Global = TierConfig{Rate: 0.1, Burst: 1, MaxWait: new(Duration(time.Minute))}
		l := newLimiter(t, cfg, WithStore(s))
		defer func() { _ = l.Close() }()
		inHandler := make(chan struct{})
		leave := make(chan struct{})
		h := l.Handler(later(func(context.Context) { inHandler <- struct{}{}; <-leave }))
		g := guesser{h, addr1, "bob"}
		go g.guess("right")
		<-inHandler
		go g.guess("right")
		synctest.Wait()
		if got := places(t, s.Memory, l, addr1); got != 1 {
			t.Errorf("one is in the handler and one is held: %d places, want 1", got)
		}
		<-inHandler
		if got := places(t, s.Memory, l, addr1); got != 2 {
			t.Errorf("both are in the handler: %d places, want 2", got)
		}
		leave <- struct{}{}
		leave <- struct{}{}
		synctest.Wait()
		if got := places(t, s.Memory, l, addr1); got != 0 {
			t.Errorf("both have gone: %d places, want none", got)
		}
	})
}

// A request that is in the stage already brings nothing to begin.
func TestAnAttemptIsBegunOnceHoweverOftenTheChainIsMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOneCall()
		cfg := lockLimits(func(a *AuthLockConfig) { a.ReserveAlways = true })
		cfg.Store.KeySecret = secret
		cfg.Tiers.PerIP = perHour(100)
		l := newLimiter(t, cfg, WithStore(s))
		defer func() { _ = l.Close() }()
		held := 0
		inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			held = places(t, s.Memory, l, addr1)
			_, _ = io.WriteString(w, "ok")
		})
		for name, h := range map[string]http.Handler{
			"the whole chain twice":          l.Handler(l.Protect("est", inner)),
			"the tiers behind the auth lock": l.AuthLock(l.Handler(inner)),
			"the auth lock behind tiers":     l.Tiers(l.Handler(inner)),
			"behind the address":             l.ClientIP(l.Handler(inner)),
		} {
			if status, _ := (guesser{h, addr1, "bob"}).guess("right"); status != 200 || held != 1 {
				t.Errorf("%s: status %d, %d places, want 1", name, status, held)
			}
			if got := places(t, s.Memory, l, addr1); got != 0 {
				t.Errorf("%s: %d places are left behind", name, got)
			}
		}
	})
}
