package weir

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/internal/clientip"
	"github.com/weir-go/weir/problem"
)

// counter is one number that many requests write, on a cache line of its own.
// The Limiter counts for itself and hands the sums to Prometheus when it is
// scraped: a request then does no label look-up, and counts are there without
// a registerer too.
type counter struct {
	n atomic.Uint64
	_ [56]byte
}

func (c *counter) add(n uint64)  { c.n.Add(n) }
func (c *counter) value() uint64 { return c.n.Load() }

// counts is all that a Limiter counts. It outlives the policies: a Reload
// resets nothing.
type counts struct {
	mu      sync.Mutex // guards the maps; the counters need none
	classes map[Class]*classCounts
	unkeyed map[string]*counter // by tier
	errors  map[string]*counter // by store operation and reason, see errorKey
	panics  map[string]*counter // by callback
	address [clientip.Withheld + 1]counter

	authLock  atomic.Bool // what follows is in use, and exported
	locks     [lockWords]lockCounts
	unsettled counter
	sleepers  sleepers

	latency latencies // of a shared store
}

// classCounts is what is counted for each class.
type classCounts struct {
	admitted, exempt, held counter
	denied                 refusals
	throttled              map[string]*refusals // by tier; guarded by counts.mu
	shadowed               map[string]*refusals // by tier; guarded by counts.mu
	shed                   [len(shedReasons)]refusals
	renewing               atomic.Bool // renewals are asked about, and exported
	renewals               [len(renewalOutcomes)]counter
}

// shedReasons are the guard's reasons (requirements G3, G5, G8), in the order of
// shed and of shedErrors.
var shedReasons = [...]string{problem.ReasonQueueFull, problem.ReasonTimeout, problem.ReasonCanceled, problem.ReasonDeadline, problem.ReasonBackendShare}

// newCounts makes the counters that need no configuration. They are exported
// from the start, at zero: an alert on the increase of a series does not see the
// event with which the series begins.
func newCounts() *counts {
	return &counts{
		classes: map[Class]*classCounts{}, unkeyed: map[string]*counter{},
		errors: map[string]*counter{errorKey("admit", "other"): {}, errorKey("admit", "timeout"): {}, errorKey("refund", "other"): {}},
		panics: map[string]*counter{"account": {}, "key": {}, "nonce": {}},
	}
}

func (n *counts) class(c Class) *classCounts {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.classes[c]
	if k == nil {
		k = &classCounts{throttled: map[string]*refusals{}, shadowed: map[string]*refusals{}}
		n.classes[c] = k
	}
	return k
}

// countIn returns the counter of key, making it if need be. It is for setting
// up and for rare events; the hot path holds on to the counter.
func countIn[T any](n *counts, m map[string]*T, key string) *T {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := m[key]
	if c == nil {
		c = new(T)
		m[key] = c
	}
	return c
}

// sample is one line of what is exported: the series' name and the values of
// its labels.
type sample struct {
	name   string
	labels [2]string
}

