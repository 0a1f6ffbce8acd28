package main

import (
	"net/http"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// nonces is a source of fresh anti-replay nonces for refusals, for
// weir.WithNonce. Only the authority can make a nonce that it will take, so
// this one asks the authority for it, in a request that passes no Limiter.
//
// It is off by default, for what it saves is one HEAD for newNonce to each
// polite client that was refused, and what it costs is work of the authority
// for each refusal of a flood: the very thing that refusing is to prevent. The
// nonce that the refused request carried is unspent in either case. An
// authority whose nonces cost next to nothing would decide otherwise.
type nonces struct{ authority http.Handler }

// fresh returns a new nonce, or "" if the authority gives none. It is safe for
// concurrent use.
func (n *nonces) fresh(refused *http.Request) string {
	r, err := http.NewRequestWithContext(refused.Context(), http.MethodHead, acmeserver.PathNewNonce, nil)
	if err != nil {
		return ""
	}
	r.Host = refused.Host
	r.Header.Set("User-Agent", "weir examples/pki") // RFC 8555, section 6.1
	w := headerOnly{}
	n.authority.ServeHTTP(w, r)
	return http.Header(w).Get("Replay-Nonce")
}

// headerOnly is a ResponseWriter for an answer of which only the header counts.
type headerOnly http.Header

func (h headerOnly) Header() http.Header       { return http.Header(h) }
func (headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (headerOnly) WriteHeader(int)             {}
