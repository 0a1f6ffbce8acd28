package weir

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/store"
)

// What the tests of this package share: configurations to start from, requests,
// claims about answers, and stores that remember or fail.

// noTiers is a Config in which every request has the class "api" and no tier
// limits anything yet.
func noTiers() Config {
	cfg := DefaultConfig()
	cfg.DefaultClass = "api"
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = TierConfig{}, TierConfig{}, TierConfig{}
	return cfg
}

// perHour is a tier that admits burst at once and then so slowly that nothing
// comes back while a test looks.
func perHour(burst float64) TierConfig { return TierConfig{Rate: 1.0 / 3600, Burst: burst} }

// fourTiers is a Config with every kind of tier, all roomy.
func fourTiers() (Config, []Option) {
	cfg := noTiers()
	cfg.Tiers.Global, cfg.Tiers.PerIP, cfg.Tiers.PerAccount = perHour(100), perHour(100), perHour(100)
	cfg.Tiers.Custom = []CustomTierConfig{{Name: "fleet", Rate: 1.0 / 3600, Burst: 100}}
	return cfg, []Option{WithAccount(byHeader("Account")), WithKey("fleet", byHeader("Fleet"))}
}

// narrow gives one tier of fourTiers another burst.
func narrow(cfg *Config, tier string, burst float64) {
	switch tier {
	case TierGlobal:
		cfg.Tiers.Global = perHour(burst)
	case TierPerIP:
		cfg.Tiers.PerIP = perHour(burst)
	case TierPerAccount:
		cfg.Tiers.PerAccount = perHour(burst)
	default:
		cfg.Tiers.Custom[0].Burst = burst
	}
}

// in4 is a request that all of fourTiers apply to.
func in4(addr, fleet, account string) *http.Request {
	return withHeader(claiming(account, addr), "Fleet", fleet)
}

// noTiersBut is fourTiers with one tier left.
func noTiersBut(tier string) Config {
	cfg, _ := fourTiers()
	for name, t := range map[string]*TierConfig{TierGlobal: &cfg.Tiers.Global, TierPerIP: &cfg.Tiers.PerIP, TierPerAccount: &cfg.Tiers.PerAccount} {
		if name != tier {
			*t = TierConfig{}
		}
	}
	if tier != "fleet" {
		cfg.Tiers.Custom = nil
	}
	return cfg
}

// newLimiter returns a Limiter that logs nowhere unless opts say otherwise and
// is closed with the test.
func newLimiter(t testing.TB, cfg Config, opts ...Option) *Limiter {
	t.Helper()
	l, err := New(cfg, append([]Option{WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// served is the handler behind the chain. Its mark tells its answers from a
// refusal's, whatever the status.
var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Served", "yes")
	_, _ = io.WriteString(w, "the resource\n")
})

// later runs f in the handler, after the request was admitted.
func later(f func(ctx context.Context)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f(r.Context())
		served(w, r)
	})
}

// addr1 is where most requests come from.
const addr1 = "192.0.2.1"

// from is a GET of / by a client. A text without a port gets one.
func from(addr string) *http.Request { return request("GET", "/", addr, "") }

// request is a request by a client, addr being an address or whatever else
// RemoteAddr may hold.
func request(method, target, addr, body string) *http.Request {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, rd)
	r.RemoteAddr = withPort(addr)
	return r
}

func withPort(addr string) string {
	switch {
	case strings.HasPrefix(addr, "["), addr == "", addr == "@":
		return addr
	case strings.Count(addr, ":") == 1: // it has one
		return addr
	case strings.Contains(addr, ":"):
		return "[" + addr + "]:40000"
	case strings.Count(addr, ".") == 3:
		return addr + ":40000"
	}
	return addr
}