// series lists every metric: its name without the namespace, its help, whether
// it only grows, and its labels. Labels are of low cardinality: classes, tiers
// and reasons, never an address or an account (requirement M3).
var series = []struct {
	name, help string
	gauge      bool
	labels     []string
}{
	{"ratelimit_admitted_total", "Requests that passed all tiers.", false, []string{"endpoint"}},
	{"ratelimit_throttled_total", "Requests refused, by the tier with the longest wait.", false, []string{"endpoint", "tier"}},
	{"ratelimit_shadowed_total", "Requests that a tier in shadow mode would have refused.", false, []string{"endpoint", "tier"}},
	{"ratelimit_exempt_total", "Requests that no tier was asked about, being on the exempt list.", false, []string{"endpoint"}},
	{"ratelimit_denied_total", "Requests refused for being on the deny list.", false, []string{"endpoint"}},
	{"ratelimit_held_total", "Requests held until their tokens were there, or given up.", false, []string{"endpoint"}},
	{"ratelimit_holding", "Requests held for tokens now.", true, nil},
	{"ratelimit_unkeyed_total", "Requests that a custom tier did not apply to because its key function found no key.", false, []string{"tier"}},
	{"ratelimit_key_count", "Distinct keys held now.", true, []string{"scope"}},
	{"ratelimit_max_keys", "Bound on distinct keys; alert when key_count comes near it.", true, []string{"scope"}},
	{"ratelimit_evicted_total", "Buckets dropped at the bound before they were full again.", false, []string{"scope"}},
	{"ratelimit_renewals_total", "Orders that said which certificate they replace, by what became of that: exempt ones spent from the renewal tier.", false, []string{"endpoint", "outcome"}},
	{"hsm_guard_rejected_total", "Requests shed by a guard.", false, []string{"endpoint", "reason"}},
	{"hsm_guard_in_flight", "Slots held now.", true, []string{"guard"}},
	{"hsm_guard_queue_depth", "Requests waiting for a slot now.", true, []string{"guard"}},
	{"hsm_guard_lane_in_flight", "Slots held now by a lane.", true, []string{"guard", "lane"}},
	{"hsm_guard_lane_queue_depth", "Requests waiting for a slot now in a lane.", true, []string{"guard", "lane"}},
	{"auth_failures_total", "Failed attempts counted, by what they were counted for.", false, []string{"scope"}},
	{"auth_lockouts_total", "Locks that started.", false, []string{"scope"}},
	{"auth_refused_total", "Attempts refused, or their outcome withheld, by the longest lock.", false, []string{"scope"}},
	{"auth_shadowed_total", "Attempts that the auth lock in shadow mode would have refused.", false, []string{"scope"}},
	{"auth_locked", "Locks that hold now.", true, []string{"scope"}},
	{"auth_key_count", "Failure counters held now.", true, []string{"scope"}},
	{"auth_max_keys", "Bound on failure counters; alert when auth_key_count comes near it.", true, []string{"scope"}},
	{"auth_evicted_total", "Failure counters dropped at the bound before they ended.", false, []string{"scope"}},
	{"auth_delaying", "Failed answers kept back now.", true, nil},
	{"auth_delay_skipped_total", "Failed answers sent without their delay: streams, and those above the bound on sleepers.", false, nil},
	{"auth_unsettled_total", "Attempts that a handler took over and did not settle.", false, nil},
	{"clientip_doubtful_total", "Requests whose address headers could not be believed, by reason.", false, []string{"reason"}},
	{"store_errors_total", "Calls to the store that failed, or were not made because it had failed and requests pass.", false, []string{"op", "reason"}},
	{"store_degraded", "1 while the shared store is not asked because it fails.", true, nil},
	{"callback_panics_total", "Panics in functions of the embedder, which were contained.", false, []string{"callback"}},
}

// gather reports every sample of one Limiter.
func (l *Limiter) gather(emit func(name string, value float64, labels ...string)) {
	n := l.counts
	n.mu.Lock()
	for class, k := range n.classes {
		c := string(class)
		emit("ratelimit_admitted_total", float64(k.admitted.value()), c)
		emit("ratelimit_exempt_total", float64(k.exempt.value()), c)
		emit("ratelimit_denied_total", float64(k.denied.value()), c)
		emit("ratelimit_held_total", float64(k.held.value()), c)
		for tier, v := range k.throttled {
			emit("ratelimit_throttled_total", float64(v.value()), c, tier)
		}
		for tier, v := range k.shadowed {
			emit("ratelimit_shadowed_total", float64(v.value()), c, tier)
		}
		if k.renewing.Load() {
			for i, outcome := range renewalOutcomes {
				emit("ratelimit_renewals_total", float64(k.renewals[i].value()), c, outcome)
			}
		}
		for i, reason := range shedReasons {
			emit("hsm_guard_rejected_total", float64(k.shed[i].value()), c, reason)
		}
	}
	for tier, v := range n.unkeyed {
		emit("ratelimit_unkeyed_total", float64(v.value()), tier)
	}
	for key, v := range n.errors {
		op, reason, _ := strings.Cut(key, " ")
		emit("store_errors_total", float64(v.value()), op, reason)
	}
	for callback, v := range n.panics {
		emit("callback_panics_total", float64(v.value()), callback)
	}
	n.mu.Unlock()
	for i := range n.address {
		if r := clientip.Reason(i); doubtful(r) {
			emit("clientip_doubtful_total", float64(n.address[i].value()), r.String())
		}
	}
	emit("ratelimit_holding", float64(l.lines.held()))
	p := l.policy.Load()
	l.gatherLocks(p, emit)
	l.gatherShared(p, emit)
	if p.on && l.sizer != nil {
		for _, s := range p.scopes {
			size := l.sizer.Size(s.name)
			emit("ratelimit_key_count", float64(size.Keys), s.label)
			emit("ratelimit_max_keys", float64(size.Max), s.label)
			emit("ratelimit_evicted_total", float64(size.Evicted), s.label)
		}
	}
	for name, g := range p.guards {
		emit("hsm_guard_in_flight", float64(g.gate.InFlight()), name)
		emit("hsm_guard_queue_depth", float64(g.gate.Queued()), name)
		for _, ln := range g.gate.Lanes() {
			if lane, has := laneName(p, name, ln.Lane); has {
				emit("hsm_guard_lane_in_flight", float64(ln.InFlight), name, lane)
				emit("hsm_guard_lane_queue_depth", float64(ln.Queued), name, lane)
			}
		}
	}
}

