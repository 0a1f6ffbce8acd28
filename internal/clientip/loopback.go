package clientip

import (
	"net/http"
	"strings"
)

// DirectLoopback reports whether req was made on this machine with no proxy in
// between, as far as can be told: the peer is 127.0.0.0/8 or ::1, and nothing
// in the header speaks of a proxy. Presence is what counts; values are never
// read, since a proxy on this machine passes on what its clients wrote.
//
// It fails towards false: a unix peer, a RemoteAddr without a port (some other
// middleware has rewritten it), or a Connection header that names a forwarding
// header (which had a proxy drop it, CVE-2022-31813) are not direct.
//
// It cannot see a proxy that adds no header at all, as nginx does with a bare
// proxy_pass, so any privilege given for it must be asked for by the operator.
func DirectLoopback(req *http.Request) bool {
	peer, unix := peerOf(req)
	if unix || !peer.IsLoopback() || !hasPort(req.RemoteAddr) {
		return false
	}
	for name := range req.Header {
		if speaksOfProxy(name) {
			return false
		}
	}
	return !dropsForwarding(req.Header["Connection"])
}

// hasPort tells host:port from a bare address; s holds one of the two.
func hasPort(s string) bool {
	colon := strings.LastIndexByte(s, ':')
	return colon > 0 && (s[colon-1] == ']' || strings.IndexByte(s, ':') == colon)
}

// dropsForwarding reports whether a Connection header asks for a forwarding
// header to be removed on the way. One that is longer than anybody needs is
// taken to do so.
func dropsForwarding(lines []string) bool {
	list := listFromRight{lines: lines, budget: fullBudget}
	for {
		token, state := list.next()
		if state != listMore {
			return state == listOver
		}
		if speaksOfProxy(token) {
			return true
		}
	}
}

// proxyHeaders and proxyHeaderStarts are the names, in lower case and with
// dashes, that proxies and CDNs add to what they forward.
var (
	proxyHeaders = map[string]bool{
		"via": true, "cdn-loop": true, "client-ip": true, "true-client-ip": true,
		"x-real-ip": true, "x-client-ip": true, "x-cluster-client-ip": true,
		"x-proxyuser-ip": true, "x-remote-ip": true, "x-remote-addr": true,
		"x-appengine-user-ip": true, "x-amzn-trace-id": true, "x-amz-cf-id": true,
		"x-cloud-trace-context": true,
	}
	proxyHeaderStarts = []string{
		"forwarded", "x-forwarded", "x-original-forwarded", "cf-", "fastly-",
		"fly-", "x-azure-", "x-envoy-",
	}
)

// speaksOfProxy reports whether a header of this name is the mark of a proxy.
// X_Forwarded_For is X-Forwarded-For to many a server behind us, and net/http
// keeps it under its own key, so an underscore is read as a dash.
func speaksOfProxy(name string) bool {
	var buf [32]byte // longer than any name in the tables
	n := min(len(name), len(buf))
	for i := range n {
		switch c := name[i]; {
		case c == '_':
			buf[i] = '-'
		case 'A' <= c && c <= 'Z':
			buf[i] = c | 0x20
		default:
			buf[i] = c
		}
	}
	if n == len(name) && proxyHeaders[string(buf[:n])] {
		return true
	}
	for _, start := range proxyHeaderStarts {
		if n >= len(start) && string(buf[:len(start)]) == start {
			return true
		}
	}
	return false
}
