package weir

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addressed is one end of a pipe that has an address.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 40000} }

// dial returns the client's end.
func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- addressed{far}
	return near
}

func overPipes(t *testing.T, srv *http.Server, test func(t *testing.T, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		done := make(chan error)
		go func() { done <- srv.Serve(p) }()
		test(t, p)
		require.NoError(t, srv.Close())
		assert.ErrorIs(t, <-done, http.ErrServerClosed)
	})
}

// refusing is a Handler that refuses every POST of /x from the second on.
func refusing(t *testing.T) http.Handler {
	cfg := noTiers()
	cfg.Endpoints = []Endpoint{{Pattern: "POST /x", Class: "x"}}
	cfg.DefaultClass = ""
	cfg.Tiers.Global = perHour(1)
	h := newLimiter(t, cfg).Handler(served)
	admitted(t, h, request("POST", "/x", addr1, ""))
	return h
}

// A client that is refused and trickles its body keeps a goroutine for seconds,
// though the server sets no ReadTimeout.
func TestATricklingClientThatIsRefusedIsLetGo(t *testing.T) {
	for _, form := range []string{"Content-Length: 4000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\n"} {
		overPipes(t, &http.Server{Handler: refusing(t)}, func(t *testing.T, p *pipes) {
			c := p.dial()
			start := time.Now()
			_, err := fmt.Fprintf(c, "POST /x HTTP/1.1\r\nHost: ca\r\n%s", form)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			var trickle sync.WaitGroup
			trickle.Go(func() { // a byte a second
				for ctx.Err() == nil {
					time.Sleep(time.Second)
					if strings.HasPrefix(form, "C") {
						_, _ = io.WriteString(c, " ")
					} else {
						_, _ = io.WriteString(c, "1\r\n \r\n")
					}
				}
			})
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			assert.NotEmpty(t, text)
			assert.True(t, resp.Close, "the connection is not used again")
			assert.Equal(t, linger, time.Since(start))
			stop()
			_ = c.Close()
			trickle.Wait()
		})
	}
}

// One whose body is there is answered at once, and its connection is good for
// the next request, whenever that comes.
func TestARefusalKeepsTheConnectionOfABodyThatIsThere(t *testing.T) {
	overPipes(t, &http.Server{Handler: refusing(t)}, func(t *testing.T, p *pipes) {
		c := p.dial()
		answers := bufio.NewReader(c)
		for range 3 {
			start := time.Now()
			go func() { _, _ = io.WriteString(c, "POST /x HTTP/1.1\r\nHost: ca\r\nContent-Length: 4\r\n\r\nbody") }()
			resp, err := http.ReadResponse(answers, nil)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, resp.Body)
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			assert.False(t, resp.Close)
			assert.Zero(t, time.Since(start))
			time.Sleep(3 * linger)
		}
		_ = c.Close()
	})
}

// The deadline is for a body that somebody may still have to wait for.
func TestWhichRefusalsHaveADeadline(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*http.Request)
		want   bool
	}{
		{"with a body", func(*http.Request) {}, true},
		{"with a body of unknown length", func(r *http.Request) { r.ContentLength = -1 }, true},
		{"without a body", func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }, false},
		{"over HTTP/2, which waits for none", func(r *http.Request) { r.ProtoMajor, r.ProtoMinor = 2, 0 }, false},
		{"where the server has a stricter one", func(r *http.Request) {
			*r = *r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{ReadTimeout: linger}))
		}, false},
		{"where the server's is longer", func(r *http.Request) {
			*r = *r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, &http.Server{ReadTimeout: time.Minute}))
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := refusing(t)
				r := request("POST", "/x", addr1, "body")
				tc.change(r)
				w := &deadlines{ResponseWriter: httptest.NewRecorder()}
				h.ServeHTTP(w, r)
				if tc.want {
					assert.Equal(t, []time.Time{time.Now().Add(linger)}, w.read)
				} else {
					assert.Empty(t, w.read)
				}
			})
		})
	}
	t.Run("not behind a body that has been read to find an account", func(t *testing.T) {
		h := newLimiter(t, acmeConfig(1)).Handler(served)
		admitted(t, h, acmePost(order, addr1, kidBody(kid1)))
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		h.ServeHTTP(w, acmePost(order, addr1, kidBody(kid1)))
		assert.Empty(t, w.read)
	})
}
