package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/crypto/acme"

	"github.com/weir-go/weir/examples/pki/clients"
)

// A tally counts how requests ended. Safe for concurrent use.
type tally struct {
	mu sync.Mutex // guards all below

	served, throttled, shed int
	broken                  int // neither served nor refused in good order
	why                     error
}

// add counts one, by the error of its client.
func (t *tally) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch statusOf(err) {
	case http.StatusOK:
		t.served++
	case http.StatusTooManyRequests:
		t.throttled++
	case http.StatusServiceUnavailable:
		t.shed++
	default:
		t.broken++
		if t.why == nil {
			t.why = err
		}
	}
}

// statusOf returns the HTTP status behind a client's error, 0 if there is none.
func statusOf(err error) int {
	var (
		refused *clients.Refused
		problem *acme.Error
	)
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &refused):
		return refused.Status
	case errors.As(err, &problem):
		return problem.StatusCode
	}
	return 0
}

func (t *tally) all() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.served + t.throttled + t.shed + t.broken
}

// err tells of what was broken.
func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d requests broke: %w", t.broken, t.served+t.throttled+t.shed+t.broken, t.why)
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%4d served, %4d throttled (429), %4d shed (503)", t.served, t.throttled, t.shed)
}
