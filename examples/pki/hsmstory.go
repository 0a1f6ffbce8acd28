package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-go/weir/examples/pki/softhsm"
)

const hsmOpening = `The whole PKI (ACME, EST, SCEP, OCSP, CRL) behind one limiter. Its key, RSA-4096, is in
an HSM (SoftHSM2 through PKCS#11) with 8 sessions, and so many signatures at once.`

var hsmStory = []scene{
	{"Each protocol once, and what the HSM signed for it.", eachProtocol},
	{"500 signatures at once: the session pool alone, then a guard of its size before it.", exhaustion},
	{"A crowd at five addresses enrols at once, while OCSP is asked as ever.", crowdAndOCSP},
}

// crowdAndOCSP has a crowd meet the limits that wholeLimits has for each address,
// and then the guard.
func crowdAndOCSP(ctx context.Context, w io.Writer) error {
	hsm, err := softhsm.Open(softhsm.Config{})
	if err != nil {
		return err
	}
	defer hsm.Close()
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
