package takeover

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

const leaseTime = 100 * time.Millisecond

// leased is a bucket that all share.
func leased(rate, burst, cost float64) store.Check {
	return store.Check{Scope: "global", Limit: store.Limit{Rate: rate, Burst: burst}, Cost: cost}
}

// lending runs a test in virtual time with a Store that leases the scope global.
func lending(t *testing.T, f func(t *testing.T, s *Store, remote *far, l *log)) {
	t.Helper()
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		s.SetLeases(map[string]time.Duration{"global": leaseTime})
		f(t, s, remote, l)
	})
}

// held is what a Store holds of a bucket in advance.
func (s *Store) held(c store.Check) (sum float64) {
	l := s.leases.Load()
	if l == nil {
		return 0
	}
	sh := l.of(bucketID{c.Scope, c.Key})
	defer sh.mu.Unlock()
	if e, ok := sh.held.Peek(bucketID{c.Scope, c.Key}); ok {
		return e.have(s.now())
	}
	return 0
}

// there is what the remote bucket holds.
func (f *far) there(c store.Check) float64 {
	c.Cost, c.Shadow = 0, true
	f.mu.Lock()
	m := f.Memory
	f.mu.Unlock()
	_, states, err := m.Peek(context.Background(), []store.Check{c}, nil)
	if err != nil {
		panic(err)
	}
	return states[0].Tokens
}

// steady asks rate times a second for d, and returns how often it was admitted.
func steady(t *testing.T, s *Store, rate int, d time.Duration, checks ...store.Check) (count int) {
	t.Helper()
	for range int(d * time.Duration(rate) / time.Second) {
		time.Sleep(time.Second / time.Duration(rate))
		count += drain(t, s, 1, checks...)
	}
	return count
}

func TestAHotBucketCostsFewCalls(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		if got := steady(t, s, 1000, 5*time.Second, leased(1250, 200, 1)); got != 5000 {
			t.Errorf("%d of 5000 admitted", got)
		}
		if calls := remote.calls.Load(); calls > 250 {
			t.Errorf("%d calls for 5000 requests, want 5 %% at most", calls)
		}
	})
}

func TestABucketThatIsNotHotIsNotLeased(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := leased(1000, 200, 1)
		if got := steady(t, s, 20, 5*time.Second, c); got != 100 || remote.calls.Load() != 100 {
			t.Errorf("%d of 100 admitted with %d calls, want one each", got, remote.calls.Load())
		}
	})
}

func TestOnlyWhatIsNamedIsLeased(t *testing.T) {
	window := within(time.Hour, store.Check{Limit: store.Limit{Burst: 1e6}, Cost: 1})
	window.Scope = "global"
	shadow := leased(1e6, 1e6, 1)
	shadow.Shadow = true
	for name, checks := range map[string][]store.Check{
		"another tier":            {ask("a", 1e6, 1e6, 1)},
		"a window":                {window},
		"a tier in shadow":        {shadow},
		"a cost of nothing":       {leased(1e6, 1e6, 0)},
		"one bucket twice":        {leased(1e6, 1e6, 1), leased(1e6, 1e6, 1)},
		"one that never refills":  {leased(0, 1e6, 1)},
		"one that hardly refills": {leased(10, 1e6, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
				if got := steady(t, s, 1000, time.Second, checks...); got != 1000 || remote.calls.Load() != 1000 {
					t.Errorf("%d of 1000 admitted with %d calls, want one each", got, remote.calls.Load())
				}
			})
		})
	}
}

// What one bucket needs a call for, another that is leased goes without.
func TestALeaseLeavesTheOtherChecksExact(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		global, address := leased(1e4, 1e4, 1), ask("a", hourly, 700, 1)
		if got := steady(t, s, 1000, time.Second, global, address); got != 700 {
			t.Errorf("%d admitted, want 700", got)
		}
		if got := remote.there(address); got > 0.5 {
			t.Errorf("the address has %v left, want nothing", got)
		}
		v, states, err := s.Admit(t.Context(), []store.Check{global, address}, nil)
		if err != nil || v.Refused != 1 || v.RetryAfter < 59*time.Minute || states[0].Wait != 0 || states[1].Wait != v.RetryAfter {
			t.Errorf("%+v %+v %v, want the address to blame", v, states, err)
		}
	})
}

// admissions are the instants of what was admitted.
type admissions struct {
	mu sync.Mutex
	at []time.Time
}

func (a *admissions) add(t time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = append(a.at, t)
}

