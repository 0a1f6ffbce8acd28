// Package acmeserver runs a whole ACME certificate authority inside the
// calling program: Pebble's CA, validation authority and web front end, with
// one seam where middleware goes.
//
//	srv, err := acmeserver.Start(acmeserver.Config{Wrap: limiter.Handler})
//	if err != nil {
//		return err
//	}
//	defer srv.Close()
//	// Point any ACME client at srv.DirectoryURL, through srv.Client().
//
// It is an authority for examples and tests. It validates nothing (see
// [Start]), keeps its state in memory and makes a new root on every start.
package acmeserver

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

// Config says how to start a [Server]. The zero value starts a quiet authority
// with nothing in front of it.
type Config struct {
	// Wrap puts middleware between the listener and the authority; nil wraps
	// nothing. It is called once, before the listener accepts. The handler
	// that it returns sees each request as it came off the wire: TLS set, body
	// unread, path unrewritten.
	Wrap func(http.Handler) http.Handler

	// Log receives Pebble's log, one line and more for each request, and that
	// of the listener; nil discards both.
	Log io.Writer
}

// An Authority is Pebble without a listener, for programs that have their own.
type Authority struct {
	// Handler serves it. It demands a User-Agent on every request (RFC 8555,
	// section 6.1), TLS, and takes the account URLs it hands out from the Host.
	Handler http.Handler

	// Root is the self-signed certificate at the end of every chain issued
	// here.
	Root *x509.Certificate

	// KeyID is the subject key identifier of its issuing certificate. Renewal
	// information (RFC 9773) is given for certificates that name it only.
	KeyID []byte

	store *db.MemoryStore
	turns *turns
}

// New builds an authority; see [Start] for what is special about it. The error
// is that of the environment.
func New(log io.Writer) (*Authority, error) {
	return build(newLogger(log))
}

func newLogger(w io.Writer) *log.Logger {
	return log.New(cmp.Or(w, io.Discard), "pebble ", log.LstdFlags)
}

func build(logger *log.Logger) (*Authority, error) {
	authority, front, store, err := newAuthority(logger)
	if err != nil {
		return nil, fmt.Errorf("acmeserver: %w", err)
	}
	turns := &turns{next: front.Handler()}
	return &Authority{
		Handler: promptPolls(turns),
		Root:    authority.GetRootCert(0).Cert,
		KeyID:   authority.GetIntermediateCert(0).Cert.SubjectKeyId,
		store:   store,
		turns:   turns,
	}, nil
}

// A Server is a running authority, ready for clients on a free loopback port.
// Its methods are safe for concurrent use; its fields are read-only.
type Server struct {
	// Handler is the authority itself, without Config.Wrap: what middleware
	// has to forward to. It demands a User-Agent on every request (RFC 8555,
	// section 6.1) and takes the account URLs it hands out from the Host.
	Handler http.Handler

	// DirectoryURL is where a client begins (RFC 8555, section 7.1.1).
	DirectoryURL string

	// Root is the self-signed certificate at the end of every chain issued
	// here. It has no part in the TLS of the listener: for that see Client.
	Root *x509.Certificate

	listener *httptest.Server
}

// Start builds the authority, wraps it and begins to serve it over HTTPS, with
// HTTP/2, on 127.0.0.1. The caller must Close the Server. The error is that of
// the listener or of the environment (see below); on error nothing is left running.
//
// What this authority does differently from a public one, so that a program's
// output depends only on what the program does:
//
//   - each challenge counts as met at once, without looking at the name;
//   - no good nonce is refused at random;
//   - no authorization is reused: each order asks for all its challenges;
//   - answers about challenges name a second as the time to wait between polls.
//
// Pebble takes the first three from environment variables only, so Start sets
// those for the moment of construction and puts them back.
func Start(cfg Config) (*Server, error) {
	logger := newLogger(cfg.Log)
	authority, err := build(logger)
	if err != nil {
		return nil, err
	}
	handler := authority.Handler

	// httptest.NewServer would panic where this returns an error.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("acmeserver: %w", err)
	}
	wrapped := handler
	if cfg.Wrap != nil {
		wrapped = cfg.Wrap(handler)
	}
	listener := &httptest.Server{
		Listener:    ln,
		EnableHTTP2: true,
		Config:      &http.Server{Handler: wrapped, ErrorLog: logger},
	}
	listener.StartTLS()

	return &Server{
		Handler:      handler,
		DirectoryURL: listener.URL + PathDirectory,
		Root:         authority.Root,
		listener:     listener,
	}, nil
}

// newAuthority wires the parts as Pebble's own command does. P-256 keys: the
// command's default, RSA, would take most of a test's run time to generate.
func newAuthority(logger *log.Logger) (*ca.CAImpl, *wfe.WebFrontEndImpl, *db.MemoryStore, error) {
	const (
		noOCSP         = ""
		alternateRoots = 0
		intermediates  = 1
		lenient        = false // -strict tries rules that RFC 8555 does not have
		systemResolver = ""    // never asked: challenges are always met
		eabRequired    = false
		noRetryAfter   = 0 // see below
	)
	profiles := map[string]ca.Profile{"default": {Description: "the only profile"}}

	var (
		store     = db.NewMemoryStore()
		authority = ca.New(logger, store, noOCSP, "ecdsa", alternateRoots, intermediates, profiles)
		front     wfe.WebFrontEndImpl
	)
	err := withDeterminism(func() {
		validator := va.New(logger, 0, 0, lenient, systemResolver, store)
		// A positive number here would put Retry-After on answers to polls, as
		// seconds or as a date by the toss of a coin; then no test could say
		// which waits are the middleware's doing.
		front = wfe.New(logger, store, validator, authority,
			[]string{"pebble.letsencrypt.org"}, lenient, eabRequired, noRetryAfter, noRetryAfter)
	})
	return authority, &front, store, err
}

// promptPolls puts Retry-After: 1 on the answers about challenges, as RFC 8555,
// section 8.2, asks of a server and Pebble does not do. Without it lego polls
// an authorization once at once and then not for another 2.5 to 7.5 seconds.
func promptPolls(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, PathChallenge) {
			w.Header().Set("Retry-After", "1")
		}
		next.ServeHTTP(w, r)
	})
}

// Client returns a client that trusts the listener's certificate. Each call
// makes a new http.Client, for some ACME libraries replace its Transport; the
// connections underneath are shared.
func (s *Server) Client() *http.Client {
	return &http.Client{Transport: s.listener.Client().Transport}
}

// Roots returns a new pool that holds Root alone, for x509.VerifyOptions.
func (s *Server) Roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Root)
	return pool
}

// Close stops listening, waits for the requests in flight and drops idle
// connections, those of Client included. Calls after the first do nothing.
//
// One parked goroutine outlives it: Pebble's validator waits for ever on a
// queue that nothing outside it can close.
func (s *Server) Close() {
	s.listener.Close()
}
