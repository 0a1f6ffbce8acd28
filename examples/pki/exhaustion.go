package main

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/softhsm"
)

// So many signatures are asked for at once, and each waits so long for a session:
// more than any machine makes in that time, and longer than a busy one takes to
// find a session that is free.
const (
	signatures = 4000
	impatient  = 200 * time.Millisecond
)

// exhaustion has more signatures made at once than there are sessions. PKCS#11
// has no queue: whoever finds no session is told so, or, as by this library,
// waits for one as long as it may and is told then, all in a crowd, so that
// most of them wait for nothing. A guard tells those at once for whom there is no
// place, and lets the others have a session each.
func exhaustion(ctx context.Context, w io.Writer, hsm *softhsm.HSM) error {
	limiter, err := weir.New(crowded(wholeLimits()), poolSize(hsm.Sessions()),
		weir.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer limiter.Close()
	guard := limiter.Guard(guardHSM)
	digest := sha256.Sum256([]byte("to be signed"))
	sign := func() error {
		_, err := hsm.Key.Sign(rand.Reader, digest[:], crypto.SHA256)
		return err
	}
	pool, _, first := allAtOnce(signatures, sign)
	fmt.Fprintf(w, "   the pool alone     %4d signed, %4d failed, each after %v: %v\n", pool, signatures-pool, impatient, first)
	signed, shed, first := allAtOnce(signatures, func() error {
		release, err := guard.Acquire(ctx)
		if err != nil {
			return err
		}
		defer release()
		return sign()
	})
	fmt.Fprintf(w, "   behind the guard   %4d signed, %4d shed at once, %d failed\n",
		signed, shed, signatures-signed-shed)
	if signed+shed != signatures {
		return fmt.Errorf("a signature failed behind the guard: %w", first)
	}
	return nil
}

// allAtOnce runs n, and counts those that ended well and those that a guard shed.
func allAtOnce(n int, do func() error) (well, shed int, first error) {
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for range n {
		wg.Go(func() {
			err := do()
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				well++
			case errors.Is(err, weir.ErrQueueFull), errors.Is(err, weir.ErrTimeout):
				shed++
			case first == nil:
				first = err
			}
		})
	}
	wg.Wait()
	return well, shed, first
}
