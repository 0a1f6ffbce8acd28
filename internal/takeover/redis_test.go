package takeover_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/redistest"
	_ "github.com/weir-go/weir/store/redis"
)

const (
	password = "correct-horse" // of the ACL user weir
	budget   = 40              // of each address, for the hour
	patience = 20 * time.Second
	// hasty is the command timeout where a server hangs: all else is refused at once,
	// and only there has a test to wait for it.
	hasty = time.Second
)

// limited is a handler behind a Limiter that counts in Redis.
type limited struct {
	t        *testing.T
	h        http.Handler
	limiter  *weir.Limiter
	reg      *prometheus.Registry
	log      *lines
	admitted map[string]int // by address
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

var namespaces atomic.Int64

// config counts in the server of the DSN, in a namespace of its own. A server that is
// slow on a busy machine is not taken to hang.
func config(dsn string) weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Namespace = fmt.Sprint("t", namespaces.Add(1))
	cfg.DefaultClass = "any"
	cfg.Tiers.Global = weir.TierConfig{Rate: 1e6, Burst: 1e6}
	cfg.Tiers.PerIP = weir.TierConfig{Rate: 1.0 / 3600, Burst: budget}
	cfg.Tiers.PerAccount = weir.TierConfig{}
	cfg.Store.Backend, cfg.Store.KeySecret, cfg.Store.Redis.DSN = "redis", "sixteen bytes or more", dsn
	cfg.Store.Redis.ConnectTimeout, cfg.Store.Redis.CommandTimeout = weir.Duration(patience), weir.Duration(patience)
	return cfg
}

func limit(t *testing.T, cfg weir.Config) *limited {
	t.Helper()
	l := &limited{t: t, reg: prometheus.NewRegistry(), log: new(lines), admitted: map[string]int{}}
	var err error
	l.limiter, err = weir.New(cfg, weir.WithRegisterer(l.reg), weir.WithLogger(slog.New(slog.NewTextHandler(l.log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.limiter.Close(); err != nil {
			t.Error(err)
		}
	})
	l.h = l.limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	return l
}

// send sends n requests of an address, none of which may fail.
func (l *limited) send(n int, addr string) {
	l.t.Helper()
	for range n {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = addr + ":1024"
		w := httptest.NewRecorder()
		l.h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			l.admitted[addr]++
		case http.StatusTooManyRequests:
		default:
			l.t.Fatalf("a request was answered %d: %s", w.Code, w.Body)
		}
	}
}

// metric sums a metric over its labels, or over those with a label of that value.
func (l *limited) metric(name string, value ...string) (sum float64) {
	families, err := l.reg.Gather()
	if err != nil {
		l.t.Error(err)
	}
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), name) {
			for _, m := range f.GetMetric() {
				counts := len(value) == 0
				for _, label := range m.GetLabel() {
					counts = counts || label.GetValue() == value[0]
				}
				if counts {
					sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// oneErrorAMinute finds a line at level error, and one for each further minute at
// most.
func (l *limited) oneErrorAMinute(begun time.Time) {
	l.t.Helper()
	if n, most := strings.Count(l.log.String(), "level=ERROR"), 1+int(time.Since(begun)/time.Minute); n < 1 || n > most {
		l.t.Errorf("%d lines at level error, want one a minute, so %d at most:\n%s", n, most, l.log)
	}
}

func (l *limited) degraded() bool { return l.metric("_store_degraded") == 1 }

// until sends requests of addresses that nobody else uses until try is true.
func (l *limited) until(what string, try func() bool) {
	l.t.Helper()
	for i, begun := 0, time.Now(); !try(); i++ {
		if time.Since(begun) > patience {
			l.t.Fatalf("%s: not within %v; errors: %v\n%s", what, patience, l.metric("_store_errors_total"), l.log)
		}
		l.send(1, fmt.Sprintf("203.0.113.%d", i%250))
		time.Sleep(5 * time.Millisecond)
	}
}

// A server and what may happen to it.
type fault struct {
	name        string
	timeout     time.Duration // of commands
	begin, heal func(s *redistest.Server)
}

var faults = []fault{
	{"is killed, and comes back empty", patience, (*redistest.Server).Kill, (*redistest.Server).Restart},
	{"hangs", hasty, (*redistest.Server).Pause, (*redistest.Server).Resume},
	{"does not answer for a while", hasty, func(s *redistest.Server) { s.Do("CLIENT", "PAUSE", 3600_000, "WRITE") }, func(s *redistest.Server) { s.Do("CLIENT", "UNPAUSE") }},
	{"becomes a replica of nobody", patience, func(s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", 1) }, func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") }},
	{"is out of memory", patience, func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", 1) }, func(s *redistest.Server) { s.Do("CONFIG", "SET", "maxmemory", 0) }},
	{"has another password", patience, func(s *redistest.Server) {
		s.Do("ACL", "SETUSER", "weir", "resetpass", ">another")
		s.Do("CLIENT", "KILL", "USER", "weir")
	}, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", ">"+password) }},
	{"withdraws a right", patience, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "-evalsha") }, func(s *redistest.Server) { s.Do("ACL", "SETUSER", "weir", "+evalsha") }},
}

func TestNoRequestFailsWhenTheServer(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			user := func() { server.Do("ACL", "SETUSER", "weir", "on", ">"+password, "~*", "&*", "+@all") }
			user()
			heal := func() { f.heal(server) }
			if strings.Contains(f.name, "empty") {
				heal = func() { f.heal(server); user() }
			}
			cfg := config("redis://weir:" + password + "@" + server.Addr)
			cfg.Store.Redis.CommandTimeout = weir.Duration(f.timeout)
			survive(t, cfg, func() { f.begin(server) }, heal)
		})
	}
	t.Run("fails over", func(t *testing.T) {
		t.Parallel()
		r := redistest.StartReplicated(t)
		dsn := "redis://" + r.Sentinels[0].Addr + "?master_name=" + redistest.MasterName
		for _, a := range r.Addrs()[1:] {
			dsn += "&addr=" + a
		}
		survive(t, config(dsn), r.Master.Kill, func() {})
	})
	t.Run("is the lost node of a Cluster", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t)
		cfg := config("redis://" + c.Addrs()[0] + "?cluster=true&addr=" + c.Addrs()[1] + "&addr=" + c.Addrs()[2])
		node := c.Of("{" + cfg.Namespace + "}")
		survive(t, cfg, node.Kill, node.Restart)
	})
}

