package redis

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/redistest"
)

func TestAPolicyThatDropsTheWrongKeysIsAdvisedAgainst(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	for _, tt := range []struct {
		name, policy string
		maxmemory    string
		advised      bool
	}{
		{"the nearest to full go first", "volatile-ttl", "100mb", false},
		{"nothing goes", "noeviction", "100mb", false},
		{"the longest unused of all", "allkeys-lru", "100mb", true},
		{"the least used of all", "allkeys-lfu", "100mb", true},
		{"any of all", "allkeys-random", "100mb", true},
		{"the longest unused", "volatile-lru", "100mb", true},
		{"the least used", "volatile-lfu", "100mb", true},
		{"any", "volatile-random", "100mb", true},
		{"the longest unused, on a server without a bound", "allkeys-lru", "0", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server.Do("CONFIG", "SET", "maxmemory-policy", tt.policy, "maxmemory", tt.maxmemory)
			advice := s.Advise(t.Context())
			if !tt.advised {
				if len(advice) != 0 {
					t.Errorf("advised: %q", advice)
				}
				return
			}
			if len(advice) != 1 || !strings.Contains(advice[0], tt.policy) || !strings.Contains(advice[0], "set volatile-ttl") {
				t.Errorf("advised %q, want one against %s with its cure", advice, tt.policy)
			}
		})
	}
}

func TestAUserWithoutTheRightToLookGetsNoAdvice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	for _, tt := range []struct {
		name, rights string
		advice       int
	}{
		{"no more than it needs", aclRule, 0},
		{"INFO", aclRule + " +info", 1},
		{"CONFIG GET", aclRule + " +config|get", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []any{"ACL", "SETUSER", "weir", "reset", ">word"}
			for _, right := range strings.Fields(tt.rights) {
				args = append(args, right)
			}
			server.Do(args...)
			o := unhurried("redis://weir:word@" + server.Addr)
			o.Namespace = fresh()
			if got := open(t, o).Advise(t.Context()); len(got) != tt.advice {
				t.Errorf("advised %q, want %d", got, tt.advice)
			}
		})
	}
}

func TestAServerThatIsGoneGetsNoAdvice(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	s := alone(t, server)
	server.Kill()
	if got := s.Advise(t.Context()); len(got) != 0 {
		t.Errorf("advised: %q", got)
	}
	_ = s.Close()
	if got := s.Advise(t.Context()); len(got) != 0 {
		t.Errorf("advised after Close: %q", got)
	}
}

func TestOneNodeOfAClusterIsEnoughForAdvice(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	s := spread(t, cluster)
	if got := s.Advise(t.Context()); len(got) != 0 {
		t.Errorf("advised: %q", got)
	}
	for i, n := range cluster.Nodes[1:] {
		n.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb")
		if got := s.Advise(t.Context()); len(got) != 1 {
			t.Errorf("advised %q of %d nodes, want one text for all", got, i+1)
		}
	}
}
