// Command pki puts a limiter in front of an ACME certificate authority and
// tells how clients that are in wide use get on with it: one that waits when it
// is told to, one that gives up, the same one held instead of refused, and
// several at once before a signer that can do one thing at a time.
//
//	go run ./pki           tells the story
//	go run ./pki -serve    keeps a whole PKI up, for clients of your own
//
// The authority is Pebble, inside this process; everything goes over HTTPS on
// a loopback port. What stands in front of it is in limits.go, endpoints.go
// and site.go; README.md says why it is so.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	legolog "github.com/go-acme/lego/v5/log"
)

func main() {
	var (
		serving = flag.Bool("serve", false, "keep the servers up until interrupted; prints where they are, then ready")
		cfg     = serveConfig{log: log.New(os.Stderr, "pki: ", 0)}
	)
	flag.StringVar(&cfg.https, "https", "127.0.0.1:0", "with -serve, the `address` of ACME and EST")
	flag.StringVar(&cfg.http, "http", "127.0.0.1:0", "with -serve, the `address` of OCSP, CRL and SCEP")
	flag.StringVar(&cfg.dir, "dir", "", "with -serve, the `folder` for the CA certificates (default a temporary one)")
	flag.StringVar(&cfg.limits, "limits", "default", "with -serve, "+presetNames)
	flag.DurationVar(&cfg.maxWait, "max-wait", 0, "with -serve, how long a request is held for its tokens before it is refused")
	flag.StringVar(&cfg.keys.in, "keys", "hsm", "where the issuing key is, hsm or memory")
	flag.IntVar(&cfg.keys.sessions, "sessions", 8, "sessions of the HSM")
	flag.IntVar(&cfg.keys.bits, "bits", 4096, "size of the issuing RSA key")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	play := func() error { return run(ctx, os.Stdout, story) }
	if *serving {
		play = func() error { return serve(ctx, os.Stdout, cfg) }
	}
	if err := play(); err != nil {
		stop()
		log.Fatal("pki: ", err)
	}
}

// A scene is one part of the story. It writes what happened, and fails if that
// is not what the title says.
type scene struct {
	title string
	play  func(ctx context.Context, w io.Writer) error
}

// run plays the scenes, each with an authority of its own and all at once, for
// most of their time is waiting, and writes them in order. It fails if any did.
func run(ctx context.Context, w io.Writer, scenes []scene) error {
	// x/crypto/acme retries for ever; a run that takes so long has failed.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	told, failed := make([]bytes.Buffer, len(scenes)), make([]error, len(scenes))
	var wg sync.WaitGroup
	for i, s := range scenes {
		wg.Go(func() { failed[i] = s.play(ctx, &told[i]) })
	}
	wg.Wait()

	fmt.Fprintln(w, opening)
	for i, s := range scenes {
		fmt.Fprintf(w, "\n%d. %s\n%s", i+1, s.title, &told[i])
		if failed[i] != nil {
			fmt.Fprintf(w, "   It went otherwise: %v\n", failed[i])
			failed[i] = fmt.Errorf("scene %d: %w", i+1, failed[i])
		}
	}
	return errors.Join(failed...)
}
