package takeover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

// ring is a remote store of several nodes, which a key names by its first letter.
// It asks one node after another and gives back what a later one refuses or fails,
// as a store that cannot spend on two nodes at once does.
type ring struct {
	*store.Memory // for the calls that these tests do not make
	begin         func(context.Context, string) (context.Context, func(error) error, error)

	mu    sync.Mutex
	nodes map[string]*far
	moved map[string]string
}

func newRing(names ...string) *ring {
	r := &ring{nodes: map[string]*far{}, moved: map[string]string{}}
	for _, n := range names {
		r.nodes[n] = newFar()
	}
	return r
}

func (r *ring) Watch(begin func(context.Context, string) (context.Context, func(error) error, error)) bool {
	r.begin = begin
	return true
}

func (r *ring) Node(c *store.Check) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := string(c.Key[:1])
	if to, ok := r.moved[name]; ok {
		return to
	}
	return name
}

func (r *ring) PingNode(ctx context.Context, name string) error {
	r.mu.Lock()
	n := r.nodes[name]
	r.mu.Unlock()
	if n == nil {
		return store.ErrNoNode
	}
	_, err := n.meet(ctx)
	return err
}

// promote has another node take over what one had.
func (r *ring) promote(from, to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes[to] = newFar()
	delete(r.nodes, from)
	r.moved[from] = to
}

func (r *ring) node(name string) *far {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[name]
}

func (r *ring) at(ctx context.Context, name string, f func(ctx context.Context, n *far) error) error {
	ctx, end, err := r.begin(ctx, name)
	if err != nil {
		return err
	}
	n := r.node(name)
	if n == nil {
		return end(errDown)
	}
	return end(f(ctx, n))
}

func (r *ring) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return r.all(ctx, checks, dst, true)
}

func (r *ring) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	return r.all(ctx, checks, dst, false)
}

func (r *ring) all(ctx context.Context, checks []store.Check, dst []store.State, spend bool) (store.Verdict, []store.State, error) {
	states := append(dst, make([]store.State, len(checks))...)
	v := store.Verdict{Refused: -1}
	var names []string
	index := map[string][]int{}
	for i := range checks {
		name := r.Node(&checks[i])
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		index[name] = append(index[name], i)
	}
	var spent []store.Check
	for _, name := range names {
		part := pick(checks, index[name])
		err := r.at(ctx, name, func(ctx context.Context, n *far) error {
			ask := n.Admit
			if !spend {
				ask = n.Peek
			}
			w, told, err := ask(ctx, part, nil)
			if err != nil {
				return err
			}
			put(states[len(dst):], told, index[name])
			if !w.Admitted() {
				v = store.Verdict{Refused: index[name][w.Refused], RetryAfter: w.RetryAfter}
			}
			return nil
		})
		if spend && (err != nil || !v.Admitted()) {
			_ = r.Refund(context.WithoutCancel(ctx), spent)
		}
		if err != nil {
			return store.Verdict{}, dst, err
		}
		if !v.Admitted() {
			break
		}
		for i, at := range index[name] {
			if states[len(dst)+at].Wait == 0 {
				spent = append(spent, part[i])
			}
		}
	}
	return v, states, nil
}

func (r *ring) Refund(ctx context.Context, checks []store.Check) (err error) {
	for i := range checks {
		if e := r.at(ctx, r.Node(&checks[i]), func(ctx context.Context, n *far) error { return n.Refund(ctx, checks[i:i+1]) }); e != nil {
			err = e
		}
	}
	return err
}

func (r *ring) Close() error { return nil }

// cluster runs a test in virtual time with a Store before the nodes a, b and c.
func cluster(t *testing.T, f func(t *testing.T, s *Store, r *ring, l *log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := new(log)
		r := newRing("a", "b", "c")
		s := New(r, store.NewMemory(), Options{Hooks: l.hooks()})
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, s, r, l)
	})
}

