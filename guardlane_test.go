package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// laned is guarded with a third class, "ocsp", in a lane of its own.
func laned(slots int, lane LaneConfig) Config {
	cfg := guarded(slots, 4, time.Minute).with(Endpoint{Class: "ocsp", Guard: "hsm"})
	g := cfg.Guards["hsm"]
	lane.Classes = []Class{"ocsp"}
	g.Lanes = map[string]LaneConfig{"revocation": lane}
	cfg.Guards["hsm"] = g
	return cfg
}

// laneOf returns the state of a lane of the guard.
func laneOf(t testing.TB, l *Limiter, lane string) GuardSnapshot {
	t.Helper()
	for _, g := range l.Snapshot().Guards {
		if g.Lane == lane {
			return g
		}
	}
	t.Fatalf("the snapshot has no lane %q", lane)
	return GuardSnapshot{}
}

func TestLaneKeepsItsReserveWhileTheOthersHang(t *testing.T) {
	for _, tt := range []struct{ hangs, lives string }{{"sign", "ocsp"}, {"ocsp", "sign"}} {
		t.Run(tt.hangs+" hangs", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Three slots; one is ocsp's, and with at most two of them one is
				// left to the rest.
				b := newBank(t, laned(3, LaneConfig{Reserve: 1, MaxShare: 67}))
				b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if time.Sleep(time.Second); strings.HasPrefix(r.URL.Path, "/"+tt.hangs) {
						time.Sleep(time.Hour)
					}
					served(w, r)
				})
				for range 6 {
					b.arrive("hangs", to(tt.hangs, alice))
				}
				occupied(t, b.l, 2, 4)
				for i := range 5 {
					b.arrive("lives", to(tt.lives, alice)).admittedAt(time.Duration(i+1) * time.Second)
				}
			})
		})
	}
}

func TestLanesHaveQueuesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := newBank(t, laned(1, LaneConfig{MaxQueue: 1}), WithRegisterer(reg))
		b.work = busyFor(time.Second)
		for range 5 {
			b.arrive("fills", to("sign", alice))
		}
		b.arrive("beyond", to("sign", bob)) // takes the place of one of alice's
		ocsp := b.arrive("ocsp", to("ocsp", alice))
		b.arrive("ocsp too", to("ocsp", alice)).shedAt(0, "queue_full")
		for lane, want := range map[string]GuardSnapshot{
			"default":    {Guard: "hsm", Lane: "default", Slots: 1, InFlight: 1, Queue: 4, Queued: 4},
			"revocation": {Guard: "hsm", Lane: "revocation", Slots: 1, Queue: 1, Queued: 1},
		} {
			if got := laneOf(t, b.l, lane); got != want {
				t.Errorf("lane %s is %+v, want %+v", lane, got, want)
			}
			if n := metric(t, reg, "weir_hsm_guard_lane_queue_depth", "guard", "hsm", "lane", lane); n != float64(want.Queued) {
				t.Errorf("%v wait in lane %s by the metric, want %d", n, lane, want.Queued)
			}
			if n := metric(t, reg, "weir_hsm_guard_lane_in_flight", "guard", "hsm", "lane", lane); n != float64(want.InFlight) {
				t.Errorf("%v are in flight in lane %s by the metric, want %d", n, lane, want.InFlight)
			}
		}
		// The lane that holds least is served next, whoever came before.
		ocsp.admittedAt(2 * time.Second)
	})
}

func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 6, time.Minute))
		b.work = busyFor(time.Second)
		for i := range 5 {
			b.arrive(fmt.Sprint("alice", i), to("sign", alice))
		}
		b.arrive("bob0", to("sign", bob)).admittedAt(3 * time.Second)
	})
}

