package main

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// An hsm stands for the hardware that signs: it keeps each finalize for as long
// as work takes, and notes how many it had at once. It refuses nobody; that is
// for the guard in front of it to see to.
type hsm struct {
	work    func(context.Context)
	busy    atomic.Int32
	busiest atomic.Int32
}

// most returns how many requests were at work at once at most.
func (h *hsm) most() int { return int(h.busiest.Load()) }

func (h *hsm) inFrontOf(authority http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, acmeserver.PathFinalize) {
			now := h.busy.Add(1)
			defer h.busy.Add(-1)
			for was := h.busiest.Load(); was < now && !h.busiest.CompareAndSwap(was, now); {
				was = h.busiest.Load()
			}
			h.work(r.Context())
		}
		authority.ServeHTTP(w, r)
	})
}
