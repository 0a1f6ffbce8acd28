package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	abusers      = 8                     // addresses that do not heed …
	abuserConns  = 2                     // … each with so many connections …
	abuserPause  = 30 * time.Millisecond // … each asking so often: six times what an address may
	honestOnes   = 20                    // addresses that do …
	honestPause  = 500 * time.Millisecond
	answerWithin = 10 * time.Second // what takes longer has failed
)

// crowd asks at one URL, from many addresses, and has each answer recorded.
type crowd struct {
	base   string
	http   *http.Client
	record func(seen)

	refusedHonest atomic.Int64 // times that an honest client was told to wait
	servedHonest  atomic.Int64
	sent          atomic.Int64
}

// seen is how one request ended.
type seen struct {
	abuser int // which one, or -1: an honest client
	status int // 0: no answer
	took   time.Duration
	err    error
}

func (s seen) admitted() bool { return s.status == http.StatusOK || s.status == http.StatusCreated }

func newCrowd(base string, record func(seen)) *crowd {
	return &crowd{base: base, record: record, http: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 128}, Timeout: answerWithin,
	}}
}

// flood sends all clients until ctx is over, and waits for their last answers.
func (c *crowd) flood(ctx context.Context) {
	var wg sync.WaitGroup
	for a := range abusers {
		for conn := range abuserConns {
			// Half of what it asks for reaches the signer.
			path := []string{"/acme/new-order", "/acme/finalize/1"}[conn%2]
			wg.Go(func() { c.abuse(ctx, a, path) })
		}
	}
	for h := range honestOnes {
		wg.Go(func() {
			if pause(ctx, honestPause*time.Duration(h)/honestOnes) { // not all at once
				c.behave(ctx, h)
			}
		})
	}
	wg.Wait()
}

// abuse asks again and again, without heed.
func (c *crowd) abuse(ctx context.Context, who int, path string) {
	addr := fmt.Sprintf("203.0.113.%d", who+1)
	for pause(ctx, abuserPause) {
		c.ask(addr, path, who)
	}
}

// behave asks now and then, and waits when it is told to.
func (c *crowd) behave(ctx context.Context, who int) {
	addr := fmt.Sprintf("198.51.100.%d", who+1)
	for pause(ctx, honestPause) {
		for {
			s, wait := c.ask(addr, "/acme/new-order", -1)
			if s.admitted() {
				c.servedHonest.Add(1)
				break
			}
			c.refusedHonest.Add(1)
			if !pause(ctx, wait) {
				return
			}
		}
	}
}

// ask sends one request. It is not given up when the flood ends: what was sent
// may have been admitted, and is counted.
func (c *crowd) ask(addr, path string, abuser int) (s seen, wait time.Duration) {
	c.sent.Add(1)
	s.abuser = abuser
	begun := time.Now()
	s.status, wait, s.err = c.post(addr, path)
	s.took = time.Since(begun)
	c.record(s)
	return s, wait
}

func (c *crowd) post(addr, path string) (status int, wait time.Duration, err error) {
	req, err := http.NewRequest(http.MethodPost, c.base+path, nil)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("X-Forwarded-For", addr)
	res, err := c.http.Do(req)
	if err != nil {
		return 0, time.Second, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode < 400 {
		return res.StatusCode, 0, err
	}
	seconds, convErr := strconv.Atoi(res.Header.Get("Retry-After"))
	if convErr != nil {
		return res.StatusCode, time.Second, errors.Join(err, fmt.Errorf("%s without a Retry-After in seconds", res.Status))
	}
	return res.StatusCode, time.Duration(seconds) * time.Second, err
}

// pause reports whether it lasted to its end.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
