// Package redis keeps a limiter's counts in Redis, Valkey or a server that speaks
// their protocol, so that all replicas of a service share one budget.
//
//	s, err := redis.Open(ctx, redis.Options{DSN: "rediss://weir:password@redis.example:6379/0"})
//	…
//	limiter, err := weir.New(cfg, weir.WithStore(s))
//
// A request is one round trip: a script on the server checks all tiers and
// windows and then spends from all of them or from none. An attempt to sign in begins
// in the same script, if the request brings its credential, and is one more after the
// credential is checked. The server's clock
// decides, so replicas whose clocks differ agree. What a request of three tiers
// costs is some 25 to 35 µs of the server's one thread, against 7 to 11 for a GET; a
// call of the auth lock costs as much, and half a microsecond more for each place
// that is reserved in its counters at that time. A counter keeps 1000 places at most:
// beyond, attempts are admitted without one, or with [store.ReserveAlways] refused.
//
// # DSN
//
//	redis://[[user]:password@]host[:6379][/database]
//	rediss://…                                              with TLS
//	unix://[[user]:password@]/path/to/redis.sock[?db=n]
//	redis://…@host:26379?addr=host2:26379&master_name=name  the master that Sentinels name
//	redis://…@host:6379?addr=host2:6379&cluster=true        a Cluster
//
// Special characters of a password are escaped as in any URL. Further addresses
// of Sentinels or nodes each stand in an addr parameter. Others are
// sentinel_username, sentinel_password, db, and for TLS tls_ca, tls_cert and
// tls_key (names of PEM files) and tls_server_name; [Options.TLS] is for what they
// cannot say. No error and no log value repeats a DSN or a password.
//
// # Rights
//
// An ACL user needs no more than this (with the prefix of its keys):
//
//	ACL SETUSER weir on >password resetchannels resetkeys ~weir:* -@all +evalsha +eval +time +mget +set
//	ACL SETUSER weir +del +zadd +zrem +zrevrangebyscore +zremrangebyscore +zremrangebyrank +pexpire
//
// and in a Cluster +cluster|slots, and +select for a database
// other than 0. The second line is for the auth lock; [Open] and [New] fail without
// it, whether or not that is used: the lack would else be an outage at the first
// guess. A user at a Sentinel needs +sentinel|get-master-addr-by-name
// +sentinel|sentinels and +subscribe with &*.
//
// # Keys
//
// Each bucket is one string, "tokens:microseconds", each window
// "used:microseconds"; see [Options.KeyPrefix] and [Options.Namespace] for their
// names. Every key has a time to live: until the bucket is full or the window is
// over, and a tenth or at least a second longer. A bucket that is full is the same as
// one that is not there, so nothing is handed out when a key goes. A bucket whose limit
// never refills is kept for a century. If a limit is lowered, keys that were
// written before live as the old one said: each may be full once sooner than the
// new one would have it.
//
// A failure counter of the auth lock is a string too, which lives until its window,
// its lock or the last place reserved in it has ended; so is who is known at an
// account, for as long as the last of them is remembered. Nothing but the server's
// memory bounds how many there are: a spray of made-up names takes a key for each,
// until its window ends. The locks of a scope are listed in a sorted set of at most
// 10 000. If [Options.Fingerprint] is set, one key keeps it, for a century.
//
// Set maxmemory-policy to volatile-ttl, or noeviction on a server with room: then
// a flood of new addresses pushes out the buckets that are nearest to full. Under
// the LRU policies it pushes out the ones that hold somebody back. A server under
// noeviction that is full refuses to write, which is a failure of the store: each
// process counts for itself meanwhile. A policy that may push out the wrong ones is
// logged as a warning at the start, if the server has a bound and the user the right
// to see it: +info, or +config|get.
//
// # Clock
//
// If the server's clock is set forward, buckets refill by as much. If it is set
// back, by a millisecond or more, a bucket goes on from the instant at which it is
// next asked: nothing is minted, and nobody waits until the clock is there again.
// A window takes its count along to the window that the clock is in then. After a
// failover to a server whose clock differs by d, a bucket gets at most d times its
// rate, and not more than its burst, too much.
//
// Of the auth lock, set forward, windows and locks end sooner by as much. Set back to
// before one has begun, it begins anew when it is next asked for: it lasts no longer
// from then than it was to last at all.
//
// # Cluster
//
// By default the keys of a namespace share one hash tag, and with it one node; see
// [Options.SlotPerKey] for the other way, in which a request is two steps. There, a
// bucket of the caller's own lacks for one round trip what a request has spent
// that another of its buckets refuses: at any instant at most its cost times the
// number of such requests under way, and for good (until it refills) the cost of
// those whose refund failed. A bucket without a key, which all callers share, never
// lends to a request that will be refused by a caller's own. No bucket ever admits
// more than it holds.
//
// With a slot for each key, a limiter stands in for the keys of a lost node alone,
// and goes on asking the others. With one slot for all, they are on one node: if it
// is lost, all are counted in each process until it is back or replaced.
//
// For failure counters, to settle looks at all slots and then counts in one after
// the other. No counter tells more than its limit; around the start of a lock, others
// of the same attempts may count failures that were not told.
//
// Set cluster-require-full-coverage to no, or the loss of one node stops them all.
//
// # Failure
//
// Every call ends by its deadline or the command timeout, whichever is sooner,
// and fails with an [*Error] that says why in one word. It is never sent a second
// time: if the answer was lost, it may have run, and then its cost is spent
// though nobody was admitted for it. That errs on the side of too few, by one cost
// a failed call; to send it again would spend twice, to refund it might mint. After
// a failover, what the old master had not yet replicated is forgotten: a bucket may
// admit that much again. go-redis itself writes a line to stderr for each connection
// that cannot be made, several a second while a server is down; its SetLogger, which
// is the program's to call, sends them elsewhere.
//
// A failure counter forgets as much in a failover, and may tell it again. An attempt
// that was begun by a call whose answer was lost holds its place for
// [store.ReservationTTL]; one that was settled so may have been counted.
package redis
