package store

import (
	"math"
	"math/rand/v2"
	"testing"
)

// exact is a bucket in whole numbers: the rate is p/q tokens a second, and a
// token q·10⁹ units, so that a nanosecond refills p units and nothing is ever
// rounded. Like a bucket it lends what is short by less than a nanosecond.
type exact struct {
	p, token, burst int64
	units           int64
	last            int64
}

func newExact(p, q, burst, now int64) *exact {
	token := q * 1e9
	return &exact{p: p, token: token, burst: burst * token, units: burst * token, last: now}
}

func (e *exact) advance(now int64) {
	e.units = min(e.burst, e.units+(now-e.last)*e.p)
	e.last = now
}

// Ten million operations move a bucket by less than a millionth of a token from
// what exact arithmetic says, and change no decision but a tie: where exactly
// one nanosecond of refill is short, rounding decides.
func TestDriftOverTenMillionOperations(t *testing.T) {
	t.Parallel()
	ops := 10_000_000
	if raceDetector {
		ops /= 20
	}
	for _, tt := range []struct {
		name        string
		p, q, burst int64
	}{
		{"330000 a second, whose interval no clock can tell", 330_000, 1, 100},
		{"one in three seconds", 1, 3, 10},
		{"a million a second with a deep burst", 1_000_000, 1, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(uint64(tt.p), uint64(tt.q)))
			l := Limit{Rate: float64(tt.p) / float64(tt.q), Burst: float64(tt.burst)}
			now, b, e := int64(1), bucket{l.Burst, 1}, newExact(tt.p, tt.q, tt.burst, 1)
			// Nine tenths of what is asked for comes in: the bucket is mostly
			// low, so it is seldom full, which would forget the drift.
			step := uint64(1.8 * 1e9 / l.Rate)
			worst, ties := 0.0, 0
			for range ops {
				now += int64(r.Uint64N(step))
				e.advance(max(now, e.last))
				next, ok := b.take(now, l, 1)
				if rest := e.units - e.token; ok != (rest > -e.p) {
					if rest != -e.p {
						t.Fatalf("at %d ns: took %v with %d of %d units", now, ok, e.units, e.token)
					}
					ties++
				}
				if !ok {
					continue
				}
				b = next
				e.units -= e.token
				e.advance(max(e.last, b.last)) // what was lent is paid by then
				worst = max(worst, math.Abs(b.tokens-float64(e.units)/float64(e.token)))
			}
			t.Logf("%d operations: %.2g tokens at most, %d ties went the other way", ops, worst, ties)
			if worst > 1e-6 {
				t.Errorf("drifted by %v tokens", worst)
			}
		})
	}
}
