package quota

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var inf, nan = math.Inf(1), math.NaN()

func TestUnitsRoundDownToWhatAFieldHolds(t *testing.T) {
	for _, tt := range []struct {
		name string
		x    float64
		want int64
	}{
		{"nothing", 0, 0},
		{"less than one", 0.999, 0},
		{"one", 1, 1},
		{"almost two", 1.999999, 1},
		{"the largest", 999_999_999_999_999, 999_999_999_999_999},
		{"one more", 1e15, 999_999_999_999_999},
		{"past 64 bits", 1e19, 999_999_999_999_999},
		{"infinite", inf, 999_999_999_999_999},
		{"negative", -3, 0},
		{"negative without end", -inf, 0},
		{"no number", nan, 0},
		{"the smallest", math.SmallestNonzeroFloat64, 0},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, units(tt.x)) })
	}
}

func TestSecondsRoundUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		d    time.Duration
		want int64
	}{
		{"nothing", 0, 0},
		{"negative", -time.Hour, 0},
		{"the most negative", math.MinInt64, 0},
		{"a nanosecond", 1, 1},
		{"a second", time.Second, 1},
		{"a second and a nanosecond", time.Second + 1, 2},
		{"an hour", time.Hour, 3600},
		{"136 years", maxSeconds * time.Second, maxSeconds},
		{"for ever", math.MaxInt64, maxSeconds},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, seconds(tt.d)) })
	}
}

func TestSpansNeitherOverflowNorVanish(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    float64
		want time.Duration
	}{
		{"nothing", 0, 0},
		{"negative", -1, 0},
		{"no number", nan, 0},
		{"less than a nanosecond", 1e-12, 1},
		{"the smallest number", math.SmallestNonzeroFloat64, 1},
		{"three tenths and a rounding error", 0.1 + 0.2, 300 * time.Millisecond},
		{"a whole number and a rounding error", 30.000000000000004, 30 * time.Second},
		{"a century", 3.15576e9, 3_155_760_000 * time.Second},
		{"136 years", maxSeconds, maxSeconds * time.Second},
		{"past 64 bits", 1e300, maxSeconds * time.Second},
		{"infinite", inf, maxSeconds * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, span(tt.s)) })
	}
}

func TestTheResetTimeIsLaterThanNow(t *testing.T) {
	const noon = 1_800_000_000
	for _, tt := range []struct {
		name string
		now  time.Time
		d    time.Duration
		want int64
	}{
		{"now, on the second, is told as the next", time.Unix(noon, 0), 0, noon + 1},
		{"now, within a second, is told as the next", time.Unix(noon, 1), 0, noon + 1},
		{"the last nanosecond", time.Unix(noon, 999_999_999), 0, noon + 1},
		{"a nanosecond", time.Unix(noon, 0), 1, noon + 1},
		{"a whole minute", time.Unix(noon, 0), time.Minute, noon + 60},
		{"a window's boundary is told exactly", time.Unix(noon, 250_000_000), 59*time.Second + 750*time.Millisecond, noon + 60},
		{"a fraction past the second rounds up", time.Unix(noon, 0), 60*time.Second + 1, noon + 61},
		{"136 years", time.Unix(noon, 0), maxSeconds * time.Second, noon + maxSeconds},
		{"a clock before 1970 is not told", time.Time{}, time.Minute, 0},
		{"a clock without sense", time.Unix(math.MaxInt64, 0), time.Minute, 0},
		{"a clock past what a field holds", time.Unix(1e16, 0), time.Minute, maxUnits},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, resetTime(tt.now, tt.d)) })
	}
}