// A client within its rate must not be able to keep all others out of the queue.
func TestClientThatFillsTheQueueGivesPlacesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 4, time.Minute))
		b.work = busyFor(time.Second)
		var all []*arrival
		for i := range 5 {
			all = append(all, b.arrive(fmt.Sprint("alice", i), to("sign", alice)))
		}
		bob1 := b.arrive("bob1", to("sign", bob))
		all[4].shedAt(0, "queue_full") // the newest goes
		b.arrive("alice5", to("sign", alice)).shedAt(0, "queue_full")
		bob2 := b.arrive("bob2", to("sign", bob))
		all[3].shedAt(0, "queue_full")
		b.arrive("bob3", to("sign", bob)).shedAt(0, "queue_full") // two of each: even
		all[1].admittedAt(2 * time.Second)
		bob1.admittedAt(3 * time.Second)
		all[2].admittedAt(4 * time.Second)
		bob2.admittedAt(5 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

// Whoever has a /48 has 65536 networks, each of which is one client to the tiers.
func TestSiteWithManyNetworksDoesNotKeepOthersOutOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(1, 8, time.Minute))
		b.work = busyFor(time.Second)
		crowd := 0
		flood := func() {
			for range 100 {
				crowd++
				b.arrive("crowd", to("sign", fmt.Sprintf("2001:db8:1:%x::1", crowd)))
			}
		}
		flood()
		first := b.arrive("alice", to("sign", alice))
		flood()
		second := b.arrive("neighbour", to("sign", "2001:db8:2::1"))
		flood()
		first.admittedAt(7 * time.Second) // after who was there, four networks and the rest of them
		second.admittedAt(8 * time.Second)
	})
}

func TestShareOfThePoolIsAtLeastASlotAndNeverMoreThanAll(t *testing.T) {
	for _, tt := range []struct{ slots, percent, want int }{
		{1, 1, 1}, {8, 75, 6}, {7, 50, 3}, {150, 75, 112}, {199, 1, 1}, {8, 100, 8}, {math.MaxInt, 100, math.MaxInt},
		{math.MaxInt, 50, math.MaxInt / 2},
	} {
		if got := share(tt.slots, tt.percent); got != tt.want {
			t.Errorf("%d %% of %d slots are %d, want %d", tt.percent, tt.slots, got, tt.want)
		}
	}
}

// A pool that bounds nothing must not make a lane one of a single slot.
func TestPoolWithoutABoundLeavesLanesWithoutOne(t *testing.T) {
	cfg := laned(0, LaneConfig{Reserve: 1})
	l := newLimiter(t, cfg, WithPoolSize("hsm", func() int { return math.MaxInt }))
	for range 3 {
		_, err := l.Guard("hsm").AcquireFor(t.Context(), Info{Class: "ocsp"})
		admittedTo(t, err)
	}
}

func admittedTo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want a slot", err)
	}
}

// sharing is a guard with two backends, of which one may hold 75 % by default.
func sharing(slots, percent int) Config {
	cfg := noTiers()
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: slots, AcquireTimeout: Duration(time.Minute), BackendShare: percent}}
	return cfg.with(
		Endpoint{Class: "left", Guard: "hsm", Backend: "left"}, Endpoint{Class: "left2", Guard: "hsm", Backend: "left"},
		Endpoint{Class: "right", Guard: "hsm", Backend: "right"}, Endpoint{Class: "none", Guard: "hsm"},
	)
}

