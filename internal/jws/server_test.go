package jws

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// protocols calls test with a server of each HTTP version and its client.
func protocols(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, url string, client *http.Client)) {
	for _, tt := range []struct {
		name   string
		http2  bool
		expect int
	}{{"HTTP/1.1", false, 1}, {"HTTP/2", true, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, tt.expect, r.ProtoMajor)
				handler(w, r)
			}))
			server.EnableHTTP2 = tt.http2
			server.StartTLS()
			defer server.Close()
			test(t, server.URL, server.Client())
		})
	}
}

// hideLength keeps http.NewRequest from finding out how long a body is.
func hideLength(body io.Reader) io.Reader { return struct{ io.Reader }{body} }

func post(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", mediaType)
	return r
}

func TestAccountOnAServer(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		before := r.ContentLength
		kid, _ := account(r, 4000)
		w.Header().Set("Account", kid)
		assert.Equal(t, before, r.ContentLength)
		assert.Equal(t, r.Header.Get("Announced"), fmt.Sprint(r.ContentLength))
		whole, err := io.ReadAll(r.Body) // at once: on HTTP/1.1 the first byte of the answer ends the body
		assert.NoError(t, err)
		assert.NoError(t, r.Body.Close())
		_, err = w.Write(whole)
		assert.NoError(t, err)
	}
	protocols(t, handler, func(t *testing.T, url string, client *http.Client) {
		for _, size := range []int{600, 4000, 4001, 14_000, 300_000} {
			for _, length := range []string{"announced", "unknown"} {
				t.Run(fmt.Sprintf("%d bytes, length %s", size, length), func(t *testing.T) {
					text := string(newOrder(size))
					var body io.Reader = strings.NewReader(text)
					announced := size
					if length == "unknown" { // chunked on HTTP/1.1
						body, announced = hideLength(body), -1
					}
					r := post(t, url, body)
					r.Header.Set("Announced", fmt.Sprint(announced))
					answer, err := client.Do(r)
					require.NoError(t, err)
					defer answer.Body.Close()
					got, err := io.ReadAll(answer.Body)
					require.NoError(t, err)
					assert.True(t, text == string(got), "the handler saw another body")
					want := "/acme/acct/1234567"
					if size > 4000 {
						want = ""
					}
					assert.Equal(t, want, answer.Header.Get("Account"))
				})
			}
		}
	})
}

func TestTrailersArriveThroughPeek(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, complete := Peek(r, 100)
		assert.True(t, complete)
		_, err := io.Copy(io.Discard, r.Body)
		assert.NoError(t, err)
		assert.Equal(t, http.Header{"Checksum": {"17"}}, r.Trailer)
	}
	protocols(t, handler, func(t *testing.T, url string, client *http.Client) {
		r := post(t, url, hideLength(strings.NewReader("0123456789")))
		r.Trailer = http.Header{"Checksum": {"17"}}
		answer, err := client.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
	})
}

func TestMaxBytesReaderOnAServer(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request) *http.Request
	}{
		{"Peek outside", func(w http.ResponseWriter, r *http.Request) *http.Request {
			_, complete := Peek(r, 1000)
			assert.True(t, complete)
			r.Body = http.MaxBytesReader(w, r.Body, 100)
			return r
		}},
		{"Peek inside", func(w http.ResponseWriter, r *http.Request) *http.Request {
			r.Body = http.MaxBytesReader(w, r.Body, 100)
			_, complete := Peek(r, 1000)
			assert.False(t, complete)
			return r
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			handler := func(w http.ResponseWriter, r *http.Request) {
				whole, err := io.ReadAll(tt.handler(w, r).Body)
				assert.Len(t, whole, 100)
				var tooLarge *http.MaxBytesError
				assert.ErrorAs(t, err, &tooLarge)
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
			protocols(t, handler, func(t *testing.T, url string, client *http.Client) {
				answer, err := client.Do(post(t, url, hideLength(strings.NewReader(strings.Repeat("x", 600)))))
				require.NoError(t, err)
				require.NoError(t, answer.Body.Close())
				assert.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode)
			})
		})
	}
}

func TestClientGoesAwayInMidBody(t *testing.T) {
	type outcome struct {
		peeked   string
		complete bool
		whole    string
		err      error
	}
	for _, limit := range []int64{100, 4} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			outcomes, arrived := make(chan outcome, 1), make(chan struct{}, 1)
			handler := func(w http.ResponseWriter, r *http.Request) {
				r.Body = struct {
					io.Reader
					io.Closer
				}{io.TeeReader(r.Body, signal(arrived)), r.Body}
				peeked, complete := Peek(r, limit)
				whole, err := io.ReadAll(r.Body)
				outcomes <- outcome{string(peeked), complete, string(whole), err}
			}
			protocols(t, handler, func(t *testing.T, url string, client *http.Client) {
				ctx, leave := context.WithCancel(t.Context())
				body, line := io.Pipe()
				defer line.Close()
				gone := make(chan error)
				go func() {
					answer, err := client.Do(post(t, url, body).WithContext(ctx))
					if err == nil {
						answer.Body.Close()
					}
					gone <- err
				}()
				_, err := io.WriteString(line, "01234")
				require.NoError(t, err)
				<-arrived
				leave()
				line.CloseWithError(errBroken) // http.Transport waits for its reader
				<-gone                         // with an error, or with the answer that the handler could still send

				got := <-outcomes
				assert.Equal(t, "01234"[:min(limit, 5)], got.peeked)
				assert.False(t, got.complete)
				assert.Equal(t, "01234", got.whole)
				assert.Error(t, got.err, "the body seemed to end")
			})
		})
	}
}

