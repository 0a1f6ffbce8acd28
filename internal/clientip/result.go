package clientip

import (
	"net/netip"
	"strconv"
)

// A Result says who is asking and why we think so. It is a plain value.
//
// Addr and Peer are unmapped (never an IPv4 address in IPv6 clothes) and have
// no zone, so equal clients compare equal with ==.
type Result struct {
	// Addr is the client. It is invalid when nobody can be named: a unix
	// peer whose headers did not help, or a RemoteAddr that is no address.
	// All such requests belong in one shared bucket ("unix" if Unix, else
	// "unknown"), or an attacker without an address would have no limit.
	Addr netip.Addr

	// Peer is the other end of the connection, invalid for a unix socket.
	Peer netip.Addr

	// Unix reports that the connection came over a unix socket.
	Unix bool

	// Source is where Addr was read.
	Source Source

	// Reason is why the headers were not used, or why Addr is doubtful.
	Reason Reason
}

// Source is the place a client's address was read from.
type Source uint8

const (
	Peer          Source = iota // the connection itself
	XForwardedFor               // first hop of X-Forwarded-For, from the right, that is not trusted
	XRealIP                     // X-Real-IP, there being no X-Forwarded-For
	Forwarded                   // first hop of Forwarded (RFC 7239), from the right, that is not trusted
	Leftmost                    // every hop of the list is trusted: its leftmost entry
	Single                      // the one header of mode "single:NAME"
)

var sourceWords = [...]string{"peer", "xff", "xrealip", "forwarded", "leftmost", "single"}

// String returns one lower-case word, fit for a metric label.
func (s Source) String() string {
	if int(s) < len(sourceWords) {
		return sourceWords[s]
	}
	return "source(" + strconv.Itoa(int(s)) + ")"
}

// Reason tells why a result is the peer, or why it deserves a warning.
type Reason uint8

const (
	None          Reason = iota // a header named the client and was believed
	NoTrust                     // nothing is trusted, so headers are never read
	UntrustedPeer               // the peer is not on the list
	NoPeer                      // RemoteAddr holds no usable address
	NoHeader                    // the peer is trusted but sent no header: every client behind it counts as one
	AllTrusted                  // each entry is on the list; Source is Leftmost. Worth a warning (I4)
	Malformed                   // the walk met an entry that is no address (I3)
	TooLong                     // a budget ran out before the answer was found
	Conflict                    // a single-value header came with two different values
	Withheld                    // Forwarded names nobody: for=unknown, an obfuscated name, or no for= at all
)

var reasonWords = [...]string{
	"none", "no_trust", "untrusted_peer", "no_peer", "no_header",
	"all_trusted", "malformed", "too_long", "conflict", "withheld",
}

// String returns one lower-case word, fit for a metric label.
func (r Reason) String() string {
	if int(r) < len(reasonWords) {
		return reasonWords[r]
	}
	return "reason(" + strconv.Itoa(int(r)) + ")"
}
