package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

// Each fault of a real server has its reason, for every call, and ends with it.
func TestFaultsHaveTheirReasons(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		begin, end func(s *redistest.Server)
		want       Reason
		permanent  bool
	}{
		{"a server that is gone", func(s *redistest.Server) { s.Kill() }, func(s *redistest.Server) { s.Restart(); grant(t, s.Client(), "secret") }, ReasonUnreachable, false},
		{"out of memory", func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", "0") }, ReasonMemory, false},
		{"a replica", func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", "1") },
			func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }, ReasonReadOnly, false},
		{"a replica that serves nothing", func(s *redistest.Server) {
			s.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
			s.Do("REPLICAOF", "127.0.0.1", "1")
		}, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }, ReasonLoading, false},
		{"no right to EVALSHA", without("evalsha"), with("evalsha"), ReasonDenied, true},
		{"no right to MGET", without("mget"), with("mget"), ReasonDenied, true},
		{"no right to SET", without("set"), with("set"), ReasonDenied, true},
		{"no right to the keys", func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "resetkeys", "~other:*") },
			func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "resetkeys", "~weir:*") }, ReasonDenied, true},
		{"a user that is no more", func(s *redistest.Server) { s.Do("ACL", "DELUSER", "weir") },
			func(s *redistest.Server) { grant(t, s.Client(), "secret") }, ReasonAuth, true},
		{"writes that cannot be replicated", func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "1") },
			func(s *redistest.Server) { s.Do("CONFIG", "SET", "min-replicas-to-write", "0") }, ReasonDisk, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			grant(t, server.Client(), "secret")
			o := unhurried("redis://weir:secret@" + server.Addr)
			s := open(t, o)
			c := []store.Check{ask("fault", "k", hourly, 10, 1)}
			admitted(t, s, c...)
			if err := s.Refund(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			tt.begin(server)
			// A connection that broke is found out by the next call.
			eventually(t, "a failing call", func() bool {
				_, _, err := s.Admit(t.Context(), c, nil)
				return err != nil && reasonOf(err) != ReasonConnection
			})
			dst := []store.State{{Tokens: 7}}
			v, got, err := s.Admit(t.Context(), c, dst)
			e := fails(t, err, tt.want)
			if v.Refused != 0 || len(got) != 1 || got[0] != dst[0] {
				t.Errorf("on error: %+v %+v, want no verdict, and dst as it was", v, got)
			}
			if e.Permanent() != tt.permanent || e.MayHaveRun || e.Op != "admit" {
				t.Errorf("%+v, want permanent %v, and that nothing ran", e, tt.permanent)
			}
			fails(t, s.Ping(t.Context()), tt.want)
			if err := s.Refund(t.Context(), c); tt.name != "no right to EVALSHA" && reasonOf(err) != tt.want {
				t.Errorf("refund: %v, want reason %q", err, tt.want)
			}
			tt.end(server)
			eventually(t, "recovery", func() bool { return s.Ping(t.Context()) == nil })
			if left := admitted(t, s, c...)[0].Tokens; left < 9 || left > 9.1 {
				t.Errorf("%v left of 10: a failed call spent", left)
			}
		})
	}
}

func without(command string) func(s *redistest.Server) {
	return func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "-"+command) }
}

func with(command string) func(s *redistest.Server) {
	return func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "+"+command) }
}

func reasonOf(err error) Reason {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestAServerInAScriptIsBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "busy-reply-threshold 10")
	s := alone(t, server)
	done := make(chan error, 1)
	go func() {
		done <- server.Client().Conn().Do(context.Background(), "EVAL", "while true do end", 0).Err()
	}()
	eventually(t, "a busy server", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return reasonOf(s.Ping(ctx)) == ReasonBusy
	})
	eventually(t, "the end of the script", func() bool { return server.Client().ScriptKill(context.Background()).Err() == nil || len(done) > 0 })
	if err := <-done; err == nil {
		t.Error("the script has ended by itself")
	}
	eventually(t, "recovery", func() bool { return s.Ping(t.Context()) == nil })
}

