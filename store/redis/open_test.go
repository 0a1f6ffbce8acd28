package redis

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/internal/redistest"
)

// secret stands in every DSN of these tests, and in no error.
const secret = "pa%55word-that-nobody-may-see"

var secretForms = []string{"pa%55word-that-nobody-may-see", "paUword-that-nobody-may-see", "that-nobody-may-see"}

// tellsNoSecret claims that a text holds no form of the password.
func tellsNoSecret(t testing.TB, text string) {
	t.Helper()
	for _, form := range secretForms {
		if strings.Contains(text, form) {
			t.Errorf("a secret is told: %s", text)
		}
	}
}

// everything is all that a program may print of an error.
func everything(err error) string {
	var all strings.Builder
	for e := err; e != nil; e = errors.Unwrap(e) {
		fmt.Fprintf(&all, "%v %+v %q\n", e, e, e)
	}
	slog.New(slog.NewTextHandler(&all, nil)).Error("failed", "err", err)
	return all.String()
}

func TestDSNs(t *testing.T) {
	for _, tt := range []struct {
		dsn  string
		want target
	}{
		{"redis://host", target{network: "tcp", addrs: []string{"host:6379"}}},
		{"redis://host:7000/3", target{network: "tcp", addrs: []string{"host:7000"}, db: 3}},
		{"redis://:p@host", target{network: "tcp", addrs: []string{"host:6379"}, password: "p"}},
		{"redis://u:p%40%2F@[::1]:7000?db=2", target{network: "tcp", addrs: []string{"[::1]:7000"}, username: "u", password: "p@/", db: 2}},
		{"redis://[fd00::1]", target{network: "tcp", addrs: []string{"[fd00::1]:6379"}}},
		{"unix:///run/redis.sock", target{network: "unix", addrs: []string{"/run/redis.sock"}}},
		{"unix://u:p@/run/redis.sock?db=1", target{network: "unix", addrs: []string{"/run/redis.sock"}, username: "u", password: "p", db: 1}},
		{"redis://a:1?addr=b:2&addr=c&cluster=true", target{topology: cluster, network: "tcp", addrs: []string{"a:1", "b:2", "c:6379"}}},
		{"redis://a:1?cluster=false", target{network: "tcp", addrs: []string{"a:1"}}},
		{"redis://u:p@a:1/4?addr=b:2&master_name=m&sentinel_username=su&sentinel_password=sp", target{topology: sentinel, network: "tcp",
			addrs: []string{"a:1", "b:2"}, username: "u", password: "p", db: 4, masterName: "m", sentinelUsername: "su", sentinelPassword: "sp"}},
	} {
		got, err := parseDSN(tt.dsn, nil)
		if err != nil {
			t.Errorf("%s: %v", tt.dsn, err)
			continue
		}
		if g, w := fmt.Sprintf("%+v", *got), fmt.Sprintf("%+v", tt.want); g != w {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.dsn, g, w)
		}
	}
	for dsn, name := range map[string]string{"rediss://host": "", "rediss://host?tls_server_name=redis.example": "redis.example"} {
		if got, err := parseDSN(dsn, nil); err != nil || got.tls == nil || got.tls.ServerName != name || got.tls.InsecureSkipVerify {
			t.Errorf("%s: %+v, %v", dsn, got, err)
		}
	}
	given := &tls.Config{}
	if got, err := parseDSN("rediss://host?tls_server_name=x", given); err != nil || given.ServerName != "" || got.tls.ServerName != "x" {
		t.Errorf("the program's TLS configuration was changed, or not copied: %v", err)
	}
	if got, err := parseDSN("redis://host", given); err != nil || got.tls != given {
		t.Errorf("a TLS configuration beside redis://: %+v, %v", got, err)
	}
}