// hub is the one collector of a namespace on a registerer. Limiters join and
// leave it, which is why a second Limiter, or a New after a Close, does not
// collide with the first: what they count is added up.
type hub struct {
	descs    map[string]*prometheus.Desc
	mu       sync.Mutex
	limiters []*Limiter
	retired  map[sample]float64 // what closed Limiters had counted
	delay    *prometheus.Desc   // the one histogram
	delayed  delaySums          // of closed Limiters
	latency  *prometheus.Desc   // of shared stores
	took     latencySums        // of closed Limiters
	shared   bool               // a Limiter has or had a shared store
}

// hubsMu makes joining and leaving one step, so that nobody joins a hub that
// is just being unregistered.
var hubsMu sync.Mutex

// joinHub registers the Limiter's metrics.
func joinHub(reg prometheus.Registerer, namespace string, l *Limiter) (*hub, error) {
	hubsMu.Lock()
	defer hubsMu.Unlock()
	h := &hub{descs: map[string]*prometheus.Desc{}, retired: map[sample]float64{}}
	for _, s := range series {
		h.descs[s.name] = prometheus.NewDesc(namespace+"_"+s.name, s.help, s.labels, nil)
	}
	h.delay = prometheus.NewDesc(namespace+"_auth_delay_seconds", "Delays of failed answers.", nil, nil)
	h.latency = prometheus.NewDesc(namespace+"_store_seconds", "Time that answers of the shared store took.", nil, nil)
	if err := reg.Register(h); err != nil {
		already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err)
		if !ok {
			return nil, fmt.Errorf("weir: registering metrics: %w; choose another namespace", err)
		}
		if h, ok = already.ExistingCollector.(*hub); !ok {
			return nil, fmt.Errorf("weir: registering metrics: the names of namespace %s are taken; choose another", namespace)
		}
	}
	h.mu.Lock()
	h.limiters = append(h.limiters, l)
	h.shared = h.shared || l.shared != nil
	h.mu.Unlock()
	return h, nil
}

// leave takes a Limiter's gauges off and keeps its counters. The last one to
// leave unregisters the hub.
func (h *hub) leave(reg prometheus.Registerer, l *Limiter) {
	hubsMu.Lock()
	defer hubsMu.Unlock()
	h.mu.Lock()
	i := slices.Index(h.limiters, l)
	if i < 0 {
		h.mu.Unlock()
		return
	}
	h.limiters = slices.Delete(h.limiters, i, i+1)
	l.gather(func(name string, value float64, labels ...string) {
		if strings.HasSuffix(name, "_total") {
			h.retired[newSample(name, labels)] += value
		}
	})
	h.delayed.add(l.counts)
	h.took.add(l.counts)
	last := len(h.limiters) == 0
	h.mu.Unlock()
	if last {
		reg.Unregister(h)
	}
}

func newSample(name string, labels []string) sample {
	s := sample{name: name}
	copy(s.labels[:], labels)
	return s
}

// Describe implements prometheus.Collector.
func (h *hub) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range h.descs {
		ch <- d
	}
	ch <- h.delay
	ch <- h.latency
}

// Collect implements prometheus.Collector.
func (h *hub) Collect(ch chan<- prometheus.Metric) {
	sums := map[sample]float64{}
	h.mu.Lock()
	for s, v := range h.retired {
		sums[s] += v
	}
	for _, l := range h.limiters {
		l.gather(func(name string, value float64, labels ...string) { sums[newSample(name, labels)] += value })
	}
	delays, took, shared := h.delayed, h.took, h.shared
	for _, l := range h.limiters {
		delays.add(l.counts)
		took.add(l.counts)
	}
	h.mu.Unlock()
	if shared {
		ch <- took.metric(h.latency)
	}
	if delays.used {
		ch <- delays.metric(h.delay)
	}
	for _, s := range series {
		kind := prometheus.CounterValue
		if s.gauge {
			kind = prometheus.GaugeValue
		}
		for at, v := range sums {
			if at.name == s.name {
				ch <- prometheus.MustNewConstMetric(h.descs[s.name], kind, v, at.labels[:len(s.labels)]...)
			}
		}
	}
}