// send runs one request through a handler.
func send(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// admitted claims that the request reaches the handler.
func admitted(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := send(h, r)
	if w.Header().Get("Served") == "" {
		t.Fatalf("%s %s from %s was refused with %d %q, want it admitted", r.Method, r.URL, r.RemoteAddr, w.Code, w.Body)
	}
	return w
}

// refused claims that the request is answered 429 without reaching the
// handler, with a Retry-After that keeps requirement R1.
func refused(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := send(h, r)
	if w.Header().Get("Served") != "" || w.Code != http.StatusTooManyRequests {
		t.Fatalf("%s %s from %s was answered %d, want it refused with 429", r.Method, r.URL, r.RemoteAddr, w.Code)
	}
	_ = retryAfter(t, w)
	return w
}

// refusedBy is refused, and claims which tier is blamed. It reads the document
// of the kinds that name one: api and page.
func refusedBy(t testing.TB, h http.Handler, r *http.Request, tier string) *httptest.ResponseRecorder {
	t.Helper()
	w := refused(t, h, r)
	var doc struct {
		Tiers []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatalf("the refusal is no JSON: %v: %q", err, w.Body)
	}
	if !slices.Equal(doc.Tiers, []string{tier}) {
		t.Fatalf("the refusal of %s %s from %s blames %v, want %s", r.Method, r.URL, r.RemoteAddr, doc.Tiers, tier)
	}
	return w
}

// denied claims that the request is answered 403 without reaching the handler.
func denied(t testing.TB, h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	w := send(h, r)
	if w.Header().Get("Served") != "" || w.Code != http.StatusForbidden {
		t.Fatalf("%s %s from %s was answered %d, want it denied with 403", r.Method, r.URL, r.RemoteAddr, w.Code)
	}
	return w
}

// retryAfter returns the seconds a refusal tells its client to wait.
func retryAfter(t testing.TB, w *httptest.ResponseRecorder) int64 {
	t.Helper()
	values := w.Header()["Retry-After"]
	if len(values) != 1 {
		t.Fatalf("Retry-After is %q, want one value", values)
	}
	secs, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || secs < 1 || secs > 4294967295 {
		t.Fatalf("Retry-After is %q, want whole seconds from 1 to 4294967295", values[0])
	}
	return secs
}

// admits returns how many of n like requests the handler sees.
func admits(h http.Handler, n int, r func() *http.Request) (admitted int) {
	for range n {
		if send(h, r()).Header().Get("Served") != "" {
			admitted++
		}
	}
	return admitted
}

// left claims how many more like requests are admitted at this instant. It
// spends them.
func left(t testing.TB, h http.Handler, want int, r func() *http.Request) {
	t.Helper()
	if got := admits(h, want+3, r); got != want {
		t.Fatalf("%d more requests like %s %s from %s were admitted, want %d", got, r().Method, r().URL, r().RemoteAddr, want)
	}
}

// together runs f on n goroutines that start at once.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// classOf returns the counts of one class.
func classOf(t testing.TB, l *Limiter, class Class) ClassSnapshot {
	t.Helper()
	for _, c := range l.Snapshot().Classes {
		if c.Class == class {
			return c
		}
	}
	t.Fatalf("the snapshot has no class %q", class)
	return ClassSnapshot{}
}

// tierOf returns how full one keyed tier is.
func tierOf(t testing.TB, l *Limiter, scope string) TierSnapshot {
	t.Helper()
	for _, s := range l.Snapshot().Tiers {
		if s.Scope == scope {
			return s
		}
	}
	t.Fatalf("the snapshot has no tier %q", scope)
	return TierSnapshot{}
}

// metric returns the value of a series as it would be scraped, 0 if it is not
// there. Labels are name, value, name, value …
func metric(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("gathering metrics: %v", err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, p := range m.GetLabel() {
				have = append(have, p.GetName(), p.GetValue())
			}
			if slices.Equal(have, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// logLines keeps what was logged, one line each: level, message and attributes.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

// withLog returns a Limiter's logger whose lines can be asked for.
func withLog() (*logLines, Option) {
	l := &logLines{}
	return l, WithLogger(slog.New(l))
}

func (l *logLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *logLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logLines) WithGroup(string) slog.Handler            { return l }

func (l *logLines) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, b.String())
	return nil
}

// with returns the lines that contain all of the texts.
func (l *logLines) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
			found = append(found, line)
		}
	}
	return found
}

// byHeader finds an account, or the key of a custom tier, in a header.
func byHeader(name string) func(*http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) { return r.Header.Get(name), r.Header.Get(name) != "" }
}

// withHeader adds a header to a request.
func withHeader(r *http.Request, name, value string) *http.Request {
	r.Header.Add(name, value)
	return r
}

// claiming is a request whose account WithAccount(byHeader("Account")) finds.
func claiming(account, addr string) *http.Request {
	return withHeader(from(addr), "Account", account)
}

// acmeKey signs the requests of the ACME clients in tests. Whose key it is does
// not matter to a limiter, which cannot verify it.
var acmeKey = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return key
})

// signed is a flattened JWS (RFC 8555 section 6.2) with the given protected
// header and payload, properly signed.
func signed(header map[string]any, payload string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	protected, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	h, p := b64(protected), b64([]byte(payload))
	digest := sha256.Sum256([]byte(h + "." + p))
	r, s, err := ecdsa.Sign(rand.Reader, acmeKey(), digest[:])
	if err != nil {
		panic(err)
	}
	sig := make([]byte, 64)
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, h, p, b64(sig))
}

