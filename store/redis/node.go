package redis

import (
	"context"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

var _ store.Sharded = (*Store)(nil)

// watcher is told of each call to a node of a Cluster, see [store.Sharded].
type watcher func(ctx context.Context, node string) (context.Context, func(error) error, error)

// Watch implements [store.Sharded]: with a slot for each key in a Cluster.
func (s *Store) Watch(begin func(ctx context.Context, node string) (context.Context, func(error) error, error)) bool {
	if _, ok := s.client.(*goredis.ClusterClient); !ok || !s.keys.slotPerKey {
		return false
	}
	s.watch = begin
	return true
}

// Node implements [store.Sharded]: the address of the master of the key's slot, as
// far as the client knows the Cluster, else "".
func (s *Store) Node(c *store.Check) string {
	var array [192]byte
	return s.nodeOf(string(s.keys.append(array[:0], c)))
}

func (s *Store) nodeOf(key string) string {
	if c, ok := s.client.(*goredis.ClusterClient); ok {
		if master, err := c.MasterForKey(context.Background(), key); err == nil {
			return master.Options().Addr
		}
	}
	return ""
}

// probes is how many keys are tried to find one that a node has: of a node with a
// single slot, one in fifty would not be found.
const probes = 1 << 16

// PingNode implements [store.Sharded].
func (s *Store) PingNode(ctx context.Context, node string) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	for i := range probes {
		if key := s.keys.probeOf(i); s.nodeOf(key) == node {
			_, err := s.run(ctx, "ping", s.admit, probeCallOf(key))
			return err
		}
	}
	return store.ErrNoNode
}

// runAt is run, of a call whose keys are all in the slot of one check, and watched.
func (s *Store) runAt(ctx context.Context, at *store.Check, op string, sc script, c *call) (reply string, err error) {
	if s.watch == nil {
		return s.run(ctx, op, sc, c)
	}
	ctx, end, err := s.watch(ctx, s.Node(at))
	if err != nil {
		return "", err
	}
	reply, err = s.run(ctx, op, sc, c)
	return reply, end(err)
}

// probeOf is the name of the i-th key that a probe of a node may write; another
// tag, and so another slot, for each. No bucket has it: there 32 digits stand in
// the tag.
func (k keyspace) probeOf(i int) string { return k.head + ":probe-" + strconv.Itoa(i) + "}probe" }
