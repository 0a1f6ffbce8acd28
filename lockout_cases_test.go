package weir

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// lockoutCase is one sequence of testdata/lockout.json with the right answers.
type lockoutCase struct {
	Name     string
	PairMode bool
	Steps    []lockoutStep
}

// lockoutStep is attempts alike, Repeat of them, Every seconds apart. In names
// # stands for the number of the attempt. The answers are those of the last.
type lockoutStep struct {
	T             float64 // seconds since the beginning
	Addr, Account string
	Credential    string // good, bad, missing, malformed, expired, error
	CredentialID  *string
	Repeat        int
	Every         float64
	Loopback      bool // direct, from this machine itself

	LastDecision   string // ok, fail, locked, neutral, unchecked
	LastDelayMs    int64
	LastRetryAfter *int64
}

func lockoutCases(t testing.TB) (cases []lockoutCase) {
	t.Helper()
	raw, err := os.ReadFile("testdata/lockout.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 44 {
		t.Fatalf("%d cases", len(cases))
	}
	return cases
}

// lockLimits is the auth lock with its defaults and nothing else.
func lockLimits(change func(*AuthLockConfig)) Config {
	cfg := noTiers()
	cfg.Guards = map[string]GuardConfig{"unused": {MaxInFlight: 1}}
	cfg.DefaultClass = ""
	cfg.Endpoints = []Endpoint{
		{Pattern: "/est", Class: "est", Kind: KindEST, Auth: AuthBasic},
		{Pattern: "/form", Class: "form", Kind: KindPage, Auth: AuthHandler},
		{Pattern: "/api", Class: "api", Kind: KindAPI, Auth: AuthBasic},
		{Pattern: "/s3/{path...}", Class: "s3", Kind: KindS3},
		{Pattern: "/token", Class: "token", Kind: KindAPI, Auth: AuthBearer},
		{Pattern: "/open", Class: "open", Kind: KindAPI},
	}
	cfg.AuthLock.Enabled = true
	if change != nil {
		change(&cfg.AuthLock)
	}
	return cfg
}

// The sequences, on virtual time, as calls of a handler.
func TestLockoutSequencesHaveTheirAnswers(t *testing.T) {
	for _, tc := range lockoutCases(t) {
		t.Run(tc.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playLockout(t, tc) })
		})
	}
}

func playLockout(t *testing.T, tc lockoutCase) {
	l := newLimiter(t, lockLimits(func(a *AuthLockConfig) {
		a.Address.PerCredential = tc.PairMode
		a.Account.AdmitLoopback = true
	}))
	start := time.Now()
	for i, s := range tc.Steps {
		var got decision
		for n := range s.Repeat {
			at := start.Add(seconds(s.T + float64(n)*s.Every))
			if wait := time.Until(at); wait > 0 {
				time.Sleep(wait)
			}
			got = s.attempt(l, n)
		}
		want := decision{what: s.LastDecision, delay: time.Duration(s.LastDelayMs) * time.Millisecond}
		if s.LastRetryAfter != nil {
			want.retry = *s.LastRetryAfter
		}
		if got != want {
			t.Errorf("step %d, %+v: %+v, want %+v", i, s, got, want)
		}
	}
}

// decision is what became of an attempt.
type decision struct {
	what  string
	delay time.Duration
	retry int64 // seconds
}

// attempt makes the nth of a step's attempts, without serving its delay.
func (s *lockoutStep) attempt(l *Limiter, n int) (d decision) {
	r := from(s.Addr)
	if s.Loopback {
		r = from("127.0.0.1")
	} else if s.Addr == "127.0.0.1" {
		r = withHeader(r, "X-Forwarded-For", "203.0.113.99")
	}
	number := func(id string) string {
		if id != "" && id[len(id)-1] == '#' {
			return fmt.Sprint(id, n)
		}
		return id
	}
	c := Credential{Account: number(s.Account), ID: number(s.Account)}
	if s.CredentialID != nil {
		c = Credential{ID: number(*s.CredentialID)}
	}
	l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if s.Credential == "missing" || s.Credential == "malformed" {
			d.what = "unchecked" // nobody asks the Limiter
			return
		}
		sign := &signIn{}
		visitFrom(r.Context()).enterSignIn(sign) // to see the delay
		a, err := l.Attempt(r.Context(), c)
		if err == nil {
			switch s.Credential {
			case "good":
				d.what, err = "ok", a.Succeed()
			case "bad":
				d.what, err = "fail", a.Fail()
			default:
				d.what = "neutral"
				a.Ignore()
			}
		}
		if locked, ok := errors.AsType[*LockedError](err); ok {
			d.what, d.retry = "locked", int64(math.Ceil(locked.RetryAfter.Seconds()))
		}
		_, d.delay = sign.verdict()
	})).ServeHTTP(nil, r)
	return d
}
