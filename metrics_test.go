package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// scrape returns what a Prometheus server would read. It fails where a registry
// finds anything inconsistent.
func scrape(t testing.TB, reg prometheus.Gatherer) string {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).
		ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("the scrape fails: %s", w.Body)
	}
	return w.Body.String()
}

// samples returns the lines of a scrape that carry a value.
func samples(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// nonZero returns the samples that are not zero.
func nonZero(text string) []string {
	return slices.DeleteFunc(samples(text), func(line string) bool { return strings.HasSuffix(line, " 0") })
}

// sampleNames returns the samples without their values.
func sampleNames(text string) (names []string) {
	for _, line := range samples(text) {
		names = append(names, line[:strings.LastIndexByte(line, ' ')])
	}
	return names
}

// ofRequests returns the samples about addresses, tiers and guards, which are
// what every request meets.
func ofRequests(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		return !strings.HasPrefix(line, "weir_clientip_") && !strings.HasPrefix(line, "weir_ratelimit_") && !strings.HasPrefix(line, "weir_hsm_guard_")
	})
}

// reads claims what a list of lines is.
func reads(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// metered is a Config with a series of every kind: two classes, one of them
// with buckets of its own, every sort of tier, one in shadow, and a guard.
func metered() Config {
	cfg := noTiers()
	cfg.DefaultClass = ""
	cfg.Tiers.Global = perHour(1000)
	cfg.Tiers.PerIP = perHour(3)
	cfg.Tiers.PerAccount = perHour(2)
	cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 1.0 / 3600, Burst: 1}}
	cfg.Tiers.MaxKeys = 5000
	cfg.Shadow = []string{"fleet"}
	cfg.Guards = map[string]GuardConfig{"hsm": {MaxInFlight: 1}}
	cfg.Deny.Networks = []string{"198.51.100.0/24"}
	cfg.Exempt.Networks = []string{"203.0.113.0/24"}
	return cfg.with(
		Endpoint{Class: "sign", Guard: "hsm", Mode: ModeFail},
		Endpoint{Class: "ocsp", Limits: map[string]Limit{TierPerIP: {1.0 / 3600, 5}, TierPerAccount: {}, "fleet": {}}},
	)
}

var meteredOptions = []Option{WithAccount(byHeader("Account")), WithKey("fleet", byHeader("Fleet"))}

// meteredLimiter registers a metered Config.
func meteredLimiter(t testing.TB, reg prometheus.Registerer, change func(*Config)) *Limiter {
	t.Helper()
	cfg := metered()
	if change != nil {
		change(&cfg)
	}
	return newLimiter(t, cfg, append([]Option{WithRegisterer(reg)}, meteredOptions...)...)
}

func TestEverySeriesIsThereFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	meteredLimiter(t, reg, nil)
	all := samples(scrape(t, reg))
	reads(t, ofRequests(all),
		`weir_clientip_doubtful_total{reason="all_trusted"} 0`,
		`weir_clientip_doubtful_total{reason="conflict"} 0`,
		`weir_clientip_doubtful_total{reason="malformed"} 0`,
		`weir_clientip_doubtful_total{reason="no_header"} 0`,
		`weir_clientip_doubtful_total{reason="no_peer"} 0`,
		`weir_clientip_doubtful_total{reason="too_long"} 0`,
		`weir_clientip_doubtful_total{reason="withheld"} 0`,
		`weir_hsm_guard_in_flight{guard="hsm"} 0`,
		`weir_hsm_guard_queue_depth{guard="hsm"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="backend_share"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="canceled"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="deadline"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="queue_full"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="timeout"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="ocsp",reason="backend_share"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="ocsp",reason="canceled"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="ocsp",reason="deadline"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="ocsp",reason="queue_full"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="ocsp",reason="timeout"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="backend_share"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="canceled"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="deadline"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="queue_full"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="timeout"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="unclassified",reason="backend_share"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="unclassified",reason="canceled"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="unclassified",reason="deadline"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="unclassified",reason="queue_full"} 0`,
		`weir_hsm_guard_rejected_total{endpoint="unclassified",reason="timeout"} 0`,
		`weir_ratelimit_admitted_total{endpoint="direct"} 0`,
		`weir_ratelimit_admitted_total{endpoint="ocsp"} 0`,
		`weir_ratelimit_admitted_total{endpoint="sign"} 0`,
		`weir_ratelimit_admitted_total{endpoint="unclassified"} 0`,
		`weir_ratelimit_denied_total{endpoint="direct"} 0`,
		`weir_ratelimit_denied_total{endpoint="ocsp"} 0`,
		`weir_ratelimit_denied_total{endpoint="sign"} 0`,
		`weir_ratelimit_denied_total{endpoint="unclassified"} 0`,
		`weir_ratelimit_evicted_total{scope="fleet"} 0`,
		`weir_ratelimit_evicted_total{scope="per_account"} 0`,
		`weir_ratelimit_evicted_total{scope="per_ip"} 0`,
		`weir_ratelimit_evicted_total{scope="per_ip/ocsp"} 0`,
		`weir_ratelimit_exempt_total{endpoint="direct"} 0`,
		`weir_ratelimit_exempt_total{endpoint="ocsp"} 0`,
		`weir_ratelimit_exempt_total{endpoint="sign"} 0`,
		`weir_ratelimit_exempt_total{endpoint="unclassified"} 0`,
		`weir_ratelimit_held_total{endpoint="direct"} 0`,
		`weir_ratelimit_held_total{endpoint="ocsp"} 0`,
		`weir_ratelimit_held_total{endpoint="sign"} 0`,
		`weir_ratelimit_held_total{endpoint="unclassified"} 0`,
		`weir_ratelimit_holding 0`,
		`weir_ratelimit_key_count{scope="fleet"} 0`,
		`weir_ratelimit_key_count{scope="per_account"} 0`,
		`weir_ratelimit_key_count{scope="per_ip"} 0`,
		`weir_ratelimit_key_count{scope="per_ip/ocsp"} 0`,
		`weir_ratelimit_max_keys{scope="fleet"} 5000`,
		`weir_ratelimit_max_keys{scope="per_account"} 5000`,
		`weir_ratelimit_max_keys{scope="per_ip"} 5000`,
		`weir_ratelimit_max_keys{scope="per_ip/ocsp"} 5000`,
		`weir_ratelimit_shadowed_total{endpoint="sign",tier="fleet"} 0`,
		`weir_ratelimit_throttled_total{endpoint="ocsp",tier="global"} 0`,
		`weir_ratelimit_throttled_total{endpoint="ocsp",tier="per_ip"} 0`,
		`weir_ratelimit_throttled_total{endpoint="sign",tier="global"} 0`,
		`weir_ratelimit_throttled_total{endpoint="sign",tier="per_account"} 0`,
		`weir_ratelimit_throttled_total{endpoint="sign",tier="per_ip"} 0`,
		`weir_ratelimit_unkeyed_total{tier="fleet"} 0`,
	)
	for _, line := range []string{
		`weir_callback_panics_total{callback="account"} 0`,
		`weir_callback_panics_total{callback="key"} 0`,
		`weir_callback_panics_total{callback="nonce"} 0`,
		`weir_store_errors_total{op="admit",reason="other"} 0`,
		`weir_store_errors_total{op="admit",reason="timeout"} 0`,
		`weir_store_errors_total{op="refund",reason="other"} 0`,
	} {
		if !slices.Contains(all, line) {
			t.Errorf("there is no %q in:\n%s", line, strings.Join(all, "\n"))
		}
	}
}

