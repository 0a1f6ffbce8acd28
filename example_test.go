package weir_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/problem"
)

// The smallest program. At start it logs an advice: no proxy is trusted.
func ExampleNew() {
	cfg := weir.DefaultConfig()         // 200/s for all, 20/s for an address, 50/s for an account
	cfg.Endpoints = weir.PKIEndpoints() // what is a new-order, an OCSP request, an enrolment, …
	limiter, err := weir.New(cfg)
	if err != nil {
		log.Fatal(err) // every fault at once, each with its cure
	}
	ca := http.NewServeMux() // your CA
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(ca)))
}

// A file is decoded over the defaults, and strictly: a misspelt limit is no
// limit. It leaves endpoints out, which the program sets, guards included.
func ExampleDefaultConfig() {
	file := strings.NewReader(`
client_ip: {trusted_proxies: [10.0.0.0/8]}
tiers: {per_ip: {rate: 10, burst: 20}}
guards: {hsm: {max_in_flight: 8}}
`)
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	for i := range cfg.Endpoints {
		switch cfg.Endpoints[i].Class {
		case weir.ClassACMEFinalize, weir.ClassESTEnroll, weir.ClassOCSP:
			cfg.Endpoints[i].Guard = "hsm"
		}
	}
	d := yaml.NewDecoder(file) // go.yaml.in/yaml/v3
	d.KnownFields(true)
	if err := d.Decode(&cfg); err != nil {
		log.Fatal(err)
	}
	fmt.Println("faults:", cfg.Validate())
	fmt.Println("per_ip:", cfg.Tiers.PerIP.Rate, "global:", cfg.Tiers.Global.Rate)
	// Output:
	// faults: <nil>
	// per_ip: 10 global: 200
}

// Every fault is found at once, each with its path.
func ExampleConfigErrors() {
	cfg := weir.DefaultConfig()
	cfg.DefaultClass = "web"
	cfg.Tiers.PerIP.Burst = 0
	cfg.Headers.RateLimit = "sometimes"
	_, err := weir.New(cfg)
	for e := range weir.ConfigErrors(err) {
		fmt.Println(e.Path, e.Reason)
	}
	// Output:
	// tiers.per_ip.burst conflict
	// headers.rate_limit unknown
}

// Who a client certificate proves is known before the request is limited, if
// the check wraps the whole chain.
func ExampleLimiter_ClientIP() {
	cfg := weir.DefaultConfig()
	cfg.ClientIP.TrustedProxies = []string{"10.0.0.0/8"}
	cfg.Endpoints = weir.PKIEndpoints()
	limiter, err := weir.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	verified := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
				weir.SetAccount(r.Context(), r.TLS.VerifiedChains[0][0].Subject.CommonName)
			}
			next.ServeHTTP(w, r)
		})
	}
	ca := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		info, _ := weir.FromContext(r.Context())
		fmt.Println(info.Addr, info.Class, info.Account)
	})
	handler := limiter.ClientIP(verified(limiter.Handler(ca)))

	r := httptest.NewRequest("POST", "/.well-known/est/simplereenroll", nil)
	device := &x509.Certificate{Subject: pkix.Name{CommonName: "device-7"}}
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{device}}}
	handler.ServeHTTP(httptest.NewRecorder(), r)
	// Output: 192.0.2.1 est_enroll device-7
}

// Stages put together by hand leave out what they do not name: here the auth
// lock (and, were they on, the windows), though the Config has it. Write
// limiter.Handler(est).
func ExampleLimiter_Tiers_incorrect() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	cfg.AuthLock.Enabled = true
	cfg.AuthLock.Address.MaxFailures = 1
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 4}}
	quiet := weir.WithLogger(slog.New(slog.DiscardHandler))
	limiter, err := weir.New(cfg, quiet)
	if err != nil {
		log.Fatal(err)
	}
	est := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized) // the password is wrong
	})
	guess := func(handler http.Handler) int {
		r := httptest.NewRequest("POST", "/.well-known/est/simpleenroll", nil)
		r.SetBasicAuth("alice", "guess")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}

	byHand := limiter.ClientIP(limiter.Tiers(limiter.Guard("hsm").Handler(est))) // incorrect
	fmt.Println("by hand:", guess(byHand), guess(byHand), guess(byHand))
	whole := limiter.Handler(est)
	fmt.Println("Handler:", guess(whole), guess(whole), guess(whole))
	// Output:
	// by hand: 401 401 401
	// Handler: 401 429 429
}

