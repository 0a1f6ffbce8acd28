package main

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/clients"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// Not parallel: it counts goroutines.
func TestAFloodOfEnrolmentsLeavesTheHSMWholeAndOCSPAnswered(t *testing.T) {
	const finalizes, ests, sceps = 150, 250, 100
	// Pebble's validator outlives a site; the first leaves its goroutine before
	// the count.
	warm := openedWhole(t, inMemory(), generousLimits())
	warm.Close()
	before := runtime.NumGoroutine()

	hsm, err := softhsm.Open(softhsm.Config{Bits: 2048, Wait: patient})
	require.NoError(t, err)
	p := openedWhole(t, signer{hsm.Key, hsm.Sessions()}, generousLimits())
	hc := p.client("")
	csr, err := clients.Request("device.example.test", newKey(t))
	require.NoError(t, err)
	cert, err := estOf(p, hc).Enrol(t.Context(), csr)
	require.NoError(t, err)
	crowd, err := p.assemble(t.Context(), finalizes, ests, sceps, "")
	require.NoError(t, err)

	asking := p.ask(t.Context(), hc, cert, 4, 20*time.Millisecond)
	require.True(t, becomes(t.Context(), func() bool { return asking.all() > 0 }), "OCSP before the flood")
	acme, est, scep := crowd.rush(t.Context())
	soFar := asking.all()
	require.True(t, becomes(t.Context(), func() bool { return asking.all() > soFar+4 }), "OCSP after the flood")
	asking.stop()

	for of, one := range map[string]struct {
		*tally
		sent int
	}{"finalize": {acme, finalizes}, "EST": {est, ests}, "SCEP": {scep, sceps}} {
		require.NoError(t, one.err(), of)
		require.Zero(t, one.throttled, of)
		require.Equal(t, one.sent, one.served+one.shed, of)
	}
	require.Zero(t, asking.throttled+asking.shed+asking.broken, "OCSP: %v %v", &asking.tally, asking.err())
	// Whatever came first had a slot that is not OCSP's, or a place in the queue.
	served := acme.served + est.served + scep.served
	require.GreaterOrEqual(t, served, hsm.Sessions()-statusReserve+64)

	usage := hsm.Key.Usage()
	require.Zero(t, usage.Failed, "signatures for which there was no session")
	require.LessOrEqual(t, usage.Most, int64(hsm.Sessions()), "signatures at once")
	require.Zero(t, usage.AtWork)
	for _, g := range p.limiter.Snapshot().Guards {
		require.Zero(t, g.InFlight+g.Queued, g.Guard)
	}
	for _, c := range p.limiter.Snapshot().Classes {
		if c.Class == weir.ClassOCSP {
			require.EqualValues(t, asking.served, c.Admitted)
		}
	}

	hc.CloseIdleConnections()
	crowd.leave()
	p.Close()
	require.NoError(t, hsm.Close(), "it waits until every session is back")
	http.DefaultClient.CloseIdleConnections() // of MicroMDM's client
	// One is the validator of Pebble, which nothing stops.
	require.True(t, becomes(t.Context(), func() bool { return runtime.NumGoroutine() <= before+1 }),
		"%d goroutines, %d before", runtime.NumGoroutine(), before)
}