// survive uses up budgets before, in and after an outage. What it claims holds too
// if the server is taken to hang by itself: it may, where the command timeout is short
// and the machine busy.
func survive(t *testing.T, cfg weir.Config, begin, heal func()) {
	const before, meanwhile, always = "192.0.2.1", "192.0.2.2", "192.0.2.3"
	begun := time.Now()
	l := limit(t, cfg)
	l.send(budget+5, before)
	l.send(10, meanwhile)
	l.send(10, always)
	if n := l.metric("_store_errors_total"); n != 0 && time.Duration(cfg.Store.Redis.CommandTimeout) >= patience {
		t.Fatalf("%v errors before the fault:\n%s", n, l.log)
	}
	begin()
	l.until("the outage is noticed", l.degraded)
	l.send(10, before)
	l.send(budget, meanwhile)
	l.send(10, always)
	heal()
	l.until("the store is back", func() bool { return !l.degraded() })
	l.send(10, before)
	l.send(10, meanwhile)
	l.send(budget, always)
	for addr, got := range l.admitted {
		if !strings.HasPrefix(addr, "192.0.2.") {
			continue
		}
		if got > budget {
			t.Errorf("%s: %d admitted, want %d at most", addr, got, budget)
		}
		// A call whose answer was lost may have spent one in vain, and one of the
		// return all that is owed.
		lost := l.metric("_store_errors_total", "admit") + budget*l.metric("_store_errors_total", "owed")
		if float64(got) < budget-lost {
			t.Errorf("%s: %d admitted, want %d", addr, got, budget)
		}
	}
	l.oneErrorAMinute(begun)
	if strings.Contains(l.log.String(), password) {
		t.Errorf("the log has the password:\n%s", l.log)
	}
}

func TestScriptsThatWereFlushedAreNoFault(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := limit(t, config("redis://"+server.Addr))
	for range 2 * budget {
		server.Do("SCRIPT", "FLUSH")
		l.send(1, "192.0.2.1")
	}
	if got := l.admitted["192.0.2.1"]; got != budget {
		t.Errorf("%d admitted, want %d", got, budget)
	}
	if n := l.metric("_store_errors_total"); n != 0 {
		t.Errorf("%v errors:\n%s", n, l.log)
	}
}

