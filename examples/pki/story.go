package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	legoacme "github.com/go-acme/lego/v5/acme"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

// pace is the time between two orders of one account in the story.
const pace = 2 * time.Second

const opening = `An ACME authority (Pebble) behind a limiter that lets each account place one order
every 2 s. In the first three scenes an account places two at once.`

var story = []scene{
	{"golang.org/x/crypto/acme is refused, waits as long as it is told, and goes on.", refusedAndPatient},
	{"lego is refused, and takes that for the end.", refusedForGood},
	{"lego is held until its order is due (max_wait), and never learns of the limit.", heldInstead},
	{"Four clients finalize at once before an HSM with a single session (a guard).", oneSession},
}

func refusedAndPatient(ctx context.Context, w io.Writer) error {
	s, err := open(oneOrderAtATime(pace))
	if err != nil {
		return err
	}
	defer s.Close()
	account, err := clients.RegisterX(ctx, s.DirectoryURL, s.Client())
	if err != nil {
		return err
	}
	if err := atOnce(ctx, account, "www.example.test", "mail.example.test"); err != nil {
		return err
	}
	tellOrders(w, s, account)
	if account.Stats().Refused() == 0 {
		return errors.New("nothing was refused")
	}
	return nil
}

func refusedForGood(ctx context.Context, w io.Writer) error {
	s, err := open(oneOrderAtATime(pace))
	if err != nil {
		return err
	}
	defer s.Close()
	account, err := clients.RegisterLego(ctx, s.DirectoryURL, s.Client())
	if err != nil {
		return err
	}
	err = atOnce(ctx, account, "www.example.test", "mail.example.test")
	tellOrders(w, s, account)
	limited, ok := errors.AsType[*legoacme.RateLimitedError](err)
	if !ok {
		return fmt.Errorf("no rateLimited error, but: %w", err)
	}
	fmt.Fprintf(w, "   lego's error              %s, Retry-After %v: %s\n", limited.Type, limited.RetryAfter, limited.Detail)
	return nil
}

func heldInstead(ctx context.Context, w io.Writer) error {
	s, err := open(held(oneOrderAtATime(pace), 5*pace))
	if err != nil {
		return err
	}
	defer s.Close()
	account, err := clients.RegisterLego(ctx, s.DirectoryURL, s.Client())
	if err != nil {
		return err
	}
	if err := atOnce(ctx, account, "www.example.test", "mail.example.test"); err != nil {
		return err
	}
	tellOrders(w, s, account)
	if s.counted(weir.ClassACMENewOrder).Held == 0 {
		return errors.New("nothing was held")
	}
	return nil
}

// atOnce has one account place an order for each name, all at the same time,
// and sees each through as far as it goes. It returns the errors, joined.
func atOnce(ctx context.Context, account *clients.Account, names ...string) error {
	failed := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { _, failed[i] = account.Obtain(ctx, name) })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// tellOrders writes what became of the orders of one account: first as its
// client saw it, then as the Limiter did.
func tellOrders(w io.Writer, s *site, account *clients.Account) {
	stats, counted := account.Stats(), s.counted(weir.ClassACMENewOrder)
	var answers []string
	for _, e := range stats.Exchanges {
		if e.Path == acmeserver.PathNewOrder {
			answers = append(answers, fmt.Sprint(e.Status))
		}
	}
	fmt.Fprintf(w, "   newOrder was answered     %s\n", strings.Join(answers, ", "))
	fmt.Fprintf(w, "   certificates              %d\n", stats.Count(acmeserver.PathCertificate, http.StatusOK))
	fmt.Fprintf(w, "   requests in all           %d, %d of them refused, %d for a nonce\n",
		len(stats.Exchanges), stats.Refused(), stats.Count(acmeserver.PathNewNonce))
	fmt.Fprintf(w, "   the Limiter, of newOrder  %d admitted, %d held before, %d throttled\n",
		counted.Admitted, counted.Held, counted.Throttled[weir.TierPerAccount])
}

func oneSession(ctx context.Context, w io.Writer) error {
	const callers, signing = 4, 200 * time.Millisecond
	cfg := limits()
	cfg.Guards = map[string]weir.GuardConfig{guardHSM: {MaxInFlight: 1}}
	var (
		s       *site
		deepest int // guarded by the one session
	)
	signer := &hsm{work: func(context.Context) {
		time.Sleep(signing)
		deepest = max(deepest, s.guard().Queued)
	}}
	s, err := open(cfg, withBehind(signer.inFrontOf))
	if err != nil {
		return err
	}
	defer s.Close()

	failed := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		obtain := clients.ObtainX
		if i%2 == 1 {
			obtain = clients.ObtainLego
		}
		wg.Go(func() {
			_, _, failed[i] = obtain(ctx, s.DirectoryURL, s.Client(), []string{fmt.Sprintf("host%d.example.test", i)})
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	shed := s.counted(weir.ClassACMEFinalize).Shed
	fmt.Fprintf(w, "   certificates              %d\n", callers)
	fmt.Fprintf(w, "   signing at once           at most %d\n", signer.most())
	fmt.Fprintf(w, "   waiting in the queue      up to %d\n", deepest)
	fmt.Fprintf(w, "   shed                      %d\n", shed["queue_full"]+shed["timeout"]+shed["canceled"])
	if signer.most() > 1 {
		return errors.New("the HSM was asked for a session that it does not have")
	}
	return nil
}