func TestTooManyClientsAreBusy(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do("CONFIG", "SET", "maxclients", "5")
	var conns []net.Conn
	for range 5 {
		if c, err := net.Dial("tcp", server.Addr); err == nil {
			conns = append(conns, c)
		}
	}
	o := unhurried("redis://" + server.Addr)
	o.ConnectTimeout = inVain
	_, err := Open(t.Context(), o)
	// The server says so and hangs up, which may come first.
	if got := reasonOf(err); got != ReasonBusy && got != ReasonConnection {
		t.Errorf("%v: reason %q, want %q", err, got, ReasonBusy)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	open(t, unhurried(o.DSN))
}

// A server that hangs costs a call its timeout. The call may run when the server
// goes on, and it is not sent again: not by us, nor by the client, not in a Cluster.
func TestACallThatTimesOutIsSentOnce(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "coalesced", "cluster", "coalesced cluster", "the program's own client", "the program's own cluster client"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := Options{CommandTimeout: 60 * time.Millisecond, ConnectTimeout: 20 * time.Second}
			c := ask("hung", "k", hourly, 1000, 1)
			var server *redistest.Server
			var s *Store
			var err error
			switch kind {
			case "plain", "coalesced":
				server = redistest.Start(t)
				o.DSN = "redis://" + server.Addr
				if kind == "coalesced" {
					o.Coalesce = 1
				}
				s, err = Open(t.Context(), o)
			case "the program's own client":
				server = redistest.Start(t)
				s, err = New(t.Context(), goredis.NewClient(&goredis.Options{Addr: server.Addr, ContextTimeoutEnabled: true,
					ReadTimeout: 10 * time.Millisecond, MinRetryBackoff: time.Millisecond}), o)
			default:
				cluster := redistest.StartCluster(t)
				keys, _ := newKeyspace("weir:", "weir", false)
				server = cluster.Of(string(keys.append(nil, &c)))
				o.DSN = "redis://" + cluster.Nodes[0].Addr + "?cluster=true"
				if kind == "coalesced cluster" {
					o.Coalesce = 1
				}
				if kind != "the program's own cluster client" {
					s, err = Open(t.Context(), o)
				} else {
					o.DSN = ""
					s, err = New(t.Context(), goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs(), ContextTimeoutEnabled: true,
						ReadTimeout: 10 * time.Millisecond, MinRetryBackoff: time.Millisecond}), o)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			const callers = 8
			call := func(want Reason) {
				t.Helper()
				crowd(t, callers, func(int) error {
					v, _, err := s.Admit(t.Context(), []store.Check{c}, nil)
					if want == "" && (err != nil || !v.Admitted()) {
						return fmt.Errorf("%+v, %w", v, err)
					}
					if want != "" && (reasonOf(err) != want || !errors.Is(err, context.DeadlineExceeded)) {
						return fmt.Errorf("%v, want reason %q", err, want)
					}
					return nil
				})
			}
			eventually(t, "warm connections", func() bool {
				_, _, err := s.Admit(t.Context(), []store.Check{c}, nil)
				return err == nil
			})
			s.opts.CommandTimeout = 20 * time.Second
			call("")
			s.opts.CommandTimeout = o.CommandTimeout
			before := scriptCalls(t, server)
			server.Pause()
			call(ReasonTimeout)
			server.Resume()
			pings := int64(0)
			eventually(t, "recovery", func() bool {
				s.opts.CommandTimeout = 20 * time.Second
				pings++
				return s.Ping(context.Background()) == nil
			})
			if got := scriptCalls(t, server) - before; got > callers+pings {
				t.Errorf("%d calls timed out, and %d pings: the server has run %d", callers, pings, got)
			}
		})
	}
}

// A server that accepts connections and says nothing, from the beginning.
func TestAServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, err = Open(t.Context(), Options{DSN: "redis://:secret@" + l.Addr().String(), ConnectTimeout: 300 * time.Millisecond})
	e := fails(t, err, ReasonTimeout)
	if !strings.Contains(e.Error(), "gave up after") {
		t.Errorf("error %v", e)
	}
}

// A connection that breaks in mid-answer is told from one that never was.
func TestAConnectionThatBreaks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	c := ask("breaks", "k", hourly, 100, 1)
	admitted(t, s, c)
	server.Pause()
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Admit(context.Background(), []store.Check{c}, nil)
		done <- err
	}()
	eventually(t, "a call under way", func() bool { return s.flying.Load() == 1 })
	time.Sleep(20 * time.Millisecond)
	server.Kill()
	if e := fails(t, <-done, ReasonConnection); !e.MayHaveRun {
		t.Error("the call is said not to have run")
	}
	_, _, err := s.Admit(t.Context(), []store.Check{c}, nil)
	if e := fails(t, err, ReasonUnreachable); e.MayHaveRun {
		t.Error("a call without a connection is said to have run")
	}
}

