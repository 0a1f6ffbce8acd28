package weir

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// A chain hands the ResponseWriter on as it is. These tests hold it to that
// where it shows: on real servers of both protocols, through every way of
// wiring the chain.

// wirings are the ways in which a program can put the chain before a handler.
var wirings = []struct {
	name string
	wrap func(*Limiter, http.Handler) http.Handler
}{
	{"handler", (*Limiter).Handler},
	{"protect", func(l *Limiter, next http.Handler) http.Handler { return l.Protect("sign", next) }},
	{"stages", func(l *Limiter, next http.Handler) http.Handler {
		return l.ClientIP(l.Tiers(l.Guard("hsm").Handler(next)))
	}},
}

// protocols are the servers that a chain can stand in.
var protocols = []struct {
	name  string
	major int
	start func(*httptest.Server)
}{
	{"HTTP 1", 1, (*httptest.Server).Start},
	{"HTTP 2", 2, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }},
}

// onEachServer runs a handler behind every wiring in every protocol.
func onEachServer(t *testing.T, h func(t *testing.T, major int) http.HandlerFunc, ask func(t *testing.T, major int, c *http.Client, url string)) {
	for _, p := range protocols {
		for _, w := range wirings {
			t.Run(p.name+" "+w.name, func(t *testing.T) {
				cfg := guarded(1, 1, time.Minute)
				cfg.Tiers.Global, cfg.Tiers.PerIP = perHour(10), perHour(10)
				cfg.Tiers.MaxWait = Duration(time.Minute)
				l := newLimiter(t, cfg)
				srv := httptest.NewUnstartedServer(w.wrap(l, h(t, p.major)))
				p.start(srv)
				defer srv.Close()
				ask(t, p.major, srv.Client(), srv.URL+"/sign")
			})
		}
	}
}

func TestHandlerGetsTheVeryWriterOfTheServer(t *testing.T) {
	l := newLimiter(t, guarded(1, 1, time.Minute))
	for _, wiring := range wirings {
		given := httptest.NewRecorder()
		var got http.ResponseWriter
		wiring.wrap(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w })).ServeHTTP(given, to("sign", alice))
		if got != http.ResponseWriter(given) {
			t.Errorf("%s: the handler got %T, want the writer that was given", wiring.name, got)
		}
	}
}

func TestWriterKeepsItsPowers(t *testing.T) {
	onEachServer(t, func(t *testing.T, major int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != major {
				t.Errorf("the request came by %s", r.Proto)
			}
			_, flusher := w.(http.Flusher)
			_, hijacker := w.(http.Hijacker)
			_, readerFrom := w.(io.ReaderFrom)
			_, pusher := w.(http.Pusher)
			_, stringWriter := w.(io.StringWriter)
			if !flusher || !stringWriter || hijacker != (major == 1) || readerFrom != (major == 1) || pusher != (major == 2) {
				t.Errorf("%T: Flusher %v, StringWriter %v, Hijacker %v, ReaderFrom %v, Pusher %v", w, flusher, stringWriter, hijacker, readerFrom, pusher)
			}
			rc := http.NewResponseController(w)
			for what, err := range map[string]error{
				"SetReadDeadline":  rc.SetReadDeadline(time.Now().Add(time.Minute)),
				"SetWriteDeadline": rc.SetWriteDeadline(time.Now().Add(time.Minute)),
				"EnableFullDuplex": rc.EnableFullDuplex(),
				"Flush":            rc.Flush(),
			} {
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if major == 2 {
				if _, _, err := rc.Hijack(); !errors.Is(err, http.ErrNotSupported) {
					t.Errorf("Hijack: %v, want what HTTP/2 says", err)
				}
			}
		}
	}, func(t *testing.T, _ int, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	})
}

func TestFlushedPartsArriveWhileTheHandlerIsAtWork(t *testing.T) {
	goOn := make(chan struct{})
	onEachServer(t, func(t *testing.T, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "first\n")
			w.(http.Flusher).Flush()
			<-goOn // which comes once the client has the first part
			_, _ = w.Write([]byte("second\n"))
		}
	}, func(t *testing.T, _ int, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body := bufio.NewReader(resp.Body)
		first, _ := body.ReadString('\n')
		goOn <- struct{}{}
		second, _ := body.ReadString('\n')
		if first != "first\n" || second != "second\n" {
			t.Errorf("read %q and %q", first, second)
		}
	})
}

// The handler answers each line before the next is sent, which needs a body
// that may be read after the answer has begun.
func TestFullDuplexWorks(t *testing.T) {
	onEachServer(t, func(t *testing.T, _ int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := rc.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.WriteHeader(http.StatusOK)
			_ = rc.Flush()
			for lines := bufio.NewScanner(r.Body); lines.Scan(); _ = rc.Flush() {
				_, _ = io.WriteString(w, strings.ToUpper(lines.Text())+"\n")
			}
		}
	}, func(t *testing.T, _ int, c *http.Client, url string) {
		in, out := io.Pipe()
		req, err := http.NewRequest("POST", url, in)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body := bufio.NewReader(resp.Body)
		for _, line := range []string{"one\n", "two\n", "three\n"} {
			_, _ = io.WriteString(out, line)
			if got, err := body.ReadString('\n'); got != strings.ToUpper(line) {
				t.Fatalf("%q was answered %q, %v", line, got, err)
			}
		}
		_ = out.Close()
	})
}

func TestWriteDeadlineThatHasPassedStopsTheAnswer(t *testing.T) {
	onEachServer(t, func(t *testing.T, major int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(-time.Minute)); err != nil {
				t.Error(err)
			}
			_, err := w.Write(make([]byte, 1<<20))
			if major == 1 && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("Write says %v, want that its deadline is over", err)
			}
		}
	}, func(t *testing.T, _ int, c *http.Client, url string) {
		resp, err := c.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err == nil {
			t.Error("the whole answer came after its deadline")
		}
	})
}

// A file goes out by ReadFrom, with its ranges; the chain adds nothing to the
// header.
func TestFileIsServedAsWithoutTheChain(t *testing.T) {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "crl.der", time.Unix(1e9, 0), strings.NewReader(strings.Repeat("0123456789", 10_000)))
	})
	get := func(t *testing.T, c *http.Client, url string) (http.Header, string) {
		t.Helper()
		req, _ := http.NewRequest("GET", url, nil)
		req.Header.Set("Range", "bytes=5-50004")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusPartialContent {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		resp.Header.Del("Date")
		return resp.Header, string(body)
	}
	bare := httptest.NewServer(file)
	defer bare.Close()
	wantHeader, wantBody := get(t, bare.Client(), bare.URL)
	onEachServer(t, func(*testing.T, int) http.HandlerFunc { return file.ServeHTTP },
		func(t *testing.T, _ int, c *http.Client, url string) {
			header, body := get(t, c, url)
			if body != wantBody || len(header) != len(wantHeader) {
				t.Errorf("got %v and %d bytes, want %v and %d", header, len(body), wantHeader, len(wantBody))
			}
			for key := range wantHeader {
				if header.Get(key) != wantHeader.Get(key) {
					t.Errorf("%s is %q, want %q", key, header.Get(key), wantHeader.Get(key))
				}
			}
		})
}
