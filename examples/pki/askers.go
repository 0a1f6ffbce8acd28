package main

import (
	"context"
	"crypto/x509"
	mathrand "math/rand/v2"
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
	stop func() []time.Duration // waits for them; returns how long each took that was answered, sorted

	question func() error
	done     chan struct{}
	wg       sync.WaitGroup
	tookMu   sync.Mutex // guards took
	took     []time.Duration
}

func (p *whole) askers(ctx context.Context, hc *http.Client, cert *x509.Certificate) *askers {
	a := &askers{done: make(chan struct{}), question: func() error {
		_, err := clients.Status(ctx, hc, p.urls.ocsp, cert, p.authority.Issuer)
		return err
	}}
	a.stop = func() []time.Duration {
		close(a.done)
		a.wg.Wait()
		slices.Sort(a.took)
		return a.took
	}
	return a
}

// once asks, and counts the time of the answer from due; that of a refusal, which
// may come at once, not at all.
func (a *askers) once(due time.Time) {
	err := a.question()
	took := time.Since(due)
	a.add(err)
	if err != nil {
		return
	}
	a.tookMu.Lock()
	a.took = append(a.took, took)
	a.tookMu.Unlock()
}

// at waits until then, and reports whether it may go on.
func (a *askers) at(then time.Time) bool {
	wait := time.NewTimer(time.Until(then))
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-a.done:
		return false
	}
}

// ask starts n askers, each of which pauses between two questions. They take
// turns, as strangers would rather than all ask at once.
func (p *whole) ask(ctx context.Context, hc *http.Client, cert *x509.Certificate, n int, pause time.Duration) *askers {
	a := p.askers(ctx, hc, cert)
	began := time.Now()
	for i := range n {
		a.wg.Go(func() {
			for next := began.Add(pause * time.Duration(i) / time.Duration(n)); a.at(next); next = time.Now().Add(pause) {
				a.once(time.Now())
			}
		})
	}
	return a
}

// askAtRate asks so many times a second on average, each time somebody else who
// does not wait for what others were answered. A question that goes out late is
// counted from when it was due, so that nothing that stops the whole program is
// left out.
func (p *whole) askAtRate(ctx context.Context, hc *http.Client, cert *x509.Certificate, rate float64) *askers {
	a := p.askers(ctx, hc, cert)
	a.wg.Go(func() {
		next := time.Now()
		for {
			next = next.Add(time.Duration(mathrand.ExpFloat64() / rate * float64(time.Second)))
			if !a.at(next) {
				return
			}
			due := next
			a.wg.Go(func() { a.once(due) })
		}
	})
	return a
}

// quantile returns the q-th part of sorted durations, 0 of none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
