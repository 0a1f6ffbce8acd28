// Package problem writes refusals: the answer a caller gets when it is turned
// away, in the form that its protocol reads.
//
// A [Rejection] says what happened; a [Writer] says it to the caller. The kind
// of the endpoint chooses the Writer:
//
//	[ACME]   application/problem+json    RFC 8555 section 6.7, RFC 9457
//	[JSON]   application/problem+json    RFC 9457
//	[HTML]   text/html                   a page for people
//	[S3]     application/xml             503 and the code SlowDown
//	[OCSP]   application/ocsp-response   tryLater, RFC 6960
//	[EST]    text/plain                  RFC 7030 section 4.2.3
//	[SCEP]   text/plain                  RFC 8894
//	[Plain]  text/plain                  one sentence
//	[Empty]  none                        headers only
//
// Where the kind leaves the form open, [Negotiate] and [ByAccept] let the
// Accept field decide. Any function of type Writer can stand in for one of
// these; [Rejection.SetHeaders], [Rejection.StatusCode] and [Rejection.Detail]
// give it the parts that all refusals share.
//
// # What every refusal has
//
//   - Retry-After, in whole seconds, from [RetryAfterSeconds] and nowhere else.
//     Body and header never disagree about the wait.
//   - Cache-Control: no-store. A shared cache that kept one caller's refusal
//     would serve it to the others.
//   - Content-Type (but for Empty), Content-Length and X-Content-Type-Options:
//     nosniff, and none of the fields that would describe some other body: an
//     ETag or Content-Encoding found in the header map is removed. Middleware
//     that compresses must therefore wait for WriteHeader before it announces
//     an encoding, which those that look at Content-Type do anyway.
//   - For HEAD the same header, Content-Length included, and no body.
//
// No document names an address, an account or a count, so what a caller is
// told does not depend on whether the account it tried exists.
//
// # Cost
//
// Refusals are written when there are many of them. A document is appended to
// a pooled buffer without reflection or formatting packages, and leaves in one
// Write. The tests hold ACME, JSON, OCSP, plain text and Empty to two
// allocations, and one more for a help link.
//
// All Writers are safe for concurrent use and keep nothing of the request.
package problem
