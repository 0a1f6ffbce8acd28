package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reasoner is implemented by errors of a store that say in one word why a call
// failed. The word labels a metric: there must be few of them, and none may come
// from a request.
type Reasoner interface {
	error
	StoreReason() string
}

// Pinger is implemented by stores that can try whether they would decide. Ping
// must do what Admit does, to a key of its own: a server that answers a lesser
// question may refuse that one.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Adviser is implemented by stores that can find what is legal but suspicious in
// how their server is set up. A limiter asks once, when the store is chosen, and
// logs each as a warning. A text names no secret; what cannot be found out is no
// advice.
type Adviser interface {
	Advise(ctx context.Context) []string
}

// OpenConfig is what a store of [Register] is opened with. It never prints the
// DSN, which may hold a password.
type OpenConfig struct {
	Namespace string // the limiter's; stores of one namespace share their counts
	DSN       string
	KeyPrefix string
	// Fingerprint stands for the secret that keys the ids of callers, without telling
	// it. A store that limiters share must not open for one whose fingerprint is not
	// that of the others. "" is not compared.
	Fingerprint    string
	ConnectTimeout time.Duration
	CommandTimeout time.Duration
}

// String tells the configuration without the DSN.
func (c OpenConfig) String() string {
	dsn := "none"
	if c.DSN != "" {
		dsn = "set"
	}
	return fmt.Sprintf("{Namespace:%q DSN:%s KeyPrefix:%q ConnectTimeout:%v CommandTimeout:%v}", c.Namespace, dsn, c.KeyPrefix, c.ConnectTimeout, c.CommandTimeout)
}

// GoString is String, for %#v.
func (c OpenConfig) GoString() string { return "store.OpenConfig" + c.String() }

// OpenFunc opens a store, and returns when it has answered what a request will
// ask. Its errors must name no secret.
type OpenFunc func(ctx context.Context, c OpenConfig) (Store, error)

var backends struct {
	sync.Mutex
	open map[string]OpenFunc
}

// ErrNoBackend is the error of [Open] for a name that nobody registered.
var ErrNoBackend = errors.New("no such backend")

// Register makes a store available under a name, for Config.Store.Backend. It is
// for the init function of a package that programs import for its effect:
//
//	import _ "github.com/weir-go/weir/store/redis"
//
// It panics if the name is taken or open is nil, since either is a fault of the
// program.
func Register(name string, open OpenFunc) {
	backends.Lock()
	defer backends.Unlock()
	if open == nil {
		panic("store: Register of " + name + ": open is nil")
	}
	if _, taken := backends.open[name]; taken || name == "memory" {
		panic("store: Register of " + name + ": the name is taken")
	}
	if backends.open == nil {
		backends.open = map[string]OpenFunc{}
	}
	backends.open[name] = open
}

// Backends lists the names that are registered, sorted.
func Backends() []string {
	backends.Lock()
	defer backends.Unlock()
	return slices.Sorted(maps.Keys(backends.open))
}

// Open opens a store by the name it was registered under.
func Open(ctx context.Context, name string, c OpenConfig) (Store, error) {
	backends.Lock()
	open := backends.open[name]
	backends.Unlock()
	if open == nil {
		return nil, fmt.Errorf("store: %w: %q; there are: %s", ErrNoBackend, name, strings.Join(Backends(), ", "))
	}
	return open(ctx, c)
}
