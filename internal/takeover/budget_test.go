package takeover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/store"
)

func TestNobodyGetsABudgetTwice(t *testing.T) {
	bucket := ask("a", hourly, 10, 1)
	window := within(time.Hour, ask("a", 0, 10, 1))
	for _, c := range []store.Check{bucket, window} {
		for name, tt := range map[string]struct {
			before, meanwhile, after int // requests, more than enough to have all
			lose                     bool
		}{
			"that was used up before":                                 {20, 20, 20, false},
			"that is used up meanwhile":                               {3, 20, 20, false},
			"that is used up on return":                               {3, 3, 20, false},
			"that only the outage saw":                                {0, 20, 20, false},
			"that was used up before, if the server lost it":          {20, 20, 20, true},
			"that was used up before, unasked, if the server lost it": {20, 0, 20, true},
			"that was used up meanwhile, if the server lost it":       {3, 20, 20, true},
			"that was half used, if the server lost it":               {5, 0, 20, true},
			"that only the outage saw, if the server lost it":         {0, 4, 20, true},
		} {
			t.Run(c.Scope+" "+name, func(t *testing.T) {
				bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
					time.Sleep(time.Minute) // into the window
					got := drain(t, s, tt.before, c)
					degrade(t, s, remote)
					got += drain(t, s, tt.meanwhile, c)
					if tt.lose {
						remote.forget()
					}
					returns(t, s, remote)
					got += drain(t, s, tt.after, c)
					if got != 10 {
						t.Errorf("%d admitted, want 10", got)
					}
				})
			})
		}
	}
}

func TestWhatRefillsInAnOutageIsThereOnce(t *testing.T) {
	c := ask("a", 1, 10, 1)
	for name, lose := range map[string]bool{"the server kept it": false, "the server lost it": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				begun := time.Now()
				got := drain(t, s, 20, c)
				degrade(t, s, remote)
				for range 20 {
					time.Sleep(500 * time.Millisecond)
					got += drain(t, s, 2, c)
				}
				if lose {
					remote.forget()
				}
				returns(t, s, remote)
				got += drain(t, s, 20, c)
				if want := 10 + int(time.Since(begun)/time.Second); got < want-1 || got > want {
					t.Errorf("%d admitted in %v, want %d or one less", got, time.Since(begun), want)
				}
			})
		})
	}
}

func TestSeveralOutagesHandOutNoMoreThanOne(t *testing.T) {
	for name, c := range map[string]store.Check{"bucket": ask("a", hourly, 20, 1), "window": within(24*time.Hour, ask("a", 0, 20, 1))} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				got := 0
				for i := range 5 {
					got += drain(t, s, 2, c)
					degrade(t, s, remote)
					got += drain(t, s, 2, c)
					if i%2 == 1 {
						remote.forget()
					}
					returns(t, s, remote)
				}
				if got += drain(t, s, 5, c); got != 20 {
					t.Errorf("%d admitted, want 20", got)
				}
			})
		})
	}
}

func TestASingleFailureIsSpentOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, l *log) {
		c := ask("a", hourly, 20, 1)
		got := drain(t, s, 5, c)
		remote.down()
		got += drain(t, s, 3, c)
		remote.up()
		got += drain(t, s, 2, c) // the first of which is answered, after some that failed
		synctest.Wait()
		got += drain(t, s, 30, c)
		if got != 20 || s.Degraded() {
			t.Errorf("%d admitted, want 20", got)
		}
	})
}

func TestReplicasShareWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := newFar()
		var replicas []*Store
		for range 4 {
			s := New(remote, store.NewMemory(), Options{Replicas: 4})
			defer func() { _ = s.Close() }()
			replicas = append(replicas, s)
		}
		c := ask("a", hourly, 80, 1)
		got := 0
		for i := range 40 { // evenly, so each has seen it
			got += drain(t, replicas[i%4], 1, c)
		}
		remote.down()
		for _, s := range replicas {
			for range failuresToOpen {
				verdict(t, s, ask("nobody's", 1, 1e6, 1))
			}
			got += drain(t, s, 50, c)
		}
		if got < 80-4 || got > 80+4 { // each has seen it with up to four more tokens
			t.Errorf("%d admitted by four replicas, want about 80", got)
		}
		remote.up()
		time.Sleep(time.Second)
		synctest.Wait()
		for _, s := range replicas {
			admits(t, s, 0, 50, c)
		}
	})
}

func TestABurstBelowTheCostStillPasses(t *testing.T) {
	bubble(t, Options{Replicas: 10}, func(t *testing.T, s *Store, remote *far, _ *log) {
		degrade(t, s, remote)
		admits(t, s, 1, 10, ask("a", hourly, 5, 3))
		admits(t, s, 0, 10, ask("b", hourly, 2, 3))
	})
}

func TestARefundGoesWhereTheTokenCameFrom(t *testing.T) {
	c := ask("a", hourly, 10, 1)
	refund := func(t *testing.T, s *Store) {
		t.Helper()
		if err := s.Refund(context.Background(), []store.Check{c}); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]func(t *testing.T, s *Store, remote *far) (got int){
		"there, given back there": func(t *testing.T, s *Store, remote *far) int {
			got := drain(t, s, 20, c)
			refund(t, s)
			return got
		},
		"here, given back here": func(t *testing.T, s *Store, remote *far) int {
			degrade(t, s, remote)
			got := drain(t, s, 20, c)
			refund(t, s)
			got += drain(t, s, 20, c) - 1 // the one given back
			refund(t, s)
			returns(t, s, remote)
			return got
		},
		"here, given back there": func(t *testing.T, s *Store, remote *far) int {
			degrade(t, s, remote)
			got := drain(t, s, 20, c)
			returns(t, s, remote)
			refund(t, s)
			return got
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				if got := tt(t, s, remote); got != 10 {
					t.Errorf("%d admitted, want 10", got)
				}
				admits(t, s, 1, 10, c)
			})
		})
	}
	t.Run("there, given back during an outage, is there meanwhile", func(t *testing.T) {
		bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
			admits(t, s, 10, 20, c)
			degrade(t, s, remote)
			refund(t, s)
			admits(t, s, 1, 20, c)
			returns(t, s, remote)
			admits(t, s, 0, 20, c)
		})
	})
}

func TestALimitThatChangesInAnOutageHolds(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
		admits(t, s, 10, 20, ask("a", hourly, 10, 1))
		admits(t, s, 4, 4, within(time.Hour, ask("a", 0, 10, 1)))
		degrade(t, s, remote)
		admits(t, s, 0, 5, ask("a", hourly, 100, 1)) // a higher burst is no refill
		admits(t, s, 2, 5, within(time.Hour, ask("a", 0, 6, 1)))
		admits(t, s, 6, 9, within(time.Hour, ask("a", 0, 12, 1)))
		returns(t, s, remote)
		admits(t, s, 0, 5, ask("a", hourly, 100, 1))
		admits(t, s, 0, 5, within(time.Hour, ask("a", 0, 12, 1)))
	})
}

