package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir"
	_ "github.com/weir-go/weir/store/redis" // makes the backend "redis" known
)

// serve is one replica: it writes its URL, and serves until stdin ends, which
// it also does when the process that started it dies.
func serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	metrics := prometheus.NewRegistry()
	limiter, err := weir.New(limits(),
		weir.WithRegisterer(metrics),
		weir.WithLogger(slog.New(slog.DiscardHandler))) // a program would log when its store fails
	if err != nil {
		return err
	}
	defer limiter.Close()
	mux := http.NewServeMux()
	mux.Handle("/", limiter.Handler(newCA()))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})) // not limited
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	go func() { _ = server.Serve(ln) }()
	if _, err := fmt.Fprintf(stdout, "http://%s\n", ln.Addr()); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return nil
}

// newCA takes orders at once and signs in some time.
func newCA() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /acme/new-order", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	mux.HandleFunc("POST /acme/finalize/{id}", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(10 * time.Millisecond) // the signature
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

// asReplica is the argument that makes this program a replica.
const asReplica = "serve-one-replica"

func isReplica() bool { return len(os.Args) == 2 && os.Args[1] == asReplica }

// A replica is a server process that this one has started.
type replica struct {
	url     string
	process *exec.Cmd
	stdin   io.Closer
	stderr  bytes.Buffer // go-redis writes a line here for each failed dial; read when the process has ended
}

// startReplica starts this program again as a replica.
func startReplica(ctx context.Context, environment ...string) (*replica, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r := &replica{process: exec.CommandContext(ctx, self, asReplica)}
	r.process.Env = append(os.Environ(), environment...)
	r.process.Stderr = &r.stderr
	if r.stdin, err = r.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("a replica did not start: %s", strings.TrimSpace(r.stderr.String()))
	}
	r.url = strings.TrimSpace(line)
	return r, nil
}

// stop ends the process and waits for it.
func (r *replica) stop() {
	_ = r.stdin.Close()
	_ = r.process.Wait() // it has nothing left to tell
}

// degraded scrapes whether the replica counts for itself now.
func (r *replica) degraded(ctx context.Context) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/metrics", nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && !strings.Contains(string(text), "\nweir_store_degraded ") {
		err = errors.New("a replica does not tell whether its store is degraded")
	}
	return strings.Contains(string(text), "\nweir_store_degraded 1\n"), err
}
