// Package quota tells a client what is left for it, in response header fields
// (requirement W4).
//
// # The X-RateLimit fields
//
// Three fields, for the quota that is tightest:
//
//	X-RateLimit-Limit      requests a window, or a bucket's burst
//	X-RateLimit-Remaining  what is left of that now, rounded down
//	X-RateLimit-Reset      when all of it is there again: seconds since 1970 (Unix
//	                       time), rounded up, always later than now
//
// No standard defines them, and other software puts seconds to wait or a date
// into the third. Unix time is what most clients expect, and it does not age
// while the response travels.
//
// # The IETF fields
//
// RateLimit and RateLimit-Policy as draft-ietf-httpapi-ratelimit-headers-11 (23
// May 2026) defines them, "the draft" below: Lists of Strings with parameters
// in the syntax of Structured Fields (RFC 9651).
//
//	RateLimit: "per_ip";r=12;t=1
//	RateLimit-Policy: "per_ip";q=40;w=2, "per_account";q=300;w=3600
//
// q is the quota, w its window in seconds, r what is left of it, and t the
// effective window: the seconds for which a client does well to live on r. Of
// what the draft leaves to the server:
//
//   - qu, the unit, is left out; its default is requests. (A request that costs
//     more than one token consumes more than one unit, which section 3.1.2
//     permits.)
//   - pk, the partition key, is left out: a response tells of the one partition
//     that its request fell into, and a key would carry an address or an
//     account into logs and caches (sections 6.1 and 9).
//   - The unit concurrent-requests is not used. How much is in flight changes
//     faster than a response travels, and how much may be is the server's
//     capacity, not the client's business (section 8.2). The same holds for a
//     quota that all clients share: it tells anyone how busy the server is
//     and what it takes to exhaust it. Leave it out where strangers read.
//   - Sub-second windows do not exist there (section 3.1.3). Quotas round down
//     and windows up, so that the two never tell of a higher rate than the
//     configured one.
//   - Retry-After outranks RateLimit (section 7) and should not end before the
//     effective window does (section 6), so t never exceeds a Retry-After
//     that the response carries.
//
// The draft may still rename parameters; all that knows them is in field.go.
//
// # Where they do not belong
//
// A response that a shared cache keeps would tell every client of the quota of
// one. The draft has clients ignore the fields of a cached response (section
// 7.3), but no header of a response says which client it was made for. Do not
// write them to OCSP and CRL answers; refusals, which nobody caches, may have
// them.
package quota
