// Package bench measures weir beside its peers: the same work, in one run, on
// one machine.
//
// The groups are benchmarks of package testing, named Group/case/limiter, and
// run with go test -bench; command compare runs them in rounds and tells
// medians, intervals and ratios. RESULTS.md has the last figures that were kept
// and what they were judged by.
//
// # How a peer is set up
//
// Each peer is used as its README says, in the way that serves it best, and
// each adapter says where that took a choice. Where a peer takes any key, it
// gets a comparable 16-byte one and not a text; what a README leaves to the
// user, the client's address behind a proxy say, is done by the quickest
// library that does it right. Two settings serve all: roomy admits everything,
// spent has one token a day for each key, so that all but the first are refused.
package bench