func TestDSNsThatAreNone(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dsn, says string }{
		{"", "empty"},
		{"redis://u:" + secret + "@ho st", "no URL"},
		{"redis://u:" + secret + "%zz@host", "no URL"},
		{"redis://u:" + secret + "/x@host", ""},
		{"redis://u:" + secret + "@host:port", ""},
		{secret, "scheme"},
		{"http://u:" + secret + "@host", "scheme"},
		{"redis:" + secret, "parts that mean nothing"},
		{"redis://u:" + secret + "@host#x", "parts that mean nothing"},
		{"redis://u:" + secret + "@", "no host"},
		{"redis://u:" + secret + "@:6379", "no host"},
		{"redis://u:" + secret + "@host:70000", "host:port"},
		{"redis://u:" + secret + "@host:0", "host:port"},
		{"redis://u:" + secret + "@host/one", "database"},
		{"redis://u:" + secret + "@host/-1", "database"},
		{"redis://u:" + secret + "@host?db=1&db=2", "more than once"},
		{"redis://u:" + secret + "@host?passwrod=" + secret, `"passwrod" is unknown`},
		{"redis://u:" + secret + "@host?cluster=" + secret, "neither true nor false"},
		{"redis://u:" + secret + "@host?cluster=true&master_name=m", "leave one out"},
		{"redis://u:" + secret + "@host/1?cluster=true", "only database 0"},
		{"redis://u:" + secret + "@host?addr=b:1", "several addresses"},
		{"redis://u:" + secret + "@host?sentinel_password=" + secret, "no master_name"},
		{"redis://u:" + secret + "@host?tls_ca=x", "rediss://"},
		{"rediss://u:" + secret + "@host?tls_ca=" + empty, "no certificate in"},
		{"rediss://u:" + secret + "@host?tls_ca=" + empty + "x", "tls_ca"},
		{"rediss://u:" + secret + "@host?tls_cert=" + empty, "one of tls_cert and tls_key"},
		{"rediss://u:" + secret + "@host?tls_cert=" + empty + "&tls_key=" + empty, "tls_cert and tls_key"},
		{"unix://u:" + secret + "@host/run/redis.sock", "no socket"},
		{"unix:///run/redis.sock?cluster=true", "socket"},
		{"redis://host?a=%zz", "cannot be read"},
	} {
		_, err := Open(t.Context(), Options{DSN: tt.dsn, ConnectTimeout: time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.HasPrefix(err.Error(), "store/redis: ") {
			t.Errorf("%s: error %v, want one that says %q", tt.dsn, err, tt.says)
			continue
		}
		tellsNoSecret(t, everything(err))
	}
}

// FuzzDSN: no DSN panics, and no error repeats a password.
func FuzzDSN(f *testing.F) {
	for _, s := range []string{"host", "host:1/2?cluster=true&addr=b", "[::1]?db=3", "host?master_name=x&sentinel_password=y", "ho st", "host:port", "%zz", "host?%zz"} {
		f.Add("redis://u:" + secret + "@" + s)
		f.Add("rediss://:" + secret + "@" + s)
		f.Add("unix://u:" + secret + "@/" + s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "tls_") {
			return // files
		}
		_, err := parseDSN(dsn, nil)
		if rest, ok := strings.CutPrefix(dsn, "redis://u:"+secret+"@"); err != nil && ok && !strings.Contains(rest, "nobody") {
			tellsNoSecret(t, everything(err))
		}
	})
}

func TestOptionsThatAreNone(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer func() { _ = client.Close() }()
	for _, tt := range []struct {
		name string
		o    Options
		says []string
	}{
		{"all wrong at once", Options{DSN: "redis://h", ConnectTimeout: -1, CommandTimeout: -1, PoolSize: -1, KeyPrefix: "{", Namespace: "}"},
			[]string{"connect timeout", "command timeout", "pool size", "key prefix"}},
		{"a timeout that is no time", Options{DSN: "redis://h", CommandTimeout: time.Microsecond}, []string{"1 ms or more"}},
		{"a namespace", Options{DSN: "redis://h", Namespace: "a b"}, []string{"letters, digits"}},
	} {
		_, err := Open(t.Context(), tt.o)
		_, err2 := New(t.Context(), client, tt.o)
		for _, says := range tt.says {
			if err == nil || err2 == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err2.Error(), says) {
				t.Errorf("%s: %v; %v; want what says %q", tt.name, err, err2, says)
			}
		}
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	server := redistest.Start(t)
	eventually(t, "quiet", func() bool { // other tests come to their end
		before := runtime.NumGoroutine()
		s, err := Open(t.Context(), Options{DSN: "redis://" + server.Addr, Coalesce: 1, CommandTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		crowd(t, 32, func(i int) error { return s.Ping(t.Context()) })
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if runtime.NumGoroutine() <= before {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	})
}

func TestOptionsTellNoSecret(t *testing.T) {
	o := Options{DSN: "redis://u:" + secret + "@host", TLS: &tls.Config{}}
	text, err := json.Marshal(map[string]any{"o": o})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("options", "o", o, "p", &o)
	for _, got := range []string{fmt.Sprint(o), fmt.Sprintf("%+v %#v %s %q", o, o, o, o), fmt.Sprintf("%+v %#v", &o, &o), string(text), log.String()} {
		tellsNoSecret(t, got)
	}
}

func TestClientsThatWillNotDo(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client goredis.UniversalClient
		o      Options
		says   string
	}{
		{"no client", nil, Options{}, "nil"},
		{"a client that keeps no deadline", goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"}), Options{}, "ContextTimeoutEnabled"},
		{"a Cluster client that keeps no deadline", goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), Options{}, "ContextTimeoutEnabled"},
		{"a ring", goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, ContextTimeoutEnabled: true}), Options{}, "Ring"},
		{"a client and a DSN", goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true}), Options{DSN: "redis://h"}, "DSN"},
		{"a client of a server that is not there", goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: 1}),
			Options{ConnectTimeout: 50 * time.Millisecond}, "gave up after"},
	} {
		_, err := New(t.Context(), tt.client, tt.o)
		if err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want what says %q", tt.name, err, tt.says)
		}
		if tt.client != nil {
			_ = tt.client.Close()
		}
	}
}

