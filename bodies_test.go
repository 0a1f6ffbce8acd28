package weir

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weir-go/weir/internal/jws"
	"github.com/weir-go/weir/store"
)

// overHTTP calls test with a server of each version of HTTP in front of a
// handler, and its client.
func overHTTP(t *testing.T, h http.Handler, test func(t *testing.T, url string, client *http.Client)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, version, r.Proto)
				h.ServeHTTP(w, r)
			}))
			srv.EnableHTTP2 = version == "HTTP/2.0"
			srv.StartTLS()
			defer srv.Close()
			test(t, srv.URL, srv.Client())
		})
	}
}

// josePost is an ACME POST over the wire.
func josePost(t *testing.T, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/jose+json")
	return r
}

// digests answers with the length and the hash of the body, and who sent it.
var digests = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	info, _ := FromContext(r.Context())
	_, _ = fmt.Fprintf(w, "%d %x %v %s", n, sum.Sum(nil), err, info.Account)
})

// Whatever its length, and however it is sent, a body arrives byte for byte.
func TestABodyArrivesAsItWasSent(t *testing.T) {
	cfg := renewing(1e6, 1e6)
	cfg.Tiers.PerAccount = TierConfig{Rate: 1e6, Burst: 1e6}
	h := newLimiter(t, cfg, vouching(true).option()).Handler(digests)
	jose := kidBody(kid1)
	overHTTP(t, h, func(t *testing.T, url string, client *http.Client) {
		for _, size := range []int{0, 1, len(jose), maxBody - 1, maxBody, maxBody + 1, 2*maxBody + 17, 10 << 20} {
			for _, announced := range []bool{true, false} {
				body := make([]byte, size)
				rng := rand.New(rand.NewPCG(uint64(size), 1))
				for i := range body {
					body[i] = byte(rng.Uint32())
				}
				who := ""
				if size >= len(jose) && size <= maxBody {
					who = "/acme/acct/1"
					copy(body, jose)
					for i := len(jose); i < size; i++ {
						body[i] = ' '
					}
				}
				var rd io.Reader = strings.NewReader(string(body))
				if !announced {
					rd = struct{ io.Reader }{rd} // chunked, over HTTP/1.1
				}
				resp, err := client.Do(josePost(t, url+"/acme/new-order", rd))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				_ = resp.Body.Close()
				sum := sha256.Sum256(body)
				assert.Equal(t, fmt.Sprintf("%d %s <nil> %s", size, hex.EncodeToString(sum[:]), who), string(got), "%d bytes, announced: %t", size, announced)
			}
		}
	})
}