func TestMoreKeysThanAreTakenAtOnceAreSettled(t *testing.T) {
	bubble(t, Options{Keys: 1 << 17}, func(t *testing.T, s *Store, remote *far, _ *log) {
		degrade(t, s, remote)
		const n = settleFirst + 1000
		key := func(i int) store.Check { return ask(fmt.Sprint(i), hourly, 2, 1) }
		for i := range n {
			admits(t, s, 2, 2, key(i))
		}
		returns(t, s, remote)
		for i := range n {
			admits(t, s, 0, 1, key(i))
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	bubble(t, Options{Keys: 160}, func(t *testing.T, s *Store, remote *far, _ *log) {
		admits(t, s, 5, 9, ask("used up", hourly, 5, 1))
		for i := range 10_000 { // new addresses that ask once push nobody out
			admitted(t, s, ask(fmt.Sprint(i), hourly, 20, 1))
		}
		degrade(t, s, remote)
		admits(t, s, 0, 9, ask("used up", hourly, 5, 1))
		for i := range 10_000 {
			admitted(t, s, ask(fmt.Sprint(i), hourly, 20, 1))
		}
		for i := range s.seen.shards {
			if got := s.seen.shards[i].known.Len(); got > 10 {
				t.Errorf("%d remembered in one of 16 shards, want 10 at most", got)
			}
		}
	})
}

// One bucket for all, asked by many through any faults, never admits more than
// its burst and what has refilled.
func TestNoFaultMintsTokens(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				r := rand.New(rand.NewPCG(seed, 1))
				c := ask("a", 2, 20, 1)
				begun := time.Now()
				var mu sync.Mutex
				got := 0
				for range 60 {
					switch r.IntN(6) {
					case 0:
						remote.down()
					case 1:
						remote.hangs()
					case 2:
						remote.slow(time.Duration(r.IntN(150)) * time.Millisecond)
					case 3: // a restart that was noticed
						degrade(t, s, remote)
						remote.forget()
					default:
						remote.up()
					}
					var wg sync.WaitGroup
					for range 8 {
						wg.Go(func() {
							n := drain(t, s, 5, c)
							mu.Lock()
							got += n
							mu.Unlock()
						})
						time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
					}
					wg.Wait()
				}
				// What an outage and the return may each hand out at once: what was under
				// way when the breaker opened or closed.
				most := 20 + 2*time.Since(begun).Seconds()
				if float64(got) > most+8 {
					t.Errorf("%d admitted in %v, want %.0f at most", got, time.Since(begun), most)
				}
				if float64(got) < most/4 {
					t.Errorf("only %d admitted in %v of %.0f", got, time.Since(begun), most)
				}
			})
		})
	}
}

// A server may lose everything at any call of the return, which has been found to be
// alive by the calls before and is held to what it should hold by those after. What
// the call that it answers last tells is of a bucket that is full again: believed, it
// would be a burst for nothing, here as soon as the next call fails.
func TestARestartAtAnyCallOfTheReturnHandsOutNothing(t *testing.T) {
	bucket := ask("a", hourly, 10, 1)
	window := within(time.Hour, ask("a", 0, 10, 1))
	for name, tt := range map[string]struct {
		before, meanwhile int
	}{
		"used up before":            {10, 0},
		"used up meanwhile":         {4, 6},
		"half used before":          {5, 0},
		"half used, half meanwhile": {3, 3},
	} {
		for _, c := range []store.Check{bucket, window} {
			for call := range 4 { // two probes, what is there, what is owed
				for _, fails := range []bool{true, false} {
					t.Run(fmt.Sprint(c.Scope, " ", name, ", lost at call ", call, ", next fails: ", fails), func(t *testing.T) {
						bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
							time.Sleep(time.Minute) // into the window
							got := drain(t, s, tt.before, c)
							degrade(t, s, remote)
							got += drain(t, s, tt.meanwhile, c)
							n := 0
							remote.breaks(func(context.Context) error {
								switch n++; {
								case n == call+1:
									remote.forget()
								case n > call+1 && fails:
									return errDown
								}
								return nil
							})
							time.Sleep(time.Second)
							synctest.Wait()
							if n <= call {
								t.Fatalf("%d calls, none of which lost anything", n)
							}
							got += drain(t, s, 20, c)
							returns(t, s, remote)
							if got += drain(t, s, 20, c); got != 10 {
								t.Errorf("%d admitted, want 10", got)
							}
						})
					})
				}
			}
		}
	}
}

