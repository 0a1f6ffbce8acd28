package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/weir-go/weir/examples/pki/clients"
)

// A crowd is enrolments that are all but sent, by protocol. To make one takes far
// longer than to send it.
type crowd struct {
	acme, est, scep []func(context.Context) error
	from            []clients.EST
}

// leave closes the crowd's connections.
func (c crowd) leave() {
	for _, one := range c.from {
		one.HTTP.CloseIdleConnections()
	}
}

// assemble makes a crowd of so many, from the addresses in turn.
func (p *whole) assemble(ctx context.Context, acme, est, scep int, addresses ...string) (crowd, error) {
	var c crowd
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	csr, err := clients.Request("crowd.example.test", key)
	if err != nil {
		return c, err
	}
	from := make([]clients.EST, len(addresses))
	c.from = from
	for i, address := range addresses {
		from[i] = clients.EST{URL: p.urls.est, User: p.user, Password: p.password, HTTP: p.client(address)}
	}
	for i := range est {
		c.est = append(c.est, func(ctx context.Context) error {
			_, err := from[i%len(from)].Enrol(ctx, csr)
			return err
		})
	}
	if scep > 0 {
		// One request serves all: the answer to each is a certificate of its own.
		message, err := clients.PrepareSCEP(ctx, p.urls.scep, p.challenge, "crowd.example.test")
		if err != nil {
			return c, err
		}
		for i := range scep {
			c.scep = append(c.scep, func(ctx context.Context) error {
				_, err := message.Post(ctx, from[i%len(from)].HTTP)
				return err
			})
		}
	}
	if acme > 0 {
		c.acme, err = p.orders(ctx, acme, from)
	}
	return c, err
}

// orders places n orders, a few at a time, and leaves them to be finalized.
func (p *whole) orders(ctx context.Context, n int, from []clients.EST) ([]func(context.Context) error, error) {
	const atOnce = 32
	accounts := make([]*clients.Orders, len(from))
	for i := range from {
		var err error
		if accounts[i], err = clients.RegisterOrders(ctx, p.urls.directory, from[i].HTTP); err != nil {
			return nil, err
		}
	}
	var (
		wg       sync.WaitGroup
		places   = make(chan struct{}, atOnce)
		finalize = make([]func(context.Context) error, n)
		failed   = make([]error, n)
	)
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			order, err := accounts[i%len(accounts)].Prepare(ctx, fmt.Sprintf("host%d.example.test", i))
			if err != nil {
				failed[i] = err
				return
			}
			finalize[i] = func(ctx context.Context) error {
				_, err := order.Finalize(ctx)
				return err
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return finalize, nil
}

// rush sends the whole crowd at one moment and waits for all the answers.
func (c crowd) rush(ctx context.Context) (acme, est, scep *tally) {
	acme, est, scep = new(tally), new(tally), new(tally)
	var (
		wg  sync.WaitGroup
		now = make(chan struct{})
	)
	for _, part := range []struct {
		calls []func(context.Context) error
		tally *tally
	}{{c.acme, acme}, {c.est, est}, {c.scep, scep}} {
		for _, call := range part.calls {
			wg.Go(func() {
				<-now
				part.tally.add(call(ctx))
			})
		}
	}
	close(now)
	wg.Wait()
	return acme, est, scep
}