// keepTo claims of every window that it has no more than is promised, and returns
// how far one has come above what a bucket without leases admits.
func (a *admissions) keepTo(t *testing.T, limit store.Limit, tau time.Duration) (above float64) {
	t.Helper()
	for i := range a.at {
		for j := i; j < len(a.at); j++ {
			w := a.at[j].Sub(a.at[i])
			n := float64(j - i + 1)
			plain := limit.Burst + limit.Rate*w.Seconds()
			if most := plain + limit.Rate*tau.Seconds(); n > most+1e-6 {
				t.Fatalf("%v admitted in %v, want %v at most", n, w, most)
			}
			above = max(above, n-plain)
		}
	}
	return above
}

// Replicas of any demand, that die, come back, and are told late: in every window,
// however long, no more is admitted than burst + rate·(window + lease time).
func TestLeasesKeepTheirBound(t *testing.T) {
	limit := store.Limit{Rate: 400, Burst: 60}
	farthest := 0.0
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newFar()
				var all admissions
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(seed, uint64(i)))
						for range 4 { // lives
							s := New(remote, store.NewMemory(), Options{Replicas: 8})
							s.SetLeases(map[string]time.Duration{"global": leaseTime})
							for range 6 { // from idle to far too much
								pause := time.Duration(math.Exp(r.Float64()*6)) * 100 * time.Microsecond
								for end := time.Now().Add(80 * time.Millisecond); time.Now().Before(end); time.Sleep(pause) {
									v, _, err := s.Admit(context.Background(), []store.Check{{Scope: "global", Limit: limit, Cost: 1}}, nil)
									if err != nil {
										t.Error(err)
									}
									if v.Admitted() {
										all.add(time.Now())
									}
								}
								time.Sleep(time.Duration(r.IntN(150)) * time.Millisecond)
							}
							if err := s.Retire(false); err != nil { // dies with what it holds
								t.Error(err)
							}
						}
					})
				}
				remote.slow(2 * time.Millisecond)
				begun := time.Now()
				wg.Wait()
				most := limit.Burst + limit.Rate*time.Since(begun).Seconds()
				if got := float64(len(all.at)); got < most/4 {
					t.Errorf("only %v of %v admitted", got, most)
				}
				farthest = max(farthest, all.keepTo(t, limit, leaseTime))
			})
		})
	}
	t.Logf("at most %.1f above burst + rate·window; the promise allows %.0f", farthest, limit.Rate*leaseTime.Seconds())
}

// All replicas take leases, pause while the bucket refills, and then take all
// there is: what a lease can add is what refilled in its time.
func TestAPauseAndAnOnrushKeepTheBound(t *testing.T) {
	limit := store.Limit{Rate: 1000, Burst: 400}
	for _, pause := range []time.Duration{time.Millisecond, leaseTime / 2, leaseTime - time.Millisecond, leaseTime, 2 * leaseTime, time.Second} {
		t.Run(pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				remote := newFar()
				var replicas []*Store
				for range 8 {
					s := New(remote, store.NewMemory(), Options{})
					s.SetLeases(map[string]time.Duration{"global": leaseTime})
					defer func() { _ = s.Retire(false) }()
					replicas = append(replicas, s)
				}
				c := leased(limit.Rate, limit.Burst, 1)
				for range 25 {
					for _, s := range replicas {
						admitted(t, s, c)
					}
					time.Sleep(2 * time.Millisecond)
				}
				held := 0.0
				for _, s := range replicas {
					held += s.held(c)
				}
				if held < 40 {
					t.Fatalf("%v held in advance, want more", held)
				}
				time.Sleep(pause)
				most := remote.there(c)
				if pause < leaseTime {
					most += held
				}
				var all admissions
				for range 1000 {
					for _, s := range replicas {
						if verdict(t, s, c).Admitted() {
							all.add(time.Now())
						}
					}
				}
				if got := float64(len(all.at)); got > most {
					t.Errorf("%v admitted at once, want %v at most", got, most)
				}
				all.keepTo(t, limit, leaseTime)
			})
		})
	}
}

