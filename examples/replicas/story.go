package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// An act begins with something that happens to Redis, and lasts until all
// replicas have noticed, and a while longer.
type act struct {
	name, event string
	happens     func(context.Context) error
	degraded    bool // what all replicas are to be in the end
}

func acts(r *redisServer) []act {
	nothing := func(context.Context) error { return nil }
	return []act{
		{"shared", "the flood begins; Redis counts for all", nothing, false},
		{"hung", "Redis hangs (SIGSTOP)", func(context.Context) error { return r.hang() }, true},
		{"back", "Redis goes on (SIGCONT)", func(context.Context) error { return r.resume() }, false},
		{"killed", "Redis is killed", func(context.Context) error { r.kill(); return nil }, true},
		{"empty", "Redis is started again, empty", r.start, false},
	}
}

// run plays all acts, each for so long, and fails if a request did, or if more
// was admitted than is promised.
func run(ctx context.Context, w io.Writer, each time.Duration) error {
	redis, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer redis.stop()
	var servers []*replica
	defer func() {
		for _, r := range servers {
			r.stop()
		}
	}()
	secret := rand.Text()
	for range replicas {
		r, err := startReplica(ctx, "WEIR_REDIS_DSN=redis://"+redis.addr, "WEIR_KEY_SECRET="+secret)
		if err != nil {
			return err
		}
		servers = append(servers, r)
	}
	handler, err := balancer(servers)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	front := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer front.Close()
	go func() { _ = front.Serve(ln) }()

	fmt.Fprintf(w, "%d replicas behind one balancer, one Redis. Of each address: %d requests at once, then %d a second.\n", replicas, perAddressBurst, perAddressRate)
	fmt.Fprintf(w, "%d addresses ask %d times a second each, without heed; %d ask twice a second and wait when told to.\n\n",
		abusers, int(abuserConns*time.Second/abuserPause), honestOnes)
	t := newTimeline(w)
	c := newCrowd("http://"+ln.Addr().String(), t.record)
	if err := play(ctx, t, c, servers, acts(redis), each); err != nil {
		return err
	}
	return verdict(w, t, c)
}

// play has all acts follow each other in the flood.
func play(ctx context.Context, t *timeline, c *crowd, servers []*replica, acts []act, each time.Duration) (err error) {
	var background, flood sync.WaitGroup
	watching, stopWatching := context.WithCancel(ctx)
	flooding, stopFlood := context.WithCancel(ctx)
	defer func() {
		stopFlood()
		flood.Wait()
		stopWatching()
		background.Wait()
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
		t.line()
	}()
	for i, a := range acts {
		t.enter(a.name, a.event)
		if err := a.happens(ctx); err != nil {
			return err
		}
		if i == 0 {
			background.Go(func() { t.watch(watching, servers) })
			background.Go(func() { t.tick(watching) })
			flood.Go(func() { c.flood(flooding) })
		}
		begun := time.Now()
		for !t.all(a.degraded) || time.Since(begun) < each {
			if !pause(ctx, 20*time.Millisecond) {
				return fmt.Errorf("%s: not all replicas have noticed: %w", a.event, ctx.Err())
			}
		}
	}
	return nil
}

// verdict tells what one budget for each address allows against what was
// admitted, and fails if more was than is promised.
//
// In any time T one bucket admits burst + rate·T, and so it is while all
// replicas share it. While all count for themselves they admit level + rate·T,
// where level is what it held, at most the burst. What an outage adds:
//
//   - The shared bucket refills unseen, and the first replica that is back takes
//     off what it has itself spent. Until the others are back, too, what they
//     have spent can be spent again: at most the burst.
//   - While some count for themselves and others share, the former spend their
//     part of the rate beside all of it.
func verdict(w io.Writer, t *timeline, c *crowd) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	const rate, burst = perAddressRate, perAddressBurst
	fmt.Fprintf(w, "\nThe %d addresses without heed, together:\n", abusers)
	fmt.Fprintln(w, "act      seconds  admitted  one budget  promised at most  three budgets")
	var whole phase
	err := errors.Join(t.failed...)
	for i, p := range t.phases {
		expected := rate * p.lasted.Seconds() // the bucket was empty when the act began
		if i == 0 {
			expected += burst
		}
		tell(w, p, expected, burst+rate*p.lasted.Seconds())
		whole.lasted += p.lasted
		for a, n := range p.admitted {
			whole.admitted[a] += n
		}
	}
	whole.name = "all"
	once := burst + rate*whole.lasted.Seconds()
	most := once + float64(t.outages*burst) + rate*t.mixed.Seconds()*(replicas-1)/replicas
	tell(w, whole, once, most)
	for a, n := range whole.admitted {
		if float64(n) > most {
			err = errors.Join(err, fmt.Errorf("address %d was admitted %d times: more than %.0f", a+1, n, most))
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d requests, none failed. The %d honest addresses were served %d times and told to wait %d times.\n",
		c.sent.Load(), honestOnes, c.servedHonest.Load(), c.refusedHonest.Load())
	return nil
}

// tell writes the line of a phase; budget and bound are those of one address.
func tell(w io.Writer, p phase, budget, bound float64) {
	sum := 0
	for _, n := range p.admitted {
		sum += n
	}
	fmt.Fprintf(w, "%-8s %7.1f %9d %11.0f %17.0f %14.0f\n", p.name, p.lasted.Seconds(), sum, abusers*budget, abusers*bound, replicas*abusers*budget)
}
