// Command pki puts a limiter in front of an ACME certificate authority and
// tells how clients that are in wide use get on with it: one that waits when it
// is told to, one that gives up, the same one held instead of refused, and
// several at once before a signer that can do one thing at a time.
//
//	go run ./pki
//
// The authority is Pebble, inside this process; everything goes over HTTPS on
// a loopback port. What stands in front of it is in limits.go, endpoints.go
// and site.go; README.md says why it is so.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	legolog "github.com/go-acme/lego/v5/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	if err := run(ctx, os.Stdout, story); err != nil {
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
