// Command locks prints how often weir takes a lock for one request of each
// scenario of package bench. It says nothing unless it is built so that weir's
// locks are counted, as the budget test of package bench builds it.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/weir-go/weir/bench"
	"github.com/weir-go/weir/bench/countsync"
)

func main() {
	for _, s := range bench.Scenarios() {
		h := s.Handler()
		w := &bench.NullWriter{H: http.Header{}}
		serve := func() {
			w.Reset(s.Status)
			h.ServeHTTP(w, s.Request)
			if w.Status != s.Status {
				fmt.Fprintf(os.Stderr, "locks: %s: status %d, want %d\n", s.Name, w.Status, s.Status)
				os.Exit(1)
			}
		}
		s.Before(h)
		serve() // what only a first request does
		if countsync.Locks.Load() == 0 {
			fmt.Fprintln(os.Stderr, "locks: nothing counts: build with the overlay")
			os.Exit(1)
		}
		const n = 100
		before := countsync.Locks.Load()
		for range n {
			serve()
		}
		fmt.Printf("%s\t%g\n", s.Name, float64(countsync.Locks.Load()-before)/n)
	}
}