// The names that requirements M1 and M2 ask for, and their types.
func TestSeriesHaveTheTypesThatTheirNamesSay(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	meteredLimiter(t, reg, func(c *Config) { c.Namespace = "ca" })
	text := scrape(t, reg)
	for _, line := range []string{
		"ca_ratelimit_throttled_total counter", "ca_ratelimit_admitted_total counter",
		"ca_hsm_guard_rejected_total counter", "ca_hsm_guard_in_flight gauge", "ca_hsm_guard_queue_depth gauge",
		"ca_ratelimit_key_count gauge", "ca_ratelimit_max_keys gauge",
	} {
		if !strings.Contains(text, "# TYPE "+line+"\n") {
			t.Errorf("there is no %q in:\n%s", line, text)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool {
		return strings.HasSuffix(p.Metric, "_key_count") // M2 wants that name; the linter thinks of histograms
	})
	if err != nil || len(problems) > 0 {
		t.Errorf("the linter says %v, %v", problems, err)
	}
	for _, one := range series {
		// Absent while the auth lock is off, without a shared store, without a hook for renewals, and without lanes.
		optional := strings.HasPrefix(one.name, "auth_") || one.name == "store_degraded" || one.name == "ratelimit_renewals_total" || strings.HasPrefix(one.name, "hsm_guard_lane_")
		if !optional && !strings.Contains(text, "# HELP ca_"+one.name+" "+one.help+"\n") {
			t.Errorf("%s is not described", one.name)
		}
	}
}

// trafficOf sends a few requests of every fate.
func trafficOf(l *Limiter) {
	h := l.Handler(served)
	send(h, to("sign", alice))
	send(h, withHeader(to("sign", alice), "Fleet", "f1"))
	send(h, withHeader(to("sign", alice), "Fleet", "f1"))                            // in shadow: admitted
	send(h, to("sign", alice))                                                       // per_ip
	send(h, to("sign", alice))                                                       // per_ip
	send(h, withHeader(to("sign", bob), "Account", "a1"))                            //
	send(h, withHeader(to("sign", carol), "Account", "a1"))                          //
	send(h, withHeader(to("sign", "192.0.2.4"), "Account", "a1"))                    // per_account
	send(h, to("ocsp", alice))                                                       // has buckets of its own
	send(h, to("sign", "198.51.100.7"))                                              // denied
	send(h, to("ocsp", "203.0.113.7"))                                               // exempt
	send(h, to("none", alice))                                                       // no class
	release, _ := l.Guard("hsm").Acquire(context.Background())                       //
	send(h, to("sign", bob))                                                         // queue_full
	gone, cancel := context.WithCancel(context.Background())                         //
	cancel()                                                                         //
	_, _ = l.Guard("hsm").Acquire(gone)                                              // canceled
	send(h, withHeader(to("ocsp", alice), "X-Forwarded-For", "192.0.2.9, junk"))     // nobody is trusted
	send(h, withHeader(to("sign", "192.0.2.5").WithContext(gone), "Account", "a77")) // canceled
	release()
}

func TestSeriesCountWhatHappened(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	l := meteredLimiter(t, reg, nil)
	trafficOf(l)
	reads(t, ofRequests(nonZero(scrape(t, reg))),
		`weir_hsm_guard_rejected_total{endpoint="direct",reason="canceled"} 1`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="canceled"} 1`,
		`weir_hsm_guard_rejected_total{endpoint="sign",reason="queue_full"} 1`,
		`weir_ratelimit_admitted_total{endpoint="ocsp"} 2`,
		`weir_ratelimit_admitted_total{endpoint="sign"} 7`,
		`weir_ratelimit_denied_total{endpoint="sign"} 1`,
		`weir_ratelimit_exempt_total{endpoint="ocsp"} 1`,
		`weir_ratelimit_key_count{scope="fleet"} 1`,
		`weir_ratelimit_key_count{scope="per_account"} 2`,
		`weir_ratelimit_key_count{scope="per_ip"} 4`,
		`weir_ratelimit_key_count{scope="per_ip/ocsp"} 1`,
		`weir_ratelimit_max_keys{scope="fleet"} 5000`,
		`weir_ratelimit_max_keys{scope="per_account"} 5000`,
		`weir_ratelimit_max_keys{scope="per_ip"} 5000`,
		`weir_ratelimit_max_keys{scope="per_ip/ocsp"} 5000`,
		`weir_ratelimit_shadowed_total{endpoint="sign",tier="fleet"} 1`,
		`weir_ratelimit_throttled_total{endpoint="sign",tier="per_account"} 1`,
		`weir_ratelimit_throttled_total{endpoint="sign",tier="per_ip"} 2`,
		`weir_ratelimit_unkeyed_total{tier="fleet"} 8`,
	)
}

func TestGaugesSayWhoIsInsideWaitsAndIsHeldNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		cfg := guarded(1, 4, time.Minute)
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 3, MaxWait: waiting(time.Minute)}
		b := newBank(t, cfg, WithRegisterer(reg))
		b.work = busyFor(10 * time.Second)
		for range 5 {
			b.arrive("a", to("sign", alice))
		}
		now := func(inFlight, queued, holding float64) {
			t.Helper()
			for name, want := range map[string]float64{"weir_hsm_guard_in_flight": inFlight, "weir_hsm_guard_queue_depth": queued} {
				if got := metric(t, reg, name, "guard", "hsm"); got != want {
					t.Errorf("%s is %v, want %v", name, got, want)
				}
			}
			if got := metric(t, reg, "weir_ratelimit_holding"); got != holding {
				t.Errorf("%v are held, want %v", got, holding)
			}
		}
		now(1, 2, 2)
		b.until(time.Second)
		now(1, 3, 1)
		b.until(2 * time.Second)
		now(1, 4, 0)
		b.until(15 * time.Second)
		now(1, 3, 0)
		b.until(time.Minute)
		now(0, 0, 0)
		if got := metric(t, reg, "weir_ratelimit_held_total", "endpoint", "sign"); got != 2 {
			t.Errorf("%v were held in all, want 2", got)
		}
	})
}

// Labels are endpoint classes, tiers, reasons and the like: nothing that a
// client chooses makes a new series (requirement M3).
func TestClientsCannotMakeSeries(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	l := meteredLimiter(t, reg, func(c *Config) {
		c.DefaultClass = "rest"
		c.ClientIP.TrustedProxies = []string{alice}
		c.Endpoints = append(c.Endpoints, Endpoint{Pattern: "/acme/", Class: "acme", Kind: KindACME, Guard: "hsm"})
	})
	before := sampleNames(scrape(t, reg))
	h := l.Handler(served)
	methods := []string{"GET", "POST", "PUT", "BREW", "x'\"", "OPTIONS"}
	paths := []string{"/sign", "/ocsp", "/acme/", "/"}
	w := &nullWriter{h: http.Header{}}
	for i := range 100_000 {
		id := strconv.Itoa(i)
		r := cheapRequest(paths[i%len(paths)]+id, fmt.Sprintf("10.%d.%d.%d:40000", i>>16, i>>8&255, i&255))
		r.Method = methods[i%len(methods)]
		if i%7 == 0 {
			r.RemoteAddr = withPort(alice)
		}
		if i%3 == 0 {
			r.URL.Path = paths[i%len(paths)]
		}
		r.Header["Account"] = []string{"account-" + id}
		r.Header["Fleet"] = []string{"fleet-" + id}
		r.Header["X-Forwarded-For"] = []string{"2001:db8::" + strconv.FormatInt(int64(i), 16)[:1] + ", " + id}
		clear(w.h)
		h.ServeHTTP(w, r)
	}
	after := scrape(t, reg)
	reads(t, sampleNames(after), before...)
	for _, secret := range []string{"account-", "fleet-", "2001:db8", "10.0.", alice, "BREW"} {
		if strings.Contains(after, secret) {
			t.Errorf("the scrape contains %q", secret)
		}
	}
}

// cheapRequest is a GET for tests that send a great many.
func cheapRequest(path, remoteAddr string) *http.Request {
	return &http.Request{
		Method: "GET", URL: &url.URL{Path: path}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Host: "example.com", RemoteAddr: remoteAddr,
	}
}

func TestLimitersThatShareANamespaceAddUp(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	first, second := meteredLimiter(t, reg, nil), meteredLimiter(t, reg, nil)
	admitted(t, first.Handler(served), to("ocsp", alice))
	admitted(t, second.Handler(served), to("ocsp", alice))
	admitted(t, second.Handler(served), to("ocsp", bob))
	const admittedTotal, keys = `weir_ratelimit_admitted_total{endpoint="ocsp"} 3`, `weir_ratelimit_key_count{scope="per_ip/ocsp"} `
	lines := func(want ...string) {
		t.Helper()
		got := samples(scrape(t, reg))
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("there is no %q in:\n%s", line, strings.Join(got, "\n"))
			}
		}
	}
	lines(admittedTotal, keys+"3", `weir_ratelimit_max_keys{scope="per_ip"} 10000`)
	_ = second.Close()
	// What it had counted stays, so that no counter ever falls; what it held goes.
	lines(admittedTotal, keys+"1", `weir_ratelimit_max_keys{scope="per_ip"} 5000`)
	_ = second.Close()
	lines(admittedTotal, keys+"1")
	third := meteredLimiter(t, reg, nil)
	lines(admittedTotal, keys+"1", `weir_ratelimit_max_keys{scope="per_ip"} 10000`)
	_ = third.Close()
	_ = first.Close()
	reads(t, samples(scrape(t, reg)))
	meteredLimiter(t, reg, nil)
	lines(`weir_ratelimit_admitted_total{endpoint="ocsp"} 0`)
}

func TestLimitersOfDifferentNamespacesStandSideBySide(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	front := meteredLimiter(t, reg, func(c *Config) { c.Namespace = "front" })
	back := meteredLimiter(t, reg, func(c *Config) { c.Namespace = "back" })
	admitted(t, front.Handler(served), to("ocsp", alice))
	for ns, want := range map[string]float64{"front": 1, "back": 0} {
		if got := metric(t, reg, ns+"_ratelimit_admitted_total", "endpoint", "ocsp"); got != want {
			t.Errorf("%s admitted %v, want %v", ns, got, want)
		}
	}
	_ = front.Close()
	for _, name := range sampleNames(scrape(t, reg)) {
		if !strings.HasPrefix(name, "back_") {
			t.Errorf("%s is still there", name)
		}
	}
	_ = back.Close()
	reads(t, samples(scrape(t, reg)))
}

func TestMetricsOnAWrappedRegisterer(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	a := prometheus.WrapRegistererWith(prometheus.Labels{"site": "a"}, reg)
	l1, l2 := meteredLimiter(t, a, nil), meteredLimiter(t, prometheus.WrapRegistererWith(prometheus.Labels{"site": "a"}, reg), nil)
	l3 := meteredLimiter(t, prometheus.WrapRegistererWith(prometheus.Labels{"site": "b"}, reg), nil)
	l4 := meteredLimiter(t, prometheus.WrapRegistererWithPrefix("x_", reg), nil)
	for _, l := range []*Limiter{l1, l2, l3, l4} {
		admitted(t, l.Handler(served), to("ocsp", alice))
	}
	text := nonZero(scrape(t, reg))
	for _, want := range []string{
		`weir_ratelimit_admitted_total{endpoint="ocsp",site="a"} 2`,
		`weir_ratelimit_admitted_total{endpoint="ocsp",site="b"} 1`,
		`x_weir_ratelimit_admitted_total{endpoint="ocsp"} 1`,
	} {
		if !slices.Contains(text, want) {
			t.Errorf("there is no %q in:\n%s", want, strings.Join(text, "\n"))
		}
	}
	for _, l := range []*Limiter{l1, l2, l3, l4} {
		_ = l.Close()
	}
	reads(t, samples(scrape(t, reg)))
}

// Someone else's collector has one of the names. New says so, and leaves the
// registry as it was.
func TestNamesThatAreTakenAreAnErrorThatSaysTheCure(t *testing.T) {
	for _, tt := range []struct {
		name    string
		foreign prometheus.Collector
	}{
		{"with another help", prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ratelimit_admitted_total", Help: "Mine."}, []string{"endpoint"})},
		{"with other labels", prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_hsm_guard_in_flight", Help: "Slots held now."})},
		{"the very same", prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_ratelimit_admitted_total", Help: "Requests that passed all tiers."}, []string{"endpoint"})},
		{"a histogram", prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_ratelimit_holding", Help: "Mine."})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reg := prometheus.NewPedanticRegistry()
			reg.MustRegister(tt.foreign)
			before := samples(scrape(t, reg))
			_, err := New(metered(), append([]Option{WithRegisterer(reg), WithLogger(slog.New(slog.DiscardHandler))}, meteredOptions...)...)
			if err == nil || !strings.Contains(err.Error(), "namespace") {
				t.Fatalf("New says %v, want advice to choose another namespace", err)
			}
			reads(t, samples(scrape(t, reg)), before...)
			meteredLimiter(t, reg, func(c *Config) { c.Namespace = "mine" })
		})
	}
}

// A Limiter that is enabled by a Reload registers then; where that fails,
// nothing has changed.
func TestMetricsOfALimiterThatIsEnabledLater(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	off := metered()
	off.Enabled = false
	l := newLimiter(t, off, append([]Option{WithRegisterer(reg)}, meteredOptions...)...)
	reads(t, samples(scrape(t, reg)))
	foreign := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_ratelimit_holding", Help: "Mine."})
	reg.MustRegister(foreign)
	if err := l.Reload(metered()); err == nil {
		t.Fatal("the names are taken and Reload says nothing")
	}
	if got := l.Config(); got.Enabled || len(got.Endpoints) != len(off.Endpoints) {
		t.Errorf("the failed reload left %+v in force", got)
	}
	on := metered()
	on.Namespace = "mine"
	if err := l.Reload(on); err != nil {
		t.Fatal(err)
	}
	admitted(t, l.Handler(served), to("ocsp", alice))
	if got := metric(t, reg, "mine_ratelimit_admitted_total", "endpoint", "ocsp"); got != 1 {
		t.Errorf("%v admissions are exported, want 1", got)
	}
	_ = l.Close()
	if err := l.Reload(on); err != nil {
		t.Fatal(err)
	}
	reads(t, samples(scrape(t, reg)), "weir_ratelimit_holding 0")
}

// Close comes first: nobody would take the metrics off again.
func TestLimiterEnabledAfterCloseRegistersNothing(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	off := metered()
	off.Enabled = false
	l := newLimiter(t, off, append([]Option{WithRegisterer(reg)}, meteredOptions...)...)
	_ = l.Close()
	if err := l.Reload(metered()); err != nil {
		t.Fatal(err)
	}
	reads(t, samples(scrape(t, reg)))
}

func TestReloadKeepsCounting(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	l := meteredLimiter(t, reg, nil)
	trafficOf(l)
	before := samples(scrape(t, reg))
	if err := l.Reload(l.Config()); err != nil {
		t.Fatal(err)
	}
	reads(t, samples(scrape(t, reg)), before...)

	// Other tiers, one class gone and one new: no counter falls or goes.
	cfg := metered()
	cfg.Tiers.Custom = nil
	cfg.Shadow = nil
	cfg.Tiers.PerIP = TierConfig{}
	cfg.Endpoints = cfg.Endpoints[:1]
	cfg = cfg.with(Endpoint{Class: "crl"})
	if err := l.Reload(cfg); err != nil {
		t.Fatal(err)
	}
	admitted(t, l.Handler(served), to("crl", alice))
	admitted(t, l.Handler(served), to("sign", alice))
	after := samples(scrape(t, reg))
	for _, line := range before {
		if !strings.Contains(line, "_total") || strings.Contains(line, "evicted") || strings.Contains(line, `admitted_total{endpoint="sign"}`) {
			continue
		}
		if !slices.Contains(after, line) {
			t.Errorf("%q is gone after the reload", line)
		}
	}
	for _, want := range []string{
		`weir_ratelimit_admitted_total{endpoint="sign"} 8`,
		`weir_ratelimit_admitted_total{endpoint="crl"} 1`,
		`weir_ratelimit_throttled_total{endpoint="crl",tier="global"} 0`,
	} {
		if !slices.Contains(after, want) {
			t.Errorf("there is no %q in:\n%s", want, strings.Join(after, "\n"))
		}
	}
	if slices.ContainsFunc(after, func(line string) bool { return strings.Contains(line, `key_count{scope="per_ip`) }) {
		t.Error("the keys of a tier that is gone are still exported")
	}
	// Off and on again.
	if err := l.Reload(Config{}); err != nil {
		t.Fatal(err)
	}
	if err := l.Reload(metered()); err != nil {
		t.Fatal(err)
	}
	if got := metric(t, reg, "weir_ratelimit_admitted_total", "endpoint", "sign"); got != 8 {
		t.Errorf("%v admissions are exported, want the 8 from before", got)
	}
}

func TestSnapshotAgreesWithTheScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		cfg := metered()
		cfg.Tiers.PerIP = TierConfig{Rate: 1, Burst: 2, MaxWait: waiting(2 * time.Second)}
		cfg.Tiers.MaxWaiting = 5
		cfg.Tiers.MaxKeys = 8
		b := newBank(t, cfg, append([]Option{WithRegisterer(reg)}, meteredOptions...)...)
		b.work = busyFor(300 * time.Millisecond)
		rnd := rand.New(rand.NewPCG(7, 7))
		classes := []string{"sign", "ocsp", "none"}
		for range 600 {
			r := to(classes[rnd.IntN(3)], fmt.Sprintf("%d.0.113.%d", 200+rnd.IntN(4), rnd.IntN(2)))
			if rnd.IntN(9) == 0 {
				r.Header.Set("Account", strconv.Itoa(rnd.IntN(40)))
			}
			if rnd.IntN(2) == 0 {
				r.Header.Set("Fleet", strconv.Itoa(rnd.IntN(40)))
			}
			b.arrive("r", r)
			time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
		}
		for range 3 {
			b.arrive("the third is held", to("sign", carol))
		}
		b.arrive("at work", to("sign", "203.0.113.99"))
		s := b.l.Snapshot()
		agree := func(want float64, name string, labels ...string) {
			t.Helper()
			if got := metric(t, reg, "weir_"+name, labels...); got != want {
				t.Errorf("%s%v: the scrape says %v, the snapshot %v", name, labels, got, want)
			}
		}
		if s.Holding == 0 || s.Guards[0].InFlight == 0 {
			t.Errorf("nothing is under way: %+v", s)
		}
		agree(float64(s.Holding), "ratelimit_holding")
		for _, c := range s.Classes {
			class := string(c.Class)
			agree(float64(c.Admitted), "ratelimit_admitted_total", "endpoint", class)
			agree(float64(c.Held), "ratelimit_held_total", "endpoint", class)
			agree(float64(c.Exempt), "ratelimit_exempt_total", "endpoint", class)
			agree(float64(c.Denied), "ratelimit_denied_total", "endpoint", class)
			for tier, n := range c.Throttled {
				agree(float64(n), "ratelimit_throttled_total", "endpoint", class, "tier", tier)
			}
			for reason, n := range c.Shed {
				agree(float64(n), "hsm_guard_rejected_total", "endpoint", class, "reason", reason)
			}
		}
		for _, tier := range s.Tiers {
			agree(float64(tier.Keys), "ratelimit_key_count", "scope", tier.Scope)
			agree(float64(tier.MaxKeys), "ratelimit_max_keys", "scope", tier.Scope)
			agree(float64(tier.Evicted), "ratelimit_evicted_total", "scope", tier.Scope)
		}
		for _, g := range s.Guards {
			agree(float64(g.InFlight), "hsm_guard_in_flight", "guard", g.Guard)
			agree(float64(g.Queued), "hsm_guard_queue_depth", "guard", g.Guard)
		}
	})
}

