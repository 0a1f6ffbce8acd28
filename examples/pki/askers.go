package main

import (
	"context"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weir-go/weir/examples/pki/clients"
)

// askers ask the OCSP responder about one certificate over and over, as the
// servers that staple its answers do, until they are told to stop.
type askers struct {
	tally
	stop func() []time.Duration // waits for them; returns how long each answer took, sorted
}

// ask starts n askers, each of which pauses between two questions. They take
// turns, as strangers would rather than all ask at once.
func (p *whole) ask(ctx context.Context, hc *http.Client, cert *x509.Certificate, n int, pause time.Duration) *askers {
	a := new(askers)
	var (
		wg   sync.WaitGroup
		done = make(chan struct{})
		mu   sync.Mutex // guards took
		took []time.Duration
	)
	for i := range n {
		wg.Go(func() {
			turn := time.NewTimer(pause * time.Duration(i) / time.Duration(n))
			defer turn.Stop()
			for {
				select {
				case <-turn.C:
				case <-done:
					return
				}
				turn.Reset(pause)
				began := time.Now()
				_, err := clients.Status(ctx, hc, p.urls.ocsp, cert, p.authority.Issuer)
				a.add(err)
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	a.stop = func() []time.Duration {
		close(done)
		wg.Wait()
		slices.Sort(took)
		return took
	}
	return a
}

// quantile returns the q-th part of sorted durations, 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
