package acmeserver

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// turns keeps apart requests that Pebble (v2.10.3) can have wait for each other
// for ever. To show an authorization it locks that and then, to find the account,
// its store; to place or look up an order it locks the store for reading, and
// then authorizations. Two such requests alone get along, but as soon as a third
// wants to write to the store, which nearly any does, the first waits behind the
// third, the third for the second, and the second for the first.
type turns struct {
	next http.Handler
	mu   sync.RWMutex // held by a request for an authorization, read-held by one for an order
}

// maxJWS is far above the size of any request that an ACME client has reason to
// make.
const maxJWS = 1 << 20

func (t *turns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if strings.HasPrefix(path, PathAuthz) {
		if _, ok := whole(w, r); ok {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.next.ServeHTTP(w, r)
		}
		return
	}
	for _, order := range []string{PathNewOrder, PathOrder, PathFinalize, PathOrders} {
		if strings.HasPrefix(path, order) {
			if _, ok := whole(w, r); ok {
				t.mu.RLock()
				defer t.mu.RUnlock()
				t.next.ServeHTTP(w, r)
			}
			return
		}
	}
	t.next.ServeHTTP(w, r)
}

// whole reads the body of r, so that nobody who sends slowly holds the others
// up, and puts it back. Not ok is a body that is cut off or too long; that it has
// answered.
func whole(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxJWS))
	if err != nil {
		status := http.StatusBadRequest
		if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, http.StatusText(status), status)
		return nil, false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, true
}
