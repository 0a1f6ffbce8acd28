// Package redistest starts real Redis servers for tests: one alone, a replicated
// pair with Sentinels, a Cluster of three, with or without TLS and ACL users. They
// listen on loopback only and end with the test.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Servers come and go in these tests; the client's own lines about that would
// bury what a test has to say.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// patience is how long a server gets to start, stop or change its role.
const patience = 20 * time.Second

// binary finds the server program: what REDIS_SERVER names, or redis-server or
// valkey-server.
var binary = sync.OnceValues(func() (string, error) {
	for _, name := range []string{os.Getenv("REDIS_SERVER"), "redis-server", "valkey-server"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no redis-server in PATH: install it (apt-get install redis-server), or name one in REDIS_SERVER")
})

// Server is one server process.
type Server struct {
	// Addr is where it listens, with TLS if Certs is set.
	Addr string
	// Certs is set for a server with TLS.
	Certs *Certs

	t       testing.TB
	dir     string
	args    []string
	client  *redis.Client // as the user default, who may do everything
	process *exec.Cmd
	log     *bytes.Buffer
	done    chan struct{} // closed when the process has ended
}

// Start starts a server with the settings, each like "maxmemory 1mb".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, nil, settings...)
}

// StartTLS starts a server that speaks nothing but TLS.
func StartTLS(t testing.TB, settings ...string) *Server {
	t.Helper()
	return start(t, NewCerts(t), settings...)
}

func start(t testing.TB, certs *Certs, settings ...string) *Server {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	for range 5 { // a port that was free may be taken by the time it is wanted
		s := prepare(t, certs, settings...)
		if s.launch() == nil {
			return s
		}
		t.Logf("trying another port: %s", s.log)
	}
	t.Fatal("redis-server did not start")
	return nil
}

func prepare(t testing.TB, certs *Certs, settings ...string) *Server {
	t.Helper()
	port := freePort(t)
	s := &Server{t: t, Addr: "127.0.0.1:" + port, Certs: certs, dir: t.TempDir()}
	settings = append([]string{
		"bind 127.0.0.1", "dir " + s.dir, `save ""`, "appendonly no", "daemonize no", "protected-mode no",
		"databases 16", "loglevel notice",
	}, settings...)
	o := &redis.Options{Addr: s.Addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, ContextTimeoutEnabled: true,
		DialTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, PoolSize: 4}
	if certs != nil {
		settings = append(settings, "port 0", "tls-port "+port, "tls-auth-clients no",
			"tls-cert-file "+certs.ServerCert, "tls-key-file "+certs.ServerKey, "tls-ca-cert-file "+certs.CA)
		o.TLSConfig = certs.Client()
	} else {
		settings = append(settings, "port "+port)
	}
	file := filepath.Join(s.dir, "server.conf")
	if err := os.WriteFile(file, []byte(strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{file}
	s.client = redis.NewClient(o)
	t.Cleanup(func() {
		_ = s.client.Close()
		s.Kill()
	})
	return s
}

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	path, err := binary()
	if err != nil {
		return err
	}
	s.log = new(bytes.Buffer)
	s.process = exec.Command(path, s.args...)
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.done = done
	go func(p *exec.Cmd) {
		defer close(done)
		_ = p.Wait() // the test says itself whether it should have ended
	}(s.process)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := s.client.Ping(context.Background()).Err()
		if err == nil || strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil
		}
		select {
		case <-done:
			return fmt.Errorf("it ended at once: %s", s.log)
		default:
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("no answer: %w", err)
		}
	}
}

// freePort finds a port below the ephemeral ones, so that no client's end of a
// connection takes it, whose Cluster bus port (10000 above) is free too.
func freePort(t testing.TB) string {
	t.Helper()
	for range 200 {
		port := 15000 + rand.IntN(7000)
		a, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		b, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000))
		_ = a.Close()
		if err != nil {
			continue
		}
		_ = b.Close()
		return strconv.Itoa(port)
	}
	t.Fatal("no free port on loopback")
	return ""
}

// Client returns a client of the server as a user who may do everything. It is
// closed with the test.
func (s *Server) Client() *redis.Client { return s.client }

// Kill ends the process without warning, as a crash does.
func (s *Server) Kill() { s.signal(syscall.SIGKILL); s.wait() }

// Pause stops the process where it stands: the kernel still takes connections,
// and nobody answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// Restart starts a killed server again at its address, empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.t.Fatalf("redis-server did not start again: %v", err)
	}
}

func (s *Server) signal(sig syscall.Signal) {
	if s.process != nil {
		_ = s.process.Process.Signal(sig) // it may have ended
	}
}

func (s *Server) wait() {
	if s.done == nil {
		return
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		s.t.Error("redis-server did not end")
	}
}

// Do runs a command, like Do("CONFIG", "SET", "maxmemory", "1"), and returns what
// the server answers.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	v, err := s.client.Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return v
}

// eventually waits until try is true.
func eventually(t testing.TB, what string, try func() bool) {
	t.Helper()
	for begun := time.Now(); !try(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("%s did not happen within %v", what, patience)
		}
	}
}
