package store

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	second = int64(time.Second)
	hour   = int64(time.Hour)
)

func TestBucketOverTime(t *testing.T) {
	l := Limit{Rate: 2, Burst: 10}
	for _, tt := range []struct {
		name string
		from bucket
		l    Limit
		now  int64
		want float64
	}{
		{"holds what it held at the same instant", bucket{3, second}, l, second, 3},
		{"refills at the rate", bucket{3, second}, l, 2 * second, 5},
		{"refills in fractions", bucket{3, second}, l, second + second/4, 3.5},
		{"stops at the burst", bucket{3, second}, l, 5 * second, 10},
		{"refills nothing when the clock is set back", bucket{3, hour}, l, second, 3},
		{"is full and not more after 200 years", bucket{0, 1}, l, 200 * 365 * 24 * hour, 10},
		{"does not overflow at the end of time", bucket{0, 1}, Limit{1e9, 10}, math.MaxInt64, 10},
		{"refills at the rate in force now", bucket{3, second}, Limit{4, 10}, 2 * second, 7},
		{"is clamped to a lower burst", bucket{9, second}, Limit{2, 5}, second, 5},
		{"never refills at rate 0", bucket{3, 1}, Limit{0, 10}, hour, 3},
		{"never drains at a negative rate", bucket{3, 1}, Limit{-1, 10}, hour, 3},
		{"never refills at a rate that is no number", bucket{3, 1}, Limit{math.NaN(), 10}, hour, 3},
		{"is full at once at an infinite rate", bucket{3, 1}, Limit{math.Inf(1), 10}, 2, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.from.at(tt.now, tt.l); got != tt.want {
				t.Errorf("%+v under %+v at %d: %v tokens, want %v", tt.from, tt.l, tt.now, got, tt.want)
			}
		})
	}
}

func TestBucketTake(t *testing.T) {
	l := Limit{Rate: 1, Burst: 10}
	for _, tt := range []struct {
		name string
		from bucket
		l    Limit
		now  int64
		cost float64
		want bucket
		ok   bool
	}{
		{"spends what is there", bucket{3, second}, l, second, 3, bucket{0, second}, true},
		{"spends what has come in", bucket{3, second}, l, 2 * second, 4, bucket{0, 2 * second}, true},
		{"leaves what is not enough", bucket{3, second}, l, second, 4, bucket{3, second}, false},
		{"spends a fraction", bucket{1, second}, l, second, 0.25, bucket{0.75, second}, true},
		{"asks at no cost", bucket{0, second}, l, second, 0, bucket{0, second}, true},
		{"refuses a cost above the burst", bucket{10, second}, l, hour, 10.5, bucket{10, second}, false},
		{"keeps its instant when the clock is set back", bucket{3, hour}, l, second, 1, bucket{2, hour}, true},
		{"lends nothing when the clock is set back", bucket{0.9999999999, hour}, l, second, 1, bucket{0.9999999999, hour}, false},
		{"refuses a negative cost", bucket{3, second}, l, second, -1, bucket{3, second}, false},
		{"refuses a cost that is no number", bucket{3, second}, l, second, math.NaN(), bucket{3, second}, false},
		{"refuses an infinite cost of an infinite burst", bucket{3, 1}, Limit{1, math.Inf(1)}, second, math.Inf(1), bucket{3, 1}, false},
		{"refuses under a rate that is no number", bucket{3, 1}, Limit{math.NaN(), 10}, second, 4, bucket{3, 1}, false},
		{"refuses under a burst that is no number", bucket{3, 1}, Limit{1, math.NaN()}, second, 1, bucket{3, 1}, false},
		{"refuses under a negative burst", bucket{3, 1}, Limit{1, -1}, second, 0, bucket{3, 1}, false},
		{"refuses a nanosecond early by two", bucket{0, 1}, l, second - 1, 1, bucket{0, 1}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := tt.from.take(tt.now, tt.l, tt.cost)
			if got != tt.want || ok != tt.ok {
				t.Errorf("%+v takes %v at %d under %+v: %+v, %v, want %+v, %v", tt.from, tt.cost, tt.now, tt.l, got, ok, tt.want, tt.ok)
			}
		})
	}
}