// However many an address has begun and not finished, it keeps so many bodies
// only; the rest is refused unread, others are served, and nothing is left when
// the clients have gone.
func TestUnfinishedBodiesOfOneAddressAreBounded(t *testing.T) {
	cfg := acmeConfig(1e6)
	cfg.ClientIP.TrustedProxies = []string{"127.0.0.1"}
	reg := prometheus.NewRegistry()
	l := newLimiter(t, cfg, WithRegisterer(reg))
	l.bodies.patience = time.Hour
	overHTTP(t, l.Handler(digests), func(t *testing.T, url string, client *http.Client) {
		before := runtime.NumGoroutine()
		refusedBefore := metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "order", "tier", tierUnfinished)
		from := func(addr string, body io.Reader) (*http.Response, error) {
			r := josePost(t, url+"/acme/new-order", body)
			r.Header.Set("X-Forwarded-For", addr)
			return client.Do(r)
		}
		var pipes []*io.PipeWriter
		done := make(chan int, maxUnfinished)
		for range maxUnfinished {
			rd, wr := io.Pipe()
			pipes = append(pipes, wr)
			go func() {
				resp, err := from("198.51.100.7", rd)
				if err != nil {
					done <- 0
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				done <- resp.StatusCode
			}()
			_, err := io.WriteString(wr, `{"prot`)
			require.NoError(t, err)
		}
		eventually(t, "all bodies to be waited for", func() bool { return l.unfinishedNow() == maxUnfinished })

		resp, err := from("198.51.100.7", strings.NewReader(kidBody(kid1)))
		require.NoError(t, err)
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Equal(t, "1", resp.Header.Get("Retry-After"))
		assert.Contains(t, string(text), "urn:ietf:params:acme:error:rateLimited")
		assert.EqualValues(t, 1, metric(t, reg, "weir_ratelimit_throttled_total", "endpoint", "order", "tier", tierUnfinished)-refusedBefore)

		resp, err = from("198.51.100.8", strings.NewReader(kidBody(kid1)))
		require.NoError(t, err)
		_ = resp.Body.Close()
		assert.Equal(t, http.StatusOK, resp.StatusCode)

		for i, wr := range pipes {
			if i%2 == 0 {
				_ = wr.Close() // it ends well
			} else {
				_ = wr.CloseWithError(io.ErrUnexpectedEOF) // its client breaks off
			}
		}
		ended := map[int]int{}
		for range pipes {
			ended[<-done]++
		}
		assert.Equal(t, maxUnfinished/2, ended[http.StatusOK])
		eventually(t, "the last body to be let go", func() bool { return l.unfinishedNow() == 0 })
		client.CloseIdleConnections()
		eventually(t, "the last goroutine to end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// A client that has not sent its body is told so at once over HTTP/1.1: the
// server does not wait for the body before it answers.
func TestOneUnfinishedBodyTooManyIsRefusedAtOnce(t *testing.T) {
	l := newLimiter(t, acmeConfig(1e6))
	l.bodies.patience = time.Hour
	srv := httptest.NewServer(l.Handler(digests))
	t.Cleanup(srv.Close)
	begin := func() net.Conn {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, "POST /acme/new-order HTTP/1.1\r\nHost: ca\r\nContent-Type: application/jose+json\r\nContent-Length: 4000\r\n\r\n{")
		require.NoError(t, err)
		return c
	}
	for i := range maxUnfinished {
		begin()
		eventually(t, "the body to be waited for", func() bool { return l.unfinishedNow() == i+1 })
	}
	c := begin()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	answer, err := io.ReadAll(c) // until the server closes
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(answer), "HTTP/1.1 503 "), "%s", answer)
	assert.Contains(t, string(answer), "\r\nRetry-After: 1\r\n")
}

// unfinishedNow is how many bodies are being read.
func (l *Limiter) unfinishedNow() (n int) {
	l.bodies.mu.Lock()
	defer l.bodies.mu.Unlock()
	for _, c := range l.bodies.of {
		n += len(c.list)
	}
	return n
}

// Requests that no account is looked for in, and clients without an address of
// their own, do not count.
func TestWhoseBodiesAreNotCounted(t *testing.T) {
	for _, tc := range []struct {
		name, addr string
		change     func(*Config, *http.Request)
		counted    int
	}{
		{"an ACME request", addr1, func(*Config, *http.Request) {}, 1},
		{"one of another media type", addr1, func(_ *Config, r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 1},
		{"one of another method", addr1, func(_ *Config, r *http.Request) { r.Method = "PATCH" }, 0},
		{"one from a unix socket", "@", func(*Config, *http.Request) {}, 0},
		{"one that is exempt, though accounts are denied", addr1, func(c *Config, _ *http.Request) {
			c.Exempt.Networks, c.Deny.Accounts = []string{addr1}, []string{"/acme/acct/9"}
		}, 0},
		{"one of a class without an account tier", addr1, func(c *Config, _ *http.Request) { c.Tiers.PerAccount, c.Tiers.PerIP = TierConfig{}, perHour(5) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := acmeConfig(100)
			r := acmePost("/acme/new-order", tc.addr, "x")
			tc.change(&cfg, r)
			l := newLimiter(t, cfg)
			counted := -1
			r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
				counted = max(counted, l.unfinishedNow())
				return 0, io.EOF
			}))
			admitted(t, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				served(w, r)
			})), r)
			assert.Equal(t, tc.counted, counted)
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A body that panics when it is read leaves no trace in the count.
func TestABodyThatPanicsIsNotCountedForEver(t *testing.T) {
	l := newLimiter(t, acmeConfig(100))
	r := acmePost("/acme/new-order", addr1, "x")
	r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) { panic(http.ErrAbortHandler) }))
	assert.Panics(t, func() { l.Handler(served).ServeHTTP(httptest.NewRecorder(), r) })
	assert.Zero(t, l.unfinishedNow())
}

