package clientip

import (
	"net"
	"net/http"
	"net/netip"
)

// A Resolver finds the client of a request under one fixed configuration. Make
// it with [New]; it never changes afterwards and any number of goroutines may
// use it. To change the list, make another and swap the pointer.
type Resolver struct {
	trusted prefixSet
	unix    bool // unix-socket peers are trusted
	mode    mode
	name    string // canonical name of the header, in mode single
	realIP  bool   // X-Real-IP stands in for a missing X-Forwarded-For
}

// mode is the header that is believed. Modes never mix: a proxy that sets one
// header passes the others through as its client sent them.
type mode uint8

const (
	modeXFF mode = iota
	modeForwarded
	modeSingle
)

// Header names as net/http stores them. X_Forwarded_For and its like are other
// keys there, and never ours.
const (
	headerXFF       = "X-Forwarded-For"
	headerXRealIP   = "X-Real-Ip"
	headerForwarded = "Forwarded"
)

// Resolve finds the client of req. It reads RemoteAddr, the local address that
// net/http leaves in the context, and, if the peer is trusted, the header of
// the configured mode; it changes nothing, RemoteAddr least of all.
//
// It does not fail: what it cannot believe becomes the peer with a Reason. It
// does not allocate, except a little where an entry is malformed or where
// Forwarded uses a quoted-pair.
func (r *Resolver) Resolve(req *http.Request) Result {
	peer, unix := peerOf(req)
	res := Result{Addr: peer, Peer: peer, Unix: unix}
	switch {
	case !unix && !peer.IsValid():
		// An unreadable peer must not open the headers: it is not on the list.
		res.Reason = NoPeer
		return res
	case len(r.trusted) == 0 && !r.unix:
		res.Reason = NoTrust
		return res
	case unix && !r.unix, !unix && !r.trusted.contains(peer):
		res.Reason = UntrustedPeer
		return res
	}
	addr, source, reason := r.read(req.Header)
	res.Reason = reason
	if addr.IsValid() {
		res.Addr, res.Source = addr, source
	}
	return res
}

// read asks the headers of a trusted peer. The address is invalid where they
// give no answer.
func (r *Resolver) read(h http.Header) (netip.Addr, Source, Reason) {
	switch r.mode {
	case modeForwarded:
		return r.walk(h[headerForwarded], parseForwarded, Forwarded)
	case modeSingle:
		addr, reason := readSingle(h[r.name])
		return addr, Single, reason
	}
	addr, source, reason := r.walk(h[headerXFF], parseEntry, XForwardedFor)
	if reason == NoHeader && r.realIP {
		// Only where the list is absent (I5). After a malformed list this
		// would be a way round the walk: send junk, then the address you like.
		addr, reason = readSingle(h[headerXRealIP])
		source = XRealIP
	}
	return addr, source, reason
}

// Trusted returns the trusted networks in ascending order, IPv4 first, as the
// shortest list that covers exactly what was configured: nested networks are
// gone and neighbours joined. The caller owns the slice.
func (r *Resolver) Trusted() []netip.Prefix {
	return append([]netip.Prefix(nil), r.trusted...)
}

// TrustsUnix reports whether peers on a unix socket are trusted.
func (r *Resolver) TrustsUnix() bool { return r.unix }

// peerOf returns the other end of the connection: an address, or none.
//
// A unix peer is known by the listener's own address, not by the text of
// RemoteAddr, which is "@", a path or nothing depending on how the client
// bound its socket. Without a local address in the context (a request made by
// hand) the "@" has to do.
func peerOf(req *http.Request) (peer netip.Addr, unix bool) {
	local, known := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if known && local.Network() == "unix" || !known && req.RemoteAddr == "@" {
		return netip.Addr{}, true
	}
	peer, _ = parseHostPort(req.RemoteAddr, isPort)
	return peer, false
}
