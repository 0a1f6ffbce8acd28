package weir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/weir-go/weir/store"
)

// Claims about attempts.

// inside runs f as the handler of a request from addr.
func inside(l *Limiter, addr string, f func(ctx context.Context)) {
	l.ClientIP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })).ServeHTTP(nil, from(addr))
}

// lockedFor claims that an attempt is refused by a lock of that scope, and for
// how long.
func lockedFor(t *testing.T, l *Limiter, addr, account, scope string, wait time.Duration) {
	t.Helper()
	inside(l, addr, func(ctx context.Context) {
		t.Helper()
		a, err := l.Attempt(ctx, Credential{ID: account, Account: account})
		a.Ignore()
		locked, ok := errors.AsType[*LockedError](err)
		if !ok || locked.Scope != scope || locked.RetryAfter != wait {
			t.Fatalf("an attempt at %s from %s: %v, want the %s locked for %v", account, addr, err, scope, wait)
		}
	})
}

// open claims that an attempt may be made and its success told.
func open(t *testing.T, l *Limiter, addr, account string) {
	t.Helper()
	inside(l, addr, func(ctx context.Context) {
		t.Helper()
		a, err := l.Attempt(ctx, Credential{ID: account, Account: account})
		if err == nil {
			err = a.Succeed()
		}
		if err != nil {
			t.Fatalf("a right attempt at %s from %s: %v", account, addr, err)
		}
	})
}

// Who guesses in parallel.

// Scenarios R1–R4: what guesses at once learn is the limit, whatever is in
// flight, and nobody who guesses at the same time as the right password is sent
// learns more.
func TestParallelGuessesLearnNoMoreThanTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name          string
		reserve       bool
		guesses       int
		addr, account func(i int) string
		told, checked int
		scope         string
	}{
		{"at one account from everywhere", false, 10_000, manyAddrs, one("bob"), 10, 10_000, "account"},
		{"at one account from everywhere, reserved from the start", true, 10_000, manyAddrs, one("bob"), 10, 10, "account"},
		{"at many accounts from one address", false, 1000, one(addr1), names200, 100, 1000, "address"},
		{"at many accounts from one address, reserved from the start", true, 1000, one(addr1), names200, 100, 100, "address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := lockLimits(func(a *AuthLockConfig) { a.ReserveAlways = tt.reserve })
				l := newLimiter(t, cfg)
				var checked atomic.Int64
				h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					checked.Add(1)
					time.Sleep(50 * time.Millisecond) // bcrypt
					passwordIs("right").ServeHTTP(w, r)
				}))
				var answers [600]atomic.Int64
				var wg sync.WaitGroup
				for i := range tt.guesses {
					wg.Go(func() {
						status, _ := guesser{h, tt.addr(i), tt.account(i)}.guess("wrong")
						answers[status].Add(1)
					})
				}
				wg.Wait()
				if told, refused := answers[401].Load(), answers[429].Load(); told != int64(tt.told) || told+refused != int64(tt.guesses) {
					t.Errorf("%d guesses were told and %d refused, want %d told", told, refused, tt.told)
				}
				if n := checked.Load(); n > int64(tt.checked) {
					t.Errorf("%d guesses were checked, want at most %d", n, tt.checked)
				}
				t.Logf("%d guesses, %d checked, %d told", tt.guesses, checked.Load(), answers[401].Load())
			})
		})
	}
}

func one(s string) func(int) string { return func(int) string { return s } }
func manyAddrs(i int) string        { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }
func names200(i int) string         { return fmt.Sprint("user", i%200) }

// Scenario R5: a success that is settled after the lock is not told, and its
// side effects do not happen: the handler makes them after Succeed.
func TestARightPasswordBehindTheLockIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		sessions := 0
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, err := l.Attempt(r.Context(), Credential{ID: "bob", Account: "bob"})
			if err != nil {
				return
			}
			defer a.Ignore()
			time.Sleep(time.Second)
			failures(t, l, addr1, "bob", 10) // meanwhile
			if a.Succeed() != nil {
				return
			}
			sessions++
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "s"})
		}))
		w := send(h, request("POST", "/form", "198.51.100.7", ""))
		if w.Code != 429 || sessions != 0 || w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%d, %d sessions, header %v", w.Code, sessions, w.Header())
		}
	})
}