// What is short by less than a nanosecond of refill is lent once, not again and
// again while the clock stands still or is late.
func TestBucketLendsLessThanANanosecond(t *testing.T) {
	for _, l := range []Limit{{1e6, 1}, {1e9, 5}, {3e9, 1}, {5e8, 1}} {
		cost := min(1, l.Rate/1e9/2) // half of what a nanosecond brings
		for _, now := range []int64{second, second - 1} {
			b, spent := bucket{0, second}, 0.0
			for range 1000 {
				var ok bool
				if b, ok = b.take(now, l, cost); ok {
					spent += cost
				}
			}
			// What is lent comes with the rest of what that nanosecond brings.
			if most := min(l.Rate/1e9, cost+l.Burst); spent > most+1e-9 {
				t.Errorf("%+v: an empty bucket paid %v at one instant, at most %v were due", l, spent, most)
			}
		}
	}
}

func TestBucketRefund(t *testing.T) {
	l := Limit{Rate: 1, Burst: 10}
	for _, tt := range []struct {
		name string
		from bucket
		l    Limit
		cost float64
		want bucket
	}{
		{"gives back to the bit", bucket{6.25, second}, l, 3, bucket{9.25, second}},
		{"stops at the burst", bucket{9.5, second}, l, 3, bucket{10, second}},
		{"stops at a lower burst", bucket{4, second}, Limit{1, 5}, 3, bucket{5, second}},
		{"clamps what a lower burst does not hold", bucket{8, second}, Limit{1, 5}, 1, bucket{5, second}},
		{"takes nothing for a negative cost", bucket{6, second}, l, -3, bucket{6, second}},
		{"gives nothing for no number", bucket{6, second}, l, math.NaN(), bucket{6, second}},
		{"gives nothing under a burst that is no number", bucket{6, second}, Limit{1, math.NaN()}, 1, bucket{6, second}},
		{"fills for an infinite cost", bucket{6, second}, l, math.Inf(1), bucket{10, second}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.from.refund(tt.l, tt.cost); got != tt.want {
				t.Errorf("%+v gets %v back under %+v: %+v, want %+v", tt.from, tt.cost, tt.l, got, tt.want)
			}
		})
	}
}

// A refund at the bucket's instant is what a refund at any later touch would
// have been, which is why it needs no clock. For whole costs it undoes a spend
// to the bit.
func TestBucketRefundNeedsNoClock(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		l, b, now := randomBucket(r)
		b.tokens = math.Trunc(b.tokens)
		cost := float64(r.IntN(int(l.Burst) + 1))
		if spent, ok := b.take(b.last, l, cost); ok && cost <= b.tokens {
			if got := spent.refund(l, cost); got != b {
				t.Fatalf("%+v spends %v and gets it back: %+v", b, cost, got)
			}
		}
		got, want := b.refund(l, cost).at(now, l), min(l.Burst, b.at(now, l)+cost)
		if math.Abs(got-want) > 1e-12*l.Burst {
			t.Fatalf("%+v under %+v, refund %v: %v at %d, want %v", b, l, cost, got, now, want)
		}
	}
}

func TestBucketNeverFallsWhileNobodySpends(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200_000 {
		l, b, now := randomBucket(r)
		later := now + r.Int64N(1+1<<r.IntN(50))
		if b.at(later, l) < b.at(now, l) {
			t.Fatalf("%+v under %+v: %v at %d, %v at %d", b, l, b.at(now, l), now, b.at(later, l), later)
		}
	}
}

// Whoever waits as told is admitted, and whoever comes two nanoseconds early is
// not. (One may be: what is short by less than one is lent.)
func TestBucketWaitIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	early, never := 0, 0
	for range 300_000 {
		l, b, now := randomBucket(r)
		cost := r.Float64() * l.Burst
		if r.IntN(2) == 0 {
			cost = float64(r.IntN(int(l.Burst) + 1))
		}
		if r.IntN(8) == 0 {
			now -= r.Int64N(hour) // the clock was set back
		}
		if _, ok := b.take(now, l, cost); ok {
			continue
		}
		w := b.wait(now, l, cost)
		if w == Never {
			never++
			continue
		}
		if w < 1 {
			t.Fatalf("%+v under %+v, cost %v: wait %d", b, l, cost, w)
		}
		if _, ok := b.take(now+int64(w), l, cost); !ok {
			t.Fatalf("%+v under %+v, cost %v at %d: refused after the wait of %d ns", b, l, cost, now, w)
		}
		// A float64 must tell the nanoseconds of the wait and the refill of one.
		if w > 2 && w < 1<<50 && l.Rate/1e9 > 1e-14*l.Burst {
			early++
			if _, ok := b.take(now+int64(w)-2, l, cost); ok {
				t.Fatalf("%+v under %+v, cost %v at %d: admitted 2 ns before the wait of %d ns", b, l, cost, now, w)
			}
		}
	}
	if early < 10_000 || never > 1000 {
		t.Errorf("only %d of the waits were looked at from before, %d were Never", early, never)
	}
}

