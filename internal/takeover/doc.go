// Package takeover keeps a limiter counting while a shared store fails.
//
// A [Store] stands before a store that lives elsewhere. While that one answers,
// it decides. When it fails, or hangs, a breaker opens within a handful of
// calls, a [store.Memory] of the process takes over, and nobody waits for the
// network any more; when it is back, it decides again. In no case does a call
// fail because the remote store did (requirements S4 and S8).
//
// # Budgets
//
// Of each bucket the remote store told of, it is remembered what it held and
// when. With that the local bucket begins, so that an outage hands nobody a
// budget again; what was never heard of begins full. On return, before the remote
// store decides again, it is told what was spent meanwhile, and held to no more
// than the bucket can have refilled since it was last seen: a server that comes
// back empty gives nobody a budget again either. A bucket that
// lacks no more than a tenth of its burst is not remembered: it begins full. The
// number remembered is bounded, and the one asked least recently goes first.
//
// A server that comes back empty before five calls in a row have failed is not
// found out: what it has forgotten is handed out again. Once the breaker has opened,
// what was asked before may lower what is known and never raise it, whoever answers
// it; and a bucket that holds more than it was left with, when it was held to what it
// should hold, is held to that again.
//
// During an outage of length W, R replicas that are told of each other admit from
// one bucket at most
//
//	level + rate·W, or R·cost if that is more
//
// where level is what the bucket held when it was last seen; a replica that never
// heard of it takes it for full. Around its end they may admit more, by
//
//	(R−1)/R · (min(burst, level + rate·W) + rate·T)
//
// at most: the remote bucket has refilled meanwhile, and the first replica that is back
// takes off what it has itself spent, not what the others have; and for the time T,
// about a second, in which some share and some do not, these spend their part of the
// rate besides. A call that failed after it was sent may have
// been spent there and is spent here too: too little is admitted, by one cost,
// never too much.
//
// # Several nodes
//
// Of a remote store that keeps its buckets on several nodes (store.Sharded), each node
// has a breaker, which opens for calls to that node alone. What it has is then decided
// here and the rest there: the local store is asked what it would say, the remote one
// spends, then the local one. A request that either refuses has spent nothing, but for
// a window's count where another request took the last local token between these
// steps; a bucket's cost is given back. So the buckets of the other nodes stay shared
// and exact. Of the call on which a node is found to fail, the rest is asked once
// more, and its own part may be spent there and here: too little is admitted. Where
// others take over what a lost node had, they are told what was spent here. While any
// node is lost, nothing is leased.
//
// # Refused keys
//
// What the remote store refused until an instant is refused here until then
// without a call (requirement S9), but asked again once in [Options.Recheck], by
// default a second: another replica may have given tokens back. Only a check of
// the same limit and of no smaller cost is answered that way. Refund and
// [Store.Forget] end it. Requests that a window counts even when they are refused
// are counted in batches, a tenth of a second late at most, and always before the
// next request that the remote store is asked about.
//
// # Leases
//
// Of scopes named by [Store.SetLeases], tokens of busy buckets are taken in advance,
// with the calls that are made anyway or in the background, and handed to requests
// here (requirement S10). In any window W, R replicas then admit from one bucket
//
//	burst + rate·(W + tau)
//
// at most, whatever R: a lease is usable for tau from the instant its call was sent,
// so what is admitted within W was taken from the bucket within W or tau before it.
// What is left of a lease expires. It is not given back, for what is given back late
// would break the bound. So at any instant each replica may hold
//
//	5/4 · min(demand·tau/2, rate·tau)
//
// tokens that nobody else can have, and loses them when it dies; and of a call that
// failed, the lease it asked for. A lease is at most half of what the bucket held, so
// that the others find some, and at least 2 tokens: a bucket asked less than four
// times in tau, or nearly used up, is asked as if there were no leases.
//
// A request spends from a lease only what it spends from all: the other checks go to
// the remote store, and if they refuse, the lease gets back what was taken. What the
// remote store tells of a wait counts leased tokens as spent. Leases end when the limit
// changes, when the scope or bucket is dropped, and when the breaker opens.
//
// # Attempts
//
// Calls of a Locker cannot be made here instead, so they wait longer: each for its
// whole [Options.Timeout], also when the breaker has opened for a late answer, until
// the first of them fails.
package takeover
