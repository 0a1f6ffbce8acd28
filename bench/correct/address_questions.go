package main

import (
	"fmt"
	"net/http"
	"testing"
)

// once is a quota of which one key gets one while a question lasts, so that what is
// admitted is the number of keys that the limiter saw.
var once = perHour(1)

const networkAsks = "1000 addresses of one IPv6 /64 send one request each at 1 an hour: budgets they get. One is right, for a /64 is what one customer has."

func network(t *testing.T, c *column) []cell {
	return each(t, c, peerKeyed(c), func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		h := open(once)(served)
		n := admitted(h, 1000, func(i int) *http.Request { return request(fmt.Sprintf("2001:db8:0:1:%x::%x", i, i+1), "/") })
		return fmt.Sprint(n), verdictOn(n == 1, wrong)
	})
}

// peerKeyed is the middleware that has keys.
func peerKeyed(c *column) []mount {
	if len(c.proxied) == 0 && c.name != "x/time/rate" {
		return nil // one limiter for all
	}
	return c.direct
}

// viaProxy is a request through the one trusted proxy. It appends what it takes for
// the client to X-Forwarded-For, as proxies do, and overwrites X-Real-IP.
func viaProxy(sent []string, seen string) *http.Request {
	r := request(proxy, "/")
	for _, s := range sent {
		r.Header.Add("X-Forwarded-For", s)
	}
	switch list := r.Header["X-Forwarded-For"]; {
	case len(list) == 0:
		r.Header.Set("X-Forwarded-For", seen)
	default:
		list[len(list)-1] += ", " + seen
	}
	r.Header.Set("X-Real-IP", seen)
	return r
}

const aliasAsks = "A proxy on a dual-stack socket writes an IPv4 client as `198.51.100.7`, `::ffff:198.51.100.7`, `::ffff:c633:6407` or `::FFFF:198.51.100.7`: budgets of this one client " +
	"(1 is right), and of four different clients in the second form (4 is right)."

func aliases(t *testing.T, c *column) []cell {
	return each(t, c, c.proxied, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		forms := []string{client, "::ffff:" + client, "::ffff:c633:6407", "::FFFF:" + client}
		one := admitted(open(once)(served), len(forms), func(i int) *http.Request { return viaProxy(nil, forms[i]) })
		four := admitted(open(once)(served), 4, func(i int) *http.Request { return viaProxy(nil, fmt.Sprintf("::ffff:192.0.2.%d", i+1)) })
		return fmt.Sprintf("%d, %d", one, four), verdictOn(one == 1 && four == 4, wrong)
	})
}

const forgedAsks = "One client behind one trusted proxy sends 100 requests, each with another X-Forwarded-For of its own, to whose right the proxy writes the client's address, and with other fields that the proxy does not know " +
	"(True-Client-IP, CF-Connecting-IP, X-Client-IP, Forwarded): budgets it gets. One is right. The proxy overwrites X-Real-IP, as it must where that is what is read."

func forged(t *testing.T, c *column) []cell {
	return each(t, c, c.proxied, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		n := admitted(open(once)(served), 100, func(i int) *http.Request {
			r := viaProxy([]string{fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("203.0.113.%d", i)}, client)
			for _, name := range []string{"True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "Forwarded"} {
				r.Header.Set(name, fmt.Sprintf("192.0.2.%d", i))
			}
			return r
		})
		return fmt.Sprint(n), verdictOn(n == 1, wrong)
	})
}

const strangerAsks = "The same middleware, set up for the proxy, is reached past it: a client that is no proxy sends 100 requests with another address each in X-Forwarded-For and X-Real-IP. " +
	"Budgets it gets; one is right. Most libraries leave this to the network."

func stranger(t *testing.T, c *column) []cell {
	return each(t, c, c.proxied, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		n := admitted(open(once)(served), 100, func(i int) *http.Request {
			r := request(client, "/")
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
			r.Header.Set("X-Real-IP", fmt.Sprintf("192.0.2.%d", i))
			return r
		})
		return fmt.Sprint(n), verdictOn(n == 1, wrong)
	})
}

const malformedAsks = "Behind the proxy: 100 requests of one client that the proxy writes with its port, `198.51.100.7:40001` and so on (budgets; 1 is right); " +
	"100 whose headers are missing, and 100 with `unknown` (admitted; 1 is right, none is safe, more is open)."

func malformed(t *testing.T, c *column) []cell {
	return each(t, c, c.proxied, func(_ *testing.T, open func(quota) mounted) (string, verdict) {
		ports := admitted(open(once)(served), 100, func(i int) *http.Request { return viaProxy(nil, fmt.Sprintf("%s:%d", client, 40001+i)) })
		missing := admitted(open(once)(served), 100, func(int) *http.Request { return request(proxy, "/") })
		unknown := admitted(open(once)(served), 100, func(int) *http.Request { return viaProxy(nil, "unknown") })
		v := wrong
		switch {
		case ports == 1 && missing == 1 && unknown == 1:
			v = right
		case ports <= 1 && missing <= 1 && unknown <= 1:
			v = weak
		}
		return fmt.Sprintf("%d, %d, %d", ports, missing, unknown), v
	})
}