// The same where the handler knows nothing of it: its answer is dropped with
// all that its header says.
func TestASuccessBehindTheLockIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			failures(t, l, addr1, "bob", 10)
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "s"})
			w.Header().Set("Location", "/home")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, "welcome")
			_ = http.NewResponseController(w).Flush()
			_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("bob"))
		}))
		outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request-Id", "7")
			h.ServeHTTP(w, r)
		})
		r := request("POST", "/api", "198.51.100.7", "")
		r.SetBasicAuth("bob", "right")
		w := send(outer, r)
		if w.Code != 429 || w.Header().Get("Set-Cookie")+w.Header().Get("Location") != "" || strings.Contains(w.Body.String(), "welcome") {
			t.Errorf("%d, header %v, body %q", w.Code, w.Header(), w.Body)
		}
		if w.Header().Get("X-Request-Id") != "7" || retryAfter(t, w) != 3600 {
			t.Errorf("header %v", w.Header())
		}
	})
}

// Scenario R14: an honest client under reservation is never in its own way.
func TestAnHonestClientIsNeverRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.ReserveAlways = true }))
		g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
		for range 3600 {
			if status, took := g.guess("right"); status != 200 || took != 0 {
				t.Fatalf("%d after %v", status, took)
			}
			time.Sleep(time.Second)
		}
	})
}

// Scenario R15: 500 requests at once with a right signature.
func TestACrowdOfRightCredentialsIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Address.PerCredential = true }))
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			served(w, r)
		}))
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				r := request("PUT", "/s3/bucket/key", addr1, "")
				r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE"+sigV4Rest)
				if w := send(h, r); w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		wg.Wait()
	})
}

// Who settles, and when.

// outcomes are ways in which a handler behind the stage ends, and whether that
// is a failure.
func TestTheOutcomeIsLearntFromTheHandlerOrTheStatus(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, tt := range []struct {
		name     string
		handler  http.HandlerFunc
		failures uint64
		clears   bool // a success clears the account's count
	}{
		{"401 is a failure", status(401), 1, false},
		{"403 is a failure", status(403), 1, false},
		{"200 is a success", status(200), 0, true},
		{"204 is a success", status(204), 0, true},
		{"nothing written is a success, for that is what the server makes of it", func(http.ResponseWriter, *http.Request) {}, 0, true},
		{"a body without a status is a success", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") }, 0, true},
		{"302 is no verdict", status(302), 0, false},
		{"400 is no verdict", status(400), 0, false},
		{"404 is no verdict", status(404), 0, false},
		{"500 is no verdict", status(500), 0, false},
		{"an early hint is no verdict, the answer is", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(103)
			w.WriteHeader(401)
		}, 1, false},
		{"a second status is none", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			w.WriteHeader(401)
		}, 0, false},
		{"the handler knows better than 403", func(w http.ResponseWriter, r *http.Request) {
			_ = AttemptFrom(r.Context()).Succeed()
			w.WriteHeader(403)
		}, 0, true},
		{"the handler knows better than 200", func(w http.ResponseWriter, r *http.Request) {
			_ = AttemptFrom(r.Context()).Fail()
			w.WriteHeader(200)
		}, 1, false},
		{"an expired token is what the handler says it is", func(w http.ResponseWriter, r *http.Request) {
			AttemptFrom(r.Context()).Ignore()
			w.WriteHeader(401)
		}, 0, false},
		{"a report after the answer counts", func(w http.ResponseWriter, r *http.Request) {
			a := AttemptFrom(r.Context())
			w.WriteHeader(200)
			_ = a.Fail()
		}, 1, false},
		{"one that the handler forgets is no verdict", func(w http.ResponseWriter, r *http.Request) {
			_ = AttemptFrom(r.Context())
			w.WriteHeader(401)
		}, 0, false},
		{"an attempt of the handler's own takes the place of the stage's", func(w http.ResponseWriter, r *http.Request) {
			l := visitFrom(r.Context()).l
			a, _ := l.Attempt(r.Context(), Credential{Account: "bob"})
			_ = a.Fail()
			w.WriteHeader(401)
		}, 1, false},
		{"the first verdict counts", func(w http.ResponseWriter, r *http.Request) {
			a := AttemptFrom(r.Context())
			if a.Fail() != nil || a.Succeed() == nil {
				panic("the second verdict was taken")
			}
			a.Ignore()
		}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(nil))
				failures(t, l, addr1, "bob", 5)
				r := request("POST", "/api", addr1, "")
				r.SetBasicAuth("bob", "x")
				send(l.Handler(tt.handler), r)
				if got := l.Snapshot().Auth.Failures["account"] - 5; got != tt.failures {
					t.Errorf("%d failures, want %d", got, tt.failures)
				}
				left := 5 - int(tt.failures)
				if tt.clears {
					left = 10
				}
				failures(t, l, "203.0.113.9", "bob", left)
				lockedFor(t, l, "198.51.100.7", "bob", "account", time.Hour)
			})
		})
	}
}

