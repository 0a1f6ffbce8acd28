package main

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-go/weir"
)

// A site is a login page and an enrolment endpoint over one directory of users.
type site struct {
	limiter  *weir.Limiter
	users    *directory
	ca       *authority
	sessions sync.Map // by id
	opened   atomic.Int64
	handler  http.Handler
}

func newSite(users map[string]string) (*site, error) {
	s := &site{users: newDirectory(users)}
	var err error
	if s.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	metrics := prometheus.NewRegistry()
	if s.limiter, err = weir.New(limits(),
		weir.WithRegisterer(metrics),
		weir.WithLogger(slog.New(slog.DiscardHandler)), // a program would log, and audit with WithAudit
	); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login", s.form)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /.well-known/est/simpleenroll", s.enrol)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	s.handler = s.limiter.Handler(mux)
	return s, nil
}

const page = `<!DOCTYPE html>
<title>Sign in</title>
<form method="post"><input name="user" autocomplete="username"><input name="password" type="password"><button>Sign in</button></form>
`

func (s *site) form(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) }

// login checks a password that came in a form.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	user, password := r.PostFormValue("user"), r.PostFormValue("password")
	if user == "" || password == "" {
		http.Error(w, "A name and a password are needed.", http.StatusBadRequest)
		return // no credential, so no attempt
	}
	attempt, err := s.limiter.Attempt(r.Context(), weir.Credential{ID: user, Account: user})
	if err != nil {
		return // locked: the Limiter answers
	}
	defer attempt.Ignore() // gives the place back whatever happens here

	if !s.users.verify(user, password) {
		_ = attempt.Fail() // if a lock holds by now, the Limiter answers
		http.Error(w, "That is not the password.", http.StatusUnauthorized)
		return
	}
	// Before there is a session: a success that comes behind a lock is none.
	if attempt.Succeed() != nil {
		return
	}
	http.SetCookie(w, &http.Cookie{Name: "session", Value: s.open(user), HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// open begins a session and returns its id.
func (s *site) open(user string) string {
	id := rand.Text()
	s.sessions.Store(id, user)
	s.opened.Add(1)
	return id
}

// A directory keeps passwords as hashes that are dear to compute, and counts
// how often it was asked to.
type directory struct {
	salt   []byte
	hashes map[string]string
	asked  atomic.Int64
}

func newDirectory(users map[string]string) *directory {
	d := &directory{salt: []byte(rand.Text()), hashes: map[string]string{}}
	for user, password := range users {
		d.hashes[user] = d.hash(password)
	}
	return d
}

func (d *directory) hash(password string) string {
	key, err := pbkdf2.Key(sha256.New, password, d.salt, 5_000, 32) // of a real site: 600 000
	if err != nil {
		panic(err) // the parameters are constants
	}
	return hex.EncodeToString(key)
}

// verify takes as long for a user who does not exist.
func (d *directory) verify(user, password string) bool {
	d.asked.Add(1)
	return subtle.ConstantTimeCompare([]byte(d.hash(password)), []byte(d.hashes[user])) == 1
}