func TestRequestsPassUncountedWhereTheConfigSaysSo(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	cfg.Store.OnError = "allow"
	l := limit(t, cfg)
	server.Kill()
	l.send(3*budget, "192.0.2.1")
	if got := l.admitted["192.0.2.1"]; got != 3*budget {
		t.Errorf("%d of %d passed", got, 3*budget)
	}
	if got := l.metric("_store_errors_total"); got < 3*budget {
		t.Errorf("%v were counted as not decided, want %d", got, 3*budget)
	}
	server.Restart()
	l.until("the store is back", func() bool { return !l.degraded() })
	l.admitted["192.0.2.1"] = 0
	l.send(2*budget, "192.0.2.1")
	if got := l.admitted["192.0.2.1"]; got != budget {
		t.Errorf("%d admitted, want %d", got, budget)
	}
}

func TestReplicasShareABudget(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cfg := config("redis://" + server.Addr)
	total := 0
	for range 3 {
		l := limit(t, cfg)
		l.send(budget/2, "192.0.2.1")
		total += l.admitted["192.0.2.1"]
	}
	if total != budget {
		t.Errorf("%d admitted by three replicas, want %d", total, budget)
	}
}

func TestAFloodOfRefusedRequestsSparesTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := limit(t, config("redis://"+server.Addr))
	l.send(budget+1, "192.0.2.1")
	calls := func() int {
		var n int
		for line := range strings.Lines(fmt.Sprint(server.Do("INFO", "commandstats"))) {
			if _, rest, ok := strings.Cut(line, "cmdstat_evalsha:calls="); ok {
				_, _ = fmt.Sscanf(rest, "%d", &n)
			}
		}
		return n
	}
	before := calls()
	const n = 20_000
	l.send(n, "192.0.2.1")
	if got := calls() - before; got > n/100 {
		t.Errorf("%d of %d reached the server, want 1 %% at most", got, n)
	}
	if l.admitted["192.0.2.1"] != budget {
		t.Errorf("%d admitted, want %d", l.admitted["192.0.2.1"], budget)
	}
}

func TestAServerThatIsNotThereIsNoStart(t *testing.T) {
	t.Parallel()
	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := nowhere.Addr().String()
	if err := nowhere.Close(); err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "weir", "on", ">another", "~*", "&*", "+@all")
	for name, tt := range map[string]struct{ dsn, want string }{
		"nobody listens":     {"redis://weir:" + password + "@" + addr, "gave up after"},
		"another password":   {"redis://weir:" + password + "@" + server.Addr, "WRONGPASS"},
		"a DSN that is none": {"http://weir:" + password + "@" + server.Addr, "scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(tt.dsn)
			cfg.Store.Redis.ConnectTimeout = weir.Duration(300 * time.Millisecond)
			_, err := weir.New(cfg)
			if err == nil {
				t.Fatal("it started")
			}
			if text := err.Error(); !strings.HasPrefix(text, "weir: store.backend redis: ") || !strings.Contains(text, tt.want) || strings.Contains(text, password) {
				t.Errorf("error %q, want one that says %q and no password", text, tt.want)
			}
		})
	}
}

func TestNothingIsDialledThatIsNotChosen(t *testing.T) {
	t.Parallel()
	cfg := config("redis://127.0.0.1:1") // where nobody listens
	cfg.Enabled = false
	l, err := weir.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestALimiterThatIsClosedCountsByItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := limit(t, config("redis://"+server.Addr))
	l.send(10, "192.0.2.1")
	if err := l.limiter.Close(); err != nil {
		t.Fatal(err)
	}
	l.send(2*budget, "192.0.2.1")
	if got := l.admitted["192.0.2.1"]; got != budget {
		t.Errorf("%d admitted, want %d", got, budget)
	}
}

func TestAServerThatMayDropTheWrongKeysIsWarnedOf(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
	l := limit(t, config("redis://"+server.Addr))
	if n := strings.Count(l.log.String(), "maxmemory-policy"); n != 1 || !strings.Contains(l.log.String(), "level=WARN") {
		t.Errorf("%d lines, want one warning:\n%s", n, l.log)
	}
	if err := l.limiter.Reload(l.limiter.Config()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(l.log.String(), "maxmemory-policy"); n != 1 {
		t.Errorf("%d lines after a Reload, want none more:\n%s", n, l.log)
	}
}