// lose has a node fail until its breaker has opened.
func lose(t *testing.T, s *Store, n *far, name string) {
	t.Helper()
	n.down()
	for range failuresToOpen {
		verdict(t, s, ask(name+" nobody's", 1, 1e6, 1))
	}
	if !s.nodes.isOpen(name) || !s.Degraded() {
		t.Fatalf("%s is still asked after so many failures", name)
	}
}

// regain has it answer again.
func regain(t *testing.T, s *Store, n *far) {
	t.Helper()
	n.up()
	time.Sleep(time.Second)
	synctest.Wait()
	if s.Degraded() {
		t.Fatal("it is not asked a second after its return")
	}
}

// A lost node's keys are counted here, without handing a budget out twice; the
// others are counted where they were, and exactly.
func TestOnlyTheLostNodesKeysAreDecidedHere(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, l *log) {
		gone, there := ask("a", hourly, 10, 1), ask("b", hourly, 10, 1)
		admits(t, s, 3, 3, gone)
		admits(t, s, 3, 3, there)
		a := r.node("a")
		lose(t, s, a, "a")
		calls := a.calls.Load()
		admits(t, s, 4, 4, gone)
		admits(t, s, 4, 4, there)
		if got := a.calls.Load(); got != calls {
			t.Errorf("the lost node was asked %d times", got-calls)
		}
		if got := r.node("b").there(there); got > 3.01 {
			t.Errorf("the other node holds %v, want 3: it was not asked", got)
		}
		regain(t, s, a)
		admits(t, s, 3, 9, gone)
		admits(t, s, 3, 9, there)
		if fmt.Sprint(l.turned()) != "[true false]" {
			t.Errorf("told %v, want degraded once, and back once", l.turned())
		}
	})
}

// The requests on which a node is found to fail are decided like those after.
func TestNothingIsCountedTwiceWhileANodeIsBeingLost(t *testing.T) {
	for name, breaks := range map[string]func(*far){"fails": (*far).down, "hangs": (*far).hangs} {
		t.Run(name, func(t *testing.T) {
			cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
				gone, there := ask("a", hourly, 1000, 1), ask("b", hourly, 100, 1)
				admits(t, s, 10, 10, there, gone)
				breaks(r.node("a"))
				admits(t, s, 90, 200, there, gone)
				if got := r.node("b").there(there); got > 0.5 {
					t.Errorf("%v left of what is used up", got)
				}
				r.node("a").up()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				admits(t, s, 0, 10, there, gone)
				if got := r.node("a").there(gone); got < 899 || got > 901 {
					t.Errorf("the node that was lost holds %v, want 900", got)
				}
			})
		})
	}
}

// A node that hangs is found out; one that answers is not blamed for it.
func TestANodeThatHangsIsNotTheOthersFault(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		both := []store.Check{ask("b", 1e3, 1e6, 1), ask("a", 1e3, 1e6, 1)}
		for range 50 {
			admitted(t, s, both...)
		}
		r.node("a").hangs()
		var wg sync.WaitGroup
		var mu sync.Mutex
		longest := time.Duration(0)
		for range 200 {
			wg.Go(func() {
				begun := time.Now()
				admitted(t, s, both...)
				mu.Lock()
				longest = max(longest, time.Since(begun))
				mu.Unlock()
				admitted(t, s, both[0])
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if !s.nodes.isOpen("a") || s.nodes.isOpen("b") || s.nodes.isOpen("c") {
			t.Errorf("open: a %v, b %v, c %v, want a alone", s.nodes.isOpen("a"), s.nodes.isOpen("b"), s.nodes.isOpen("c"))
		}
		if longest > 2*usualStall {
			t.Errorf("one waited %v, want %v at most", longest, 2*usualStall)
		}
		begun := time.Now()
		for range 100 {
			admitted(t, s, both...)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("100 requests waited %v of virtual time", took)
		}
	})
}

func TestARequestAcrossALostNodeSpendsAllOrNothing(t *testing.T) {
	for name, order := range map[string][2]string{"lost first": {"a", "b"}, "lost last": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
				lose(t, s, r.node("a"), "a")
				limits := map[string]float64{"a": 5, "b": 20}
				checks := []store.Check{ask(order[0], hourly, limits[order[0]], 1), ask(order[1], hourly, limits[order[1]], 1)}
				gone, there := slices.Index(order[:], "a"), slices.Index(order[:], "b")
				admits(t, s, 5, 9, checks...)
				v, states, err := s.Admit(t.Context(), checks, nil)
				if err != nil || v.Refused != gone || v.RetryAfter < 59*time.Minute || states[there].Wait != 0 {
					t.Errorf("%+v %+v %v, want the lost node's to blame", v, states, err)
				}
				admits(t, s, 15, 30, checks[there])
				checks[gone] = ask("a other", hourly, 50, 1)
				if v, _, err := s.Admit(t.Context(), checks, nil); err != nil || v.Refused != there {
					t.Errorf("%+v %v, want the other node's to blame", v, err)
				}
				admits(t, s, 50, 60, checks[gone])
			})
		})
	}
}

