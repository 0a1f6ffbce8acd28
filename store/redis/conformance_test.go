package redis

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/storetest"
)

// conforms runs the suite, each rule in a namespace of its own.
func conforms(t *testing.T, o Options) {
	t.Helper()
	storetest.Run(t, func(t *testing.T) store.Store {
		o.Namespace = fresh()
		return open(t, o)
	})
}

func TestOneServerKeepsTheContract(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	o.Coalesce = -1
	conforms(t, o)
	everyKeyEnds(t, server.Client(), "weir:{n")
}

func TestCoalescedCallsKeepTheContract(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := unhurried("redis://" + server.Addr)
	o.Coalesce = 1
	conforms(t, o)
}

// The rule in the package's documentation is enough, over TLS, and the reader
// finds the certificate by the DSN alone.
func TestTheLeastRightsKeepTheContract(t *testing.T) {
	t.Parallel()
	server := redistest.StartTLS(t)
	grant(t, server.Client(), "default-secret-1")
	conforms(t, unhurried("rediss://weir:default-secret-1@"+server.Addr+"?tls_ca="+server.Certs.CA))
	everyKeyEnds(t, server.Client(), "weir:{n")
}

// aclRule is the rule of the package's documentation.
const aclRule = "on resetchannels resetkeys ~weir:* -@all +evalsha +eval +time +mget +set +del +zadd +zrem +zrevrangebyscore +zremrangebyscore +zremrangebyrank +pexpire"

// grant gives the user weir the least rights, and those in more.
func grant(t *testing.T, c *goredis.Client, password string, more ...string) {
	t.Helper()
	args := []any{"ACL", "SETUSER", "weir", "reset", ">" + password}
	for _, word := range append(strings.Fields(aclRule), more...) {
		args = append(args, word)
	}
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestAClusterKeepsTheContract(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, n := range cluster.Nodes {
		grant(t, n.Client(), "secret", "+cluster|slots")
	}
	o := unhurried("redis://weir:secret@" + cluster.Nodes[0].Addr + "?cluster=true&addr=" + cluster.Nodes[1].Addr)
	for _, coalesce := range []int{-1, 1} {
		o.Coalesce = coalesce
		conforms(t, o)
	}
	used := 0
	for _, n := range cluster.Nodes {
		everyKeyEnds(t, n.Client(), "weir:{n")
		if len(contents(t, n.Client())) > 0 {
			used++
		}
	}
	if used < 2 {
		t.Errorf("the namespaces of all rules lie on %d of 3 nodes", used)
	}
}

// With a slot for each key the rules about buckets hold less strictly, as the
// package's documentation says; those about failure counters hold.
func TestASlotForEachKeyKeepsTheContractOfLocks(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	for _, n := range cluster.Nodes {
		grant(t, n.Client(), "secret", "+cluster|slots")
	}
	o := unhurried("redis://weir:secret@" + cluster.Nodes[0].Addr + "?cluster=true")
	o.SlotPerKey = true
	storetest.Run(t, func(t *testing.T) store.Store {
		o.Namespace = fresh()
		return locksOnly{store.NewMemory(), open(t, o)}
	})
	for _, n := range cluster.Nodes {
		everyKeyEnds(t, n.Client(), "weir:{n")
	}
}

// locksOnly counts failures in Redis, and all else in memory.
type locksOnly struct {
	store.Store
	store.Locker
}

func (s locksOnly) Close() error {
	_ = s.Locker.(*Store).Close()
	return s.Store.Close()
}

// Half of the rules run before the master is killed, the others on what was its
// replica.
func TestSentinelKeepsTheContractThroughAFailover(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	for _, s := range []*redistest.Server{r.Master, r.Replica} {
		grant(t, s.Client(), "secret", "+select")
	}
	for _, s := range r.Sentinels {
		s.Do("ACL", "SETUSER", "watcher", "reset", "on", ">hidden", "&*", "-@all",
			"+sentinel|get-master-addr-by-name", "+sentinel|sentinels", "+subscribe")
	}
	o := unhurried("redis://weir:secret@" + r.Sentinels[0].Addr + "/2?master_name=" + redistest.MasterName +
		"&addr=" + r.Sentinels[1].Addr + "&addr=" + r.Sentinels[2].Addr + "&sentinel_username=watcher&sentinel_password=hidden")
	old := open(t, o)
	opened := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		if opened++; opened == 20 {
			r.Master.Kill()
		}
		o.Namespace = fresh()
		return open(t, o)
	})
	if opened < 40 {
		t.Errorf("the suite has %d rules: the failover came late", opened)
	}
	eventually(t, "a store from before the failover works again", func() bool { return old.Ping(context.Background()) == nil })
	if n := r.Replica.Do("DBSIZE"); n != int64(0) {
		t.Errorf("%v keys in database 0, want all in 2", n)
	}
}

// A failover under load: calls fail for a while, each with a reason, and then go
// on. What the replica had not heard of yet may be admitted again, no more.
func TestAFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	r := redistest.StartReplicated(t)
	o := unhurried("redis://" + r.Sentinels[0].Addr + "?master_name=" + redistest.MasterName)
	s := open(t, o)
	const burst = 400
	c := ask("failover", "k", 0, burst, 1)
	var got, failed atomic.Int64
	for range burst / 2 {
		admitted(t, s, c)
	}
	got.Store(burst / 2)
	key := string(s.keys.append(nil, &c))
	eventually(t, "replication", func() bool {
		v, err := r.Replica.Client().Get(t.Context(), key).Result()
		return err == nil && v == r.Master.Do("GET", key)
	})
	var killed sync.Once
	crowd(t, 8, func(i int) error {
		after := 0
		for begun := time.Now(); after < 2*burst/8; {
			v, _, err := s.Admit(t.Context(), []store.Check{c}, nil)
			switch {
			case err != nil:
				if reasonOf(err) == "" || time.Since(begun) > 30*time.Second {
					return err
				}
				failed.Add(1)
				time.Sleep(5 * time.Millisecond)
			case v.Admitted():
				got.Add(1)
			}
			if err == nil && failed.Load() > 0 {
				after++
			}
			if i == 0 && got.Load() > burst/2+20 {
				killed.Do(r.Master.Kill)
			}
		}
		return nil
	})
	if n := got.Load(); n < burst/2+20 || n > burst+burst/2 {
		t.Errorf("%d of %d admitted over a failover, %d of which were known to the replica", n, burst, burst/2)
	}
	refused(t, s, c)
}
