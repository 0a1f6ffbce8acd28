package redis

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// today is an instant that a clock may tell, in microseconds since 1970.
const today = 1_796_019_368_637_122

const second = 1_000_000

// At 100 000 a second a token comes every ten microseconds. What is lost to
// rounding in a million steps of one microsecond is less than a thousandth.
func TestNoRefillIsLostBelowAMillisecond(t *testing.T) {
	t.Parallel()
	s := stop(t, redistest.Start(t))
	c := ask("fast", "k", 100_000, 1000, 1)
	s.at(today)
	admitted(t, s.Store, costing(1000, c))
	now := int64(today)
	got := 0
	for range 1000 {
		now += 7
		s.at(now)
		if v, _ := admit(t, s.Store, c); v.Admitted() {
			got++
		}
	}
	if want := 700; got != want {
		t.Errorf("in 7 ms of 100 000 a second %d were admitted, want %d", got, want)
	}
	s.at(now + second)
	if got := admitted(t, s.Store, costing(0, c))[0].Tokens; got != 1000 {
		t.Errorf("a second later it holds %v", got)
	}
}

// The state of a bucket survives its text to the bit, beyond 2^53 too.
func TestTokensAreKeptToTheBit(t *testing.T) {
	t.Parallel()
	s := stop(t, redistest.Start(t))
	r := rand.New(rand.NewPCG(1, 2))
	s.at(today)
	for range 300 {
		burst := math.Floor(math.Exp(r.Float64() * 40))
		if r.IntN(3) == 0 {
			burst += r.Float64()
		}
		c := ask("bits", "", 0, burst, r.Float64()*burst)
		c.Key[15], c.Key[14] = byte(r.Uint32()), byte(r.Uint32())
		v, _, err := s.Admit(t.Context(), []store.Check{c}, nil)
		if err != nil || !v.Admitted() {
			t.Fatal(v, err)
		}
		// What is left, and nothing more than that, can be taken.
		rest := c.Limit.Burst - c.Cost
		if v, _ := admit(t, s.Store, costing(math.Nextafter(rest, math.Inf(1)), c)); v.Admitted() {
			t.Fatalf("%v less %v paid more than %v", c.Limit.Burst, c.Cost, rest)
		}
		admitted(t, s.Store, costing(rest, c))
		s.server.Do("FLUSHALL")
		s.at(today)
	}
}

// A clock that is set back neither mints tokens nor keeps a bucket from
// refilling until it is there again, whether the caller asks or only looks.
func TestAClockSetBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, back := range []int64{1001, 5 * second, 3600 * second, 365 * 86400 * second} {
		for _, look := range []bool{false, true} {
			s := stop(t, server)
			c := ask("clock", "k", 1, 10, 1)
			s.at(today)
			for range 10 {
				admitted(t, s.Store, c)
			}
			s.at(today - back)
			if look {
				v, _, err := s.Peek(t.Context(), []store.Check{c}, nil)
				if err != nil || v.Admitted() {
					t.Fatalf("set back by %d µs, an empty bucket: %+v, %v", back, v, err)
				}
			} else if v, _ := refused(t, s.Store, c); v.RetryAfter != time.Second {
				t.Errorf("set back by %d µs: a wait of %v, want 1s", back, v.RetryAfter)
			}
			s.at(today - back + 3*second)
			got := 0
			for range 10 {
				if v, _ := admit(t, s.Store, c); v.Admitted() {
					got++
				}
			}
			if got != 3 {
				t.Errorf("set back by %d µs (looked at: %v): %d admitted in the next 3 s, want 3", back, look, got)
			}
		}
	}
}

// A loan of less than a microsecond of refill is paid back even if the clock
// stands still or goes back by that microsecond.
func TestALoanIsPaidBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, path := range [][]int64{{0, 0, 0, 0}, {0, 1, 1, 2, 2, 3}, {0, 1, 0, 1, 0, 1}, {1, 0, 0, 1, 2}} {
		s := stop(t, server)
		const rate = 900_000 // nine tenths of a token each microsecond
		c := ask("loan", "k", rate, 5, 1)
		s.at(today)
		admitted(t, s.Store, costing(5, c))
		got, last := 0, int64(0)
		for _, us := range path {
			last = max(last, us)
			s.at(today + us)
			for range 5 {
				if v, _ := admit(t, s.Store, c); v.Admitted() {
					got++
				}
			}
		}
		if most := float64(last+1) * rate / 1e6; float64(got) > most {
			t.Errorf("%v: an empty bucket paid %d, at most %v were due", path, got, most)
		}
	}
}