// Two requests want the last token of the lost node. The one that does not get it
// gives back what it has spent meanwhile at the other.
func TestWhoComesSecondGivesBackWhatItSpent(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		lose(t, s, r.node("a"), "a")
		r.node("b").slow(10 * time.Millisecond)
		gone, there := ask("a", hourly, 1, 1), ask("b", hourly, 10, 1)
		var got [2]store.Verdict
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() { got[i] = verdict(t, s, gone, there) })
		}
		wg.Wait()
		if got[0].Admitted() == got[1].Admitted() {
			t.Errorf("%+v, want one admitted", got)
		}
		if left := r.node("b").there(there); left < 9 || left > 9.1 {
			t.Errorf("the other node holds %v, want 9", left)
		}
	})
}

func TestArrivalsAreCountedWhicheverNodeRefuses(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		lose(t, s, r.node("a"), "a")
		process := func(key string) store.Check {
			c := within(time.Hour, ask(key, 0, 1000, 1))
			c.Always = true
			return c
		}
		left := func(key string) float64 {
			time.Sleep(time.Second) // what is put aside is counted by now
			c := process(key)
			c.Cost = 0
			_, states, err := s.Admit(t.Context(), []store.Check{c}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return states[0].Tokens
		}
		empty := func(key string) store.Check { return ask(key+" empty", 0, 0, 1) }
		for _, tt := range []struct{ window, refuses string }{{"a", "b"}, {"b", "a"}, {"a", "a"}, {"b", "b"}} {
			before := left(tt.window)
			admits(t, s, 0, 10, process(tt.window), empty(tt.refuses))
			if got := before - left(tt.window); got != 10 {
				t.Errorf("of 10 arrivals at %s, which %s refused, %v were counted", tt.window, tt.refuses, got)
			}
			before = left(tt.window)
			admits(t, s, 0, 10, process(tt.window), ask("a", hourly, 1e6, 1), ask("b", hourly, 1e6, 1), empty(tt.refuses))
			if got := before - left(tt.window); got != 10 {
				t.Errorf("of 10 arrivals at %s, with checks of both, which %s refused, %v were counted", tt.window, tt.refuses, got)
			}
		}
	})
}

func TestOnlyTheLostNodesKeysPassUncounted(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, l *log) {
		s.SetPass(true)
		gone, there := ask("a", hourly, 5, 1), ask("b", hourly, 20, 1)
		r.node("a").down()
		for range failuresToOpen {
			_, _, _ = s.Admit(t.Context(), []store.Check{ask("a nobody's", 1, 1e6, 1)}, nil)
		}
		admits(t, s, 20, 40, gone, there)
		if got := l.failed("admit open"); got < 20 {
			t.Errorf("%d were told to pass uncounted, want 20", got)
		}
		if _, _, err := s.Admit(t.Context(), []store.Check{gone}, nil); err == nil {
			t.Error("nobody can decide, and there is no error")
		}
	})
}