// What keeps a store from opening is told, without the password, and with what
// is wrong in the end.
func TestOpenTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	plain, encrypted := redistest.Start(t), redistest.StartTLS(t)
	grant(t, plain.Client(), "right")
	cluster := redistest.StartCluster(t)
	node := cluster.Nodes[0]
	if cluster.Of("{elsewhere}") == node {
		node = cluster.Nodes[1]
	}
	ca := "?tls_ca=" + encrypted.Certs.CA
	closed := "127.0.0.1:1"
	for _, tt := range []struct {
		name, dsn string
		want      Reason
		says      string
	}{
		{"nobody there", "redis://u:" + secret + "@" + closed, ReasonUnreachable, "connection refused"},
		{"no such host", "redis://u:" + secret + "@no.such.host.invalid", ReasonUnreachable, ""},
		{"a wrong password", "redis://weir:" + secret + "@" + plain.Addr, ReasonAuth, "WRONGPASS"},
		{"no such user", "redis://u:" + secret + "@" + plain.Addr, ReasonAuth, "WRONGPASS"},
		{"no such database", "redis://" + plain.Addr + "/99", ReasonServer, "out of range"},
		{"a stranger's certificate", "rediss://u:" + secret + "@" + encrypted.Addr, ReasonTLS, "certificate"},
		{"another's certificate", "rediss://u:" + secret + "@" + encrypted.Addr + ca + "&tls_server_name=redis.example", ReasonTLS, "redis.example"},
		{"no Sentinel", "redis://u:" + secret + "@" + closed + "?master_name=m&sentinel_password=" + secret, ReasonUnreachable, "sentinel"},
		{"no Cluster", "redis://u:" + secret + "@" + closed + "?cluster=true", ReasonUnreachable, ""},
		{"a Cluster that is not said to be one", "redis://" + node.Addr, ReasonMoved, "MOVED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			connect := inVain
			if (&Error{Reason: tt.want}).Permanent() {
				connect = 20 * time.Second // told at once, however busy the machine
			}
			_, err := Open(t.Context(), Options{DSN: tt.dsn, ConnectTimeout: connect, CommandTimeout: 20 * time.Second, Namespace: "elsewhere"})
			e := fails(t, err, tt.want)
			if !strings.Contains(e.Error(), tt.says) || e.Op != "open" {
				t.Errorf("%v, want what says %q", e, tt.says)
			}
			tellsNoSecret(t, everything(err))
		})
	}
}

func TestTLSAndPlainDoNotMeet(t *testing.T) {
	t.Parallel()
	plain, encrypted := redistest.Start(t), redistest.StartTLS(t)
	for _, dsn := range []string{"rediss://u:" + secret + "@" + plain.Addr, "redis://u:" + secret + "@" + encrypted.Addr} {
		_, err := Open(t.Context(), Options{DSN: dsn, ConnectTimeout: 300 * time.Millisecond})
		if err == nil {
			t.Errorf("%s opens", dsn)
			continue
		}
		tellsNoSecret(t, everything(err))
	}
}

// A server that comes up while Open waits is found.
func TestOpenWaitsForTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	opened := make(chan error, 1)
	go func() {
		s, err := Open(context.Background(), Options{DSN: "redis://" + server.Addr, ConnectTimeout: time.Minute})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	time.Sleep(50 * time.Millisecond)
	server.Restart()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// A server that repeats what it was sent does not make us tell it.
func TestAServerThatRepeatsThePassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				b := make([]byte, 4096)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					_, _ = fmt.Fprintf(c, "-ERR unknown command `AUTH`, with args beginning with: `u`, `paUword-that-nobody-may-see`\r\n")
				}
			}()
		}
	}()
	_, err = Open(t.Context(), Options{DSN: "redis://u:" + secret + "@" + l.Addr().String(), ConnectTimeout: inVain, CommandTimeout: 20 * time.Second})
	if err == nil {
		t.Fatal("opened")
	}
	tellsNoSecret(t, everything(err))
	if !strings.Contains(err.Error(), "***") {
		t.Errorf("%v: want the answer with the password masked", err)
	}
}

func TestUnixSockets(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "s")
	redistest.Start(t, "unixsocket "+socket)
	admitted(t, open(t, unhurried("unix://"+socket+"?db=1")), ask("unix", "k", 1, 1, 1))
}

// Each right of the documented rule is needed: without it, the store does not
// open, forget a script or give back.
func TestTheLeastRightsAreTheLeast(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, right := range strings.Fields(aclRule) {
		if right[0] != '+' {
			continue
		}
		server.Do("SCRIPT", "FLUSH")
		grant(t, server.Client(), "secret", "-"+right[1:])
		_, err := Open(t.Context(), Options{DSN: "redis://weir:secret@" + server.Addr, Namespace: fresh()})
		if e := fails(t, err, ReasonDenied); !e.Permanent() {
			t.Errorf("without %s: %v, want a permanent error", right, err)
		}
	}
	grant(t, server.Client(), "secret")
	o := unhurried("redis://weir:secret@" + server.Addr)
	open(t, o)
	o.KeyPrefix = "other:"
	_, err := Open(t.Context(), o)
	fails(t, err, ReasonDenied)
}
