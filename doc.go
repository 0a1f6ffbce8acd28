// Package weir keeps the public endpoints of a PKI (ACME, OCSP, CRL, EST,
// SCEP), and servers like it, alive under abuse. It is net/http middleware:
// fill in one [Config], wrap a handler, and each request is first asked who
// sent it, what kind of request it is, whether its sender and the server as a
// whole still have tokens for it, and whether there is room before the HSM.
//
//	cfg := weir.DefaultConfig()
//	cfg.Endpoints = weir.PKIEndpoints()
//	limiter, err := weir.New(cfg)
//	if err != nil {
//		log.Fatal(err) // names every fault at once, and the cure of each
//	}
//	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(ca)))
//
// What it does not do: it does not authenticate anybody (an account is what a
// request claims until the program says otherwise), it does not filter content,
// and it does not protect the network below HTTP. With the memory store, which
// is the only one in this version, each process counts for itself.
//
// # Client address
//
// Everything is keyed on the client's address, so it must not be anybody's to
// choose. By default headers are ignored and the peer of the connection is the
// client. List your proxies in [ClientIPConfig]; from a listed peer the
// X-Forwarded-For header is walked from the right to the first entry that is
// not a proxy of yours. What is malformed on the way falls back to the peer.
// IPv6 clients are counted by /64, IPv4 ones by address.
//
// # Endpoint classes
//
// An [Endpoint] gives the requests that match a net/http.ServeMux pattern a
// [Class], one word that configuration, metrics and logs use from then on, and a
// [Kind], the protocol in which a refusal is written. [PKIEndpoints] has those
// of a PKI. [Limiter.Protect] is for handlers whose class is known.
//
// # Tiers
//
// A tier is a set of token buckets: "global" has one, "per_ip" one for each
// client, "per_account" one for each account, and custom tiers one for each key
// that your function finds. Tokens come back at the tier's rate, up to its
// burst. A request spends from every tier that applies, or, if one of them has
// too little, from none: a refused request leaves no trace in any bucket.
//
// Keyed buckets are bounded in number. At the bound nobody is refused for it:
// the bucket that is worth least goes, one that is full again if there is any,
// so that a spray of made-up keys never frees a key that was drained.
//
// The account of an ACME request is the kid of its JWS; that of an EST request
// its HTTP Basic user; [WithAccount] and [SetAccount] say it for any other. A
// claim can be false: [Disown] gives the token back to the account that was
// only named, and an endpoint with Disown does it by itself where the answer
// shows that the account was not proved.
//
// # Windows
//
// A fixed window says how many requests may be let in until the next full
// minute (or whatever [WindowsConfig].Window is), when all of them are back.
// Each request of a class is in exactly one: that of its account, if
// [WithAccount] or, before the windows are asked, [SetAccount] vouches for it;
// otherwise that of its address. The kid of a JWS and the user of HTTP Basic are
// claims: each new name would be a new budget. What tiers or windows refuse is
// not counted and spends nothing anywhere. The process ceiling counts arrivals:
// refused, excluded, exempt and without a class, each once.
//
// Paths in Exclude are outside the windows of accounts and addresses, as long
// as they are written plainly: one that would be cleaned (/assets/../acme) or
// that decodes to another is counted.
//
// Around a boundary two budgets pass within a moment; a tier beside the windows
// evens that out. No window holds a request.
//
// # Being held instead of refused
//
// Most ACME clients take a 429 as the end of their run. With MaxWait set, a
// request that lacks tokens waits for them, in order of arrival, for at most so
// long and with a bounded number of others, and leaves with its client. A
// polite client in a small excess then notices nothing but a slower answer.
//
// # Guards
//
// A rate says how often, a [Guard] says how many at once. It stands directly
// before the work: MaxInFlight hold a slot, MaxQueue wait, the rest gets 503. A
// slot is held until the handler has returned, however it returns. Outside
// HTTP use [Guard.Acquire].
//
// # Auth lock
//
// With AuthLockConfig.Enabled failed attempts to authenticate are counted, for
// each address and for each account, and too many lock it for a while. Where
// the credential comes in the header (HTTP Basic, an S3 signature, a bearer
// token; see [Endpoint].Auth and [WithCredential]) nothing else is needed: 401
// and 403 are failures, 2xx a success, and [AttemptFrom] is for handlers that
// know better. A login form makes the attempt itself:
//
//	attempt, err := limiter.Attempt(r.Context(), weir.Credential{ID: user, Account: user})
//	if err != nil {
//		return // locked: the Limiter answers
//	}
//	defer attempt.Ignore()
//	if !valid(user, password) {
//		_ = attempt.Fail()
//		http.Error(w, "wrong", http.StatusUnauthorized)
//		return
//	}
//	if attempt.Succeed() != nil {
//		return // locked meanwhile: no session
//	}
//
// However many guess at once, no more outcomes are told than may fail: an
// outcome that comes behind a lock is withheld, right or wrong. Whoever signed
// in to an account lately from the same address is admitted to it although it
// is locked. Failed answers are slowed down after the guard's slot is free.
// Names leave the request as keyed hashes only. [Limiter.Unlock] lifts locks,
// [WithAudit] reports each that starts.
//
// Every way that checks the same password must make attempts: the form, Basic,
// a token refresh, a reset. The one that forgets is the one that is guessed at.
//
// # Refusals
//
// 429 means too often, 503 too many at once, 403 on the deny list. Each carries
// Retry-After in whole seconds: the time after which the same request passes if
// nobody else spends meanwhile. The document is that of the endpoint's
// protocol; see package problem.
//
// # Headers
//
// X-RateLimit-Limit, -Remaining and -Reset tell what is left, on refusals or, if
// [HeadersConfig] says so, on all responses; Reset is the Unix time, in seconds,
// at which all of it is there again. HeadersConfig.IETF adds RateLimit and
// RateLimit-Policy. They speak of the tier or window with the fewest requests
// left or, on a refusal, of the one that refused, and never of one in shadow.
// OCSP and CRL answers that are not refusals carry none, for caches keep them.
//
// The fields are set before the handler runs, and what it sets replaces them. A
// handler that adds instead, as httputil.ReverseProxy does with what its
// backend sent, must drop one of the two (in ModifyResponse). With "always" and
// a global tier or a ceiling strangers can read how busy the server is.
//
// # Stores and failure
//
// Counts live in a store.Store, in memory unless you bring one. No failure of
// a store, and no panic in a function that you passed as an option, becomes a
// failed request: it is counted, logged, and worked around.
//
// # Reload
//
// [Limiter.Reload] puts a new Config in force from the next request on. Buckets
// keep what they hold, refill at the new rate and are clamped to the new burst;
// nobody gets a reset. A Config with a fault changes nothing.
//
// # Metrics
//
// [WithRegisterer] exports them. Labels are classes, tiers and reasons, never an
// address or an account. A flood is logged as one line for each class and tier
// every ten seconds.
//
// # Performance
//
// A request that is admitted costs two allocations (the request's copy and
// what its context carries), a refused one those of its document. The decision
// over all tiers is one critical section and allocates nothing. Reading the
// account of an ACME request costs its body, up to 64 KiB; it is not read if
// what needs no body already refuses. Header fields on every response cost two
// more (five fields three), exclusions of windows three.
//
// # Composing by hand
//
// [Limiter.Handler] is the chain in its right order. To put something of your
// own between the stages, such as a check of a client certificate that ends in
// [SetAccount], write
//
//	limiter.ClientIP(yours(limiter.Tiers(limiter.Guard("hsm").Handler(ca))))
//
// [Limiter.Windows] belongs behind the tiers. It then counts, arrivals too, what
// those let through, and what it refuses has paid there; only the whole chain
// asks both in one step.
//
// Logging and metrics of your own belong outside, so that they see refusals.
package weir