// A call under way in the background when the local store takes over may be answered
// by a server that has lost everything since: what it tells is not believed where
// more is there than was known.
func TestAnAnswerToAQuestionOfBeforeTheOutageHandsOutNothing(t *testing.T) {
	for _, c := range []store.Check{ask("a", hourly, 10, 1), within(time.Hour, ask("a", 0, 10, 1))} {
		for _, tt := range []struct {
			late int  // the question of what is there, or what was spent
			up   bool // again, before the answer
		}{{1, false}, {1, true}, {2, false}, {2, true}} {
			for asked, n := range map[string]int{"asked before the answer": 20, "not asked before the answer": 0} {
				late := tt.late
				t.Run(fmt.Sprint(c.Scope, ", call ", late, ", up again: ", tt.up, ", ", asked), func(t *testing.T) {
					bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
						time.Sleep(time.Minute) // into the window
						got := drain(t, s, 7, c)
						remote.down()
						got += drain(t, s, 2, c) // spent here, and owed
						calls := 0
						remote.breaks(func(context.Context) error {
							if calls++; calls == 1+late { // after a request that is answered
								time.Sleep(50 * time.Millisecond)
							}
							return nil
						})
						verdict(t, s, ask("nobody's", 1, 1e6, 1)) // and what is owed is told
						synctest.Wait()
						if calls != 1+late {
							t.Fatalf("%d calls, want %d, the last of which is under way", calls, 1+late)
						}
						degrade(t, s, remote)
						remote.forget()
						if tt.up {
							remote.up()
						}
						got += drain(t, s, n, c)
						time.Sleep(51 * time.Millisecond)
						synctest.Wait()
						if !s.Degraded() {
							t.Fatal("back, before anything was asked here")
						}
						got += drain(t, s, 20, c)
						returns(t, s, remote)
						if got += drain(t, s, 20, c); got != 10 {
							t.Errorf("%d admitted, want 10", got)
						}
					})
				})
			}
		}
	}
}

// Nor is what debts are told that are paid on the way while the local store decides:
// the return alone holds a bucket to what it can have.
func TestDebtsPaidInTheOutageHandOutNothing(t *testing.T) {
	for _, c := range []store.Check{ask("a", hourly, 10, 1), within(time.Hour, ask("a", 0, 10, 1))} {
		t.Run(c.Scope, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
				time.Sleep(time.Minute) // into the window
				got := drain(t, s, 7, c)
				degrade(t, s, remote)
				got += drain(t, s, 2, c)
				time.Sleep(time.Nanosecond)
				remote.forget()
				remote.up()
				s.settleSoon() // as one that an answer of before the outage has begun
				synctest.Wait()
				got += drain(t, s, 20, c)
				returns(t, s, remote)
				if got += drain(t, s, 20, c); got != 10 {
					t.Errorf("%d admitted, want 10", got)
				}
			})
		})
	}
}

// Nor is what a request is told, if its call has outlived the opening.
func TestARequestAnsweredAfterTheOpeningTellsOnlyWhatIsLess(t *testing.T) {
	for name, tt := range map[string]struct {
		told float64
		want int // of ten, six of which are known to be spent
	}{
		"more than is known": {9, 4},
		"as much":            {4, 4},
		"less":               {1, 1},
		"nothing":            {0, 0},
	} {
		for _, asked := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", asked before: ", asked), func(t *testing.T) {
				bubble(t, Options{}, func(t *testing.T, s *Store, remote *far, _ *log) {
					c := ask("a", hourly, 10, 1)
					drain(t, s, 6, c)
					time.Sleep(time.Millisecond)
					sent := s.now()
					time.Sleep(time.Millisecond)
					degrade(t, s, remote)
					got := 0
					if asked {
						got = drain(t, s, min(1, tt.want), c)
					}
					s.seen.note([]store.Check{c}, []store.State{{Tokens: tt.told}}, store.Verdict{Refused: -1}, sent, time.Second)
					got += drain(t, s, 20, c)
					if got != tt.want {
						t.Errorf("%d admitted, want %d", got, tt.want)
					}
				})
			})
		}
	}
}