// A plain model beside it: every token is in the bucket, in a lease, or spent.
func TestNoTokenIsMintedOrLostWhileALeaseHolds(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
				r := rand.New(rand.NewPCG(seed, 2))
				global := leased(1e4, 2000, 1)
				left := map[store.Key]float64{}
				address := func() store.Check {
					c := ask(fmt.Sprint(r.IntN(6)), 0, 60, float64(1+r.IntN(2)))
					if _, ok := left[c.Key]; !ok {
						left[c.Key] = 60
					}
					return c
				}
				spent := 0.0
				for i := range 900 { // at one instant: nothing refills, and nothing ends
					g := global
					g.Cost = float64(1 + r.IntN(3))
					checks := []store.Check{g}
					own := address()
					if r.IntN(2) == 0 {
						checks = append(checks, own)
						if r.IntN(2) == 0 {
							checks[0], checks[1] = checks[1], checks[0]
						}
					}
					v, states, err := s.Admit(t.Context(), checks, nil)
					if err != nil || len(states) != len(checks) {
						t.Fatalf("%v, %d states", err, len(states))
					}
					want := len(checks) == 1 || left[own.Key] >= own.Cost
					if spent+g.Cost > g.Limit.Burst-1 { // a lease may hold the last ones
						break
					}
					if v.Admitted() != want {
						t.Fatalf("request %d: admitted %v, want %v: %+v %+v", i, v.Admitted(), want, checks, states)
					}
					if want {
						spent += g.Cost
						if len(checks) == 2 {
							left[own.Key] -= own.Cost
						}
						if r.IntN(5) == 0 { // the caller was not who it claimed
							if err := s.Refund(t.Context(), checks); err != nil {
								t.Fatal(err)
							}
							spent -= g.Cost
							if len(checks) == 2 {
								left[own.Key] += own.Cost
							}
						}
					}
					synctest.Wait() // what renews a lease
					if got := remote.there(global) + s.held(global) + spent; got != 2000 {
						t.Fatalf("request %d: %v in the bucket, %v leased, %v spent: %v of 2000", i, remote.there(global), s.held(global), spent, got)
					}
					if got := remote.there(own); len(checks) == 2 && got != left[own.Key] {
						t.Fatalf("request %d: the address holds %v, want %v", i, got, left[own.Key])
					}
				}
				if s.held(global) == 0 && spent < 1000 {
					t.Error("nothing was leased")
				}
			})
		})
	}
}

func TestWhatIsLeftOfALeaseExpires(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := leased(1000, 200, 1)
		steady(t, s, 1000, time.Second, c)
		if s.held(c) < 2 {
			t.Fatalf("%v held, want a lease", s.held(c))
		}
		time.Sleep(leaseTime)
		if got := s.held(c); got != 0 {
			t.Errorf("%v held after its time", got)
		}
	})
}

func TestAReplicaThatDiesLosesItsLeaseOnly(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := leased(1000, 200, 1)
		steady(t, s, 1000, time.Second, c)
		lost, there := s.held(c), remote.there(c)
		if lost < 2 {
			t.Fatalf("%v held, want a lease", lost)
		}
		other := New(remote, store.NewMemory(), Options{})
		defer func() { _ = other.Retire(false) }()
		if got := float64(drain(t, other, 500, c)); got != math.Floor(there) {
			t.Errorf("another replica is admitted %v times, want %v: what is leased is not its own", got, there)
		}
	})
}

func TestALeaseEndsWithItsLimit(t *testing.T) {
	for name, end := range map[string]func(s *Store, c *store.Check){
		"another rate":   func(_ *Store, c *store.Check) { c.Limit.Rate = 500 },
		"another burst":  func(_ *Store, c *store.Check) { c.Limit.Burst = 100 },
		"another time":   func(s *Store, _ *store.Check) { s.SetLeases(map[string]time.Duration{"global": time.Second}) },
		"no leases":      func(s *Store, _ *store.Check) { s.SetLeases(nil) },
		"a bucket reset": func(s *Store, c *store.Check) { s.Forget(c.Scope, c.Key) },
		"a tier dropped": func(s *Store, c *store.Check) { s.Drop(c.Scope) },
	} {
		t.Run(name, func(t *testing.T) {
			lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
				c := leased(1000, 200, 1)
				steady(t, s, 1000, time.Second, c)
				if s.held(c) < 2 {
					t.Fatalf("%v held, want a lease", s.held(c))
				}
				end(s, &c)
				calls := remote.calls.Load()
				admitted(t, s, c)
				if remote.calls.Load() != calls+1 {
					t.Error("the lease goes on")
				}
			})
		})
	}
	lending(t, func(t *testing.T, s *Store, _ *far, _ *log) {
		c := leased(1000, 200, 1)
		steady(t, s, 1000, time.Second, c)
		was := s.held(c)
		s.SetLeases(map[string]time.Duration{"global": leaseTime})
		if got := s.held(c); got != was {
			t.Errorf("%v held after the same setting, want %v", got, was)
		}
	})
}

