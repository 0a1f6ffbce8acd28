package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/store"
)

var _ store.Adviser = (*Store)(nil)

// Advise implements [store.Adviser]: it looks whether the server may drop, when it
// is full, what holds a caller back (see the package documentation, Keys). In a
// Cluster it asks each master. A server that does not say, or not to this user,
// gets no advice.
func (s *Store) Advise(ctx context.Context) []string {
	if s.closed.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.opts.CommandTimeout, minDial))
	defer cancel()
	cluster, ok := s.client.(*goredis.ClusterClient)
	if !ok {
		return adviceOn(evicts(ctx, s.client))
	}
	var mu sync.Mutex
	said := map[string]bool{} // nodes are mostly alike
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		for _, text := range adviceOn(evicts(ctx, node)) {
			said[text] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(said))
}

// evicts returns the policy by which a server makes room, "" if it does not have
// to or does not say. INFO needs a right that is given more often than CONFIG's.
func evicts(ctx context.Context, c goredis.Cmdable) (policy string) {
	var limit string
	if text, err := c.Info(ctx, "memory").Result(); err == nil {
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			switch name {
			case "maxmemory":
				limit = value
			case "maxmemory_policy":
				policy = value
			}
		}
	} else if m, err := c.ConfigGet(ctx, "maxmemory*").Result(); err == nil {
		limit, policy = m["maxmemory"], m["maxmemory-policy"]
	}
	if limit == "0" { // there is no bound
		return ""
	}
	return policy
}

// adviceOn tells what is wrong with a policy.
func adviceOn(policy string) []string {
	switch policy {
	case "", "volatile-ttl", "noeviction":
		return nil
	}
	return []string{fmt.Sprintf("maxmemory-policy of the server is %q: when it is full, it may drop the counts that hold somebody back sooner than those of a flood; set volatile-ttl, or noeviction on a server with room", policy)}
}
