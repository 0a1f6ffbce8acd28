package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-go/weir/internal/gate"
)

// A stream is clients of one sort, who arrive at random (Poisson).
type stream struct {
	name     string
	rate     float64       // a second
	burst    time.Duration // arrive five times as often for so long, then not at all for four times that; 0: evenly
	flows    int           // addresses
	first    int           // the first of them
	site     bool          // all of them are networks of one IPv6 /48
	patience time.Duration // a client leaves after so long
	unseen   bool          // and nobody notices
	service  time.Duration // mean; half of it is fixed, half exponential
	hangs    bool          // in the middle third of the run its work does not end before the third does
	lane     string
}

// A door is what stands before the sessions.
type door struct {
	name string
	open func(s *scenario) func(ctx context.Context, c *client) (release func(), err error)
	// told has clients say their deadline, as the context of http.TimeoutHandler
	// does; else only that they leave is seen.
	told bool
}

// A scenario is a crowd before a gate.
type scenario struct {
	name     string
	sessions int
	queue    int
	reserve  int           // of lanes
	timeout  time.Duration // how long one may wait
	streams  []stream
	length   time.Duration
}

// A client is one request.
type client struct {
	stream  *stream
	flow    int
	id      time.Duration // below grid
	at      time.Duration
	service time.Duration

	served  bool // before it left
	refused bool // before it left
	after   time.Duration
}

// clients draws who comes when, and how long the work takes.
func (s *scenario) clients() (all []*client) {
	for i := range s.streams {
		st := &s.streams[i]
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		for t := time.Duration(0); ; {
			rate := st.rate
			if st.burst > 0 {
				rate *= 5
			}
			t += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
			if st.burst > 0 && t%(5*st.burst) > st.burst {
				t += 5*st.burst - t%(5*st.burst)
			}
			if t >= s.length {
				break
			}
			c := &client{stream: st, at: t, flow: st.first + rng.IntN(st.flows)}
			c.service = st.service/2 + time.Duration(rng.ExpFloat64()*float64(st.service)/2)
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *client) int { return int(a.at - b.at) })
	for i, c := range all {
		c.id = time.Duration(i)
		c.at = c.next(c.at)
	}
	slices.SortFunc(all, func(a, b *client) int { return int(a.at - b.at) })
	return all
}

// grid keeps the clients apart: whatever client i does, it does at a time that is
// i modulo grid. Without that now and then somebody arrives in the very
// nanosecond in which a slot comes free, and who is first then changes from run to
// run. There are fewer clients than that.
const grid = time.Duration(1 << 16)

// next is the first time from t on that belongs to the client.
func (c *client) next(t time.Duration) time.Duration {
	return t + (c.id-t%grid+grid)%grid
}

// run sends the crowd through a door, in a bubble.
func (s *scenario) run(t *testing.T, d door) (all []*client) {
	synctest.Test(t, func(t *testing.T) {
		enter := d.open(s)
		all = s.clients()
		start := time.Now()
		var wg sync.WaitGroup
		for _, c := range all {
			time.Sleep(c.at - time.Since(start))
			wg.Go(func() { s.visit(c, d, enter, start) })
		}
		wg.Wait()
	})
	return all
}

// whole makes a duration a multiple of grid.
func whole(d time.Duration) time.Duration { return d / grid * grid }

func (s *scenario) visit(c *client, d door, enter func(context.Context, *client) (func(), error), start time.Time) {
	ctx, cancel := context.Background(), func() {}
	switch {
	case c.stream.unseen:
	case d.told:
		ctx, cancel = context.WithTimeout(ctx, whole(c.stream.patience))
	default:
		ctx, cancel = context.WithCancel(ctx)
		leaves := time.AfterFunc(whole(c.stream.patience), cancel)
		defer leaves.Stop()
	}
	defer cancel()
	release, err := enter(ctx, c)
	if err != nil {
		c.after = time.Since(start) - c.at
		c.refused = c.after < whole(c.stream.patience)
		return
	}
	defer release()
	// The session is busy until the work is done, whether the client is there
	// or not.
	work, now := c.service, time.Since(start)
	if from, to := s.length/3, 2*s.length/3; c.stream.hangs && now >= from && now < to {
		work = to - now + c.service
	}
	time.Sleep(c.next(now+work) - now)
	if c.after = time.Since(start) - c.at; c.after <= whole(c.stream.patience) {
		c.served = true
	}
}

// gateDoor is the gate with one discipline. Without flows all clients count as
// one.
func gateDoor(name string, order gate.Order, flows bool) door {
	return door{name: name, open: func(s *scenario) func(context.Context, *client) (func(), error) {
		g := gate.New(s.sessions, s.queue)
		c := gate.Config{Slots: s.sessions, Default: gate.LaneConfig{Queue: s.queue, Order: order}, Lanes: map[string]gate.LaneConfig{}}
		for _, st := range s.streams {
			if st.lane != "" {
				c.Lanes[st.lane] = gate.LaneConfig{Queue: s.queue, Order: order, Reserve: s.reserve}
			}
		}
		g.Configure(c)
		kinds := map[*stream]*gate.Kind{}
		for i := range s.streams {
			st := &s.streams[i]
			kinds[st] = &gate.Kind{Times: new(gate.Times)}
			if st.lane != "" {
				kinds[st].Lane = g.Lane(st.lane)
			}
		}
		return func(ctx context.Context, c *client) (func(), error) {
			w := gate.Work{Kind: kinds[c.stream], MaxWait: whole(s.timeout)}
			if flows {
				w.Flow = gate.Flow{0: byte(c.flow >> 8), 1: byte(c.flow)}
				if c.stream.site {
					w.Flow = gate.Flow{0: 0x20, 6: byte(c.flow >> 8), 7: byte(c.flow)}
				}
			}
			return g.Hold(ctx, &w)
		}
	}}
}
