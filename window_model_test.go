package weir

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// plainChain is the chain again: tiers, windows, lists, shadow and headers, in the
// plainest words. It keeps whole numbers of quarter seconds, rates that are
// powers of two, and so every token exact: what the chain says must be equal,
// not near.
type plainChain struct {
	cfg     Config
	now     time.Time
	buckets map[string]*plainBucket
	windows map[string]*plainWindow
	counts  map[string]int // "admitted api", "throttled api per_ip", …
	arrived int            // in all
}

type plainBucket struct {
	tokens float64
	last   time.Time // what was spent last; a refusal leaves it
}

type plainWindow struct {
	n    int
	last time.Time // what was counted last
}

// asked is one request.
type asked struct {
	path, addr       string
	vouched, claimed string
}

func (a asked) String() string {
	return fmt.Sprintf("%s from %s, vouched %q, claimed %q", a.path, a.addr, a.vouched, a.claimed)
}

// answer is what the chain is to say.
type answer struct {
	status     int
	retryAfter int64
	told       told
}

// plainLimit is one limit as one request meets it.
type plainLimit struct {
	name          string
	window        bool
	limit, rate   float64
	cost          float64
	left          float64 // as told: after what is spent
	wait          time.Duration
	spend         func()
	shadow        bool
	reset, length time.Duration
}

// class is that of a path, "" for none.
func (a asked) class() string {
	switch a.path {
	case "/api", "/api/free", "/dear", "/est", "/ocsp", "/crl":
		return strings.TrimSuffix(a.path[1:], "/free")
	}
	return ""
}

// end is when the window of now ends.
func (m *plainChain) end() time.Duration {
	length := time.Duration(m.cfg.Windows.Window)
	return length - time.Duration(m.now.UnixNano()%int64(length))
}

func (m *plainChain) used(w *plainWindow) int {
	length := int64(m.cfg.Windows.Window)
	if w.last.IsZero() || w.last.UnixNano()/length != m.now.UnixNano()/length {
		return 0
	}
	return w.n
}

// inWindow is a window as a request meets it.
func (m *plainChain) inWindow(name, key string, limit int) plainLimit {
	w := m.windows[name+" "+key]
	if w == nil {
		w = &plainWindow{}
		m.windows[name+" "+key] = w
	}
	c := plainLimit{
		name: name, window: true, limit: float64(limit), cost: 1, reset: m.end(), length: time.Duration(m.cfg.Windows.Window),
		left: float64(max(0, limit-m.used(w))), shadow: slices.Contains(m.cfg.Shadow, name),
		spend: func() { w.n, w.last = m.used(w)+1, m.now },
	}
	if m.used(w)+1 > limit {
		c.wait = m.end()
	}
	return c
}

// inBucket is a bucket as a request meets it.
func (m *plainChain) inBucket(name, key string, tier TierConfig, cost float64) plainLimit {
	b := m.buckets[name+" "+key]
	if b == nil {
		b = &plainBucket{tier.Burst, m.now}
		m.buckets[name+" "+key] = b
	}
	tokens := min(tier.Burst, b.tokens+m.now.Sub(b.last).Seconds()*tier.Rate)
	c := plainLimit{
		name: name, limit: tier.Burst, rate: tier.Rate, cost: cost, left: tokens, shadow: slices.Contains(m.cfg.Shadow, name),
		spend: func() { b.tokens, b.last = tokens-cost, m.now },
	}
	if tokens < cost {
		c.wait = seconds((cost - tokens) / tier.Rate)
	}
	return c
}

// arrive counts an arrival, if arrivals are counted.
func (m *plainChain) arrive() {
	if m.cfg.Windows.Process > 0 {
		m.inWindow(WindowProcess, "", m.cfg.Windows.Process).spend()
		m.arrived++
	}
}