// kidBody is the body of an ACME request by an existing account.
func kidBody(kid string) string {
	return signed(map[string]any{"alg": "ES256", "kid": kid, "nonce": "bm9uY2U", "url": "https://ca.example/acme/new-order"},
		`{"identifiers":[{"type":"dns","value":"example.org"}]}`)
}

// acmePost is an ACME POST with that body.
func acmePost(target, addr, body string) *http.Request {
	return withHeader(request("POST", target, addr, body), "Content-Type", "application/jose+json")
}

// unread is a body that nobody may read.
type unread struct{ t testing.TB }

func (u unread) Read([]byte) (int, error) {
	u.t.Helper()
	u.t.Error("the body was read")
	return 0, io.EOF
}

func (u unread) Close() error { return nil }

// bucketID names one bucket of a store.
type bucketID struct {
	scope string
	key   store.Key
}

// ledger is a memory store that remembers what it was asked, so that a test
// can look into every bucket a Limiter has touched.
type ledger struct {
	*store.Memory
	mu     sync.Mutex
	limits map[bucketID]store.Limit
	calls  []string // "admit", "refund", …
}

func newLedger() *ledger {
	return &ledger{Memory: store.NewMemory(), limits: map[bucketID]store.Limit{}}
}

func (s *ledger) note(call string, checks []store.Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
	for _, c := range checks {
		s.limits[bucketID{c.Scope, c.Key}] = c.Limit
	}
}

func (s *ledger) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	s.note("admit", checks)
	return s.Memory.Admit(ctx, checks, dst)
}

func (s *ledger) Refund(ctx context.Context, checks []store.Check) error {
	s.note("refund", checks)
	return s.Memory.Refund(ctx, checks)
}

// asked returns how often one kind of call was made.
func (s *ledger) asked(call string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c == call {
			n++
		}
	}
	return n
}

// tokens returns what every bucket seen so far holds at this instant, to the
// bit. It changes nothing.
func (s *ledger) tokens() map[bucketID]float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[bucketID]float64{}
	for id, limit := range s.limits {
		_, states, err := s.Peek(context.Background(), []store.Check{{Scope: id.scope, Key: id.key, Limit: limit}}, nil)
		if err != nil {
			panic(err)
		}
		held[id] = states[0].Tokens
	}
	return held
}

// in returns what the buckets of one tier hold, in ascending order.
func (s *ledger) in(tier string) (tokens []float64) {
	for id, n := range s.tokens() {
		if strings.HasSuffix(id.scope, "/"+tier) {
			tokens = append(tokens, n)
		}
	}
	slices.Sort(tokens)
	return tokens
}

// brokenStore fails in a way of its own while it is broken, and works in
// between.
type brokenStore struct {
	*ledger
	mu   sync.Mutex
	fail func(context.Context) error // nil: it works
}

func newBrokenStore(fail func(context.Context) error) *brokenStore {
	return &brokenStore{ledger: newLedger(), fail: fail}
}

func (s *brokenStore) broken(ctx context.Context) error {
	s.mu.Lock()
	fail := s.fail
	s.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(ctx)
}

// repair makes the store work from now on.
func (s *brokenStore) repair() { s.breakAs(nil) }

// breakAs makes the store fail from now on.
func (s *brokenStore) breakAs(fail func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *brokenStore) Admit(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	if err := s.broken(ctx); err != nil {
		return store.Verdict{}, dst, err
	}
	return s.ledger.Admit(ctx, checks, dst)
}

func (s *brokenStore) Peek(ctx context.Context, checks []store.Check, dst []store.State) (store.Verdict, []store.State, error) {
	if err := s.broken(ctx); err != nil {
		return store.Verdict{}, dst, err
	}
	return s.ledger.Peek(ctx, checks, dst)
}

func (s *brokenStore) Refund(ctx context.Context, checks []store.Check) error {
	if err := s.broken(ctx); err != nil {
		return err
	}
	return s.ledger.Refund(ctx, checks)
}

// The ways in which a store fails.
var errStoreDown = errors.New("connection refused")

func failAtOnce(context.Context) error { return errStoreDown }

// failAtDeadline hangs for as long as the contract of store.Store lets it.
func failAtDeadline(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// seconds is a number of seconds that may be fractional.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pipes is a listener of connections that need no network, so that deadlines
// are those of a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }
