package weir

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What a handler may do with its ResponseWriter it may still do behind the
// auth lock and behind what looks at answers, on real connections.

// wire is a server of both protocols with a handler behind the lock.
func wire(t *testing.T, cfg Config, h http.Handler, setup func(*http.Server)) (l *Limiter, http1, http2 *httptest.Server) {
	t.Helper()
	l = newLimiter(t, cfg, WithAccount(byHeader("Account")))
	for i := range 2 {
		s := httptest.NewUnstartedServer(l.Handler(h))
		if setup != nil {
			setup(s.Config)
		}
		if i == 0 {
			s.Start()
			http1 = s
		} else {
			s.EnableHTTP2 = true
			s.StartTLS()
			http2 = s
		}
		t.Cleanup(s.Close)
	}
	return l, http1, http2
}

// watched is a Config in which every answer is wrapped twice.
func watched() Config {
	cfg := lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures, a.Address.MaxFailures = 10_000, 10_000 })
	cfg.Tiers.PerAccount = TierConfig{Rate: 1000, Burst: 1000}
	for i := range cfg.Endpoints {
		cfg.Endpoints[i].Disown = true
	}
	return cfg
}

func attemptAt(t *testing.T, s *httptest.Server, password string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("bob", password)
	req.Header.Set("Account", "bob")
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestAHandlerCanDoOnTheWireWhatItCould(t *testing.T) {
	big := bytes.Repeat([]byte("weir "), 100_000)
	for _, tt := range []struct {
		name    string
		handler func(w http.ResponseWriter, flushed chan struct{})
		check   func(t *testing.T, res *http.Response, flushed chan struct{})
	}{
		{"flush by the interface", func(w http.ResponseWriter, flushed chan struct{}) {
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			<-flushed
			_, _ = io.WriteString(w, "second")
		}, func(t *testing.T, res *http.Response, flushed chan struct{}) {
			first := make([]byte, 5)
			_, err := io.ReadFull(res.Body, first)
			close(flushed) // only now the rest is written
			if rest, _ := io.ReadAll(res.Body); err != nil || string(first)+string(rest) != "firstsecond" {
				t.Errorf("%q %q %v", first, rest, err)
			}
		}},
		{"flush the header alone by the controller", func(w http.ResponseWriter, flushed chan struct{}) {
			w.Header().Set("Early", "yes")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-flushed
		}, func(t *testing.T, res *http.Response, flushed chan struct{}) {
			close(flushed)
			if res.StatusCode != 200 || res.Header.Get("Early") != "yes" {
				t.Errorf("%d %v", res.StatusCode, res.Header)
			}
		}},
		{"send a file", func(w http.ResponseWriter, _ chan struct{}) {
			if _, err := w.(io.ReaderFrom).ReadFrom(bytes.NewReader(big)); err != nil {
				t.Error(err)
			}
		}, func(t *testing.T, res *http.Response, _ chan struct{}) {
			if body, err := io.ReadAll(res.Body); err != nil || !bytes.Equal(body, big) || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
				t.Errorf("%d bytes, %v, %v", len(body), err, res.Header)
			}
		}},
		{"set deadlines", func(w http.ResponseWriter, _ chan struct{}) {
			c := http.NewResponseController(w)
			if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Error(err)
			}
		}, func(*testing.T, *http.Response, chan struct{}) {}},
		{"send trailers", func(w http.ResponseWriter, _ chan struct{}) {
			w.Header().Set("Trailer", "Sum")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("Sum", "42")
		}, func(t *testing.T, res *http.Response, _ chan struct{}) {
			_, _ = io.ReadAll(res.Body)
			if res.Trailer.Get("Sum") != "42" {
				t.Errorf("trailer %v", res.Trailer)
			}
		}},
		{"fail", func(w http.ResponseWriter, _ chan struct{}) {
			http.Error(w, "wrong", http.StatusUnauthorized)
		}, func(t *testing.T, res *http.Response, _ chan struct{}) {
			if body, _ := io.ReadAll(res.Body); res.StatusCode != 401 || string(body) != "wrong\n" {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			flushed := make(chan chan struct{}, 1)
			_, http1, http2 := wire(t, watched(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { tt.handler(w, <-flushed) }), nil)
			for _, s := range []*httptest.Server{http1, http2} {
				one := make(chan struct{})
				flushed <- one
				res := attemptAt(t, s, "x")
				if want := map[bool]int{true: 2, false: 1}[s == http2]; res.ProtoMajor != want {
					t.Fatalf("HTTP/%d", res.ProtoMajor)
				}
				tt.check(t, res, one)
			}
		})
	}
}

// A handler finds out by the interface whether it can hijack: on HTTP/1.1 it
// can, on HTTP/2 it cannot.
func TestAHandlerCanHijackWhereTheConnectionCan(t *testing.T) {
	can := make(chan bool, 1)
	l, http1, http2 := wire(t, watched(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, ok := w.(http.Hijacker)
		can <- ok
		if !ok {
			return
		}
		conn, rw, err := h.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello")
		_ = rw.Flush()
	}), nil)

	conn, err := net.Dial("tcp", http1.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api HTTP/1.1\r\nHost: x\r\nAccount: bob\r\nAuthorization: Basic Ym9iOng=\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if !<-can || err != nil || !strings.HasSuffix(string(raw), "hello") {
		t.Errorf("%q, %v", raw, err)
	}
	attemptAt(t, http2, "x")
	if <-can {
		t.Error("a handler on HTTP/2 takes it for a connection that can be hijacked")
	}
	if s := l.Snapshot().Auth; s.Failures["account"] != 0 || s.Delaying != 0 {
		t.Errorf("%+v", s)
	}
}

// Scenario D3: a WriteTimeout shorter than the delay must not cost the answer,
// nor the connection that carries it.
func TestADelayOutlastsTheWriteTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := watched()
				cfg.AuthLock.Delay = DelayConfig{After: 1, First: Duration(3 * time.Second), Max: Duration(3 * time.Second)}
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")))
				client := piped(t, http2, time.Second, l.Handler(passwordIs("right")))
				attempt := func(password string, want int) {
					t.Helper()
					r, _ := http.NewRequest("POST", "http://ca/api", nil)
					r.Header.Set("Account", "bob")
					r.SetBasicAuth("bob", password)
					res, err := client.Do(r)
					if err != nil {
						t.Fatalf("no answer: %v", err)
					}
					_ = res.Body.Close()
					if res.StatusCode != want {
						t.Errorf("%s: %d, want %d", password, res.StatusCode, want)
					}
				}
				begun := time.Now()
				for range 3 {
					attempt("wrong", 401)
				}
				if took := time.Since(begun); took < 6*time.Second {
					t.Errorf("three failures took %v: nothing was delayed", took)
				}
				attempt("right", 200)
			})
		})
	}
}

// Scenario D4: a server that shuts down wakes what is kept back.
func TestShutdownWakesTheAnswersThatAreKeptBack(t *testing.T) {
	cfg := watched()
	cfg.AuthLock.Delay = DelayConfig{After: 1, First: Duration(time.Hour), Max: Duration(time.Hour), MaxPerAddress: 100}
	l, http1, _ := wire(t, cfg, passwordIs("right"), nil)
	http1.Config.RegisterOnShutdown(func() { _ = l.Close() })
	failures(t, l, "127.0.0.1", "bob", 1)
	answers := make(chan int, 20)
	for range 20 {
		go func() {
			req, _ := http.NewRequest("POST", http1.URL+"/api", nil)
			req.SetBasicAuth("bob", "wrong")
			res, err := http1.Client().Do(req)
			if err != nil {
				answers <- 0
				return
			}
			_ = res.Body.Close()
			answers <- res.StatusCode
		}()
	}
	for l.Snapshot().Auth.Delaying < 20 {
		if t.Context().Err() != nil {
			t.Fatal("they were not kept back")
		}
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := http1.Config.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if status := <-answers; status != 401 {
			t.Errorf("status %d", status)
		}
	}
}

// Scenario P5: who is locked out is told before it has sent its body.
func TestALockedUploadIsRefusedBeforeItsBody(t *testing.T) {
	l, http1, _ := wire(t, lockLimits(func(a *AuthLockConfig) { a.Address.MaxFailures = 1 }), passwordIs("right"), nil)
	failures(t, l, "127.0.0.1", "bob", 1)
	conn, err := net.Dial("tcp", http1.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /s3/b/k HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000000000\r\nAuthorization: AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE%s\r\n\r\n", sigV4Rest)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 503 || !res.Close || res.Header.Get("X-Amz-Retry-After") == "" {
		t.Errorf("%d, close %v, %v", res.StatusCode, res.Close, res.Header)
	}
}