func TestScrapeWhileEverythingChanges(t *testing.T) {
	noGoroutineLeft(t)
	reg := prometheus.NewPedanticRegistry()
	l := meteredLimiter(t, reg, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func(i int)) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					f(i)
				}
			}
		})
	}
	h := l.Handler(served)
	for g := range 2 {
		loop(func(i int) {
			send(h, withHeader(to("sign", fmt.Sprintf("10.%d.%d.%d", g, i>>8&255, i&255)), "Account", strconv.Itoa(i&15)))
		})
	}
	loop(func(i int) {
		cfg := metered()
		if i%2 == 0 {
			cfg.Shadow, cfg.Tiers.PerIP = nil, TierConfig{}
			cfg.Endpoints = cfg.Endpoints[:1]
		}
		if err := l.Reload(cfg); err != nil {
			t.Error(err)
		}
	})
	loop(func(int) {
		other, err := New(metered(), append([]Option{WithRegisterer(reg), WithLogger(slog.New(slog.DiscardHandler))}, meteredOptions...)...)
		if err != nil {
			t.Error(err)
			return
		}
		send(other.Handler(served), to("ocsp", alice))
		_ = other.Close()
	})
	admittedBefore := -1.0
	for range 60 {
		_ = scrape(t, reg)
		now := metric(t, reg, "weir_ratelimit_admitted_total", "endpoint", "sign")
		if now < admittedBefore {
			t.Errorf("a counter fell from %v to %v", admittedBefore, now)
		}
		admittedBefore = now
		_ = l.Snapshot()
	}
	close(stop)
	wg.Wait()
}