// Guard.Handler takes a slot for every request that it sees, not only for the
// classes that name the guard: while one signature is made, nobody gets the
// directory. Name the guard in endpoints, and write limiter.Handler(ca). (Mode
// is fail for the example not to wait.)
func ExampleGuard_Handler_incorrect() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = []weir.Endpoint{
		{Pattern: "/acme/directory", Class: weir.ClassACMEDirectory, Kind: weir.KindACME, Mode: weir.ModeFail},
		{Pattern: "/acme/finalize/{id}", Class: weir.ClassACMEFinalize, Kind: weir.KindACME, Guard: "hsm"},
	}
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 1}}
	limiter, err := weir.New(cfg, weir.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	release, err := limiter.Guard("hsm").Acquire(context.Background()) // a signature is being made
	if err != nil {
		log.Fatal(err)
	}
	defer release()
	ca := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	directory := func(handler http.Handler) int {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/acme/directory", nil))
		return w.Code
	}

	fmt.Println("by hand:", directory(limiter.Tiers(limiter.Guard("hsm").Handler(ca)))) // incorrect
	fmt.Println("Handler:", directory(limiter.Handler(ca)))
	// Output:
	// by hand: 503
	// Handler: 200
}

// A new file is put in force on SIGHUP. One with a fault changes nothing.
func ExampleLimiter_Reload() {
	load := func(name string) (weir.Config, error) {
		cfg := weir.DefaultConfig()
		cfg.Endpoints = weir.PKIEndpoints()
		f, err := os.Open(name)
		if err != nil {
			return cfg, err
		}
		defer func() { _ = f.Close() }()
		d := yaml.NewDecoder(f)
		d.KnownFields(true)
		err = d.Decode(&cfg)
		return cfg, err
	}
	cfg, err := load("weir.yaml")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := weir.New(cfg)
	if err != nil {
		log.Fatal(err)
	}

	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			cfg, err := load("weir.yaml")
			if err == nil {
				err = limiter.Reload(cfg)
			}
			if err != nil {
				slog.Error("the configuration stays as it was", "error", err)
			}
		}
	}()
	ca := http.NewServeMux()
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(ca)))
}

// A tier of its own for each fleet of devices, which a certificate names.
func ExampleWithKey() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	cfg.Tiers.Custom = []weir.CustomTierConfig{{
		Name: "fleet", Rate: 1, Burst: 100,
		Overrides: map[string]weir.Limit{"meters": {Rate: 50, Burst: 1000}},
	}}
	fleet := func(r *http.Request) (key string, ok bool) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			return "", false // the tier does not apply
		}
		units := r.TLS.VerifiedChains[0][0].Subject.OrganizationalUnit
		if len(units) == 0 {
			return "", false
		}
		return units[0], true
	}
	limiter, err := weir.New(cfg, weir.WithKey("fleet", fleet))
	if err != nil {
		log.Fatal(err)
	}
	ca := http.NewServeMux()
	log.Fatal(http.ListenAndServeTLS(":8443", "cert.pem", "key.pem", limiter.Handler(ca)))
}

// SCEP clients get a refusal without a body, API clients one of the program's
// own. Retry-After and Cache-Control are set already.
func ExampleWithRejection() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	cfg.DefaultClass = "web"
	cfg.Deny.Networks = []string{"192.0.2.0/24"}
	limiter, err := weir.New(cfg,
		weir.WithLogger(slog.New(slog.DiscardHandler)),
		weir.WithRejection(weir.KindSCEP, problem.Empty),
		weir.WithRejection(weir.KindAPI, func(w http.ResponseWriter, _ *http.Request, rej problem.Rejection) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(rej.StatusCode())
			_ = json.NewEncoder(w).Encode(map[string]string{"error": rej.Reason})
		}))
	if err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	limiter.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/status", nil)) // from 192.0.2.1
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output: 403 3600 {"error":"denied"}
}

// Work that does not come through HTTP takes a slot too.
func ExampleGuard_Acquire() {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	cfg.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 8}}
	limiter, err := weir.New(cfg, weir.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	hsm := limiter.Guard("hsm")

	signCRL := func(ctx context.Context) error {
		release, err := hsm.Acquire(ctx)
		if err != nil {
			return err // ErrQueueFull, ErrTimeout or ErrCanceled
		}
		defer release()
		fmt.Println("signed")
		return nil
	}
	fmt.Println(signCRL(context.Background()))
	// Output:
	// signed
	// <nil>
}

// The kid of an ACME request is only a claim. A CA that finds the signature
// wrong gives the token of the named account back; the address has paid all the
// same. An endpoint with Disown does so by itself.
func ExampleDisown() {
	signed := func(*http.Request) bool { return false } // checks the JWS against the account's key
	newOrder := func(w http.ResponseWriter, r *http.Request) {
		if !signed(r) {
			weir.Disown(r.Context())
			http.Error(w, "bad signature", http.StatusBadRequest)
			return
		}
		// …
	}
	cfg := weir.DefaultConfig()
	cfg.Endpoints = []weir.Endpoint{{Pattern: "/acme/new-order", Class: weir.ClassACMENewOrder, Kind: weir.KindACME}}
	limiter, err := weir.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	ca := http.NewServeMux()
	ca.HandleFunc("POST /acme/new-order", newOrder)
	log.Fatal(http.ListenAndServe(":8080", limiter.Handler(ca)))
}

// With Disown an answer that shows that the account was not proved (401; for
// ACME also a problem such as badSignatureAlgorithm) gives its token back.
// Guesses in alice's name cost her nothing: the bucket is full for her.
func ExampleEndpoint_disown() {
	cfg := weir.DefaultConfig()
	cfg.ClientIP.TrustedProxies = []string{"10.0.0.0/8"}
	cfg.Tiers.PerAccount = weir.TierConfig{Rate: 0.001, Burst: 1}
	cfg.Endpoints = []weir.Endpoint{
		{Pattern: "POST /est/simpleenroll", Class: weir.ClassESTEnroll, Kind: weir.KindEST, Disown: true},
	}
	limiter, err := weir.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	handler := limiter.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"guess", "guess", "secret"} {
		r := httptest.NewRequest("POST", "/est/simpleenroll", nil)
		r.SetBasicAuth("alice", password)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(password, w.Code)
	}
	// Output:
	// guess 401
	// guess 401
	// secret 200
}

// What the documents outside the code say is held against the code here.

func TestDocsTheProgramInTheReadmeIsTheExample(t *testing.T) {
	_, program, found := strings.Cut(readDoc(t, "README.md"), "```go\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```")
	formatted, err := format.Source([]byte(program))
	require.NoError(t, err)
	assert.Equal(t, string(formatted), program, "gofmt would change it")
	assert.Equal(t, bodyOf(t, "example_test.go", nil, "ExampleNew"), bodyOf(t, "README.md", program, "main"))
}

// bodyOf returns the text between the braces of a function.
func bodyOf(t *testing.T, name string, src any, function string) string {
	t.Helper()
	fset := token.NewFileSet()
	if src == nil {
		src = readDoc(t, name)
	}
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	require.NoError(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == function {
			return src.(string)[fset.Position(fn.Body.Lbrace).Offset:fset.Position(fn.Body.Rbrace).Offset]
		}
	}
	t.Fatalf("%s has no function %s", name, function)
	return ""
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// descriptions is a registerer that only reads what it is offered.
type descriptions []string

func (d *descriptions) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() {
		c.Describe(ch)
		close(ch)
	}()
	for desc := range ch {
		*d = append(*d, desc.String())
	}
	return nil
}

func (d *descriptions) MustRegister(...prometheus.Collector) {}
func (d *descriptions) Unregister(prometheus.Collector) bool { return true }

