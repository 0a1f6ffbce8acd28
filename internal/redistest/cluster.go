package redistest

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// slots is how many slots a Cluster has.
const slots = 16384

// Cluster is three masters that share the slots.
type Cluster struct{ Nodes []*Server }

// StartCluster starts a Cluster of three masters and waits until it serves. It
// goes on serving what slots it has when a node is lost.
func StartCluster(t testing.TB, settings ...string) *Cluster {
	t.Helper()
	c := new(Cluster)
	settings = append([]string{"cluster-enabled yes", "cluster-node-timeout 2000", "cluster-require-full-coverage no"}, settings...)
	for range 3 {
		c.Nodes = append(c.Nodes, start(t, nil, settings...))
	}
	for i, n := range c.Nodes {
		args := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / 3; slot < (i+1)*slots/3; slot++ {
			args = append(args, slot)
		}
		n.Do(args...)
		n.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
		host, port, _ := net.SplitHostPort(n.Addr)
		for _, other := range c.Nodes[:i] {
			other.Do("CLUSTER", "MEET", host, port)
		}
	}
	for _, n := range c.Nodes {
		eventually(t, "a Cluster of three", func() bool {
			info := fmt.Sprint(n.Do("CLUSTER", "INFO"))
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:3") &&
				strings.Contains(info, "cluster_slots_ok:16384")
		})
	}
	return c
}

// Addrs are the addresses of the nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Of returns the node that has the slot of a key.
func (c *Cluster) Of(key string) *Server {
	slot := int(c.Nodes[0].Do("CLUSTER", "KEYSLOT", key).(int64))
	for i, n := range c.Nodes {
		if slot < (i+1)*slots/3 {
			return n
		}
	}
	panic("redistest: no such slot")
}
