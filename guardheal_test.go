package weir

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A backend hung, and the work of one class seemed to take a minute. Requests of
// another keep the queue from ever being empty, so nobody finds a free slot, and
// what is too slow for its deadline is measured no more. That must not last.
func TestClassThatHungIsServedAgainBesideAQueueThatNeverEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(2, 64, 5*time.Second).with(Endpoint{Class: "ocsp", Guard: "hsm"}))
		b.work = busyFor(time.Minute)
		for range 20 {
			b.arrive("hangs", to("sign", alice)).admittedAt(b.now() + time.Minute)
		}
		b.work = busyFor(100 * time.Millisecond)
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 8 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					b.h.ServeHTTP(httptest.NewRecorder(), to("ocsp", "198.51.100."+strconv.Itoa(i)).WithContext(ctx))
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(5 * time.Second) // the queue has found its pace by then
		good := 0
		for range 20 {
			w := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			b.h.ServeHTTP(w, to("sign", alice).WithContext(ctx))
			cancel()
			if w.Code == http.StatusOK {
				good++
			}
			time.Sleep(100 * time.Millisecond)
		}
		stop()
		crowd.Wait()
		if good < 19 {
			t.Errorf("%d of 20 were served once the backend was well again", good)
		}
	})
}

// The reverse: work that is always too slow for its deadline gets one slot at a
// time to show whether it still is, and none for as long as it then took.
func TestClassThatIsTooSlowIsTriedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(t, guarded(4, 64, 5*time.Second).with(Endpoint{Class: "ocsp", Guard: "hsm"}))
		var slow struct {
			meter
			entered atomic.Int64
		}
		b.work = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/sign" {
				slow.enter()
				slow.entered.Add(1)
				defer slow.exit()
				time.Sleep(10 * time.Second)
			}
			time.Sleep(100 * time.Millisecond)
		})
		for range 10 {
			b.arrive("learns", to("sign", alice)).answered(b.now() + 10100*time.Millisecond)
		}
		for range 60 {
			b.arrive("learns", to("ocsp", alice)).answered(b.now() + 100*time.Millisecond)
		}
		ctx, stop := context.WithCancel(t.Context())
		var crowd, late sync.WaitGroup
		for i := range 8 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					b.h.ServeHTTP(httptest.NewRecorder(), to("ocsp", "198.51.100."+strconv.Itoa(i)).WithContext(ctx))
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		slow.most.Store(0)
		before := slow.entered.Load()
		for i := range 8 {
			late.Go(func() {
				for range 900 { // half a minute, with those who have to wait
					ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
					b.h.ServeHTTP(httptest.NewRecorder(), to("sign", "192.0.2."+strconv.Itoa(i)).WithContext(ctx))
					cancel()
					time.Sleep(20 * time.Millisecond)
				}
			})
		}
		late.Wait()
		stop()
		crowd.Wait()
		occupied(t, b.l, 0, 0)
		if n, tries := slow.most.Load(), slow.entered.Load()-before; n != 1 || tries > 3 {
			t.Errorf("%d tries held a slot, %d of them at once; want 1 at once, and not one after the other", tries, n)
		}
	})
}
