package problem

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryAfterSeconds(t *testing.T) {
	for _, tt := range []struct {
		name string
		wait time.Duration
		want int64
	}{
		{"nothing left to wait is still one second", 0, 1},
		{"a wait in the past is one second", -time.Hour, 1},
		{"the most negative wait is one second", math.MinInt64, 1},
		{"a nanosecond is rounded up", 1, 1},
		{"a whole second stays", time.Second, 1},
		{"a nanosecond more is the next second", time.Second + 1, 2},
		{"a nanosecond less is the same second", 2*time.Second - 1, 2},
		{"ninety days stay", 90 * 24 * time.Hour, 7776000},
		{"the cap is reached exactly", math.MaxUint32 * time.Second, math.MaxUint32},
		{"below the cap rounds up to it", math.MaxUint32*time.Second - 1, math.MaxUint32},
		{"above the cap stops there", math.MaxUint32*time.Second + 1, math.MaxUint32},
		{"a bucket that never refills gets the cap", math.MaxInt64, math.MaxUint32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, RetryAfterSeconds(tt.wait))
		})
	}
}

// The model divides exactly and rounds up by definition.
func TestRetryAfterSecondsAgreesWithExactDivision(t *testing.T) {
	model := func(d time.Duration) int64 {
		quotient, rest := new(big.Int).DivMod(big.NewInt(int64(d)), big.NewInt(int64(time.Second)), new(big.Int))
		if rest.Sign() > 0 {
			quotient.Add(quotient, big.NewInt(1))
		}
		return min(max(quotient.Int64(), 1), 4294967295)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		d := time.Duration(rng.Uint64()) >> rng.IntN(63)
		require.Equal(t, model(d), RetryAfterSeconds(d), "wait %d ns", d)
	}
}

func TestWaitInWords(t *testing.T) {
	for secs, want := range map[int64]string{
		1:             "in 1 second",
		2:             "in 2 seconds",
		59:            "in 59 seconds",
		60:            "in 1 minute",
		61:            "in 61 seconds",
		119:           "in 119 seconds",
		120:           "in 2 minutes",
		121:           "in 3 minutes",
		3600:          "in 1 hour",
		3601:          "in 61 minutes",
		5400:          "in 90 minutes",
		7200:          "in 2 hours",
		7201:          "in 3 hours",
		86400:         "in 1 day",
		86401:         "in 25 hours",
		172800:        "in 2 days",
		172801:        "in 3 days",
		366 * 86400:   "in 366 days",
		366*86400 + 1: "in more than a year",
		maxRetryAfter: "in more than a year",
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, string(appendWait(nil, secs)))
		})
	}
}

// Whoever believes the words must not come back before Retry-After, nor wait
// more than half as long again.
func TestWaitInWordsIsNeverEarlierThanTheHeader(t *testing.T) {
	units := map[string]int64{"second": 1, "minute": 60, "hour": 3600, "day": 86400}
	for secs := int64(1); secs <= 366*86400; secs += 1 + secs/97 {
		words := string(appendWait(nil, secs))
		var number, unit string
		for i := len("in "); i < len(words); i++ {
			if words[i] == ' ' {
				number, unit = words[len("in "):i], words[i+1:]
			}
		}
		if unit[len(unit)-1] == 's' {
			unit = unit[:len(unit)-1]
		}
		n, err := strconv.ParseInt(number, 10, 64)
		require.NoError(t, err, words)
		said := n * units[unit]
		require.GreaterOrEqual(t, said, secs, words)
		require.LessOrEqual(t, said, secs+secs/2, words)
	}
}