func TestBackendHoldsItsShareOfTheSlotsAndTheRestIsShedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		slots, percent, want int
	}{{8, 0, 6}, {7, 0, 5}, {1, 0, 1}, {8, 50, 4}, {8, 1, 1}, {4, 100, 4}} {
		t.Run(fmt.Sprintf("%d slots, %d percent", tt.slots, tt.percent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBank(t, sharing(tt.slots, tt.percent))
				b.work = busyFor(time.Second)
				for i := range tt.want {
					b.arrive("left", to([]string{"left", "left2"}[i%2], alice))
				}
				occupied(t, b.l, tt.want, 0)
				over := b.arrive("over", to("left2", bob))
				if tt.percent == 100 {
					over.admittedAt(2 * time.Second)
					return
				}
				over.shedAt(0, "backend_share")
				if _, err := b.l.Guard("hsm").AcquireFor(t.Context(), Info{Backend: "left"}); !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "backend") {
					t.Errorf("work for the same backend without HTTP: %v, want it refused", err)
				}
				if tt.want < tt.slots {
					b.arrive("right", to("right", bob)).admittedAt(time.Second)
				} else {
					b.arrive("none", to("none", bob)).admittedAt(2 * time.Second)
				}
				b.until(5 * time.Second)
				b.arrive("left again", to("left", alice)).admittedAt(b.now() + time.Second)
			})
		})
	}
}

func TestInfoNamesTheBackendOfTheClass(t *testing.T) {
	b := newBank(t, sharing(4, 0))
	b.work = later(func(ctx context.Context) {
		if info, _ := FromContext(ctx); info.Backend != "right" || info.Class != "right" {
			t.Errorf("the class is %q and the backend %q, want right for both", info.Class, info.Backend)
		}
	})
	admitted(t, b.h, to("right", alice))
}

// A waiter joined when its backend had room, and another was quicker.
func TestWaiterWhoseBackendGotItsShareMeanwhileIsShedWhenItsTurnComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, sharing(2, 50))
		b.work = busyFor(time.Second)
		b.arrive("right", to("right", alice))
		b.until(time.Second / 2)
		b.arrive("none", to("none", alice))
		first, second := b.arrive("left", to("left", alice)), b.arrive("left too", to("left", bob))
		third := b.arrive("none too", to("none", carol))
		first.admittedAt(2 * time.Second)
		second.shedAt(3*time.Second/2, "backend_share")
		third.admittedAt(5 * time.Second / 2)
		occupied(t, b.l, 0, 0)
	})
}

func TestWorkWithoutHTTPSaysItsLaneItsClientAndItsBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := laned(2, LaneConfig{Reserve: 1})
		b := newBank(t, cfg)
		g := b.l.Guard("hsm")
		release, err := g.AcquireFor(t.Context(), Info{Class: "sign"})
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		release, err = g.AcquireFor(t.Context(), Info{Class: "ocsp", Backend: "left"})
		if err != nil {
			t.Fatalf("the reserve is not there for work without HTTP: %v", err)
		}
		if got := laneOf(t, b.l, "revocation").InFlight; got != 1 {
			t.Errorf("%d slots of the lane are held, want 1", got)
		}
		order := make(chan string, 8)
		wait := func(name string, info Info) {
			go func() {
				release, err := g.AcquireFor(t.Context(), info)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				order <- name
				release()
			}()
			synctest.Wait()
		}
		a, whole := netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParseAddr("2001:db8:1::7")
		wait("a1", Info{Class: "ocsp", Prefix: a})
		wait("a2", Info{Class: "ocsp", Addr: whole}) // the same client
		wait("b1", Info{Class: "ocsp", Addr: netip.MustParseAddr("192.0.2.1")})
		wait("b2", Info{Class: "ocsp", Addr: netip.MustParseAddr("::ffff:192.0.2.1")})
		release()
		release() // the slot of none of them
		for _, want := range []string{"a1", "b1", "a2", "b2"} {
			if got := <-order; got != want {
				t.Errorf("%s was served, want %s", got, want)
			}
		}
	})
}

