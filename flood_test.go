package weir

import (
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// floodClients is how many clients the flood has. The race detector makes each
// request twenty times as slow, and a flood from one goroutine gives it nothing
// to find: under it, this number stays, and the bound goes with it.
var floodClients = 40_000

// flood is a spray: each request comes from another address and claims another
// account.
type flood struct {
	h    http.Handler
	r    *http.Request
	n    uint32
	text [64]byte
	sent int
	got  int // admitted
}

func newFlood(h http.Handler) *flood { return &flood{h: h, r: claiming("", "10.0.0.0")} }

func (f *flood) send(n int) {
	w := &nullWriter{h: http.Header{}}
	claim := []string{""}
	f.r.Header["Account"] = claim
	for range n {
		f.n++
		b := f.text[:0]
		for shift := 24; shift >= 0; shift -= 8 {
			b = append(strconv.AppendUint(b, uint64((f.n+0x0b000000)>>shift&255), 10), '.')
		}
		b[len(b)-1] = ':'
		f.r.RemoteAddr = string(append(b, '1'))
		claim[0] = f.r.RemoteAddr
		w.status = 0
		f.h.ServeHTTP(w, f.r)
		if f.sent++; w.status == http.StatusOK {
			f.got++
		}
	}
}

// heap is what is live, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Two million distinct addresses and accounts (requirement T4): memory stays
// at the bound, nobody is blocked for it, and who was drained stays drained.
func TestFloodOfTwoMillionClientsLeavesTheBoundAndTheDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := floodClients
		cfg := noTiers()
		cfg.Tiers.MaxKeys = clients / 20
		cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(10), perHour(5)
		l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
		h := l.Handler(bareHandler)
		drained := func() {
			t.Helper()
			refusedBy(t, h, claiming("victim", "192.0.2.2"), TierPerAccount)
			refusedBy(t, h, claiming("other", addr1), TierPerIP)
			refusedBy(t, h, claiming("victim", addr1), TierPerIP) // both; the longer wait is the address's
		}
		for i := range 10 {
			if code := send(h, claiming([]string{"victim", "second"}[i%2], addr1)).Code; code != http.StatusOK {
				t.Fatalf("request %d of the victim is answered %d", i, code)
			}
		}
		drained()

		before := heap()
		f := newFlood(h)
		f.send(clients)
		if f.got != clients {
			t.Errorf("%d of %d newcomers were refused", clients-f.got, clients)
		}
		drained()
		for _, scope := range []string{TierPerIP, TierPerAccount} {
			s := tierOf(t, l, scope)
			if s.Keys > s.MaxKeys || s.MaxKeys != cfg.Tiers.MaxKeys {
				t.Errorf("%s holds %d keys of at most %d", scope, s.Keys, s.MaxKeys)
			}
			if lost := uint64(clients - s.MaxKeys); s.Evicted < lost {
				t.Errorf("%s counts %d evictions, want at least %d", scope, s.Evicted, lost)
			}
		}
		// Two tables of MaxKeys, 40 bytes each, at most four thirds of that in
		// places, doubling on the way, and a shard's worth to spare.
		if grown := int64(heap()) - int64(before); grown > int64(240*cfg.Tiers.MaxKeys)+1<<20 {
			t.Errorf("the heap has grown by %d KiB", grown>>10)
		}

		// Who is full again is no loss.
		time.Sleep(10 * time.Hour)
		evicted := tierOf(t, l, TierPerIP).Evicted
		f.send(clients / 40)
		if s := tierOf(t, l, TierPerIP); s.Evicted != evicted || s.Keys > s.MaxKeys {
			t.Errorf("%d more evictions although all others were full again, %d keys", s.Evicted-evicted, s.Keys)
		}
		if f.got != f.sent {
			t.Errorf("%d newcomers were refused", f.sent-f.got)
		}
	})
}

// A flood that one limit refuses makes no keys in the tables of the others.
func TestRefusedFloodMakesNoKeys(t *testing.T) {
	cfg := noTiers()
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(1), perHour(10), perHour(10)
	l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
	f := newFlood(l.Handler(bareHandler))
	f.send(10_000)
	if f.got != 1 {
		t.Errorf("%d were admitted, want 1", f.got)
	}
	for _, scope := range []string{TierPerIP, TierPerAccount} {
		if s := tierOf(t, l, scope); s.Keys != 1 || s.Evicted != 0 {
			t.Errorf("%s holds %d keys and has evicted %d, want 1 and 0", scope, s.Keys, s.Evicted)
		}
	}
}