func TestDocsTheReadmeListsEveryMetricWithItsLabels(t *testing.T) {
	cfg := weir.DefaultConfig()
	cfg.DefaultClass = "web"
	var offered descriptions
	limiter, err := weir.New(cfg, weir.WithRegisterer(&offered), weir.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer func() { _ = limiter.Close() }()
	require.NotEmpty(t, offered)
	var want []string
	described := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}`)
	for _, text := range offered {
		m := described.FindStringSubmatch(text)
		require.NotNil(t, m, text)
		want = append(want, m[1]+" "+m[2])
	}
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_\\w+)` \\| ([^|]*?) *\\|").FindAllStringSubmatch(readDoc(t, "README.md"), -1) {
		labels := strings.ReplaceAll(strings.ReplaceAll(m[2], "`", ""), ", ", ",")
		got = append(got, m[1]+" "+labels)
	}
	slices.Sort(want)
	slices.Sort(got)
	assert.Equal(t, want, got)
}

func TestDocsEveryRequirementThatCodeCitesIsListed(t *testing.T) {
	listed := readDoc(t, "docs/requirements.md")
	cited := regexp.MustCompile(`requirements? [A-Z]\d+((–|, | and | to )[A-Z]\d+)*`)
	code := regexp.MustCompile(`[A-Z]\d+`)
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		text := strings.ReplaceAll(readDoc(t, name), "\n// ", " ")
		for _, passage := range cited.FindAllString(text, -1) {
			for _, c := range code.FindAllString(passage, -1) {
				assert.Contains(t, listed, "| **"+c+"** |", "cited in %s", name)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

const exampleFile = "examples/weir.yaml"

func TestDocsTheExampleFileIsSound(t *testing.T) {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = weir.PKIEndpoints()
	for i := range cfg.Endpoints {
		if cfg.Endpoints[i].Class == weir.ClassACMEFinalize {
			cfg.Endpoints[i].Guard = "hsm"
		}
	}
	d := yaml.NewDecoder(bytes.NewReader([]byte(readDoc(t, exampleFile))))
	d.KnownFields(true)
	require.NoError(t, d.Decode(&cfg))
	require.NoError(t, cfg.Validate())
	assert.Empty(t, cfg.Advise())
	assert.Equal(t, len(weir.PKIEndpoints()), len(cfg.Endpoints), "the file must leave endpoints to the program")
	limiter, err := weir.New(cfg)
	require.NoError(t, err)
	require.NoError(t, limiter.Close())
}

func TestDocsTheFilesInTheReadmeDecode(t *testing.T) {
	files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readDoc(t, "README.md"), -1)
	require.NotEmpty(t, files)
	for _, file := range files {
		cfg := weir.DefaultConfig()
		cfg.Endpoints = weir.PKIEndpoints()
		d := yaml.NewDecoder(strings.NewReader(file[1]))
		d.KnownFields(true)
		require.NoError(t, d.Decode(&cfg), file[1])
		if cfg.Store.Backend == "memory" { // another has to be imported
			assert.NoError(t, cfg.Validate(), file[1])
		}
	}
}

// Its comments say which values are not the defaults.
func TestDocsTheExampleFileHasTheDefaults(t *testing.T) {
	var got weir.Config
	require.NoError(t, yaml.Unmarshal([]byte(readDoc(t, exampleFile)), &got))
	want := weir.DefaultConfig()
	want.ClientIP.TrustedProxies = []string{"127.0.0.1"}
	want.Guards = map[string]weir.GuardConfig{"hsm": {MaxInFlight: 8, MaxQueue: 64, AcquireTimeout: got.Guards["hsm"].AcquireTimeout}}
	a, err := yaml.Marshal(want)
	require.NoError(t, err)
	b, err := yaml.Marshal(got)
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b))
}

func TestDocsTheExampleFileNamesEveryKey(t *testing.T) {
	text := readDoc(t, exampleFile)
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice, reflect.Map, reflect.Pointer:
			walk(typ.Elem())
		case reflect.Struct:
			if seen[typ] {
				return
			}
			seen[typ] = true
			for f := range typ.Fields() {
				if key, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); key != "" {
					assert.Regexp(t, `\b`+key+`\b`, text)
					walk(f.Type)
				}
			}
		}
	}
	walk(reflect.TypeFor[weir.Config]())
}
