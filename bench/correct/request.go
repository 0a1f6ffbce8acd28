package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// served is the handler behind every limiter.
var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

const (
	client = "198.51.100.7" // who is limited
	proxy  = "10.0.0.1"     // the one trusted proxy
)

// panicked is the status of a request that the middleware or the handler
// answered with a panic, for which net/http drops the connection.
const panicked = 0

// request is one from a peer, whose port changes as ports do.
func request(peer, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = hostport(peer)
	return r
}

var port atomic.Uint32

func hostport(host string) string {
	p := 1024 + port.Add(1)%60000
	for i := range host {
		if host[i] == ':' {
			return fmt.Sprintf("[%s]:%d", host, p)
		}
	}
	return fmt.Sprintf("%s:%d", host, p)
}

// send serves a request as net/http would: a panic ends the request only.
func send(h http.Handler, r *http.Request) (w *httptest.ResponseRecorder) {
	w = httptest.NewRecorder()
	defer func() {
		if recover() != nil {
			w.Code = panicked
		}
	}()
	h.ServeHTTP(w, r)
	return w
}

// admitted counts the requests of n that are answered with 200.
func admitted(h http.Handler, n int, r func(i int) *http.Request) (count int) {
	for i := range n {
		if send(h, r(i)).Code == http.StatusOK {
			count++
		}
	}
	return count
}

// taken counts the takes of n that are let through.
func taken(n int, take func() bool) (count int) {
	for range n {
		if take() {
			count++
		}
	}
	return count
}

// address is the i-th of 2^24 IPv4 addresses.
func address(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// each asks a question of each mount of a list, in virtual time.
func each(t *testing.T, c *column, list []mount, ask func(t *testing.T, open func(quota) mounted) (got string, v verdict)) []cell {
	var cells []cell
	for _, m := range list {
		c.within(t, func(t *testing.T) {
			got, v := ask(t, func(q quota) mounted { return m.open(t, q) })
			cells = append(cells, cell{m.as, got, v})
		})
	}
	return cells
}

// seconds is a duration in seconds, short.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3gs", d.Seconds()) }