func TestALeaseEndsWhenTheStoreFails(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := leased(1000, 200, 1)
		steady(t, s, 1000, time.Second, c)
		degrade(t, s, remote)
		if got := s.held(c); got != 0 {
			t.Errorf("%v held in an outage", got)
		}
		steady(t, s, 1000, time.Second, c)
		returns(t, s, remote)
		calls := remote.calls.Load()
		if got := steady(t, s, 800, 2*time.Second, c); got < 1500 {
			t.Errorf("%d of 1600 admitted after an outage", got)
		}
		if got := remote.calls.Load() - calls; got > 400 {
			t.Errorf("%d calls for 1600 requests after an outage: nothing is leased", got)
		}
	})
}

// A call that fails takes no lease, and its request is decided here.
func TestAFailedCallPutsBackWhatItTook(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		global, address := leased(1000, 200, 1), ask("a", 1000, 1000, 1)
		steady(t, s, 1000, time.Second, global)
		was := s.held(global)
		if was < 2 {
			t.Fatalf("%v held, want a lease", was)
		}
		remote.down()
		s.SetPass(true)
		if _, _, err := s.Admit(t.Context(), []store.Check{global, address}, nil); err == nil {
			t.Error("no error")
		}
		if got := s.held(global); got != was {
			t.Errorf("%v held, want %v", got, was)
		}
		s.SetPass(false)
		admitted(t, s, global, address)
		if got := s.held(global); got != was-1 {
			t.Errorf("%v held, want %v", got, was-1)
		}
	})
}

// What others wait for is told as it is: the time until the bucket has the cost.
func TestRetryAfterIsTrueBesideLeases(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		c := leased(100, 50, 1)
		waits := 0
		for range 3000 {
			v := verdict(t, s, c)
			if v.Admitted() {
				time.Sleep(time.Millisecond)
				continue
			}
			waits++
			time.Sleep(v.RetryAfter)
			admitted(t, s, c)
		}
		if waits == 0 {
			t.Error("nothing was refused")
		}
	})
}

func TestALookTakesNothing(t *testing.T) {
	lending(t, func(t *testing.T, s *Store, remote *far, _ *log) {
		global, address := leased(1000, 200, 1), ask("a", hourly, 5, 1)
		steady(t, s, 1000, time.Second, global)
		admits(t, s, 5, 9, address)
		was, calls := s.held(global), remote.calls.Load()
		for range 10 {
			v, states, err := s.Peek(t.Context(), []store.Check{global}, nil)
			if err != nil || !v.Admitted() || len(states) != 1 || states[0].Tokens < was {
				t.Fatalf("%+v %+v %v", v, states, err)
			}
			if v, _, err := s.Peek(t.Context(), []store.Check{global, address}, nil); err != nil || v.Refused != 1 {
				t.Fatalf("%+v %v, want the address to blame", v, err)
			}
		}
		if got := s.held(global); got != was || remote.calls.Load() != calls {
			t.Errorf("%v held of %v, %d calls", got, was, remote.calls.Load()-calls)
		}
	})
}

// A lot that is put back keeps its end; many become few, never with a later one.
func TestLots(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var e lease
	var model []lot
	now := int64(1)
	for range 20_000 {
		switch r.IntN(3) {
		case 0:
			add := lot{float64(1 + r.IntN(50)), now + int64(1+r.IntN(1000))}
			e.put(add)
			model = append(model, add)
		case 1:
			if have := e.have(now); have >= 1 {
				soonest := e.lots[0].until
				if took := e.take(1); took.until != soonest || took.tokens != 1 {
					t.Fatalf("took %+v, want one that ends at %d", took, soonest)
				}
				if e.have(now) != have-1 {
					t.Fatalf("%v left of %v", e.have(now), have)
				}
			}
		default:
			now += int64(r.IntN(100))
		}
		sum := 0.0
		for _, m := range model {
			if now < m.until {
				sum += m.tokens
			}
		}
		if got := e.have(now); got > sum || len(e.lots) > maxLots {
			t.Fatalf("%v held in %d lots, of %v that were given and have not ended", got, len(e.lots), sum)
		}
		for i := 1; i < len(e.lots); i++ {
			if e.lots[i-1].until >= e.lots[i].until {
				t.Fatalf("lots out of order: %+v", e.lots)
			}
		}
	}
}
