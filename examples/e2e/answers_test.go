//go:build e2e

package e2e

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

const (
	busy  = http.StatusServiceUnavailable
	often = http.StatusTooManyRequests
)

// answers is a record of what a server answered, by path.
type answers struct {
	mu  sync.Mutex
	all []answer
}

type answer struct {
	method, path string
	operation    string // of SCEP
	status       int
}

// of records the answers of h as its client sees them. It buffers them: these
// servers do not stream.
func (a *answers) of(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		a.mu.Lock()
		a.all = append(a.all, answer{r.Method, r.URL.Path, r.URL.Query().Get("operation"), rec.Code})
		a.mu.Unlock()
		maps.Copy(w.Header(), rec.Header())
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	})
}

// to returns the statuses of the answers at paths with this prefix, in order.
func (a *answers) to(prefix string) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	var statuses []int
	for _, one := range a.all {
		if strings.HasPrefix(one.path, prefix) {
			statuses = append(statuses, one.status)
		}
	}
	return statuses
}

// enrolments returns the methods by which SCEP's PKIOperation was asked for.
func (a *answers) enrolments() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var methods []string
	for _, one := range a.all {
		if one.operation == "PKIOperation" {
			methods = append(methods, one.method)
		}
	}
	return methods
}

// refusals returns how many answers were 429 or 503.
func (a *answers) refusals() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, one := range a.all {
		if refused(one.status) {
			n++
		}
	}
	return n
}

func refused(status int) bool {
	return status == often || status == busy
}