// signal is a writer that tells, once, that something was written.
type signal chan<- struct{}

func (s signal) Write(p []byte) (int, error) {
	if len(p) > 0 {
		select {
		case s <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

// line is the client's end of a connection to an http.Server, both inside a
// synctest bubble.
type line struct {
	net.Conn
	server *http.Server

	mu  sync.Mutex
	got strings.Builder
}

// connect serves one connection. Call it inside a bubble.
func connect(t *testing.T, server *http.Server) *line {
	t.Helper()
	near, far := net.Pipe()
	l := &line{Conn: near, server: server}
	listener := &once{conn: far, closed: make(chan struct{})}
	go server.Serve(listener)
	go func() {
		for r := bufio.NewReader(near); ; {
			b, err := r.ReadByte()
			if err != nil {
				return
			}
			l.mu.Lock()
			l.got.WriteByte(b)
			l.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		near.Close()
		server.Close()
		synctest.Wait()
	})
	return l
}

// send writes a request head for a body of the given length, and what there is
// of the body.
func (l *line) send(t *testing.T, method, mediaType string, length int, more, body string) {
	t.Helper()
	_, err := fmt.Fprintf(l, "%s /acme/new-order HTTP/1.1\r\nHost: ca.example\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s", method, mediaType, length, more, body)
	require.NoError(t, err)
}

// received returns all that came from the server once nothing moves any more.
func (l *line) received() string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got.String()
}

// once is a listener of one connection.
type once struct {
	conn   net.Conn
	closed chan struct{}
	mu     sync.Mutex
}

func (o *once) Accept() (net.Conn, error) {
	o.mu.Lock()
	conn := o.conn
	o.conn = nil
	o.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-o.closed
	return nil, net.ErrClosed
}

func (o *once) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.closed:
	default:
		close(o.closed)
	}
	return nil
}

func (o *once) Addr() net.Addr { return &net.TCPAddr{} }

// R6: what is refused without a look at the body must not ask for the body.
// It is Peek that asks for it, and nothing before.
func TestPeekIsWhatSends100Continue(t *testing.T) {
	text := string(newOrder(600))
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }
	looks := func(limit int64) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if _, ok := account(r, limit); !ok {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}
	}
	for _, tt := range []struct {
		name      string
		method    string
		mediaType string
		handler   http.HandlerFunc
		continues bool
	}{
		{"a handler that does not look", "POST", mediaType, refuse, false},
		{"a handler that looks", "POST", mediaType, looks(4096), true},
		{"a body announced as longer than the limit", "POST", mediaType, looks(599), false},
		{"another method", "PATCH", mediaType, looks(4096), false},
		{"another media type", "POST", "application/json", looks(4096), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := connect(t, &http.Server{Handler: tt.handler})
				l.send(t, tt.method, tt.mediaType, len(text), "Expect: 100-continue\r\n", "")
				got := l.received()
				if !tt.continues {
					assert.True(t, strings.HasPrefix(got, "HTTP/1.1 429 "), got)
					return
				}
				assert.Equal(t, "HTTP/1.1 100 Continue\r\n\r\n", got)
				_, err := io.WriteString(l, text)
				require.NoError(t, err)
				assert.Contains(t, l.received(), "\r\n\r\nHTTP/1.1 200 OK\r\n")
			})
		})
	}
}

func TestAccountOfASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := string(newOrder(600))
		l := connect(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			kid, _ := account(r, 4096)
			whole, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Equal(t, text, string(whole))
			w.Header().Set("Account", kid)
		})})
		l.send(t, "POST", mediaType, len(text), "", "")
		for i := range len(text) {
			assert.Empty(t, l.received())
			time.Sleep(time.Second)
			_, err := io.WriteString(l, text[i:i+1])
			require.NoError(t, err)
		}
		assert.Contains(t, l.received(), "\r\nAccount: /acme/acct/1234567\r\n")
	})
}

// How long a client may take is the server's to say.
func TestReadTimeoutEndsPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var took time.Duration
		var ok bool
		var whole []byte
		var err error
		l := connect(t, &http.Server{ReadTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, ok = account(r, 4096)
			took = time.Since(start)
			whole, err = io.ReadAll(r.Body)
		})})
		l.send(t, "POST", mediaType, 600, "", "01234")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.False(t, ok)
		assert.Equal(t, 5*time.Second, took)
		assert.Equal(t, "01234", string(whole))
		assert.True(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	})
}

// The next request on a connection begins where the body of this one ends,
// whatever Peek and the handler left unread.
func TestConnectionGoesOnAfterPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := connect(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Peek(r, 3)
			w.Header().Set("Length", fmt.Sprint(r.ContentLength))
		})})
		for _, length := range []int{5, 3, 2} {
			l.send(t, "POST", mediaType, length, "", "01234"[:length])
			assert.Contains(t, l.received(), fmt.Sprintf("\r\nLength: %d\r\n", length))
		}
	})
}