func TestACallerThatHasGone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := alone(t, server)
	c := ask("gone", "k", hourly, 100, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := s.Admit(ctx, []store.Check{c}, nil)
	if e := fails(t, err, ReasonCanceled); e.MayHaveRun || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, want a call that was never sent", e)
	}
	if left := admitted(t, s, costing(0, c))[0].Tokens; left != 100 {
		t.Errorf("%v left of 100: it was sent", left)
	}
}

// Redis words its errors in one of these ways; version 6 wraps those of a script.
func TestAnswersHaveTheirReasons(t *testing.T) {
	for text, want := range map[string]Reason{
		"NOSCRIPT No matching script. Please use EVAL.":                                                       ReasonNoScript,
		"READONLY You can't write against a read only replica.":                                               ReasonReadOnly,
		"READONLY You can't write against a read only replica. script: ab, on @user_script:9.":                ReasonReadOnly,
		"ERR Error running script (call to f_ab): @user_script:9: @user_script: 9: -READONLY You can't write": ReasonReadOnly,
		"OOM command not allowed when used memory > 'maxmemory'.":                                             ReasonMemory,
		"ERR Error running script (call to f_ab): @user_script:9: -OOM command not allowed when used memory":  ReasonMemory,
		"LOADING Redis is loading the dataset in memory":                                                      ReasonLoading,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                    ReasonLoading,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                    ReasonDenied,
		"ERR The user executing the script can't run this command or subcommand script: ab":                   ReasonDenied,
		"ERR The user executing the script can't access at least one of the keys":                             ReasonDenied,
		"NOAUTH Authentication required.":                                                                     ReasonAuth,
		"WRONGPASS invalid username-password pair or user is disabled.":                                       ReasonAuth,
		"ERR AUTH <password> called without any password configured for the default user.":                    ReasonAuth,
		"ERR invalid password":                              ReasonAuth,
		"MOVED 1234 127.0.0.1:7001":                         ReasonMoved,
		"ASK 1234 127.0.0.1:7001":                           ReasonMoved,
		"CLUSTERDOWN The cluster is down":                   ReasonCluster,
		"CLUSTERDOWN Hash slot not served":                  ReasonCluster,
		"TRYAGAIN Multiple keys request during rehashing":   ReasonCluster,
		"CROSSSLOT Keys in request don't hash to one slot":  ReasonCluster,
		"BUSY Redis is busy running a script.":              ReasonBusy,
		"ERR max number of clients reached":                 ReasonBusy,
		"MISCONF Redis is configured to save RDB snapshots": ReasonDisk,
		"NOREPLICAS Not enough good replicas to write.":     ReasonDisk,
		"ERR unknown command 'EVALSHA'":                     ReasonServer,
		"":                                                  ReasonServer,
	} {
		if got := classifyAnswer(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestOtherFaultsHaveTheirReasons(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	read := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	reset := &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
	for _, tt := range []struct {
		err  error
		want Reason
		ran  bool
	}{
		{goredis.ErrPoolTimeout, ReasonUnreachable, false},
		{dial, ReasonUnreachable, false},
		{fmt.Errorf("context deadline exceeded: %w", dial), ReasonUnreachable, false},
		{read, ReasonTimeout, true},
		{context.DeadlineExceeded, ReasonTimeout, true},
		{context.Canceled, ReasonCanceled, true},
		{reset, ReasonConnection, true},
		{io.EOF, ReasonConnection, true},
		{io.ErrUnexpectedEOF, ReasonConnection, true},
		{errors.New("redis: all sentinels specified in configuration are unreachable"), ReasonUnreachable, false},
		{badReply{errors.New("what")}, ReasonReply, true},
	} {
		if got, ran := classify(tt.err); got != tt.want || ran != tt.ran {
			t.Errorf("%v: %q, may have run %v; want %q, %v", tt.err, got, ran, tt.want, tt.ran)
		}
	}
}
