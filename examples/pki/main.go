// Command pki starts an ACME certificate authority in its own process, lets two
// clients that are in wide use obtain a certificate from it, and prints which
// requests that took.
//
//	go run ./pki
package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	legolog "github.com/go-acme/lego/v5/log"

	"github.com/weir-go/weir/examples/pki/acmeserver"
	"github.com/weir-go/weir/examples/pki/clients"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(ctx, os.Stdout, nil); err != nil {
		stop()
		log.Fatal(err)
	}
}

// An obtainFunc is one client's whole run.
type obtainFunc func(ctx context.Context, dirURL string, hc *http.Client, names []string) ([]*x509.Certificate, clients.Stats, error)

// run sends each client to an authority behind wrap, one after the other, and
// writes a table for each. wrap may be nil. A client that fails is part of the
// report, not an error of run.
func run(ctx context.Context, w io.Writer, wrap func(http.Handler) http.Handler) error {
	srv, err := acmeserver.Start(acmeserver.Config{Wrap: wrap})
	if err != nil {
		return err
	}
	defer srv.Close()

	for _, c := range []struct {
		name   string
		obtain obtainFunc
	}{
		{"golang.org/x/crypto/acme", clients.ObtainX},
		{"github.com/go-acme/lego/v5", clients.ObtainLego},
	} {
		// x/crypto/acme retries for ever; a run that takes so long has failed.
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		chain, stats, err := c.obtain(ctx, srv.DirectoryURL, srv.Client(), []string{"www.example.test", "example.test"})
		cancel()
		if err := report(w, c.name, chain, stats, err); err != nil {
			return err
		}
	}
	return nil
}

// report writes what became of one client's run.
func report(w io.Writer, name string, chain []*x509.Certificate, stats clients.Stats, failure error) error {
	if failure != nil {
		fmt.Fprintf(w, "%s failed: %v\n", name, failure)
	} else {
		leaf := chain[0]
		fmt.Fprintf(w, "%s got a certificate for %v from %s\n", name, leaf.DNSNames, leaf.Issuer)
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\trequests\trefused\t resource")
	for _, e := range acmeserver.Endpoints() {
		if n := stats.Count(e.Path); n > 0 {
			refused := stats.Count(e.Path, http.StatusTooManyRequests, http.StatusServiceUnavailable)
			fmt.Fprintf(tab, "\t%d\t%d\t %s (%s)\n", n, refused, e.Resource, e.Path)
		}
	}
	fmt.Fprintf(tab, "\t%d\t%d\t all\n", len(stats.Exchanges), stats.Refused())
	return tab.Flush()
}
