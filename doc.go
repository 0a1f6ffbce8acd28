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
// At start that program logs an advice, for no proxy is trusted. Three words: a
// request is held while it waits for its tokens, shed when a guard has no slot
// for it, and disowned when the account that it named was not proved.
//
// What it does not do: it does not authenticate anybody (an account is what a
// request claims until the program says otherwise), it does not filter content,
// and it does not protect the network below HTTP. With the memory store, the
// default, each process counts for itself; see Stores and failure.
//
// # Configuration
//
// A file is decoded over [DefaultConfig] with its Endpoints set, and strictly,
// for a misspelt limit is no limit. In YAML:
//
//	cfg := weir.DefaultConfig()
//	cfg.Endpoints = weir.PKIEndpoints()
//	d := yaml.NewDecoder(file) // go.yaml.in/yaml/v3
//	d.KnownFields(true)
//	err := d.Decode(&cfg)
//
// The file then leaves endpoints out: it would replace the list, and what no
// pattern matches is not limited, unless default_class catches it. Over the zero
// Config a file without "enabled: true" runs bare. Which class passes which
// guard is set in the slice, by [Endpoint].Guard.
//
// Accounts in Overrides, Exempt and Deny are written as requests name them. For
// ACME that is the path of the account's URL, "/acme/acct/7", or its last segment
// alone if that is a UUID or 32 letters and digits (the whole URL means the
// same), for EST the HTTP Basic user in any case, and for [WithAccount] and
// [SetAccount] what they say.
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
// of a PKI, in the layouts of several servers. [Limiter.Protect] is for handlers
// whose class is known. Where the query says what is asked for, as in SCEP, an
// endpoint's Query narrows its pattern.
//
// A path with a segment . or .., or one that has two classes, read as it stands
// and with its escapes decoded, is refused with 400: what it would be served as
// depends on the router behind, and its sender could choose how it is limited.
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
// its HTTP Basic user, in any of the spellings that are one [Credential];
// [WithAccount] and [SetAccount] say it for any other. The kid is read from a
// POST or PUT of any media type, since not every server asks for that of RFC
// 8555, in at most 64 KiB. What is longer, or cannot be read alike by all
// servers, has no account and pays a bucket of that tier which its address has
// for all such requests. A claim can be false: [Disown] gives the token back to
// the account that was only named, and an endpoint with Disown does it by itself
// where the answer does not show that the account was proved.
//
// An order that says which certificate it replaces (RFC 9773) can be exempted
// from its account's tier by [WithRenewal], under a ceiling of its own.
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
// net/http notices that the client of an HTTP/1.1 request has gone only once its
// body has been read. So the body is read before the request waits, up to 64 KiB;
// one with a longer body keeps its place until its wait is over.
//
// # Guards
//
// A rate says how often, a [Guard] says how many at once. It stands directly
// before the work: MaxInFlight hold a slot, MaxQueue wait, the rest gets 503. A
// slot is held until the handler has returned, however it returns. A body is read
// before that, up to 64 KiB: nobody is to send slowly in a slot. Outside
// HTTP use [Guard.Acquire], or [Guard.AcquireFor] to say whose work it is.
//
// Clients take turns in the queue, and one that fills it gives places to others
// that come; a client is the network that the tiers count, for an account is a
// claim. Whoever has many networks has many turns: the tiers bound how many
// requests each of them makes. Of one IPv6 /48 at most four networks have turns of
// their own at a time, and the others one more together.
//
// Lanes keep classes out of each other's way. With
//
//	guards:
//	  hsm:
//	    max_in_flight: 8
//	    lanes: {revocation: {classes: [ocsp], reserve: 2}}
//
// two of eight slots are there for OCSP, whatever enrolment does; the other six
// are for both. Where one guard stands before several backends,
// [Endpoint].Backend says which a class is for, and one that hangs holds at most
// its BackendShare. Discipline and Lanes are in [GuardConfig].
//
// The guard measures how long the work of each class takes and how quickly each
// queue moves. Retry-After tells that, and a request that could not be served
// in time, by the AcquireTimeout or the deadline of its context, is shed when it
// comes, or when its turn comes, with the reason deadline instead of timeout. A
// slot that is free is given in any case.
//
// While a request waits, for a slot or held for tokens, the server's WriteTimeout
// does not run: the handler has all of it afterwards. Put a [http.TimeoutHandler]
// outside the Limiter; inside, its handler goes on without a slot, unless
// [Guard.Handler] stands next to the work.
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
// 429 means too often, 503 too many at once, 403 on the deny list, 400 a path of
// two meanings. Each carries
// Retry-After in whole seconds, rounded up. With 429 it is the time after which
// the same request passes if nobody else spends meanwhile (for the auth lock:
// until the lock ends); with 503 how long a newcomer would wait in the guard, up to
// a minute, and its acquire timeout before that is known; with 403 and 400 an hour, which promises nothing but keeps clients from hammering. S3 clients get 503
// SlowDown for 429, as they expect. The document is that of the endpoint's
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
// The fields are set before the guard and the handler: with "always" they stand on
// a guard's 503 too, and what the handler sets replaces them. A
// handler that adds instead, as httputil.ReverseProxy does with what its
// backend sent, must drop one of the two (in ModifyResponse). With "always" and
// a global tier or a ceiling strangers can read how busy the server is. On a
// refusal a Retry-After that an outer limiter has set stands if it is longer.
//
// # Stores and failure
//
// Counts live in a store.Store: in memory, or, for one budget of all replicas,
// in Redis or Valkey, if the program has
//
//	import _ "github.com/weir-go/weir/store/redis"
//
// and the Config chooses it ([StoreConfig]), or in one of your own ([WithStore]).
// A backend that is not there when the Limiter is made is an error of [New].
// Later its failure is none: the process counts for itself until it is back, or
// lets pass, as OnError says. Guards and lines of held requests are each process's
// own.
//
// The auth lock counts in the store too: many processes tell no more failures than
// one. While the store is away each counts on with what it was told: who was locked
// stays locked, who was known stays known. N processes then tell up to N times the
// limit, and what one of them has locked stays so there until it ends. A store that
// is slow enough is away, so whoever can overload it can bring that about.
//
// A panic in a function that you passed as an option is counted, logged and
// worked around, and fails no request. There are two exceptions: a Writer of
// [WithRejection] panics as a handler does, and a function of [WithPoolSize] in
// the New or Reload that calls it.
//
// # Reload
//
// [Limiter.Reload] puts a new Config in force from the next request on. Buckets
// keep what they hold, refill at the new rate and are clamped to the new burst;
// nobody gets a reset. A Config with a fault changes nothing.
//
// # Metrics
//
// [WithRegisterer] exports them; the README lists all. Labels are classes (as
// endpoint), tiers and reasons, never an address or an account. The endpoint
// "direct" is work that takes a guard without having a class, "unclassified" what
// no pattern matches. A flood is logged as one line for each class and tier
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
// # Composing
//
// [Limiter.Handler] is the chain in its right order. To verify who a request is
// from before it is limited, by a client certificate say, wrap the whole chain:
//
//	limiter.ClientIP(yours(limiter.Handler(ca)))
//
// where yours calls [SetAccount]. Handler does not repeat the work of ClientIP.
//
// The single stages ([Limiter.Tiers], [Limiter.Windows], [Limiter.AuthLock],
// [Guard.Handler]) are for mounting a part. What is left out is not enforced,
// whatever the Config says, and Guard.Handler guards every request that it sees,
// not only the classes that name the guard. Windows belong behind the tiers, and
// then count, arrivals too, what those let through; only the whole chain asks
// both in one step.
//
// Logging and metrics of your own belong outside, so that they see refusals.
package weir