// Scenarios R8, R10–R13: what ends a handler without a verdict gives the
// reserved place back and counts nothing.
func TestAPlaceComesBackHoweverTheHandlerEnds(t *testing.T) {
	gone := func(r *http.Request) *http.Request {
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		return r.WithContext(ctx)
	}
	for _, tt := range []struct {
		name      string
		request   func(*http.Request) *http.Request
		handler   http.HandlerFunc
		failures  uint64
		unsettled uint64
	}{
		{"a panic", nil, func(http.ResponseWriter, *http.Request) { panic("boom") }, 0, 0},
		{"an aborted answer", nil, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0, 0},
		{"a client that has gone before a verdict", gone, func(http.ResponseWriter, *http.Request) {}, 0, 0},
		{"a verdict after the client has gone counts", gone, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 1, 0},
		{"an attempt that was taken over and forgotten", nil, func(w http.ResponseWriter, r *http.Request) { _ = AttemptFrom(r.Context()) }, 0, 1},
		{"a panic with an attempt that was taken over", nil, func(w http.ResponseWriter, r *http.Request) {
			_ = AttemptFrom(r.Context())
			panic("boom")
		}, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.ReserveAlways = true }))
				h := l.Handler(tt.handler)
				for range 3 {
					r := request("POST", "/api", addr1, "")
					r.SetBasicAuth("bob", "x")
					if tt.request != nil {
						r = tt.request(r)
					}
					func() {
						defer func() { _ = recover() }()
						send(h, r)
					}()
				}
				if got := l.Snapshot().Auth.Failures["account"]; got != 3*tt.failures {
					t.Errorf("%d failures, want %d", got, 3*tt.failures)
				}
				if got := l.counts.unsettled.value(); got != 3*tt.unsettled {
					t.Errorf("%d are counted as unsettled", got)
				}
				// All places are free, at once.
				inside(l, addr1, func(ctx context.Context) {
					for i := range 10 - int(3*tt.failures) {
						if _, err := l.Attempt(ctx, Credential{Account: "bob"}); err != nil {
							t.Fatalf("place %d: %v", i, err)
						}
					}
				})
			})
		})
	}
}

// Nobody was answered, so nothing was proved: neither is the account's count
// cleared, nor the address remembered.
func TestAClientThatHasGoneHasProvedNothing(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	failures(t, l, "203.0.113.9", "bob", 9)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := request("POST", "/api", addr1, "").WithContext(ctx)
	r.SetBasicAuth("bob", "x")
	send(l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), r)
	failures(t, l, "203.0.113.9", "bob", 1)
	inside(l, addr1, func(ctx context.Context) {
		if _, err := l.Attempt(ctx, Credential{Account: "bob"}); err == nil {
			t.Error("the address is admitted to the locked account")
		}
	})
}

// Where there is no address there is none to remember.
func TestNobodyIsRememberedOutsideHandlers(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	if a, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err != nil || a.Succeed() != nil {
		t.Fatal(err)
	}
	failures(t, l, addr1, "bob", 10)
	if _, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err == nil {
		t.Error("an attempt from nowhere is admitted to the locked account")
	}
}

// A handler that goes on after the stage has returned, as one behind
// http.TimeoutHandler does, may still give its verdict.
func TestAVerdictAfterTheStageCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			a := AttemptFrom(r.Context())
			time.Sleep(2 * time.Second)
			_ = a.Fail()
		})
		r := request("POST", "/api", addr1, "")
		r.SetBasicAuth("bob", "x")
		if w := send(l.Handler(http.TimeoutHandler(inner, time.Second, "")), r); w.Code != 503 {
			t.Errorf("status %d", w.Code)
		}
		time.Sleep(2 * time.Second)
		if got := l.Snapshot().Auth.Failures["account"]; got != 1 {
			t.Errorf("%d failures, want 1", got)
		}
	})
}

func TestTheNilAttemptIsSafe(t *testing.T) {
	var a *Attempt
	if a.Fail() != nil || a.Succeed() != nil {
		t.Error("the nil attempt says something")
	}
	a.Ignore()
	if AttemptFrom(t.Context()) != nil {
		t.Error("an attempt outside a Limiter's handlers")
	}
	l := newLimiter(t, noTiersBut(TierPerIP))
	if a, err := l.Attempt(t.Context(), Credential{Account: "bob"}); a != nil || err != nil {
		t.Errorf("without the auth lock: %v, %v", a, err)
	}
}