// noGoroutineLeft states at the end of the test that it leaves as many
// goroutines as it found.
func noGoroutineLeft(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() { noMoreGoroutinesThan(t, before) })
}

// noMoreGoroutinesThan claims how many there are. One may still be on its way
// out after its WaitGroup says so; yielding lets it go.
func noMoreGoroutinesThan(t *testing.T, before int) {
	t.Helper()
	for range 100_000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		runtime.Gosched()
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines, before there were %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
}

func TestLimiterStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	reg := prometheus.NewRegistry()
	for range 100 {
		l := meteredLimiter(t, reg, nil)
		trafficOf(l)
		if err := l.Reload(l.Config()); err != nil {
			t.Fatal(err)
		}
		_ = l.Snapshot()
	}
	noMoreGoroutinesThan(t, before) // although none is closed yet
}

var timesPattern = regexp.MustCompile(`class=(\w+) by=(\w+) name=(\w*) reason=(\w+) times=(\d+)`)

// A flood costs one line for each class and tier every ten seconds, which says
// how often since the last (requirement M6), and about nobody.
func TestFloodOfRefusalsFillsNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood, every = 100_000, 250 * time.Microsecond // 25 s
		log, option := withLog()
		cfg := metered()
		cfg.Tiers.PerIP = perHour(1)
		l := newLimiter(t, cfg, append([]Option{option}, meteredOptions...)...)
		h, w := l.Handler(served), &nullWriter{h: http.Header{}}
		rs := []*http.Request{
			withHeader(to("sign", alice), "Fleet", "f1"), // per_ip
			to("ocsp", bob),             // per_ip, of its own
			to("sign", "198.51.100.66"), // denied
			withHeader(to("sign", carol), "Account", "victim"),
		}
		for i := range 2 { // drains the account
			send(h, withHeader(to("sign", fmt.Sprintf("192.0.2.%d", 50+i)), "Account", "victim"))
		}
		log.lines = nil
		for i := range flood {
			clear(w.h)
			h.ServeHTTP(w, rs[i%len(rs)])
			time.Sleep(every)
		}
		sum, lines := map[string]int{}, map[string]int{}
		for _, line := range log.with("refusing requests") {
			m := timesPattern.FindStringSubmatch(line)
			if m == nil {
				t.Fatalf("a line of another form: %s", line)
			}
			key := strings.Join(m[1:5], " ")
			n, _ := strconv.Atoi(m[5])
			sum[key] += n
			lines[key]++
			for _, secret := range []string{alice, bob, carol, "198.51.100.66", "victim", "f1"} {
				if strings.Contains(line, secret) {
					t.Errorf("the line names a client: %s", line)
				}
			}
		}
		if all := len(log.with("")); all != 3*len(lines) {
			t.Errorf("%d lines were logged for %d kinds of refusal in 25 s, want 3 for each:\n%s", all, len(lines), strings.Join(log.lines, "\n"))
		}
		const interval = int(10 * time.Second / every / 4) // refusals of one kind between two lines
		for key, n := range lines {
			if n != 3 || sum[key] < 2*interval || sum[key] > 2*interval+1 {
				t.Errorf("%s: %d lines that add up to %d, want 3 and %d", key, n, sum[key], 2*interval+1)
			}
		}
		for _, want := range []string{"sign tier per_ip rate_limited", "ocsp tier per_ip rate_limited", "sign deny  denied", "sign tier per_account rate_limited"} {
			if lines[want] == 0 {
				t.Errorf("there is no line about %q, only %v", want, lines)
			}
		}
	})
}

