package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// MasterName is what Sentinels call the master.
const MasterName = "weir-master"

// Replicated is a master with a replica, and three Sentinels that watch them.
type Replicated struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// StartReplicated starts a master, a replica and three Sentinels, and waits until
// they know each other.
func StartReplicated(t testing.TB, settings ...string) *Replicated {
	t.Helper()
	r := &Replicated{Master: Start(t, settings...)}
	host, port, _ := net.SplitHostPort(r.Master.Addr)
	r.Replica = Start(t, append([]string{"replicaof " + host + " " + port, "repl-diskless-sync-delay 0"}, settings...)...)
	eventually(t, "replication", func() bool {
		return strings.Contains(fmt.Sprint(r.Replica.Do("INFO", "replication")), "master_link_status:up")
	})
	for range 3 {
		r.Sentinels = append(r.Sentinels, startSentinel(t, host, port))
	}
	for _, s := range r.Sentinels {
		eventually(t, "Sentinels that know each other", func() bool {
			master := s.client.Do(context.Background(), "SENTINEL", "MASTER", MasterName)
			fields, err := mapOf(master)
			return err == nil && fields["num-slaves"] == "1" && fields["num-other-sentinels"] == "2" && fields["flags"] == "master"
		})
	}
	return r
}

func startSentinel(t testing.TB, host, port string) *Server {
	t.Helper()
	s := prepare(t, nil,
		fmt.Sprintf("sentinel monitor %s %s %s 2", MasterName, host, port),
		"sentinel down-after-milliseconds "+MasterName+" 500",
		"sentinel failover-timeout "+MasterName+" 3000",
	)
	s.args = append(s.args, "--sentinel")
	if err := s.launch(); err != nil {
		t.Fatalf("sentinel: %v", err)
	}
	return s
}

// Addrs are the addresses of the Sentinels.
func (r *Replicated) Addrs() (addrs []string) {
	for _, s := range r.Sentinels {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// mapOf reads a reply of names and values, as RESP2 or RESP3 tells it.
func mapOf(cmd *redis.Cmd) (map[string]string, error) {
	v, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	switch v := v.(type) {
	case []any:
		for i := 0; i+1 < len(v); i += 2 {
			m[fmt.Sprint(v[i])] = fmt.Sprint(v[i+1])
		}
	case map[any]any:
		for name, value := range v {
			m[fmt.Sprint(name)] = fmt.Sprint(value)
		}
	}
	return m, nil
}
