package weir

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Everything that can happen to a slot, at random instants: clients that leave,
// work that panics or ends its goroutine, goes on behind a TimeoutHandler, or
// takes a second slot; a guard whose size, lanes, disciplines and shares change
// meanwhile. At the end every slot is back.
func TestStormOverAGuardThatChangesLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { stormOverGuard(t, false) })
}

// The same, while the Limiter is switched off now and then: whoever came before
// holds or waits on, whoever comes meanwhile takes no slot.
func TestStormOverALimiterThatIsSwitchedOffAndOnLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { stormOverGuard(t, true) })
}

func stormOverGuard(t *testing.T, switched bool) {
	const most = 6
	config := func() Config {
		cfg := sharing(1+rand.IntN(most), 1+rand.IntN(100)).with(Endpoint{Class: "try", Guard: "hsm", Mode: ModeFail})
		g := cfg.Guards["hsm"]
		g.AcquireTimeout = Duration(1+rand.IntN(50)) * Duration(time.Millisecond)
		g.MaxQueue = 1 + rand.IntN(20)
		names := []string{"fair", "newest_first", "controlled_delay"}
		g.Discipline = names[rand.IntN(3)]
		if rand.IntN(2) == 0 {
			g.Lanes = map[string]LaneConfig{"a": {Classes: []Class{"left", "try"}, Reserve: rand.IntN(g.MaxInFlight), Discipline: names[rand.IntN(3)]}}
		}
		if rand.IntN(2) == 0 && g.MaxInFlight > 1 {
			g.Lanes = map[string]LaneConfig{"b": {Classes: []Class{"right"}, Reserve: 1, MaxShare: 100}}
		}
		cfg.Guards["hsm"] = g
		return cfg
	}
	l := newLimiter(t, config())
	guard := l.Guard("hsm")
	var inside meter
	work := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside.enter()
		defer inside.exit()
		time.Sleep(time.Duration(rand.IntN(10_000)) * time.Microsecond)
		switch rand.IntN(8) {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			runtime.Goexit()
		case 2:
			release, err := guard.AcquireFor(r.Context(), Info{Class: "right", Backend: "right"})
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
			release()
			if err == nil {
				release()
			}
		}
	})
	chains := []http.Handler{
		l.Handler(work), guard.Handler(work), l.Handler(guard.Handler(work)),
		http.TimeoutHandler(l.Handler(work), 3*time.Millisecond, ""),
		l.Handler(http.TimeoutHandler(guard.Handler(work), 3*time.Millisecond, "")),
	}
	classes := []string{"left", "left2", "right", "none", "try"}
	var wg sync.WaitGroup
	for i := range 3000 {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		if i%20 == 0 {
			cfg := config()
			cfg.Enabled = !switched || rand.IntN(3) > 0
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		wg.Go(func() {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(30_000))*time.Microsecond)
			defer cancel()
			r := to(classes[rand.IntN(len(classes))], "192.0.2."+strconv.Itoa(rand.IntN(5))).WithContext(ctx)
			chains[rand.IntN(len(chains))].ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	wg.Wait()
	if err := l.Reload(config()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute) // what goes on behind a TimeoutHandler
	synctest.Wait()
	occupied(t, l, 0, 0)
	if n := inside.most.Load(); n > most && !switched {
		t.Errorf("%d were at work at once, at most %d were ever allowed", n, most)
	}
	var slots []func()
	for range guardOf(t, l, "hsm").Slots {
		release, err := guard.AcquireFor(t.Context(), Info{})
		if err == nil {
			slots = append(slots, release)
		}
	}
	lanes, want := laneReserves(l), guardOf(t, l, "hsm").Slots
	if len(slots) != want-lanes {
		t.Errorf("%d slots can be taken, want %d of which %d are reserved", len(slots), want, lanes)
	}
	for _, release := range slots {
		release()
	}
}

// Over a connection, streams are reset and connections closed while their requests
// wait, work, or are answered.
func TestClientsThatGoOverAConnectionLoseNoSlot(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				l := newLimiter(t, guarded(3, 4, 10*time.Millisecond), WithRegisterer(reg))
				var inside meter
				client := piped(t, http2, 20*time.Millisecond, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inside.enter()
					defer inside.exit()
					time.Sleep(time.Duration(rand.IntN(5000)) * time.Microsecond)
					served(w, r)
				})))
				var wg sync.WaitGroup
				for range 500 {
					time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(12_000))*time.Microsecond)
						defer cancel()
						r, _ := http.NewRequestWithContext(ctx, "POST", "http://ca.example/sign", strings.NewReader("x"))
						if resp, err := client.Do(r); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Second)
				occupied(t, l, 0, 0)
				if n := inside.most.Load(); n > 3 || n < 2 {
					t.Errorf("%d were at work at once, want up to 3", n)
				}
				for _, gauge := range []string{"weir_hsm_guard_in_flight", "weir_hsm_guard_queue_depth"} {
					if got := metric(t, reg, gauge, "guard", "hsm"); got != 0 {
						t.Errorf("%s is %v, want 0", gauge, got)
					}
				}
			})
		})
	}
}

// laneReserves is how many slots lanes have reserved.
func laneReserves(l *Limiter) (n int) {
	for _, g := range l.Snapshot().Guards {
		n += g.Reserve
	}
	return n
}