func TestABucketIsToldByItsRate(t *testing.T) {
	for _, tt := range []struct {
		name                string
		burst, tokens, rate float64
		remaining, window   int64
		effective           int64
		reset               time.Duration
	}{
		{"a full one", 40, 40, 20, 40, 2, 2, 0},
		{"one that is nearly full does not invite to a stampede", 40, 39, 20, 39, 2, 2, 50 * time.Millisecond},
		{"half a bucket", 40, 20, 20, 20, 2, 1, time.Second},
		{"an empty one", 40, 0, 20, 0, 2, 1, 2 * time.Second},
		{"an empty slow one wants patience for one token, not for ten", 10, 0, 1.0 / 720, 0, 7200, 720, 7200 * time.Second},
		{"a token that is half there", 10, 0.5, 1.0 / 720, 0, 7200, 360, 6840 * time.Second},
		{"a token that is almost there", 10, 0.999, 1, 0, 10, 1, 9001 * time.Millisecond},
		{"fractions round down", 10, 9.99, 1, 9, 10, 9, 10 * time.Millisecond},
		{"a third of a token a second", 10, 3, 1.0 / 3, 3, 30, 9, 21 * time.Second},
		{"faster than the second", 1, 1, 1000, 1, 1, 1, 0},
		{"faster than the clock", 1, 0, 1e12, 0, 1, 1, 1},
		{"more tokens than the burst, as after a reload", 5, 8, 1, 5, 5, 5, 0},
		{"a negative number of tokens", 5, -3, 1, 0, 5, 1, 5 * time.Second},
		{"a burst below one", 0.5, 0.5, 1, 0, 1, 1, 0},
		{"once in a millennium", 1, 0, 1.0 / 31_557_600_000, 0, maxSeconds, maxSeconds, maxSeconds * time.Second},
		{"tokens that are no number", 5, nan, 1, 0, 5, 1, 0},
		{"a burst that is no number", nan, 5, 1, 0, 0, 1, 0},
		{"a burst without end", inf, inf, 1, maxUnits, maxSeconds, maxSeconds, 0},
		{"a rate without end", 5, 0, inf, 0, 0, 1, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := Quota{Name: "per_ip", Limit: tt.burst, Remaining: tt.tokens, Rate: tt.rate, Window: time.Hour, Reset: time.Hour}
			require.Equal(t, tt.remaining, q.remaining(), "remaining")
			require.Equal(t, tt.window, q.window(), "window")
			require.Equal(t, tt.effective, q.effective(), "effective window")
			require.Equal(t, tt.reset, q.reset(), "reset")
		})
	}
}

func TestAWindowIsToldAsItIs(t *testing.T) {
	for _, tt := range []struct {
		name              string
		q                 Quota
		remaining, window int64
		effective         int64
	}{
		{"one that has just begun", Quota{Limit: 300, Remaining: 299, Window: time.Minute, Reset: time.Minute}, 299, 60, 60},
		{"one that is about to end", Quota{Limit: 300, Remaining: 300, Window: time.Minute, Reset: 1}, 300, 60, 1},
		{"one that ends now is not told as 0", Quota{Limit: 300, Remaining: 300, Window: time.Minute}, 300, 60, 1},
		{"one that ended a while ago", Quota{Limit: 300, Remaining: 300, Window: time.Minute, Reset: -time.Hour}, 300, 60, 1},
		{"a fraction of a second is a second", Quota{Limit: 1, Remaining: 1, Window: 250 * time.Millisecond, Reset: 1}, 1, 1, 1},
		{"one of unknown length", Quota{Limit: 3, Remaining: 1, Reset: 30 * time.Second}, 1, 0, 30},
		{"nothing but a number", Quota{Limit: 3, Remaining: 1}, 1, 0, 0},
		{"a negative length is unknown", Quota{Limit: 3, Remaining: 1, Window: -1, Reset: -1}, 1, 0, 0},
		{"overdrawn", Quota{Limit: 5, Remaining: -3, Window: time.Minute, Reset: time.Second}, 0, 60, 1},
		{"more than the limit, as after a reload", Quota{Limit: 5, Remaining: 8, Window: time.Minute, Reset: time.Second}, 5, 60, 1},
		{"for ever", Quota{Limit: 5, Window: math.MaxInt64, Reset: math.MaxInt64}, 0, maxSeconds, maxSeconds},
		{"a negative rate is no bucket", Quota{Limit: 5, Rate: -1, Window: time.Minute, Reset: time.Second}, 0, 60, 1},
		{"a rate that is no number is no bucket", Quota{Limit: 5, Rate: nan, Window: time.Minute, Reset: time.Second}, 0, 60, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.remaining, tt.q.remaining(), "remaining")
			require.Equal(t, tt.window, tt.q.window(), "window")
			require.Equal(t, tt.effective, tt.q.effective(), "effective window")
		})
	}
}