// Who waits as told is admitted, and who comes two microseconds early is not.
func TestTheWaitIsExact(t *testing.T) {
	t.Parallel()
	s := stop(t, redistest.Start(t))
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		rate := math.Exp(r.Float64()*20 - 9) // 1e-4 to 6e4
		burst := float64(1 + r.IntN(50))
		c := ask("wait", "", rate, burst, 1+r.Float64()*(burst-1))
		now := int64(today)
		s.at(now)
		admitted(t, s.Store, costing(burst*r.Float64(), c))
		now += r.Int64N(1000)
		s.at(now)
		v, _ := admit(t, s.Store, c)
		if !v.Admitted() {
			us := int64(v.RetryAfter / time.Microsecond)
			if us > 2 {
				s.at(now + us - 2)
				if v, _, _ := s.Peek(t.Context(), []store.Check{c}, nil); v.Admitted() {
					t.Fatalf("%+v: told to wait %d µs and admitted 2 µs before", c, us)
				}
			}
			s.at(now + us)
			admitted(t, s.Store, c)
		}
		s.server.Do("FLUSHALL")
	}
}

func TestWindowsFollowTheServersClock(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := stop(t, server)
	c := within(time.Minute, ask("window", "k", 0, 3, 2))
	const minute = 60 * second
	edge := int64(today/minute*minute + minute)

	s.at(edge - 1)
	if st := admitted(t, s.Store, c)[0]; st.Tokens != 1 || st.Reset != time.Microsecond {
		t.Errorf("a microsecond before the boundary: %+v", st)
	}
	if v, _ := refused(t, s.Store, c); v.RetryAfter != time.Microsecond {
		t.Errorf("a microsecond before the boundary: a wait of %v", v.RetryAfter)
	}
	s.at(edge)
	if st := admitted(t, s.Store, c)[0]; st.Tokens != 1 || st.Reset != time.Minute {
		t.Errorf("at the boundary: %+v", st)
	}

	// Set back over the boundary, the count goes along: no budget twice.
	s.at(edge - 30*second)
	if v, _ := refused(t, s.Store, c); v.RetryAfter != 30*time.Second {
		t.Errorf("set back by half a minute: a wait of %v", v.RetryAfter)
	}
	s.at(edge)
	admitted(t, s.Store, c)
}

// A key lives at least until it says nothing, so that its end hands nothing out.
func TestKeysLiveUntilTheyAreFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, tt := range []struct {
		name        string
		c           store.Check
		least, most time.Duration
	}{
		{"a tenth of a millisecond of refill", ask("ttl", "k", 10_000, 5, 1), time.Second, 2 * time.Second},
		{"an hour of refill", ask("ttl", "k", hourly, 5, 1), time.Hour, 2 * time.Hour},
		{"half a year of refill", ask("ttl", "k", 2.0/86400, 40_000, 31_536_000.0/86400), 182 * 24 * time.Hour, 365 * 24 * time.Hour},
		{"no refill at all", ask("ttl", "k", 0, 5, 1), 36_524 * 24 * time.Hour, 36_526 * 24 * time.Hour},
		{"a refill slower than any clock", ask("ttl", "k", 1e-300, 5, 1), 36_524 * 24 * time.Hour, 36_526 * 24 * time.Hour},
		{"a day's window", within(24*time.Hour, ask("ttl", "k", 0, 5, 1)), time.Second, 27 * time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := alone(t, server)
			states := admitted(t, s, tt.c)
			key := string(s.keys.append(nil, &tt.c))
			ttl := server.Client().PTTL(t.Context(), key).Val() + time.Minute // what has passed since
			if tt.c.Window > 0 {
				tt.least = states[0].Reset
			}
			if ttl < tt.least || ttl > tt.most+time.Minute {
				t.Errorf("lives %v, want %v to %v", ttl, tt.least, tt.most)
			}
			before := server.Client().PTTL(t.Context(), key).Val()
			if err := s.Refund(t.Context(), []store.Check{costing(0.25, tt.c)}); err != nil {
				t.Fatal(err)
			}
			if after := server.Client().PTTL(t.Context(), key).Val(); after <= 0 || after > before {
				t.Errorf("a refund changes the time left from %v to %v", before, after)
			}
		})
	}
}