func TestOutsideHandlersTheAccountCounts(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	for range 10 {
		a, err := l.Attempt(t.Context(), Credential{Account: "bob"})
		if err != nil || a.Fail() != nil {
			t.Fatal(err)
		}
	}
	_, err := l.Attempt(t.Context(), Credential{Account: "bob"})
	if locked, ok := errors.AsType[*LockedError](err); !ok || locked.Scope != "account" {
		t.Errorf("the eleventh: %v", err)
	}
	if !strings.Contains(err.Error(), "account") || strings.Contains(err.Error(), "bob") {
		t.Errorf("%q", err)
	}
}

// Scenario R24: the password is right and the second factor wrong, ten times.
func TestASecondFactorIsPartOfTheAttempt(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	failures(t, l, addr1, "bob", 9) // password right, code wrong: one attempt, one verdict
	inside(l, addr1, func(ctx context.Context) {
		a, err := l.Attempt(ctx, Credential{Account: "bob"})
		if err != nil || a.Fail() != nil {
			t.Fatal(err)
		}
	})
	if _, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err == nil {
		t.Error("the account is not locked")
	}
}

// What the locked are told.

// Requirement L7 and scenarios P1–P4, P6, P7, P10.
func TestTheLockedAreToldInTheirProtocol(t *testing.T) {
	for _, tt := range []struct {
		name, method, target, accept string
		status                       int
		contentType, body            string
	}{
		{"an API client", "POST", "/api", "application/json", 429, "application/problem+json", `"retry_after_secs":3600`},
		{"an API client is told as L7 says", "POST", "/api", "", 429, "application/problem+json", `"ok":false,"error":"locked","message":"Too many failed attempts, access is locked for now. Please try again in 1 hour`},
		{"an EST client", "POST", "/est", "", 429, "text/plain", "in 1 hour"},
		{"a browser", "POST", "/form", "text/html,application/xhtml+xml", 429, "text/html", "in 1 hour"},
		{"an S3 client", "PUT", "/s3/bucket/key", "", 503, "application/xml", "<Code>SlowDown</Code>"},
		{"an S3 client, with the wait in words", "GET", "/s3/bucket/key", "", 503, "application/xml", "in 1 hour"},
		{"an S3 client that asks for the header", "HEAD", "/s3/bucket/key", "", 503, "application/xml", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(nil), WithCredential(func(r *http.Request) (Credential, bool) {
					account := r.Header.Get("User")
					return Credential{ID: account, Account: account}, account != ""
				}))
				h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was asked") }))
				for _, account := range []string{"bob", "nobody"} { // whether or not there is one
					failures(t, l, addr1, account, 10)
				}
				var bodies []string
				for _, account := range []string{"bob", "nobody"} {
					r := withHeader(request(tt.method, tt.target, "198.51.100.7", ""), "User", account)
					r.Body = unread{t}
					if tt.accept != "" {
						r.Header.Set("Accept", tt.accept)
					}
					w := send(h, r)
					if w.Code != tt.status || !strings.HasPrefix(w.Header().Get("Content-Type"), tt.contentType) || !strings.Contains(w.Body.String(), tt.body) {
						t.Errorf("%d %s\n%s", w.Code, w.Header().Get("Content-Type"), w.Body)
					}
					if retryAfter(t, w) != 3600 || w.Header().Get("Cache-Control") != "no-store" {
						t.Errorf("header %v", w.Header())
					}
					text := w.Body.String()
					for _, secret := range []string{account, "198.51.100.7", "10 "} {
						if strings.Contains(text, secret) {
							t.Errorf("the answer names %q:\n%s", secret, text)
						}
					}
					if id := w.Header().Get("X-Amz-Request-Id"); id != "" {
						text = strings.ReplaceAll(text, id, "")
					}
					bodies = append(bodies, text)
				}
				if bodies[0] != bodies[1] {
					t.Errorf("the answers tell the accounts apart:\n%s\n%s", bodies[0], bodies[1])
				}
			})
		})
	}
}

// Scenario P8, and requirement L5: who brings no credential is served.
func TestARequestWithoutACredentialIsNoAttempt(t *testing.T) {
	l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 }))
	h := l.Handler(served)
	failures(t, l, addr1, "bob", 100)
	admitted(t, h, request("GET", "/form", addr1, ""))
	admitted(t, h, request("GET", "/api", addr1, ""))
	admitted(t, h, request("GET", "/open", addr1, ""))
	r := request("GET", "/open", addr1, "")
	r.SetBasicAuth("bob", "x")
	admitted(t, h, r) // a class whose requests are no attempts
	r = request("POST", "/est", addr1, "")
	r.SetBasicAuth("bob", "x")
	refused(t, h, r)
}