// Who keeps as many bodies unfinished as an address may have locks nobody out
// behind that address: the one that takes longest makes room for each that comes.
func TestTheLongestUnfinishedBodyMakesRoom(t *testing.T) {
	l := newLimiter(t, acmeConfig(1e6))
	l.bodies.patience = 0
	overHTTP(t, l.Handler(digests), func(t *testing.T, url string, client *http.Client) {
		const innocent = 3
		before := runtime.NumGoroutine()
		var pipes []*io.PipeWriter
		ended := make(chan int, maxUnfinished)
		for i := range maxUnfinished {
			rd, wr := io.Pipe()
			pipes = append(pipes, wr)
			go func() {
				resp, err := client.Do(josePost(t, url+order, rd))
				if err != nil { // the server closes while the client sends
					ended <- http.StatusServiceUnavailable
					return
				}
				_ = resp.Body.Close()
				ended <- resp.StatusCode
			}()
			_, err := io.WriteString(wr, `{"prot`)
			require.NoError(t, err)
			eventually(t, "the body to be waited for", func() bool { return l.unfinishedNow() == i+1 })
		}
		for range innocent {
			resp, err := client.Do(josePost(t, url+order, strings.NewReader(kidBody(kid1))))
			require.NoError(t, err)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusOK, resp.StatusCode)
			assert.Equal(t, http.StatusServiceUnavailable, <-ended)
			// Fill it up again: as much room as was made is there now.
			rd, wr := io.Pipe()
			pipes = append(pipes, wr)
			go func() { _, _ = client.Do(josePost(t, url+order, rd)) }() //nolint:bodyclose
			_, err = io.WriteString(wr, `{"prot`)
			require.NoError(t, err)
			eventually(t, "the body to be waited for", func() bool { return l.unfinishedNow() == maxUnfinished })
		}
		for _, wr := range pipes {
			_ = wr.CloseWithError(io.ErrUnexpectedEOF)
		}
		eventually(t, "the last body to be let go", func() bool { return l.unfinishedNow() == 0 })
		client.CloseIdleConnections()
		eventually(t, "the last goroutine to end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// deadlines is a ResponseWriter that notes what is set.
type deadlines struct {
	http.ResponseWriter
	read []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error { d.read = append(d.read, at); return nil }

// Over random sequences, with room that is made and room that cannot be, the
// bodies are those of a plain list.
func TestBodiesAgreeWithAPlainList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type entry struct {
			who   store.Key
			id    uint64
			since time.Time
			w     http.ResponseWriter
			out   bool // it made room
		}
		rng := rand.New(rand.NewPCG(3, 4))
		b := bodies{patience: patience}
		var list []*entry
		made, refused := 0, 0
		for range 20_000 {
			if rng.IntN(3) == 0 && len(list) > 0 {
				i := rng.IntN(len(list))
				assert.Equal(t, !list[i].out, b.leave(list[i].who, list[i].id))
				list = slices.Delete(list, i, i+1)
				continue
			}
			time.Sleep(time.Duration(rng.IntN(int(patience) / 20)))
			who := store.Key{byte(rng.IntN(3))}
			var w http.ResponseWriter = &deadlines{}
			if rng.IntN(8) == 0 {
				w = httptest.NewRecorder() // has none
			}
			var mine []*entry
			for _, e := range list {
				if e.who == who && !e.out {
					mine = append(mine, e)
				}
			}
			want := true
			if len(mine) == maxUnfinished {
				_, can := mine[0].w.(*deadlines)
				if want = can && time.Since(mine[0].since) >= patience; want {
					mine[0].out = true
				}
			}
			id, ok := b.enter(who, w)
			require.Equal(t, want, ok)
			switch {
			case !ok:
				refused++
				i := slices.Index(list, mine[rng.IntN(len(mine))]) // or it would stay like that
				assert.True(t, b.leave(list[i].who, list[i].id))
				list = slices.Delete(list, i, i+1)
			case len(mine) == maxUnfinished:
				made++
				assert.Len(t, mine[0].w.(*deadlines).read, 1)
				fallthrough
			default:
				list = append(list, &entry{who: who, id: id, since: time.Now(), w: w})
			}
		}
		for _, e := range list {
			assert.Equal(t, !e.out, b.leave(e.who, e.id))
		}
		assert.Empty(t, b.of)
		assert.NotZero(t, made)
		assert.NotZero(t, refused)
	})
}

// A client over HTTP/1.1 that trickles its body and leaves takes its goroutine
// along.
func TestATricklingClientLeavesNothing(t *testing.T) {
	l := newLimiter(t, acmeConfig(1e6))
	srv := httptest.NewServer(l.Handler(digests))
	t.Cleanup(srv.Close)
	before := runtime.NumGoroutine()
	for _, form := range []string{"Content-Length: 4000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\n"} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(c, "POST /acme/new-order HTTP/1.1\r\nHost: ca\r\nContent-Type: application/jose+json\r\n%s", form)
		require.NoError(t, err)
		eventually(t, "the body to be waited for", func() bool { return l.unfinishedNow() == 1 })
		_ = c.Close()
		eventually(t, "the body to be let go", func() bool { return l.unfinishedNow() == 0 })
	}
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// Any bytes, under any of the media types, go through the chain unchanged, and
// are nobody's but whose they say.
func FuzzTheChainHandsOnAnyBody(f *testing.F) {
	f.Add([]byte(kidBody(kid1)), "application/jose+json")
	f.Add([]byte(`{"protected":"eyJraWQiOiJhIn0","payload":"eyJyZXBsYWNlcyI6ImEuYiJ9"}`), "application/jose+json; x=y")
	f.Add([]byte("}{"), "APPLICATION/JOSE+JSON")
	f.Add([]byte{}, "")
	cfg := renewing(0, 5)
	cfg.Tiers.PerAccount = TierConfig{Rate: 1e9, Burst: 1e9}
	l, err := New(cfg, vouching(true).option())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, mediaType string) {
		r := httptest.NewRequest("POST", "/acme/new-order", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", mediaType)
		reached := false
		w := send(l.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			reached = true
			got, err := io.ReadAll(r.Body)
			if err != nil || string(got) != string(body) {
				t.Errorf("the handler got %q, %v", got, err)
			}
			info, _ := FromContext(r.Context())
			if kid, _ := jws.KeyID(body); info.Account != "" && info.Account != kid {
				t.Errorf("the account is %q, want %q", info.Account, kid)
			}
		})), r)
		if !reached {
			t.Errorf("refused with %d", w.Code)
		}
	})
}