func TestBucketWaitsThatAreNever(t *testing.T) {
	for _, tt := range []struct {
		name string
		l    Limit
		cost float64
	}{
		{"cost above the burst", Limit{1, 5}, 6},
		{"rate 0", Limit{0, 5}, 1},
		{"negative rate", Limit{-1, 5}, 1},
		{"rate that is no number", Limit{math.NaN(), 5}, 1},
		{"burst 0", Limit{1, 0}, 1},
		{"burst that is no number", Limit{1, math.NaN()}, 1},
		{"negative cost", Limit{1, 5}, -1},
		{"cost that is no number", Limit{1, 5}, math.NaN()},
		{"infinite cost", Limit{1, 5}, math.Inf(1)},
		{"longer than the clock runs", Limit{1e-12, 5}, 5},
		{"longer than any clock runs", Limit{math.SmallestNonzeroFloat64, 5}, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := (bucket{0, 1}).wait(1, tt.l, tt.cost); got != Never {
				t.Errorf("wait %v, want Never", got)
			}
		})
	}
}

func TestBucketFullAtIsNeverEarly(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300_000 {
		l, b, _ := randomBucket(r)
		if r.IntN(4) == 0 {
			l.Rate /= 1e6 // months and years
		}
		full := b.fullAt(l)
		if got := b.at(full, l); full != math.MaxInt64 && got != l.Burst {
			t.Fatalf("%+v under %+v is said to be full at %d and holds %v", b, l, full, got)
		}
		if exact := (l.Burst - b.tokens) / l.Rate * 1e9; float64(full-b.last) > exact*(1+1e-12)+3 && full != math.MaxInt64 {
			t.Fatalf("%+v under %+v is said to be full %d ns later, %v would do", b, l, full-b.last, exact)
		}
	}
	for _, tt := range []struct {
		name string
		b    bucket
		l    Limit
		want int64
	}{
		{"full already", bucket{5, 7}, Limit{1, 5}, 7},
		{"above a lowered burst", bucket{5, 7}, Limit{1, 3}, 7},
		{"rate 0", bucket{4, 7}, Limit{0, 5}, math.MaxInt64},
		{"rate that is no number", bucket{4, 7}, Limit{math.NaN(), 5}, math.MaxInt64},
		{"burst that is no number", bucket{4, 7}, Limit{1, math.NaN()}, math.MaxInt64},
		{"longer than the clock runs", bucket{4, 7}, Limit{1e-12, 5}, math.MaxInt64},
	} {
		if got := tt.b.fullAt(tt.l); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// randomBucket returns a sound bucket under a limit with anything from a token
// a day to a million a second, and an instant at or after its last.
func randomBucket(r *rand.Rand) (Limit, bucket, int64) {
	rates := []float64{1.0 / 3, 1e-3, 1e6, 3.3e5, 1, 7, 0.4, 100.0 / 7}
	l := Limit{Rate: rates[r.IntN(len(rates))], Burst: float64(1 + r.IntN(1<<r.IntN(11)))}
	if r.IntN(2) == 0 {
		l.Rate = math.Exp(r.Float64()*25 - 11.3)
	}
	if r.IntN(4) == 0 {
		l.Burst += r.Float64()
	}
	b := bucket{tokens: r.Float64() * l.Burst, last: 1 + r.Int64N(1<<r.IntN(55))}
	return l, b, b.last + r.Int64N(1+int64(min(1e15, l.Burst/l.Rate*1e9)))
}
