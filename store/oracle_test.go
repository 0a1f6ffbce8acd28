package store

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

// For one key, one caller and time that does not run backwards, decisions are
// those of golang.org/x/time/rate. (With several callers it is no oracle: a
// stale reading of the clock rewinds it.)
//
// Left out are ties: both borrow what is short by less than a nanosecond of
// refill, so where exactly a nanosecond is short, the last bit of a float64
// decides, and the two do not round alike.
func TestDecisionsAreThoseOfTimeRate(t *testing.T) {
	t.Parallel()
	rates := []float64{1.0 / 3, 1e-3, 1e6, 3.3e5, 3e5, 1, 7, 10, 100.0 / 7, 1e5 / 3, 0.4, 1e-6, 12345.678, math.Pi}
	const ops = 10_000
	ties := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := Limit{Rate: rates[int(seed)%len(rates)], Burst: float64(1 + r.IntN(20))}
		if seed >= 40 {
			l.Rate = math.Exp(r.Float64()*30 - 12) // 6e-6 … 6e7
		}
		ties += compareWithTimeRate(t, r, l, ops)
	}
	t.Logf("%d ties in %d decisions", ties, 60*ops)
	if ties > 60*ops/20 {
		t.Errorf("%d of %d decisions were ties: too many left out", ties, 60*ops)
	}
}

func compareWithTimeRate(t *testing.T, r *rand.Rand, l Limit, ops int) (ties int) {
	base := time.Unix(0, 0)
	x := rate.NewLimiter(rate.Limit(l.Rate), int(l.Burst))
	b, now := bucket{l.Burst, 1}, int64(1)
	x.AllowN(base.Add(1), 0) // sets its clock
	interval := 1e9 / l.Rate
	for op := range ops {
		if now > math.MaxInt64/4 {
			break // 73 years: the slow rates get there
		}
		switch r.IntN(6) {
		case 0: // at the same instant
		case 1, 2: // exactly one token later
			now += int64(interval)
		case 3:
			now += int64(math.Ceil(interval))
		case 4:
			now += r.Int64N(int64(2*interval*l.Burst/4) + 2)
		case 5:
			now += max(0, int64(interval)+r.Int64N(5)-2)
		}
		cost := r.IntN(int(l.Burst) + 3)
		if short := float64(cost) - b.at(now, l); math.Abs(short-l.Rate/1e9) < 1e-12*l.Burst {
			ties++
			continue
		}
		want := x.AllowN(base.Add(time.Duration(now)), cost)
		next, got := b.take(now, l, float64(cost))
		if got != want {
			t.Fatalf("%+v, op %d at %d ns, cost %d: took %v, x/time/rate %v; it holds %v, we hold %v", l, op, now, cost,
				got, want, x.TokensAt(base.Add(time.Duration(now))), b.at(now, l))
		}
		b = next
	}
	return ties
}
