// Package clientip decides who is asking: which address a request is counted
// under when it may have come through proxies.
//
// The address a connection comes from cannot be forged; a header can. So a
// header is read only when the connection comes from an address on the trust
// list, and it is read from the right, because each proxy appends what it saw
// and everything further left is text that somebody else wrote:
//
//	X-Forwarded-For: 6.6.6.6, 203.0.113.7, 10.0.0.2      peer 10.0.0.5
//	                 ^        ^            ^             ^
//	                 |        |            trusted hop   trusted peer
//	                 |        first hop that is not trusted: the client
//	                 never looked at
//
// What cannot be believed falls back to the peer, never to the next header and
// never to an entry further left: both are what an attacker would try. The
// price is that a broken proxy makes its clients share one address, and
// [Result.Reason] says so.
//
// Work is bounded whatever the header holds: at most 64 entries, 64 empty
// elements, 128 bytes for an entry and 8 KiB of text are looked at, nothing is
// split or copied, and nothing on the usual paths allocates. The result is
// always a parsed address or none, so no text of a client becomes a key.
//
// Two limits remain. Whoever can connect from a trusted address can name any
// client, so the list should be as narrow as the proxies are. And a proxy that
// passes a client's own header through unchanged vouches for it.
package clientip