// ask decides.
func (m *plainChain) ask(a asked) answer {
	class, account, w := a.class(), a.vouched, &m.cfg.Windows
	if account == "" && class == "est" {
		account = a.claimed
	}
	counted := class
	if class == "" {
		counted = string(classOther)
	}
	switch {
	case slices.Contains(m.cfg.Deny.Networks, a.addr), slices.Contains(m.cfg.Deny.Accounts, account):
		m.arrive()
		m.counts["denied "+counted]++
		return answer{403, 3600, silence}
	case class == "" && w.Process == 0: // nothing is asked
		return answer{200, 0, silence}
	case slices.Contains(m.cfg.Exempt.Networks, a.addr), slices.Contains(m.cfg.Exempt.Classes, Class(class)), slices.Contains(m.cfg.Exempt.Accounts, a.vouched):
		m.arrive()
		m.counts["exempt "+counted]++
		return answer{200, 0, silence}
	}
	var checks []plainLimit
	if w.Process > 0 {
		checks = append(checks, m.inWindow(WindowProcess, "", w.Process))
	}
	if class != "" {
		cost := 1.0
		if class == "dear" {
			cost = 2
		}
		checks = append(checks, m.inBucket(TierGlobal, "", m.cfg.Tiers.Global, cost), m.inBucket(TierPerIP, a.addr, m.cfg.Tiers.PerIP, cost))
		switch {
		case a.path == "/api/free":
		case a.vouched == "":
			checks = append(checks, m.inWindow(WindowAddress, a.addr, w.PerAddress))
		case w.PerSubject > 0:
			checks = append(checks, m.inWindow(WindowSubject, a.vouched, w.PerSubject))
		}
		if account != "" && !slices.Contains(m.cfg.Exempt.Accounts, account) {
			checks = append(checks, m.inBucket(TierPerAccount, account, m.cfg.Tiers.PerAccount, cost))
		}
	}
	refusing := -1
	for i, c := range checks {
		if c.wait > 0 && c.shadow {
			m.counts["shadowed "+counted+" "+c.name]++
		}
		if c.wait > 0 && !c.shadow && (refusing < 0 || c.wait > checks[refusing].wait) {
			refusing = i
		}
	}
	for i := range checks {
		c := &checks[i]
		arrives := c.name == WindowProcess
		if arrives {
			m.arrived++
		}
		if arrives || refusing < 0 && c.wait == 0 {
			c.spend()
			c.left = max(0, c.left-c.cost)
		}
	}
	if refusing >= 0 {
		m.counts["throttled "+counted+" "+checks[refusing].name]++
		wait := ceilSeconds(checks[refusing].wait)
		return answer{429, wait, m.tell(checks, refusing, wait)}
	}
	m.counts["admitted "+counted]++
	tightest := -1
	for i, c := range checks {
		if !c.shadow && (tightest < 0 || c.left/c.cost < checks[tightest].left/checks[tightest].cost) {
			tightest = i
		}
	}
	if tightest < 0 || class == "ocsp" {
		return answer{200, 0, silence}
	}
	return answer{200, 0, m.tell(checks, tightest, 0)}
}

func ceilSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// tell is what the header says of check at.
func (m *plainChain) tell(checks []plainLimit, at int, retryAfter int64) told {
	switch h := m.cfg.Headers.RateLimit; {
	case h == "off", h == "rejected" && retryAfter == 0:
		return silence
	}
	c := checks[at]
	full, t := c.reset, ceilSeconds(c.reset)
	if !c.window {
		full = seconds((c.limit - c.left) / c.rate)
		t = max(1, ceilSeconds(seconds(max(math.Floor(c.left), 1-c.left)/c.rate)))
	}
	if retryAfter > 0 {
		t = min(t, retryAfter)
	}
	end := m.now.Add(full)
	reset := end.Unix()
	if end.Nanosecond() > 0 {
		reset++
	}
	says := told{int64(c.limit), int64(c.left), max(reset, m.now.Unix()+1), "", ""}
	if m.cfg.Headers.IETF {
		says.service = fmt.Sprintf(`"%s";r=%d;t=%d`, c.name, int64(c.left), t)
		var policies []string
		for _, c := range checks {
			if c.shadow {
				continue
			}
			length := ceilSeconds(c.length)
			if !c.window {
				length = ceilSeconds(seconds(c.limit / c.rate))
			}
			policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%d`, c.name, int64(c.limit), length))
		}
		says.policies = strings.Join(policies, ", ")
	}
	return says
}

// modelConfig is a Config in which every limit is met now and then.
func modelConfig() Config {
	cfg := DefaultConfig()
	cfg.Tiers.Global = TierConfig{Rate: 4, Burst: 8}
	cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 8}
	cfg.Tiers.PerAccount = TierConfig{Rate: 0.5, Burst: 4}
	cfg.Windows = WindowsConfig{Enabled: true, Window: Duration(10 * time.Second), PerSubject: 6, PerAddress: 12, Process: 120, Exclude: []string{"GET /api/free"}}
	cfg.Headers = HeadersConfig{RateLimit: "always", IETF: true}
	cfg.Exempt = ExemptConfig{Networks: []string{"192.0.2.8"}, Accounts: []string{"monitor"}, Classes: []Class{"crl"}}
	cfg.Deny = DenyConfig{Networks: []string{"192.0.2.9"}, Accounts: []string{"thief"}}
	cfg.Endpoints = []Endpoint{
		{Class: "api", Pattern: "/api"}, {Class: "api", Pattern: "/api/free"}, {Class: "dear", Pattern: "/dear", Cost: 2},
		{Class: "est", Pattern: "/est", Kind: KindEST}, {Class: "ocsp", Pattern: "/ocsp", Kind: KindOCSP}, {Class: "crl", Pattern: "/crl", Kind: KindCRL},
	}
	return cfg
}

// reconfigure changes what may change within a window.
func reconfigure(rng *rand.Rand, cfg *Config) {
	w := &cfg.Windows
	w.Window = Duration([]time.Duration{5, 10, 20}[rng.IntN(3)] * time.Second)
	w.PerAddress, w.PerSubject = 5+rng.IntN(10), []int{0, 3, 6, 9}[rng.IntN(4)]
	w.Process = []int{0, 60, 120, 180}[rng.IntN(4)]
	cfg.Headers = HeadersConfig{RateLimit: []string{"off", "rejected", "always", "always"}[rng.IntN(4)], IETF: rng.IntN(3) > 0}
	cfg.Shadow = nil
	for _, name := range []string{TierGlobal, TierPerIP, TierPerAccount, WindowSubject, WindowAddress, WindowProcess} {
		if rng.IntN(3) == 0 {
			cfg.Shadow = append(cfg.Shadow, name)
		}
	}
}

// Ten thousand random requests, with time passing, reloads, and the chain
// mounted in several ways: chain and model agree on each decision and header,
// and on every count.
func TestTheChainAgreesWithAPlainModel(t *testing.T) {
	const requests = 10_000
	pick := func(rng *rand.Rand, words ...string) string { return words[rng.IntN(len(words))] }
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 12))
				cfg := modelConfig()
				m := &plainChain{cfg: cfg, buckets: map[string]*plainBucket{}, windows: map[string]*plainWindow{}, counts: map[string]int{}}
				reg := prometheus.NewRegistry()
				l := newLimiter(t, cfg, WithAccount(byHeader("Account")), WithRegisterer(reg))
				mounts := []http.Handler{l.Handler(served), l.Handler(l.Handler(served)), l.ClientIP(l.Handler(served))}
				ends := map[string]int{}
				for i := range requests {
					switch rng.IntN(10) {
					case 0, 1:
						time.Sleep(time.Duration(rng.IntN(4)) * 250 * time.Millisecond)
					case 2:
						if rng.IntN(60) == 0 {
							time.Sleep(time.Duration(rng.IntN(400)) * 250 * time.Millisecond)
						}
					case 3:
						if rng.IntN(10) == 0 {
							reconfigure(rng, &cfg)
							if cfg.Windows.PerSubject == 0 { // a window that is gone is forgotten
								maps.DeleteFunc(m.windows, func(key string, _ *plainWindow) bool { return strings.HasPrefix(key, WindowSubject) })
							}
							m.cfg = cfg
							if err := l.Reload(cfg); err != nil {
								t.Fatal(err)
							}
						}
					}
					a := asked{
						path:    pick(rng, "/api", "/api", "/api", "/api", "/api/free", "/dear", "/dear", "/est", "/est", "/est", "/ocsp", "/crl", "/none"),
						addr:    pick(rng, alice, alice, alice, bob, bob, carol, "192.0.2.4", "192.0.2.5", "192.0.2.6", "192.0.2.7", "192.0.2.8", "192.0.2.9"),
						vouched: pick(rng, "", "", "", "", "", "", "a1", "a1", "a1", "a2", "a3", "monitor", "thief"),
						claimed: pick(rng, "", "a1", "a2", "a3", "monitor", "thief"),
					}
					m.now = time.Now()
					want := m.ask(a)
					w := send(mounts[rng.IntN(len(mounts))], a.request())
					got := answer{status: w.Code, told: tellsOf(t, w.Header())}
					if w.Code != http.StatusOK {
						got.retryAfter = retryAfter(t, w)
					}
					if got != want {
						t.Fatalf("request %d, %v, %v into its window, shadow %v: answered\n%+v, want\n%+v", i, a,
							time.Duration(m.cfg.Windows.Window)-m.end(), cfg.Shadow, got, want)
					}
					ends[strconv.Itoa(want.status)]++
					if i%500 == 499 {
						m.agreesOnCounts(t, l, reg)
					}
				}
				m.agreesOnCounts(t, l, reg)
				for _, tier := range []string{TierGlobal, TierPerIP, TierPerAccount, WindowSubject, WindowAddress, WindowProcess} {
					if m.counts["throttled api "+tier] == 0 || m.counts["shadowed api "+tier] == 0 {
						t.Errorf("%s refused %d and would have refused %d: this run shows nothing of it", tier,
							m.counts["throttled api "+tier], m.counts["shadowed api "+tier])
					}
				}
				if ends["200"] < requests/4 || ends["429"] < requests/4 {
					t.Errorf("the answers were %v: too few of one kind to show much", ends)
				}
			})
		})
	}
}

// request is the request as a client sends it.
func (a asked) request() *http.Request {
	r := request("GET", a.path, a.addr, "")
	if a.vouched != "" {
		r.Header.Set("Account", a.vouched)
	}
	if a.claimed != "" {
		r.SetBasicAuth(a.claimed, "guess")
	}
	return r
}

// agreesOnCounts claims that the metrics and the windows say what the model
// has counted.
func (m *plainChain) agreesOnCounts(t *testing.T, l *Limiter, reg prometheus.Gatherer) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		name, isOurs := strings.CutPrefix(f.GetName(), "weir_ratelimit_")
		kind, isTotal := strings.CutSuffix(name, "_total")
		if !isOurs || !isTotal || kind == "evicted" {
			continue
		}
		for _, s := range f.GetMetric() {
			name := kind
			for _, label := range s.GetLabel() {
				name += " " + label.GetValue()
			}
			if n := int(s.GetCounter().GetValue()); n > 0 {
				got[name] = n
			}
		}
	}
	if !maps.Equal(got, m.counts) {
		for _, name := range slices.Sorted(maps.Keys(m.counts)) {
			if got[name] != m.counts[name] {
				t.Errorf("%s is counted %d times, want %d", name, got[name], m.counts[name])
			}
		}
		for name, n := range got {
			if m.counts[name] == 0 {
				t.Errorf("%s is counted %d times, want never", name, n)
			}
		}
		t.FailNow()
	}
	for key, w := range m.windows {
		name, id, _ := strings.Cut(key, " ")
		if n := counted(t, l, name, id); n != m.used(w) {
			t.Fatalf("the window of %s has %d, want %d", key, n, m.used(w))
		}
	}
}
