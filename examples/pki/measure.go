package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// measureConfig says how to measure.
type measureConfig struct {
	keys     keyConfig
	period   time.Duration // without the crowd, and again with it
	settling time.Duration // how long the crowd enrols before anything is measured
	rounds   int           // of all ways, each in another order
	crowd    int           // devices that enrol at once
	rate     float64       // questions of OCSP a second
}

// In the story, so many clients ask OCSP, each with a pause between questions.
const (
	ocspClients = 4
	ocspPause   = 100 * time.Millisecond
)

// ways are the ways to share out the HSM.
var ways = []struct {
	title  string
	limits func(weir.Config) weir.Config
}{
	{fmt.Sprintf("guard, %d sessions reserved for OCSP", statusReserve), guarded},
	{fmt.Sprintf("the same, %d may wait", longQueue), patiently(guarded)},
	{"guard, one queue for all", crowded},
	{"no guard, the session pool alone", unguarded},
}

// longQueue has a place for every device of the crowd, so that each has a request
// under way all the time.
const longQueue = 512

func patiently(limits func(weir.Config) weir.Config) func(weir.Config) weir.Config {
	return func(cfg weir.Config) weir.Config {
		cfg = limits(cfg)
		guard := cfg.Guards[guardHSM]
		guard.MaxQueue = longQueue
		cfg.Guards[guardHSM] = guard
		return cfg
	}
}

// measure writes how long OCSP takes alone and beside a crowd that enrols, for each
// way to share out the HSM: medians over the rounds, and of OCSP's p99 the least and
// the most. The rounds begin with another way each, so that
// what else the machine does meets all alike. The figures are those of one
// machine, on which servers, HSM and crowd share the processors.
func measure(ctx context.Context, w io.Writer, cfg measureConfig) error {
	hsm, err := softhsm.Open(softhsm.Config{Sessions: cfg.keys.sessions, Bits: cfg.keys.bits, Latency: cfg.keys.latency})
	if err != nil {
		return err
	}
	defer hsm.Close()
	fmt.Fprintf(w, "RSA-%d in an HSM of %d sessions", cfg.keys.bits, hsm.Sessions())
	if cfg.keys.latency > 0 {
		fmt.Fprintf(w, ", %v a signature at least", cfg.keys.latency)
	}
	fmt.Fprintf(w, ". OCSP %v times a second, alone and beside %d devices that enrol; %d rounds of 2 times %v.\n\n",
		cfg.rate, cfg.crowd, cfg.rounds, cfg.period)
	trials := make([][]trial, len(ways))
	for round := range cfg.rounds {
		for i := range ways {
			n := (i + round) % len(ways)
			t, err := tried(ctx, hsm, ways[n].limits(generousLimits()), cfg)
			if err != nil {
				return fmt.Errorf("%s: %w", ways[n].title, err)
			}
			trials[n] = append(trials[n], t)
		}
	}
	fmt.Fprint(w, "| | alone p50 ms | p99 | beside p50 ms | p99 | of p99, times | shed | failed | enrolled/s | no session | processors used | waited for |\n",
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for n, way := range ways {
		fmt.Fprintf(w, "| %s %s\n", way.title, row(trials[n]))
	}
	return nil
}

// row sums a way's trials up.
func row(trials []trial) string {
	ms := func(took func(trial) []time.Duration, q float64) []float64 {
		return each(trials, func(t trial) float64 { return quantile(took(t), q).Seconds() * 1000 })
	}
	alone := func(t trial) []time.Duration { return t.alone }
	beside := func(t trial) []time.Duration { return t.beside }
	spread := func(of []float64) string {
		return fmt.Sprintf("%.0f (%.0f–%.0f)", median(of), slices.Min(of), slices.Max(of))
	}
	shed, failed, asked := 0, 0, 0
	for _, t := range trials {
		shed, failed = shed+t.shed, failed+t.failed
		asked += len(t.beside) + t.shed + t.failed
	}
	percent := func(n int) float64 { return 100 * float64(n) / float64(max(1, asked)) }
	return fmt.Sprintf("| %.0f | %s | %.0f | %s | %.1f | %.1f %% | %.1f %% | %.0f | %.0f | %.1f | %.1f |",
		median(ms(alone, 0.5)), spread(ms(alone, 0.99)), median(ms(beside, 0.5)), spread(ms(beside, 0.99)),
		median(each(trials, trial.times)), percent(shed), percent(failed),
		median(each(trials, func(t trial) float64 { return t.enrolled })),
		median(each(trials, func(t trial) float64 { return float64(t.noSession) })),
		median(each(trials, func(t trial) float64 { return t.used })),
		median(each(trials, func(t trial) float64 { return t.wanted })))
}

func each(trials []trial, of func(trial) float64) []float64 {
	all := make([]float64, len(trials))
	for i, t := range trials {
		all[i] = of(t)
	}
	return all
}

// median of some numbers; of an even count the higher of the two in the middle.
func median[T cmp.Ordered](of []T) T {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
