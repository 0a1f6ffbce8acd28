package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Options say which server a store uses, and how. The zero value of every field
// but DSN is a sound default. An Options may be copied; what it points to must
// not change while a store uses it. It never prints a secret.
type Options struct {
	// DSN is where the server is and who we are to it, for [Open]; [New] takes
	// none. The package documentation lists the forms.
	DSN string
	// KeyPrefix begins the name of every key. Default "weir:". Printable ASCII
	// without spaces, braces and pattern characters. The ACL rule names it.
	KeyPrefix string
	// Namespace tells limiters apart that share a server and a prefix: those of
	// one namespace share their counts, others never do. Replicas of one service
	// have the same, two services on one Redis must not. Default "weir". Letters,
	// digits, _, - and . only.
	Namespace string
	// Fingerprint stands for the secret that keys the ids of callers, without
	// telling it. [Open] and [New] refuse to start where limiters of the namespace
	// have had another one: each would count for itself what is one caller. Default
	// "": not compared.
	Fingerprint string
	// ConnectTimeout is how long [Open] and [New] try to reach the server before
	// they give up. Default 5 s.
	ConnectTimeout time.Duration
	// CommandTimeout is how long a call may take; a sooner deadline of the caller's
	// context is kept too. Default 100 ms. A call that timed out may have run.
	CommandTimeout time.Duration
	// TLS is the client's TLS configuration. With it, or a rediss:// DSN, the
	// connection is encrypted. nil with rediss:// means the system's roots and the
	// host's name.
	TLS *tls.Config
	// PoolSize is how many connections there are to each node at most. Default 32.
	PoolSize int
	// SlotPerKey spreads the buckets of one limiter over the slots of a Cluster.
	// By default they all share one slot, and with it one node, so that a request
	// is one atomic step in one round trip: twice as fast, until one core of that
	// node is not enough (some 30 000 requests a second over three buckets).
	// Then this setting trades atomicity for more nodes: two round trips, a
	// caller's own buckets first, and what one of them refuses is given back to the
	// others a moment later. Changing it begins all counts anew.
	SlotPerKey bool
	// Coalesce is how many calls may be under way, each on a connection of its own,
	// before further ones share round trips. Default 16 for [Open], negative never;
	// for [New] 0 is never too, since that sets up the program's own client.
	//
	// With 1 and with 16 callers at once, calls of their own are as fast or faster;
	// with 64 and 256, sharing was measured to answer 2.2 times as many, at three
	// quarters of the server's processor time for each. It uses go-redis's
	// asynchronous pipelining, which that library calls experimental. A call that
	// is given up at its deadline is then still sent, and may run.
	Coalesce int
}

// withDefaults fills in what is zero and tells what cannot be.
func (o Options) withDefaults() (Options, error) {
	o.KeyPrefix = cmp.Or(o.KeyPrefix, "weir:")
	o.Namespace = cmp.Or(o.Namespace, "weir")
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.CommandTimeout = cmp.Or(o.CommandTimeout, 100*time.Millisecond)
	o.PoolSize = cmp.Or(o.PoolSize, 32)
	var errs []error
	if o.ConnectTimeout < 0 {
		errs = append(errs, fmt.Errorf("connect timeout %v: use a positive one", o.ConnectTimeout))
	}
	if o.CommandTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("command timeout %v: use 1 ms or more", o.CommandTimeout))
	}
	if o.PoolSize < 0 {
		errs = append(errs, fmt.Errorf("pool size %d: use a positive one", o.PoolSize))
	}
	if _, err := newKeyspace(o.KeyPrefix, o.Namespace, o.SlotPerKey); err != nil {
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

// String tells the options without the DSN, which may hold a password.
func (o Options) String() string {
	dsn := "none"
	if o.DSN != "" {
		dsn = "set"
	}
	return fmt.Sprintf("{DSN:%s KeyPrefix:%q Namespace:%q ConnectTimeout:%v CommandTimeout:%v TLS:%v PoolSize:%d SlotPerKey:%v Coalesce:%d}",
		dsn, o.KeyPrefix, o.Namespace, o.ConnectTimeout, o.CommandTimeout, o.TLS != nil, o.PoolSize, o.SlotPerKey, o.Coalesce)
}

// GoString is String, for %#v.
func (o Options) GoString() string { return "redis.Options" + o.String() }

// LogValue is String, for log/slog.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// MarshalText is String, for encoders: an Options is no configuration file.
func (o Options) MarshalText() ([]byte, error) { return []byte(o.String()), nil }
