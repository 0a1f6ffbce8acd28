// Command quickstart puts a limiter in front of a small PKI, floods it, and
// shows that a polite client is served all the same.
//
//	go run ./quickstart
//
// The smallest program that does so needs four lines of weir:
//
//	cfg := weir.DefaultConfig()
//	cfg.Endpoints = weir.PKIEndpoints()
//	limiter, err := weir.New(cfg)
//	…
//	http.ListenAndServe(":8080", limiter.Handler(pki))
//
// Read on from limited, which is those lines and what the demonstration adds;
// then come the PKI, the clients and the report, in that order.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir"
)

// limited puts a Limiter in front of pki.
func limited(pki http.Handler, metrics prometheus.Registerer) (http.Handler, *weir.Limiter, error) {
	// The defaults: 200 requests a second from all, 20 from one address, 50
	// from one account. The endpoints say which request is what: a class such
	// as acme_new_order, the protocol a refusal is to be written in, and
	// generous limits of their own for what a client cannot do without.
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()

	// An address may do less here than by default, or the polite client would
	// never have to wait: 10 requests at once, and from then on 5 a second.
	cfg.Tiers.PerIP = weir.TierConfig{Rate: 5, Burst: 10}

	// Behind a reverse proxy every client has the proxy's address. Tell which
	// proxies to believe and the client's own is taken from X-Forwarded-For.
	// The clients below play the proxy, to have an address each.
	cfg.ClientIP.TrustedProxies = []string{"127.0.0.1"}

	// A rate says how often; the HSM needs a bound on how many at once. Two
	// requests may be signing and four more wait for it; others are shed. A
	// class says which guard it passes.
	cfg.Guards = map[string]weir.GuardConfig{
		"hsm": {MaxInFlight: hsmSessions, MaxQueue: 4, AcquireTimeout: weir.Duration(time.Second)},
	}
	for i := range cfg.Endpoints {
		if cfg.Endpoints[i].Class == weir.ClassACMEFinalize {
			cfg.Endpoints[i].Guard = "hsm"
		}
	}

	limiter, err := weir.New(cfg,
		weir.WithRegisterer(metrics),
		weir.WithLogger(slog.New(slog.DiscardHandler))) // a program would log its refusals
	if err != nil {
		return nil, nil, err // every fault of cfg at once, each with its cure
	}
	return limiter.Handler(pki), limiter, nil
}

// ---- The PKI: it answers anything with 200, and signs what is finalized.

// hsmSessions is how many signatures the HSM can make at once. One more is an
// error, as it is for a real one.
const hsmSessions = 2

func newPKI() http.Handler {
	var sessions atomic.Int32
	answer := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "done") }
	mux := http.NewServeMux()
	mux.HandleFunc("POST /acme/new-order", answer)
	mux.HandleFunc("GET /ocsp/{request...}", answer)
	mux.HandleFunc("POST /acme/finalize/{id}", func(w http.ResponseWriter, r *http.Request) {
		defer sessions.Add(-1)
		if sessions.Add(1) > hsmSessions {
			http.Error(w, "the HSM has no session left", http.StatusInternalServerError)
			return
		}
		time.Sleep(5 * time.Millisecond) // the signature
		answer(w, r)
	})
	return mux
}

// asked is what the clients ask for.
var asked = []struct {
	class        weir.Class
	method, path string
}{
	{weir.ClassACMENewOrder, http.MethodPost, "/acme/new-order"},
	{weir.ClassACMEFinalize, http.MethodPost, "/acme/finalize/1"},
	{weir.ClassOCSP, http.MethodGet, "/ocsp/MFYwVKADAgEAME0wSzBJMAkGBSsOAwIaBQA"},
}

// ---- The clients: real HTTP, each from an address of its own.

// A client counts what it was answered. It is safe for concurrent use.
type client struct {
	base    string // URL of the server
	address string // what the proxy says of it
	http    *http.Client

	mu   sync.Mutex // guards seen
	seen map[weir.Class]outcomes
}

// outcomes are how many requests ended in which way.
type outcomes struct{ served, throttled, shed uint64 }

func newClient(base, address string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	return &client{base: base, address: address, http: &http.Client{Transport: transport}, seen: map[weir.Class]outcomes{}}
}

// ask sends the request asked[i] once. A refusal is no error; wait is then the
// time that the server asked for.
func (c *client) ask(ctx context.Context, i int) (wait time.Duration, served bool, err error) {
	r, err := http.NewRequestWithContext(ctx, asked[i].method, c.base+asked[i].path, nil)
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("X-Forwarded-For", c.address)
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, false, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.seen[asked[i].class]
	switch resp.StatusCode {
	case http.StatusOK:
		o.served++
	case http.StatusTooManyRequests: // a tier had no token
		o.throttled++
	case http.StatusServiceUnavailable: // a guard had no slot
		o.shed++
	default:
		return 0, false, fmt.Errorf("%s %s: %s", asked[i].method, asked[i].path, resp.Status)
	}
	c.seen[asked[i].class] = o
	if resp.StatusCode == http.StatusOK {
		return 0, true, nil
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		return 0, false, fmt.Errorf("%s without a Retry-After in seconds: %w", resp.Status, err)
	}
	return time.Duration(seconds) * time.Second, false, nil
}

