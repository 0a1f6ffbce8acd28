package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// A trial is what one way to share out the HSM did once.
type trial struct {
	alone, beside []time.Duration // of OCSP's answers, sorted
	shed, failed  int             // questions of OCSP beside the crowd that were refused, or ended in an error
	enrolled      float64         // certificates a second
	noSession     int64           // signatures that found no session
	used, wanted  float64         // processors of this process beside the crowd; see runDelay
}

// times is how many times longer OCSP's p99 is beside the crowd.
func (t trial) times() float64 {
	return float64(quantile(t.beside, 0.99)) / float64(quantile(t.alone, 0.99))
}

// tried measures OCSP alone, and then beside the crowd.
func tried(ctx context.Context, hsm *softhsm.HSM, limits weir.Config, cfg measureConfig) (t trial, err error) {
	limits.ClientIP.TrustedProxies = []string{"127.0.0.0/8"} // the clients name their addresses
	p, err := openWhole(wholeConfig{signer: signer{hsm.Key, hsm.Sessions()}, limits: limits})
	if err != nil {
		return t, err
	}
	defer p.Close()
	hc := p.client("203.0.113.7")
	defer hc.CloseIdleConnections()

	asking := p.askAtRate(ctx, hc, p.tlsCert, cfg.rate)
	pause(ctx, cfg.period)
	t.alone = asking.stop()
	if len(t.alone) == 0 {
		return t, fmt.Errorf("OCSP alone was not answered: %w", errors.Join(asking.err(), ctx.Err()))
	}

	crowd, err := startCrowd(ctx, crowdSpec{
		URL: p.urls.est, User: p.user, Password: p.password, Root: p.authority.Root.Raw,
		Devices: cfg.crowd, Again: time.Second,
	})
	if err != nil {
		return t, err
	}
	pause(ctx, cfg.settling)
	before, used, waited := hsm.Key.Usage(), processorTime(), runDelay()
	asking = p.askAtRate(ctx, hc, p.tlsCert, cfg.rate)
	began := time.Now()
	pause(ctx, cfg.period)
	took := time.Since(began).Seconds()
	after := hsm.Key.Usage()
	t.used, t.wanted = (processorTime()-used).Seconds()/took, (runDelay()-waited).Seconds()/took
	t.beside = asking.stop()
	t.shed, t.failed = asking.shed, asking.throttled+asking.broken
	t.enrolled = (float64(after.Signed-before.Signed) - float64(asking.served)) / took
	t.noSession = after.Failed - before.Failed
	// Without a guard enrolments break, and are counted above.
	if err := crowd.stop(); err != nil && t.noSession == 0 {
		return t, err
	}
	return t, ctx.Err()
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