// A handler of a form just returns: the stage answers for it.
func TestTheStageAnswersForAHandlerThatReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		handled := 0
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handled++
			a, err := l.Attempt(r.Context(), Credential{Account: r.FormValue("user")})
			if err != nil {
				if r.FormValue("own") != "" {
					http.Error(w, "come back later", http.StatusTooManyRequests)
				}
				return
			}
			defer a.Ignore()
			if a.Fail() != nil {
				http.Error(w, "wrong", 200) // withheld: never seen
				return
			}
			_, _ = io.WriteString(w, "wrong")
		}))
		for i := range 13 {
			w := send(h, request("POST", "/form?user=bob", addr1, ""))
			if want := map[bool]int{true: 200, false: 429}[i < 10]; w.Code != want {
				t.Errorf("attempt %d: %d, want %d", i+1, w.Code, want)
			}
		}
		w := send(h, request("POST", "/form?user=bob&own=1", addr1, ""))
		if w.Code != 429 || w.Body.String() != "come back later\n" || retryAfter(t, w) != 3600 {
			t.Errorf("the handler's own refusal: %d %v %q", w.Code, w.Header(), w.Body)
		}
		if handled != 14 {
			t.Errorf("handled %d", handled)
		}
	})
}

// A handler may try several credentials, or check one in several directories:
// the answer is that of the one that is right.
func TestOneRightCredentialOfSeveralIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		failures(t, l, "203.0.113.9", "bob", 10)
		failures(t, l, addr1, "eve", 9)
		failures(t, l, addr1, "ann", 9)
		h := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := l.Attempt(r.Context(), Credential{Account: "bob"}); err == nil {
				t.Error("bob's account is not locked")
			}
			a, err := l.Attempt(r.Context(), Credential{Account: "eve"})
			if err != nil || a.Fail() != nil {
				t.Error(err)
			}
			if a, err = l.Attempt(r.Context(), Credential{Account: "ann"}); err != nil || a.Succeed() != nil {
				t.Error(err)
			}
			served(w, r)
		}))
		began := time.Now()
		admitted(t, h, request("POST", "/form", addr1, ""))
		if took := time.Since(began); took != 0 {
			t.Errorf("a success was kept back for %v", took)
		}
	})
}

// Keys and names.

// Requirement L10 and scenario M7: neither a name nor an address stands in
// clear in what leaves the request, nor does a password typed as a name.
func TestNoNameIsInClear(t *testing.T) {
	const secret = "correct-horse-battery"
	reg := prometheus.NewRegistry()
	lines, log := withLog()
	var events []AuditEvent
	l := newLimiter(t, lockLimits(nil), log, WithRegisterer(reg), WithAudit(func(e AuditEvent) { events = append(events, e) }))
	for i := range 13 {
		g := guesser{l.Handler(passwordIs("right")), addr1, secret}
		if status, _ := g.guess("wrong"); (status == 401) != (i < 10) {
			t.Fatalf("attempt %d: %d", i, status)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	snapshot, _ := json.Marshal(l.Snapshot())
	text := fmt.Sprint(families, lines.with(), events, string(snapshot))
	if strings.Contains(text, secret) {
		t.Errorf("the name is in clear:\n%s", text)
	}
	if len(lines.with("lock has started")) != 1 || len(events) != 1 {
		t.Errorf("%d events, log %q", len(events), lines.with())
	}
}

func TestALockIsAuditedOnceWhenItStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []AuditEvent
		l := newLimiter(t, lockLimits(nil), WithAudit(func(e AuditEvent) { events = append(events, e) }))
		g := guesser{l.Handler(passwordIs("right")), "2001:db8::7", "bob"}
		for range 50 {
			g.guess("wrong")
		}
		want := AuditEvent{
			Event: AuditLocked, Scope: "account", Class: "est", Network: netip.MustParsePrefix("2001:db8::/64"),
			Account: keyText(l.keyer.key("auth/account", "bob")), Failures: 10, Duration: time.Hour,
		}
		if len(events) != 1 || events[0] != want {
			t.Errorf("%+v, want %+v once", events, want)
		}
		if locks := l.Snapshot().Auth.Locks; len(locks) != 1 || locks[0].ID != want.Account {
			t.Errorf("the snapshot lists %+v", locks)
		}
	})
}

func TestAPanicInTheProgramsFunctionsIsContained(t *testing.T) {
	l := newLimiter(t, lockLimits(nil),
		WithAudit(func(AuditEvent) { panic("audit") }),
		WithCredential(func(*http.Request) (Credential, bool) { panic("credential") }))
	g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
	for i := range 11 {
		if status, _ := g.guess("wrong"); (status == 401) != (i < 10) {
			t.Errorf("attempt %d: %d", i+1, status)
		}
	}
	for _, callback := range []string{"audit", "credential"} {
		if got := l.counts.panics[callback].value(); got == 0 {
			t.Errorf("the panic of %s is not counted", callback)
		}
	}
}

