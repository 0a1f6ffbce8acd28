package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir/examples/pki/softhsm"
)

// brief is a measurement that shows nothing but that it can be made.
func brief() measureConfig {
	return measureConfig{
		keys:   keyConfig{sessions: 8, bits: 2048, latency: 5 * time.Millisecond},
		period: 300 * time.Millisecond, settling: 100 * time.Millisecond,
		rounds: 1, crowd: 20, rate: 100,
	}
}

func TestACrowdInAProcessOfItsOwnEnrolsBesideOCSP(t *testing.T) {
	cfg := brief()
	hsm, err := softhsm.Open(softhsm.Config{Bits: cfg.keys.bits, Latency: cfg.keys.latency, Wait: patient})
	require.NoError(t, err)
	defer func() { require.NoError(t, hsm.Close()) }()
	one, err := tried(t.Context(), hsm, guarded(generousLimits()), cfg)
	require.NoError(t, err)
	require.NotEmpty(t, one.alone)
	require.NotEmpty(t, one.beside)
	require.Positive(t, one.enrolled)
	require.Zero(t, one.shed+one.failed)
	require.Zero(t, one.noSession)
}

func TestAMeasurementHasARowForEachWay(t *testing.T) {
	var out strings.Builder
	require.NoError(t, measure(t.Context(), &out, brief()))
	for _, way := range ways {
		require.Contains(t, out.String(), "\n| "+way.title+" | ")
	}
}

func TestTheMedianIsOfSortedNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 3}} {
		require.Equal(t, tt.want, median(tt.of), "%v", tt.of)
	}
}