func TestGuardLogsWhatItSheds(t *testing.T) {
	log, option := withLog()
	l := newLimiter(t, guarded(1, 1, time.Minute), option)
	release, err := l.Guard("hsm").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for range 100 {
		send(l.Handler(served), to("try", alice))
	}
	if got := log.with("refusing requests", "class=try", "by=guard", "name=hsm", "reason=queue_full", "times=1"); len(got) != 1 {
		t.Errorf("logged %q, want one line", log.lines)
	}
}

// The gate works by the wall clock, which an administrator may set.
func TestLogGateIsOpenAgainWhenTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g logGate
		due := func(want bool, times uint64) {
			t.Helper()
			if n, ok := g.open(); ok != want || n != times {
				t.Errorf("open() = %d, %v; want %d, %v", n, ok, times, want)
			}
		}
		due(true, 1)
		due(false, 0)
		time.Sleep(logInterval - 1)
		due(false, 0)
		time.Sleep(time.Nanosecond)
		due(true, 3)
		for _, ahead := range []time.Duration{logInterval + 1, time.Hour, 10 * 365 * 24 * time.Hour} {
			g.next.Store(time.Now().Add(ahead).UnixNano()) // set before the clock went back
			due(true, 1)
			due(false, 0)
			g.times.Store(0)
		}
		g.next.Store(time.Now().Add(-time.Hour).UnixNano()) // or forward
		due(true, 1)
	})
}

