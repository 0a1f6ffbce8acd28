package main

import (
	"net/http"
	"testing"

	"golang.org/x/sync/semaphore"
)

// semaphores is golang.org/x/sync/semaphore, released by defer as in its
// documentation's example. It limits how many at once and nothing else.
func semaphores() *column {
	return &column{
		name: "x/sync",
		guards: []guard{{"semaphore, by hand", func(_ *testing.T, slots int) mounted {
			s := semaphore.NewWeighted(int64(slots))
			return func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if !s.TryAcquire(1) {
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					defer s.Release(1)
					next.ServeHTTP(w, r)
				})
			}
		}}},
	}
}
