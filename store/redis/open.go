package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// minDial is the least that a new connection gets to be made, with TLS; calls
	// that wait for it are bounded by their own deadline.
	minDial = 250 * time.Millisecond
	// slotsInterval is how often a Cluster is asked for its slots if nothing fails.
	slotsInterval = 10 * time.Second
	// openInterval is how often Open tries to reach a server that is not there.
	openInterval = 100 * time.Millisecond
)

// quiet turns off notices that only a managed service sends, and that would need
// a right to subscribe to.
func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Open makes a store for the server that the DSN names, and returns when it has
// answered what a request will ask. A server that is not there, or not ready, is
// tried again until the connect timeout has passed; what somebody has to put
// right first (a password, a right, a certificate) is an error at once.
func Open(ctx context.Context, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("store/redis: %w", err)
	}
	t, err := parseDSN(o.DSN, o.TLS)
	if err != nil {
		return nil, fmt.Errorf("store/redis: %w", err)
	}
	o.Coalesce = cmp.Or(o.Coalesce, 16)
	s := newStore(t.client(&o), o)
	s.owned, s.secrets = true, t.secrets()
	if err := s.connect(ctx, o); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// New makes a store on a client that the program has already, and returns when
// the server has answered. The client stays the program's: Close leaves it open.
// DSN and TLS must not be set.
//
// The client must have ContextTimeoutEnabled, or it does not keep the deadline of
// a call. It should have DialerRetries 1 and a ReadTimeout of not less than the
// command timeout. Whatever its MaxRetries, a call of the store is sent once. A
// Ring is refused: it moves keys to other shards when one is lost. A client of a
// type that go-redis does not have is taken as it is.
func New(ctx context.Context, client goredis.UniversalClient, o Options) (*Store, error) {
	o, err := o.withDefaults()
	switch {
	case err != nil:
	case o.DSN != "" || o.TLS != nil:
		err = errors.New("a DSN or TLS configuration is of no use beside a client: leave it out, or use Open")
	case client == nil:
		err = errors.New("the client is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("store/redis: %w", err)
	}
	s := newStore(client, o)
	timeouts := true
	switch c := client.(type) {
	case *goredis.Client:
		timeouts = c.Options().ContextTimeoutEnabled
		s.secrets.add(c.Options().Password)
	case *goredis.ClusterClient:
		timeouts = c.Options().ContextTimeoutEnabled
		s.secrets.add(c.Options().Password)
	case *goredis.Ring:
		return nil, errors.New("store/redis: a Ring moves keys when a shard is lost, and all counts begin anew: use a Cluster, or one server")
	}
	if !timeouts {
		return nil, errors.New("store/redis: the client does not keep deadlines: set ContextTimeoutEnabled in its options")
	}
	if err := s.connect(ctx, o); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(client goredis.UniversalClient, o Options) *Store {
	s := &Store{client: client, opts: o, admit: admitScript, locks: theLockScripts, attempt: attemptScript}
	s.keys, _ = newKeyspace(o.KeyPrefix, o.Namespace, o.SlotPerKey) // withDefaults has looked
	return s
}

// connect makes sure that the server does what it will be asked to.
func (s *Store) connect(ctx context.Context, o Options) error {
	if o.Coalesce > 0 {
		pipe, err := s.client.AsyncAutoPipelineWithOptions(&goredis.AutoPipelineOptions{MaxQueuedCommands: 1024})
		if err != nil {
			return fmt.Errorf("store/redis: this client cannot coalesce: %w", err)
		}
		s.pipe = pipe
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
	defer cancel()
	// A connection takes longer than a command on one.
	s.opts.CommandTimeout = max(o.CommandTimeout, minDial)
	defer func() { s.opts.CommandTimeout = o.CommandTimeout }()
	var last *Error
	for {
		err := s.probe(ctx, "open")
		if err == nil {
			err = s.probeLocks(ctx)
		}
		if err == nil {
			err = s.agree(ctx)
		}
		var e *Error
		if err == nil || !errors.As(err, &e) || e.Permanent() {
			return err
		}
		if last == nil || ctx.Err() == nil { // that time is up is not what is wrong
			last = e
		}
		select {
		case <-ctx.Done():
			last.text = fmt.Sprintf("gave up after %v: %s", time.Since(begun).Round(time.Millisecond), last.text)
			return last
		case <-time.After(openInterval):
		}
	}
}