func TestESTUsersAreTheSameInAnySpelling(t *testing.T) {
	user := func(name, addr string) *http.Request {
		r := request("POST", "/est", addr, "csr")
		r.SetBasicAuth(name, "secret")
		return r
	}
	t.Run("they share a bucket", func(t *testing.T) {
		h := newLimiter(t, acmeConfig(3)).Handler(served)
		admitted(t, h, user("Device-7", addr1))
		admitted(t, h, user("device-7", addr1))
		admitted(t, h, user(" DEVICE-7\u200b", addr1))
		refused(t, h, user("dEVICE-7", "198.51.100.3"))
		admitted(t, h, user("device-8", addr1))
	})
	t.Run("a list and an override hold for all", func(t *testing.T) {
		cfg := acmeConfig(1)
		cfg.Deny.Accounts = []string{"Mallory"}
		cfg.Tiers.PerAccount.Overrides = map[string]Limit{"Monitor": {1.0 / 3600, 4}, "ops": {1.0 / 3600, 2}, "OPS": {1.0 / 3600, 9}}
		h := newLimiter(t, cfg).Handler(served)
		denied(t, h, user("mALLORY", addr1))
		left(t, h, 4, func() *http.Request { return user("monitor", addr1) })
		left(t, h, 2, func() *http.Request { return user("Ops", addr1) }) // as it is written beats what folds to it
	})
	t.Run("one that the handler verified is the one that paid", func(t *testing.T) {
		s := newLedger()
		l := newLimiter(t, acmeConfig(5), WithStore(s))
		admitted(t, l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			SetAccount(r.Context(), "Device-7")
			served(w, r)
		})), user("DEVICE-7", addr1))
		assert.Equal(t, []string{"admit"}, s.calls)
	})
	t.Run("what other servers may read a name in does not cost less", func(t *testing.T) {
		basic := func(enc *base64.Encoding) string { return enc.EncodeToString([]byte("dev~ice?7:secret~?")) }
		for _, fields := range [][]string{
			{"Basic  " + basic(base64.StdEncoding)}, {"basic\t" + basic(base64.StdEncoding)}, {"Basic " + basic(base64.RawURLEncoding)},
			{"Basic ZGV2OnNlY3JldA==", "Basic eDp5"}, {`Digest username="dev", realm="est"`}, {"Basic"},
		} {
			h := newLimiter(t, acmeConfig(2)).Handler(served)
			left(t, h, 2, func() *http.Request {
				r := request("POST", "/est", addr1, "csr")
				r.Header["Authorization"] = fields
				return r
			})
		}
	})
	t.Run("what names nobody is nobody's", func(t *testing.T) {
		h := newLimiter(t, acmeConfig(1)).Handler(served)
		for range 3 {
			admitted(t, h, request("POST", "/est", addr1, "csr"))
			admitted(t, h, withHeader(request("POST", "/est", addr1, "csr"), "Authorization", "Bearer x"))
			admitted(t, h, withHeader(request("POST", "/est", addr1, "csr"), "Authorization", "Basic OnNlY3JldA=="))
		}
	})
	t.Run("what can be no name does not cost less", func(t *testing.T) {
		h := newLimiter(t, acmeConfig(2)).Handler(served)
		i := 0
		left(t, h, 2, func() *http.Request { i++; return user(strings.Repeat("x", maxID+i), addr1) })
		admitted(t, h, user(strings.Repeat("x", maxID+1), "198.51.100.3"))
	})
}