// flood asks for everything again and again, without heed, several at a time.
func (c *client) flood(ctx context.Context, each, workers int) error {
	var wg sync.WaitGroup
	failures := make(chan error, workers*len(asked))
	for i := range asked {
		var sent atomic.Int64
		for range workers {
			wg.Go(func() {
				for sent.Add(1) <= int64(each) {
					if _, _, err := c.ask(ctx, i); err != nil {
						failures <- err
						return
					}
				}
			})
		}
	}
	wg.Wait()
	close(failures)
	return <-failures // nil if there was none
}

// behave places orders and has each finalized and its certificate checked. It
// waits as long as it is told to before it asks again, and reports how long
// that was in all.
func (c *client) behave(ctx context.Context, orders int) (waited time.Duration, err error) {
	for range orders {
		for i := range asked {
			for {
				wait, served, err := c.ask(ctx, i)
				if err != nil {
					return waited, err
				}
				if served {
					break
				}
				waited += wait
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return waited, ctx.Err()
				}
			}
		}
	}
	return waited, nil
}

// ---- The demonstration.

const (
	orders       = 15   // by the polite client: more than the burst, so it has to wait
	floodEach    = 1000 // requests of the flood to each endpoint …
	floodWorkers = 8    // … so many at a time
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // takes some 3 s
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal("quickstart: ", err)
	}
}

// run serves the PKI, sends the clients and writes what came of it. It fails
// unless the polite client was served and both sides counted the same.
func run(ctx context.Context, out io.Writer) error {
	registry := prometheus.NewRegistry()
	handler, limiter, err := limited(newPKI(), registry)
	if err != nil {
		return err
	}
	defer limiter.Close()
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) // not limited

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go server.Serve(listener) // until Close
	base := "http://" + listener.Addr().String()

	bad, good := newClient(base, "203.0.113.66"), newClient(base, "198.51.100.7")
	defer bad.http.CloseIdleConnections()
	defer good.http.CloseIdleConnections()
	fmt.Fprintf(out, "At %s a flood from %s sends %d requests of each class as fast as it can,\nwhile a polite client at %s places %d orders and waits when it is told to.\n\n",
		base, bad.address, floodEach, good.address, orders)

	flood := make(chan error, 1)
	go func() { flood <- bad.flood(ctx, floodEach, floodWorkers) }()
	waited, err := good.behave(ctx, orders)
	if err := errors.Join(<-flood, err); err != nil {
		return err
	}

	disagreement := report(out, bad.seen, good.seen, limiter.Snapshot())
	fmt.Fprintf(out, "\nThe polite client had all its %d orders served; it was asked to wait %v in all.\n", orders, waited)
	if err := showMetrics(ctx, out, base+"/metrics"); err != nil {
		return err
	}
	return disagreement
}

// report writes the table. It fails if the clients were answered something
// else than the Limiter counted.
func report(out io.Writer, bad, good map[weir.Class]outcomes, snapshot weir.Snapshot) error {
	const group, row = "   %-23s", "   %6d %9d %6d"
	fmt.Fprintf(out, "%-14s"+strings.Repeat(group, 3)+"\n", "", "the flood saw", "the polite client saw", "the Limiter counted")
	fmt.Fprintf(out, "%-14s%s\n", "class", strings.Repeat("   served throttled   shed", 3))
	var failure error
	for _, a := range asked {
		b, g, counted := bad[a.class], good[a.class], countedFor(snapshot, a.class)
		fmt.Fprintf(out, "%-14s", a.class)
		for _, o := range []outcomes{b, g, counted} {
			fmt.Fprintf(out, row, o.served, o.throttled, o.shed)
		}
		fmt.Fprintln(out)
		if seen := (outcomes{b.served + g.served, b.throttled + g.throttled, b.shed + g.shed}); seen != counted {
			failure = errors.Join(failure, fmt.Errorf("%s: the clients saw %+v, the Limiter counted %+v", a.class, seen, counted))
		}
	}
	return failure
}

// countedFor takes one class from a Snapshot. What the guard sheds has passed
// the tiers before: a request is served if it was admitted and not shed.
func countedFor(snapshot weir.Snapshot, class weir.Class) (o outcomes) {
	i := slices.IndexFunc(snapshot.Classes, func(c weir.ClassSnapshot) bool { return c.Class == class })
	if i < 0 {
		return o
	}
	for _, n := range snapshot.Classes[i].Throttled {
		o.throttled += n
	}
	for _, n := range snapshot.Classes[i].Shed {
		o.shed += n
	}
	o.served = snapshot.Classes[i].Admitted - o.shed
	return o
}

// showMetrics scrapes as Prometheus would, and writes the counts of the
// classes that were asked for.
func showMetrics(ctx context.Context, out io.Writer, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	fmt.Fprintf(out, "\nFrom %s:\n", url)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "weir_") && strings.Contains(line, "_total{endpoint=") && !strings.HasSuffix(line, " 0") {
			fmt.Fprintln(out, "  "+line)
		}
	}
	return lines.Err()
}