func TestLogGateLosesNoCount(t *testing.T) {
	var g logGate
	var wg sync.WaitGroup
	var mu sync.Mutex
	logged, lines := uint64(0), 0
	const callers, each = 64, 1000
	for range callers {
		wg.Go(func() {
			for range each {
				if n, due := g.open(); due {
					mu.Lock()
					logged += n
					lines++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if lines != 1 || logged+g.times.Load() != callers*each {
		t.Errorf("%d lines say %d and %d are kept, want one line and %d in all", lines, logged, g.times.Load(), callers*each)
	}
}

// Without a registerer, or with a store that cannot tell its size, the rest is
// counted all the same.
func TestCountsAreThereWithoutARegisterer(t *testing.T) {
	l := newLimiter(t, metered(), meteredOptions...)
	trafficOf(l)
	if got := classOf(t, l, "sign"); got.Admitted != 7 || got.Throttled["per_ip"] != 2 || got.Shed["queue_full"] != 1 {
		t.Errorf("the snapshot says %+v", got)
	}
}

func TestStoreErrorsAndPanicsAreCounted(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	s := newBrokenStore(failAtOnce)
	l := newLimiter(t, metered(), WithRegisterer(reg), WithStore(s), WithAccount(func(*http.Request) (string, bool) { panic(errors.New("boom")) }), meteredOptions[1])
	admitted(t, l.Handler(served), to("sign", alice))
	reads(t, slices.DeleteFunc(nonZero(scrape(t, reg)), func(line string) bool {
		return !strings.Contains(line, "_panics_") && !strings.Contains(line, "_errors_")
	}),
		`weir_callback_panics_total{callback="account"} 1`,
		`weir_store_errors_total{op="admit",reason="other"} 1`,
	)
}