// The number at the end of an account's URL is one account however it is
// written.
func TestAccountsAreTheSameWithZerosBefore(t *testing.T) {
	cfg := acmeConfig(3)
	cfg.Deny.Accounts = []string{"/acme/acct/0099"}
	h := newLimiter(t, cfg).Handler(served)
	for _, id := range []string{"17", "017", "+0017"} {
		admitted(t, h, acmePost("/acme/new-order", addr1, kidBody("https://ca.example/acme/acct/"+id)))
	}
	refused(t, h, acmePost("/acme/new-order", addr1, kidBody("https://ca.example/acme/acct/00017")))
	denied(t, h, acmePost("/acme/new-order", addr1, kidBody("https://ca.example/acme/acct/99")))
}

// Inside a Handler, Protect does what is left to do, for its own class.
func TestProtectInsideAHandler(t *testing.T) {
	cfg := noTiers()
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{
		{Pattern: "/page", Class: "page", Limits: map[string]Limit{TierPerIP: {1.0 / 3600, 5}}},
		{Class: "signing", Kind: KindOCSP, Guard: "hsm", Mode: ModeFail, Limits: map[string]Limit{TierPerIP: {1.0 / 3600, 1}}},
	}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	l := newLimiter(t, cfg)
	var class Class
	h := l.Handler(l.Protect("signing", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := FromContext(r.Context())
		class = info.Class
		served(w, r)
	})))
	t.Run("the tiers were those of the pattern's class", func(t *testing.T) {
		left(t, h, 5, func() *http.Request { return request("GET", "/page", addr1, "") })
		assert.Equal(t, Class("page"), class)
	})
	t.Run("a request without a class has the protected one", func(t *testing.T) {
		left(t, h, 1, func() *http.Request { return request("GET", "/elsewhere", addr1, "") })
		assert.Equal(t, Class("signing"), class)
	})
	t.Run("the guard is that of the protected class", func(t *testing.T) {
		free, err := l.Guard("hsm").Acquire(t.Context())
		require.NoError(t, err)
		defer free()
		w := send(h, request("GET", "/page", "198.51.100.1", ""))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	})
}

// Before a request is held, its body is read; an address that trickles them
// has so many read at once, and none of it is in the way of others.
func TestBodiesReadBeforeAWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.DefaultClass = ""
		cfg.Endpoints = []Endpoint{{Pattern: "/scep", Class: "scep", Kind: KindSCEP}}
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 1}
		cfg.Tiers.MaxWait, cfg.Tiers.MaxWaiting = Duration(5*time.Second), 1000
		l := newLimiter(t, cfg)
		h := l.Handler(served)
		var reads atomic.Int64
		release := make(chan struct{})
		from := func(addr string) *http.Request {
			r := request("POST", "/scep", addr, "x")
			r.Body = io.NopCloser(readerFunc(func([]byte) (int, error) {
				reads.Add(1)
				<-release
				return 0, io.EOF
			}))
			return r
		}
		admitted(t, h, request("POST", "/scep", addr1, "x"))
		admitted(t, h, request("POST", "/scep", "198.51.100.7", "x"))
		for range 2 * maxUnfinished {
			go send(h, from(addr1))
		}
		synctest.Wait()
		assert.EqualValues(t, maxUnfinished, reads.Load())
		go send(h, from("198.51.100.7"))
		synctest.Wait()
		assert.EqualValues(t, maxUnfinished+1, reads.Load())
		close(release)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, l.before.of)
	})
}