func TestAcquireInsideARequestIsWorkOfItsClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := laned(2, LaneConfig{Reserve: 1})
		for i := range cfg.Endpoints {
			cfg.Endpoints[i].Guard = ""
		}
		b := newBank(t, cfg)
		b.work = later(func(ctx context.Context) {
			release, err := b.l.Guard("hsm").Acquire(ctx)
			if err != nil {
				t.Error(err)
			}
			defer release()
			if got := laneOf(t, b.l, "revocation").InFlight; got != 1 {
				t.Errorf("%d slots of the class's lane are held, want 1", got)
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			free, err := b.l.Guard("hsm").Acquire(ctx) // the one that is not reserved
			if err != nil {
				t.Error(err)
			}
			defer free()
			if _, err := b.l.Guard("hsm").Acquire(ctx); err == nil {
				t.Error("there is a slot more than there are")
			}
		})
		b.arrive("a", to("ocsp", alice)).answered(time.Second)
		if got := classOf(t, b.l, "ocsp").Shed["canceled"]; got != 1 {
			t.Errorf("%d sheds are counted for the class, want 1", got)
		}
		if got := classOf(t, b.l, "direct").Shed["canceled"]; got != 0 {
			t.Errorf("%d sheds are counted without a class, want none", got)
		}
	})
}

// Reload takes a lane away while it is in use, and gives it back.
func TestLanesComeAndGoByReloadAndLoseNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		with, without := laned(2, LaneConfig{Reserve: 1}), laned(2, LaneConfig{})
		g := without.Guards["hsm"]
		g.Lanes = nil
		without.Guards["hsm"] = g
		reload := func(l *Limiter, cfg Config) {
			t.Helper()
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		b := newBank(t, with)
		b.work = busyFor(time.Second)
		b.arrive("sign", to("sign", alice))
		waits := b.arrive("waits", to("sign", alice)) // for the reserve is not its
		b.arrive("ocsp", to("ocsp", alice))
		queued := b.arrive("queued", to("ocsp", alice))
		occupied(t, b.l, 2, 2)
		reload(b.l, without)
		occupied(t, b.l, 2, 2)
		waits.admittedAt(2 * time.Second)
		queued.admittedAt(2 * time.Second)
		reload(b.l, with)
		occupied(t, b.l, 0, 0)
		b.arrive("sign", to("sign", alice))
		b.arrive("waits", to("sign", alice))
		occupied(t, b.l, 1, 1)
		reload(b.l, without) // the slot is nobody's any more
		occupied(t, b.l, 2, 0)
		b.until(4 * time.Second)
		occupied(t, b.l, 0, 0)
	})
}

func TestReservesThatThePoolHasNoRoomForAreCutAndLogged(t *testing.T) {
	cfg := laned(0, LaneConfig{Reserve: 3})
	var log strings.Builder
	l, err := New(cfg, WithPoolSize("hsm", func() int { return 3 }), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if got := laneOf(t, l, "revocation").Reserve; got != 2 {
		t.Errorf("%d of 3 slots are reserved, want 2", got)
	}
	if !strings.Contains(log.String(), "guards.hsm.lanes") || !strings.Contains(log.String(), "the pool has 3 slots") {
		t.Errorf("the log says nothing of it: %s", &log)
	}
}

func TestDisciplinesServeWhomTheySay(t *testing.T) {
	for _, tt := range []struct {
		discipline string
		want       []string
	}{
		{"", []string{"0", "1", "2", "3"}},
		{"fair", []string{"0", "1", "2", "3"}},
		{"newest_first", []string{"0", "4", "3", "2"}},
		{"controlled_delay", []string{"0", "1"}}, // the others have waited 100 ms
	} {
		t.Run(tt.discipline, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := guarded(1, 3, time.Minute)
				g := cfg.Guards["hsm"]
				g.Discipline = tt.discipline
				cfg.Guards["hsm"] = g
				b := newBank(t, cfg)
				b.work = busyFor(60 * time.Millisecond)
				for i := range 5 {
					b.arrive(fmt.Sprint(i), to("sign", fmt.Sprint("192.0.2.", i)))
				}
				b.until(time.Second)
				if got := strings.Join(b.order, " "); got != strings.Join(tt.want, " ") {
					t.Errorf("served were %s, want %v", got, tt.want)
				}
			})
		})
	}
}