// Operators.

func TestAnOperatorCanUnlock(t *testing.T) {
	for _, tt := range []struct {
		name    string
		pair    bool
		c       Credential
		addr    netip.Addr
		lifted  int
		account bool // is open afterwards, elsewhere
		address bool // is open afterwards, for another account
	}{
		{"nothing", false, Credential{}, netip.Addr{}, 0, false, false},
		{"somebody else", false, Credential{Account: "eve"}, netip.MustParseAddr("192.0.2.99"), 0, false, false},
		{"an account", false, Credential{Account: " BOB"}, netip.Addr{}, 1, true, false},
		{"an address", false, Credential{}, netip.MustParseAddr("192.0.2.7"), 1, false, true},
		{"an address in IPv6 clothes", false, Credential{}, netip.MustParseAddr("::ffff:192.0.2.7"), 1, false, true},
		{"both", false, Credential{Account: "bob"}, netip.MustParseAddr("192.0.2.7"), 2, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Address.MaxFailures = 10 }))
				failures(t, l, "192.0.2.7", "bob", 10)
				if got := l.Snapshot().Auth; got.Locked["address"] != 1 || got.Locked["account"] != 1 || len(got.Locks) != 2 ||
					got.Locks[0].Scope != "account" || got.Locks[1].ID != "192.0.2.7/32" || got.Locks[1].RetryAfter != 10*time.Minute {
					t.Errorf("the snapshot says %+v", got)
				}
				n, err := l.Unlock(t.Context(), tt.c, tt.addr)
				if n != tt.lifted || err != nil {
					t.Errorf("%d locks were lifted, %v, want %d", n, err, tt.lifted)
				}
				for _, one := range []struct {
					open                 bool
					addr, account, scope string
				}{{tt.account, "198.51.100.7", "bob", "account"}, {tt.address, "192.0.2.7", "eve", "address"}} {
					if one.open {
						open(t, l, one.addr, one.account)
					} else {
						lockedFor(t, l, one.addr, one.account, one.scope, map[string]time.Duration{"account": time.Hour, "address": 10 * time.Minute}[one.scope])
					}
				}
			})
		})
	}
}

func TestUnlockWithoutTheAuthLockIsNothing(t *testing.T) {
	l := newLimiter(t, noTiersBut(TierPerIP))
	if n, err := l.Unlock(t.Context(), Credential{Account: "bob"}, netip.Addr{}); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if l.Snapshot().Auth != nil {
		t.Error("the snapshot has an auth lock")
	}
}

func TestTheAuthLockIsMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 12 }), WithRegisterer(reg))
		if got := metric(t, reg, "weir_auth_lockouts_total", "scope", "account"); got != 0 {
			t.Errorf("%v lockouts from the start", got)
		}
		g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
		for range 15 {
			g.guess("wrong")
		}
		for _, tt := range []struct {
			name, scope string
			want        float64
		}{
			{"weir_auth_failures_total", "address", 12}, {"weir_auth_failures_total", "account", 12}, {"weir_auth_failures_total", "caller", 0},
			{"weir_auth_lockouts_total", "account", 1}, {"weir_auth_lockouts_total", "address", 0},
			{"weir_auth_refused_total", "account", 3}, {"weir_auth_locked", "account", 1}, {"weir_auth_locked", "address", 0},
			{"weir_auth_key_count", "account", 1}, {"weir_auth_max_keys", "account", 100000},
		} {
			if got := metric(t, reg, tt.name, "scope", tt.scope); got != tt.want {
				t.Errorf("%s{scope=%q} is %v, want %v", tt.name, tt.scope, got, tt.want)
			}
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if h := f.GetMetric()[0].GetHistogram(); h != nil && (h.GetSampleCount() != 2 || h.GetSampleSum() != 0.6) {
				t.Errorf("%s: %v", f.GetName(), h)
			}
		}
		_ = l.Close()
		if families, _ := reg.Gather(); len(families) != 0 {
			t.Errorf("%d families after Close", len(families))
		}
	})
}

// The rest of the policy.

func TestTheAuthLockInShadowOnlyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := lockLimits(nil)
		cfg.Shadow = []string{StageAuthLock}
		l := newLimiter(t, cfg)
		g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
		for i := range 30 {
			if status, took := g.guess("wrong"); status != 401 || took != 0 {
				t.Errorf("attempt %d: %d after %v", i+1, status, took)
			}
		}
		if status, _ := g.guess("right"); status != 200 {
			t.Errorf("the right one: %d", status)
		}
		if got := l.counts.locks[lockAccount].shadowed.value(); got != 21 {
			t.Errorf("%d would have been refused, want 21", got)
		}
		if got := l.Snapshot().Auth.Refused["account"]; got != 0 {
			t.Errorf("%d were refused", got)
		}
	})
}

// Requirement L12: in pair mode a ceiling over all ids of an address, and a
// bound on distinct ids, stop a spray.
func TestASprayIsStoppedInPairMode(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*AddressLockConfig)
		guesses int
		told    int
		scope   string
	}{
		{"not by pairs alone", func(*AddressLockConfig) {}, 2000, 2000, ""},
		{"by a ceiling", func(a *AddressLockConfig) { a.Ceiling = 500 }, 2000, 500, "ceiling"},
		{"by a bound on distinct ids", func(a *AddressLockConfig) { a.MaxCredentials = 30 }, 2000, 30, "spray"},
		{"by whichever comes first", func(a *AddressLockConfig) { a.Ceiling, a.MaxCredentials = 500, 30 }, 2000, 30, "spray"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, lockLimits(func(a *AuthLockConfig) {
					a.Address.PerCredential = true
					tt.change(&a.Address)
				}))
				told := 0
				var last error
				inside(l, addr1, func(ctx context.Context) {
					for i := range tt.guesses {
						var a *Attempt
						if a, last = l.Attempt(ctx, Credential{ID: fmt.Sprint("AK", i)}); last == nil {
							if last = a.Fail(); last == nil {
								told++
							}
						}
					}
				})
				scope := ""
				if locked, ok := errors.AsType[*LockedError](last); ok {
					scope = locked.Scope
				}
				if told != tt.told || scope != tt.scope {
					t.Errorf("%d were told, then %q is locked; want %d and %q", told, scope, tt.told, tt.scope)
				}
			})
		})
	}
}

// Requirement L11: the owner's own client does not refill a guesser's budget.
func TestASuccessCanBeLimitedToItsAddress(t *testing.T) {
	l := newLimiter(t, lockLimits(func(a *AuthLockConfig) { a.Account.ClearSameAddress = true }))
	for range 2 {
		failures(t, l, "203.0.113.8", "bob", 4)
		failures(t, l, addr1, "bob", 1)
		open(t, l, addr1, "bob")
	}
	failures(t, l, "203.0.113.8", "bob", 2)
	if _, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err == nil {
		t.Error("ten failures of a guesser did not lock the account")
	}
}

// Scenario R23.
func TestALoweredLimitHoldsFromTheNextFailure(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	for i := range 50 {
		failures(t, l, addr1, fmt.Sprint("user", i), 1)
	}
	if err := l.Reload(lockLimits(func(a *AuthLockConfig) { a.Address.MaxFailures = 20 })); err != nil {
		t.Fatal(err)
	}
	failures(t, l, addr1, "eve", 1)
	inside(l, addr1, func(ctx context.Context) {
		if _, err := l.Attempt(ctx, Credential{Account: "eve"}); err == nil {
			t.Error("the next failure did not lock")
		}
	})
}

func TestAReloadKeepsLocksAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, lockLimits(nil))
		failures(t, l, addr1, "bob", 10)
		failures(t, l, addr1, "eve", 9)
		off := lockLimits(func(a *AuthLockConfig) { a.Enabled = false })
		off.DefaultClass = "other"
		for _, cfg := range []Config{off, lockLimits(func(a *AuthLockConfig) { a.MaxKeys = 50 }), l.Config()} {
			if err := l.Reload(cfg); err != nil {
				t.Fatal(err)
			}
		}
		lockedFor(t, l, "198.51.100.7", "bob", "account", time.Hour)
		failures(t, l, "198.51.100.7", "eve", 1)
		lockedFor(t, l, "198.51.100.7", "eve", "account", time.Hour)
	})
}

// A stage mounted twice counts once, and so does one by hand inside the chain.
func TestTheStageCountsOnce(t *testing.T) {
	l := newLimiter(t, lockLimits(nil))
	g := guesser{l.Handler(l.AuthLock(l.Handler(passwordIs("right")))), addr1, "bob"}
	g.guess("wrong")
	if got := l.Snapshot().Auth.Failures["account"]; got != 1 {
		t.Errorf("%d failures", got)
	}
}

func TestTheStageAloneNeedsNoClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := noTiers()
		cfg.DefaultClass = ""
		cfg.AuthLock.Enabled = true
		l := newLimiter(t, cfg)
		g := guesser{l.AuthLock(passwordIs("right")), addr1, "bob"}
		for i := range 12 {
			if status, _ := g.guess("wrong"); (status == 401) != (i < 10) {
				t.Errorf("attempt %d: %d", i+1, status)
			}
		}
	})
}

// Requirement S4 and scenarios R18–R20, for locks.
func TestAFailingStoreOpensNoDoorAndClosesNone(t *testing.T) {
	for _, tt := range []struct {
		name, onError string
		told          int
	}{
		{"local counting takes over", "local", 10},
		{"or attempts pass uncounted", "allow", 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &brokenLocker{Memory: store.NewMemory()}
				cfg := lockLimits(func(a *AuthLockConfig) { a.Delay.After = 1000 })
				cfg.Store.OnError = tt.onError
				lines, log := withLog()
				l := newLimiter(t, cfg, WithStore(st), log)
				g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
				st.broken.Store(true)
				told := 0
				for range 50 {
					if status, _ := g.guess("wrong"); status == 401 {
						told++
					}
				}
				if told != tt.told {
					t.Errorf("%d guesses were told while the store failed, want %d", told, tt.told)
				}
				if len(lines.with("the store failed", "op=begin")) == 0 || l.counts.errors[errorKey("begin", "other")].value() == 0 {
					t.Errorf("log %q", lines.with())
				}
				st.broken.Store(false)
				want := 401
				if tt.onError == "local" {
					want = 429 // what was locked meanwhile stays so
				}
				if status, _ := g.guess("wrong"); status != want {
					t.Errorf("when the store is back: %d, want %d", status, want)
				}
				if tt.onError == "local" {
					if n, err := l.Unlock(t.Context(), Credential{Account: "bob"}, netip.Addr{}); n != 1 || err != nil {
						t.Errorf("Unlock lifted %d, %v", n, err)
					}
					if status, _ := g.guess("right"); status != 200 {
						t.Errorf("after that: %d", status)
					}
				}
			})
		})
	}
}

func TestAVerdictIsCountedHereIfTheStoreFailsMeanwhile(t *testing.T) {
	l := newLimiter(t, lockLimits(nil), WithStore(&brokenLocker{Memory: store.NewMemory()}))
	st := l.opts.store.(*brokenLocker)
	for i := range 10 {
		st.broken.Store(false)
		a, err := l.Attempt(t.Context(), Credential{Account: "bob"})
		if err != nil {
			t.Fatalf("attempt %d: %v", i, err)
		}
		st.broken.Store(true)
		if err := a.Fail(); err != nil {
			t.Fatal(err)
		}
	}
	st.broken.Store(false)
	if _, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err == nil {
		t.Error("ten failures that were counted here did not lock")
	}
}

// brokenLocker is a store that counts failures, or fails.
type brokenLocker struct {
	*store.Memory
	broken atomic.Bool
}

func (s *brokenLocker) Begin(ctx context.Context, a *store.Attempt) (store.LockVerdict, error) {
	if s.broken.Load() {
		return store.LockVerdict{}, errStoreDown
	}
	return s.Memory.Begin(ctx, a)
}

func (s *brokenLocker) Settle(ctx context.Context, a *store.Attempt, o store.Outcome) (store.LockVerdict, error) {
	if s.broken.Load() {
		panic("the store panicked") // as good as an error
	}
	return s.Memory.Settle(ctx, a, o)
}

// A store that knows no locks leaves them to this process.
func TestAStoreWithoutLocksLeavesThemToTheProcess(t *testing.T) {
	l := newLimiter(t, lockLimits(nil), WithStore(bareStore{store.NewMemory()}))
	failures(t, l, addr1, "bob", 10)
	if _, err := l.Attempt(t.Context(), Credential{Account: "bob"}); err == nil {
		t.Error("ten failures did not lock")
	}
}

type bareStore struct{ store.Store }

// A failed attempt was not made by whom it named: a token that it took from
// the account goes back (requirement T9).
func TestAFailureGivesTheAccountsTokenBack(t *testing.T) {
	cfg := lockLimits(func(a *AuthLockConfig) { a.Account.MaxFailures = 1000 })
	cfg.Tiers.PerAccount = perHour(2)
	l := newLimiter(t, cfg)
	g := guesser{l.Handler(passwordIs("right")), addr1, "bob"}
	for range 9 {
		if status, _ := g.guess("wrong"); status != 401 {
			t.Fatalf("status %d", status)
		}
	}
	for i, want := range []int{200, 200, 429} {
		if status, _ := g.guess("right"); status != want {
			t.Errorf("the owner's request %d: %d, want %d", i+1, status, want)
		}
	}
}
