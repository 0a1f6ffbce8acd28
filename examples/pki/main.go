// Command pki puts a limiter in front of a PKI whose key is in an HSM, and tells
// what becomes of its clients: of ACME clients in wide use, one that waits when it
// is told to and one that gives up; of each protocol, served once; and of a
// crowd, before a signer that can do a few things at a time.
//
//	go run ./pki           tells the story
//	go run ./pki -serve    keeps the PKI up, for clients of your own
//	go run ./pki -flood    measures OCSP beside a crowd that enrols
//
// All servers are inside this process, on loopback ports. What stands in front of
// them is in wholelimits.go and sessions.go, the wiring in whole.go and
// routes.go; README.md says why it is so.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	legolog "github.com/go-acme/lego/v5/log"
)

func main() {
	if os.Getenv(inCrowd) != "" {
		os.Exit(crowdMain())
	}
	var (
		serving  = flag.Bool("serve", false, "keep the servers up until interrupted; prints where they are, then ready")
		flooding = flag.Bool("flood", false, "measure OCSP beside a crowd that enrols, for each way to share out the HSM")
		period   = flag.Duration("period", 10*time.Second, "with -flood, how long to measure each part")
		rounds   = flag.Int("rounds", 3, "with -flood, how often to measure each way")
		crowd    = flag.Int("crowd", 500, "with -flood, devices that enrol at once")
		rate     = flag.Float64("rate", 40, "with -flood, questions of OCSP a second")
		cfg      = serveConfig{log: log.New(os.Stderr, "pki: ", 0)}
	)
	flag.StringVar(&cfg.https, "https", "127.0.0.1:0", "with -serve, the `address` of ACME and EST")
	flag.StringVar(&cfg.http, "http", "127.0.0.1:0", "with -serve, the `address` of OCSP, CRL and SCEP")
	flag.StringVar(&cfg.dir, "dir", "", "with -serve, the `folder` for the CA certificates (default a temporary one)")
	flag.StringVar(&cfg.limits, "limits", "default", "with -serve, "+presetNames)
	flag.DurationVar(&cfg.maxWait, "max-wait", 0, "with -serve, how long a request is held for its tokens before it is refused")
	flag.StringVar(&cfg.keys.in, "keys", "hsm", "where the issuing key is, hsm or memory")
	flag.IntVar(&cfg.keys.sessions, "sessions", 8, "sessions of the HSM")
	flag.IntVar(&cfg.keys.bits, "bits", 4096, "size of the issuing RSA key")
	flag.DurationVar(&cfg.keys.latency, "latency", 0, "how long a signature keeps its session of the HSM at least, as one across a network would")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	legolog.SetDefault(slog.New(slog.DiscardHandler))
	play := func() error { return run(ctx, os.Stdout, act{opening, story, true}, hsmStory(cfg.keys.bits)) }
	switch {
	case *serving:
		play = func() error { return serve(ctx, os.Stdout, cfg) }
	case *flooding:
		play = func() error {
			fmt.Printf("    go run ./pki %s\n\n", strings.Join(os.Args[1:], " "))
			return measure(ctx, os.Stdout, measureConfig{cfg.keys, *period, 2 * time.Second, *rounds, *crowd, *rate})
		}
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

// An act is scenes in order. Those that mostly wait are played all at once, for
// it saves time; those that keep the processors busy, each by itself.
type act struct {
	opening string
	scenes  []scene
	atOnce  bool
}

// run plays the acts and writes the scenes in order, each of which has servers
// of its own. It fails if any scene did.
func run(ctx context.Context, w io.Writer, acts ...act) error {
	// x/crypto/acme retries for ever; a run that takes so long has failed.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var failed []error
	n := 0
	for i, a := range acts {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, a.opening)
		for told := range a.played(ctx) {
			n++
			fmt.Fprintf(w, "\n%d. %s\n%s", n, told.title, &told.text)
			if told.err != nil {
				fmt.Fprintf(w, "   It went otherwise: %v\n", told.err)
				failed = append(failed, fmt.Errorf("scene %d: %w", n, told.err))
			}
		}
	}
	return errors.Join(failed...)
}

// told is a scene that has been played.
type told struct {
	title string
	text  bytes.Buffer
	err   error
}

// played yields the scenes as they end, in order.
func (a act) played(ctx context.Context) iter.Seq[*told] {
	return func(yield func(*told) bool) {
		played := make([]*told, len(a.scenes))
		var wg sync.WaitGroup
		for i, s := range a.scenes {
			played[i] = &told{title: s.title}
			if a.atOnce {
				wg.Go(func() { played[i].err = s.play(ctx, &played[i].text) })
			}
		}
		wg.Wait()
		for i, s := range a.scenes {
			if !a.atOnce {
				played[i].err = s.play(ctx, &played[i].text)
			}
			if !yield(played[i]) {
				return
			}
		}
	}
}