func TestARefundGoesToTheNodeThatIsThere(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		gone, there := ask("a", hourly, 10, 1), ask("b", hourly, 10, 1)
		lose(t, s, r.node("a"), "a")
		admits(t, s, 10, 20, gone, there)
		if err := s.Refund(t.Context(), []store.Check{gone, there}); err != nil {
			t.Fatal(err)
		}
		admits(t, s, 1, 20, gone, there)
		if err := s.Refund(t.Context(), []store.Check{there}); err != nil {
			t.Fatal(err)
		}
		if got := r.node("b").there(there); got < 1 || got > 1.1 {
			t.Errorf("the node holds %v, want 1", got)
		}
	})
}

// What a node had, another takes over: it is told what was spent, and nobody waits
// for the old one.
func TestANodeThatIsReplacedIsForgotten(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		c := ask("a", hourly, 10, 1)
		admits(t, s, 3, 3, c)
		lose(t, s, r.node("a"), "a")
		admits(t, s, 4, 4, c)
		r.promote("a", "d")
		time.Sleep(time.Second)
		synctest.Wait()
		if s.Degraded() {
			t.Fatal("still degraded")
		}
		if _, ok := s.nodes.byName["a"]; ok {
			t.Error("the old node is remembered")
		}
		admits(t, s, 3, 20, c)
	})
}

func TestAStoreThatIsClosedAsksNoNode(t *testing.T) {
	cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
		c := ask("a", hourly, 10, 1)
		admits(t, s, 4, 4, c)
		if err := s.Retire(true); err != nil {
			t.Fatal(err)
		}
		calls := r.node("a").calls.Load()
		admits(t, s, 6, 20, c)
		if r.node("a").calls.Load() != calls {
			t.Error("it was asked")
		}
	})
}

// Through any faults of two nodes, the third admits exactly what it holds, and the
// others not more than theirs.
func TestNoFaultOfANodeTouchesAnother(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			cluster(t, func(t *testing.T, s *Store, r *ring, _ *log) {
				rnd := rand.New(rand.NewPCG(seed, 3))
				got := map[string]int{}
				for _, k := range []string{"a", "b", "c"} { // what is nearly full is not remembered
					got[k] = drain(t, s, 30, ask(k, hourly, 200, 1))
				}
				var mu sync.Mutex
				for range 40 {
					n := r.node([]string{"a", "b"}[rnd.IntN(2)])
					switch rnd.IntN(5) {
					case 0:
						n.down()
					case 1:
						n.hangs()
					case 2:
						n.slow(time.Duration(rnd.IntN(150)) * time.Millisecond)
					default:
						n.up()
					}
					var wg sync.WaitGroup
					for range 4 {
						keys := []string{"a", "b", "c"}
						rnd.Shuffle(3, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
						keys = keys[:1+rnd.IntN(3)]
						wg.Go(func() {
							var checks []store.Check
							for _, k := range keys {
								checks = append(checks, ask(k, hourly, 200, 1))
							}
							for range 4 {
								if verdict(t, s, checks...).Admitted() {
									mu.Lock()
									for _, k := range keys {
										got[k]++
									}
									mu.Unlock()
								}
							}
						})
						time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
					}
					wg.Wait()
				}
				if got["c"] == 0 || got["c"] > 200 {
					t.Errorf("%d admitted of c, want 200 at most", got["c"])
				}
				if s.nodes.isOpen("c") {
					t.Error("c is taken to fail")
				}
				if there := r.node("c").there(ask("c", hourly, 200, 1)); there < float64(200-got["c"])-0.5 || there > float64(200-got["c"])+0.5 {
					t.Errorf("c holds %v after %d of 200", there, got["c"])
				}
				for _, k := range []string{"a", "b"} {
					if got[k] > 200+8 { // what was under way when a breaker opened or closed
						t.Errorf("%d admitted of %s, want 200 at most", got[k], k)
					}
				}
			})
		})
	}
}

func TestTheErrorNamesTheNode(t *testing.T) {
	err := error(&nodeError{"10.0.0.1:6379", errDown})
	if !strings.Contains(err.Error(), "10.0.0.1:6379") || ReasonOf(&nodeError{"n", ErrOpen}) != "open" {
		t.Errorf("%v, %s", err, ReasonOf(err))
	}
}
