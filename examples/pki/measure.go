package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/clients"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// measureConfig says how to measure.
type measureConfig struct {
	keys   keyConfig
	period time.Duration // without the flood, and again with it
	flood  int           // enrolments at once
}

// The usual rate of OCSP: so many clients, each with a pause between questions.
const (
	ocspClients = 4
	ocspPause   = 100 * time.Millisecond
)

// settling is how long the flood goes on before anything is measured: at first
// all its clients connect.
const settling = 3 * time.Second

// measure writes how long OCSP takes alone and beside a flood of enrolments, for
// each way to share out the HSM. The figures are those of one machine, on which
// the servers, the HSM and the crowd share the processors.
func measure(ctx context.Context, w io.Writer, cfg measureConfig) error {
	hsm, err := softhsm.Open(softhsm.Config{Sessions: cfg.keys.sessions, Bits: cfg.keys.bits, Latency: cfg.keys.latency})
	if err != nil {
		return err
	}
	defer hsm.Close()
	fmt.Fprintf(w, "RSA-%d in an HSM of %d sessions", cfg.keys.bits, hsm.Sessions())
	if cfg.keys.latency > 0 {
		fmt.Fprintf(w, ", %v a signature", cfg.keys.latency)
	}
	fmt.Fprintf(w, "; OCSP from %d clients every %v; %d EST enrolments at once.\n\n", ocspClients, ocspPause, cfg.flood)
	for _, way := range []struct {
		title  string
		limits func(weir.Config) weir.Config
	}{
		{"a guard each, a quarter of the sessions for OCSP", guarded},
		{"one guard for both", crowded},
		{"no guard, the session pool alone", unguarded},
	} {
		fmt.Fprintln(w, way.title)
		if err := measureOne(ctx, w, hsm, way.limits(generousLimits()), cfg); err != nil {
			return fmt.Errorf("%s: %w", way.title, err)
		}
	}
	return nil
}

func measureOne(ctx context.Context, w io.Writer, hsm *softhsm.HSM, limits weir.Config, cfg measureConfig) error {
	p, err := openWhole(wholeConfig{signer: signer{hsm.Key, hsm.Sessions()}, limits: limits})
	if err != nil {
		return err
	}
	defer p.Close()
	hc := p.client("")
	defer hc.CloseIdleConnections()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	csr, err := clients.Request("device.example.test", key)
	if err != nil {
		return err
	}
	est := clients.EST{URL: p.urls.est, User: p.user, Password: p.password, HTTP: hc}
	cert, err := est.Enrol(ctx, csr)
	if err != nil {
		return err
	}

	alone := p.ask(ctx, hc, cert, ocspClients, ocspPause)
	pause(ctx, cfg.period)
	idle := alone.stop()

	before := hsm.Key.Usage()
	crowd := p.client("")
	defer crowd.CloseIdleConnections()
	flooding, enrolments := p.flood(ctx, crowd, csr, cfg.flood)
	pause(ctx, settling)
	beside := p.ask(ctx, hc, cert, ocspClients, ocspPause)
	pause(ctx, cfg.period)
	busy := beside.stop()
	flooding()
	failed := hsm.Key.Usage().Failed - before.Failed
	if ctx.Err() != nil {
		return ctx.Err()
	}

	a, b := quantile(idle, 0.99), quantile(busy, 0.99)
	if a == 0 || b == 0 {
		return errors.New("OCSP was not answered at all")
	}
	for _, line := range []struct {
		name  string
		tally *tally
		took  []time.Duration
	}{{"OCSP alone", &alone.tally, idle}, {"OCSP beside the flood", &beside.tally, busy}} {
		fmt.Fprintf(w, "  %-22s %v, %d failed; p50 %v, p99 %v\n", line.name, line.tally, line.tally.broken,
			quantile(line.took, 0.5).Round(100*time.Microsecond), quantile(line.took, 0.99).Round(100*time.Microsecond))
	}
	fmt.Fprintf(w, "  %-22s %v, %d failed; %d signatures found no session\n", "enrolments", enrolments, enrolments.broken, failed)
	fmt.Fprintf(w, "  p99 of OCSP: %.1f times that without the flood\n\n", float64(b)/float64(a))
	return nil
}

// flood keeps n enrolments under way until stop: each client that is refused
// comes back after about a second, whatever it was told; each that is served at
// once.
func (p *whole) flood(ctx context.Context, hc *http.Client, csr []byte, n int) (stop func(), t *tally) {
	ctx, cancel := context.WithCancel(ctx)
	t = new(tally)
	est := clients.EST{URL: p.urls.est, User: p.user, Password: p.password, HTTP: hc}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := est.Enrol(ctx, csr)
				if ctx.Err() != nil {
					return // cut off by the end
				}
				t.add(err)
				if err == nil {
					continue
				}
				pause(ctx, time.Second/2+mathrand.N(time.Second))
			}
		})
	}
	return func() { cancel(); wg.Wait() }, t
}

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	over := time.NewTimer(d)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
}
