package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weir-go/weir/examples/pki/softhsm"
)

const hsmOpening = `The whole PKI (ACME, EST, SCEP, OCSP, CRL) behind one limiter. Its key, RSA-%d, is in
an HSM (SoftHSM2 through PKCS#11) with 8 sessions, and so many signatures at once.`

// patient is how long a signature waits for a session where there is always one:
// longer than it takes to notice that on a machine that is very busy.
const patient = 10 * time.Second

// hsmStory is told with a key of so many bits.
func hsmStory(bits int) act {
	with := func(play func(context.Context, io.Writer, *softhsm.HSM) error, cfg softhsm.Config) func(context.Context, io.Writer) error {
		cfg.Bits = bits
		return func(ctx context.Context, w io.Writer) error {
			hsm, err := softhsm.Open(cfg)
			if err != nil {
				return err
			}
			return errors.Join(play(ctx, w, hsm), hsm.Close())
		}
	}
	return act{opening: fmt.Sprintf(hsmOpening, bits), scenes: []scene{
		{"Each protocol once, and what the HSM signed for it.", with(eachProtocol, softhsm.Config{Wait: patient})},
		{
			fmt.Sprintf("%d signatures at once: the session pool alone, then a guard of its size before it.", signatures),
			with(exhaustion, softhsm.Config{Wait: impatient}),
		},
		{"A crowd at five addresses enrols at once, while OCSP is asked as ever.", with(crowdAndOCSP, softhsm.Config{Wait: patient})},
	}}
}

// crowdAndOCSP has a crowd meet the limits that wholeLimits has for each address,
// and then the guard.
func crowdAndOCSP(ctx context.Context, w io.Writer, hsm *softhsm.HSM) error {
	cfg := wholeLimits()
	cfg.ClientIP.TrustedProxies = []string{"127.0.0.0/8"} // the crowd names its addresses itself
	p, err := openWhole(wholeConfig{signer: signer{hsm.Key, hsm.Sessions()}, limits: cfg})
	if err != nil {
		return err
	}
	defer p.Close()
	crowd, err := p.assemble(ctx, 50, 300, 50,
		"198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5")
	if err != nil {
		return err
	}
	defer crowd.leave()
	hc := p.client("203.0.113.7")
	defer hc.CloseIdleConnections()
	asking := p.ask(ctx, hc, p.tlsCert, ocspClients, ocspPause)
	acme, est, scep := crowd.rush(ctx)
	asking.stop()
	usage := hsm.Key.Usage()
	fmt.Fprintf(w, "   finalize    %v\n   EST         %v\n   SCEP        %v\n   OCSP        %v\n", acme, est, scep, &asking.tally)
	fmt.Fprintf(w, "   in the HSM  at most %d at once, %d without a session\n", usage.Most, usage.Failed)
	if asking.served != asking.all() {
		return errors.New("OCSP was not always answered")
	}
	if usage.Failed > 0 {
		return errors.New("the session pool was exhausted")
	}
	return errors.Join(acme.err(), est.err(), scep.err())
}
