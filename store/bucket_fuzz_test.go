package store

import (
	"encoding/binary"
	"math"
	"testing"
)

// FuzzBucket does to a bucket whatever the bytes say, 25 bytes a step: an
// operation, a change of the clock (either way), a rate or burst, a cost. Under
// a limit that is one, tokens stay within 0 and the burst; under any, the
// bucket stays one that the next sound limit finds sound.
func FuzzBucket(f *testing.F) {
	step := func(op byte, clock int64, limit, cost float64) []byte {
		b := append([]byte{op}, make([]byte, 24)...)
		binary.LittleEndian.PutUint64(b[1:], uint64(clock))
		binary.LittleEndian.PutUint64(b[9:], math.Float64bits(limit))
		binary.LittleEndian.PutUint64(b[17:], math.Float64bits(cost))
		return b
	}
	f.Add(step(0, 1, 1, 1))
	f.Add(append(step(0, 1e9, 0.5, 3), step(1, -1e9, 0, 3)...))
	f.Add(append(step(2, 0, 1e6, 1), step(3, 0, 2, 2)...))
	f.Add(append(step(0, 0, 0, math.NaN()), step(0, math.MaxInt64, 0, math.Inf(1))...))
	f.Add(append(step(2, 0, math.NaN(), -1), step(3, math.MinInt64, -5, math.MaxFloat64)...))
	f.Add(append(step(2, 0, 2e9, 0.5), step(0, 0, 0, 1e-9)...))
	f.Fuzz(func(t *testing.T, steps []byte) {
		l, now := Limit{1, 10}, int64(1)
		b := bucket{l.Burst, now}
		for ; len(steps) >= 25; steps = steps[25:] {
			limit := math.Float64frombits(binary.LittleEndian.Uint64(steps[9:]))
			cost := math.Float64frombits(binary.LittleEndian.Uint64(steps[17:]))
			if next := now + int64(binary.LittleEndian.Uint64(steps[1:])); next > 0 && next < math.MaxInt64/2 {
				now = next
			}
			before := b
			switch steps[0] % 4 {
			case 0:
				var ok bool
				if b, ok = b.take(now, l, cost); !ok && b != before {
					t.Fatalf("refused, but %+v became %+v", before, b)
				}
				if w := before.wait(now, l, cost); !ok && w < 1 {
					t.Fatalf("%+v refused %v under %+v and says to wait %d", before, cost, l, w)
				}
			case 1:
				b = b.refund(l, cost)
			case 2:
				l.Rate = limit
			case 3:
				l.Burst = limit
			}
			sound(t, b, l, now)
			if b.last < before.last {
				t.Fatalf("%+v went back in time to %+v", before, b)
			}
		}
	})
}

// sound claims that b is a bucket: no NaN, nothing below 0, nothing above the
// burst when it is looked at, and full no earlier than its last touch.
func sound(t *testing.T, b bucket, l Limit, now int64) {
	t.Helper()
	if !(b.tokens >= 0) || b.last < 1 {
		t.Fatalf("unsound: %+v", b)
	}
	if got := b.at(now, l); l.Burst >= 0 && !(got >= 0 && got <= l.Burst) {
		t.Fatalf("%+v holds %v under %+v", b, got, l)
	}
	if full := b.fullAt(l); full < b.last {
		t.Fatalf("%+v is said to be full at %d", b, full)
	}
}
