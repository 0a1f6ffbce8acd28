package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/go-chi/chi/v5/middleware"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/bench"
	"github.com/weir-go/weir/internal/clientip"
)

func plots() []plot {
	return []plot{
		{file: "keys", title: "One decision as keys grow", desc: "Nanoseconds of one admitted decision against the number of keys held, asked for in no order.",
			x: "keys", y: "ns/decision", lines: keyLines()},
		{file: "tiers", title: "A request as tiers grow", desc: "Nanoseconds of one admitted request against the number of token-bucket tiers that it spends from, and of the store's decision in it.",
			x: "tiers", y: "ns/request", lines: []line{
				{name: "whole request", at: upTo(12), open: tiers},
				{name: "decision alone", at: upTo(12), open: checks},
			}},
		{file: "overrides", title: "A request as overrides grow", desc: "Nanoseconds of one admitted request against the number of overrides of its tier.",
			x: "overrides", y: "ns/request", lines: []line{
				{name: "networks of one length", at: steps(1, 1000), open: networks(func(i int) string { return fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255) })},
				{name: "networks of all lengths", at: steps(1, 1000), open: networks(ofAllLengths)},
				{name: "accounts", at: steps(1, 1000), open: accounts},
			}},
		{file: "trusted", title: "A client's address as trusted networks grow", desc: "Nanoseconds to find the client's address behind one proxy against the number of trusted networks.",
			x: "trusted networks", y: "ns/request", lines: []line{
				{name: "weir", at: steps(1, 10_000), open: trusted},
				{name: "chi ClientIPFromXFF", at: steps(1, 10_000), open: trustedByChi},
			}},
		{file: "patterns", title: "A request as endpoint patterns grow", desc: "Nanoseconds of one admitted request against the number of endpoint patterns; 0 is a default class alone.",
			x: "endpoint patterns", y: "ns/request", lines: []line{
				{name: "plain paths", at: append([]int{0}, steps(1, 500)...), open: patterns("/plain/p%d", "/plain/p%d")},
				{name: "subtrees", at: append([]int{0}, steps(1, 500)...), open: patterns("/tree/p%d/", "/tree/p%d/a/b")},
				{name: "wildcards", at: append([]int{0}, steps(1, 500)...), open: patterns("/wild/p%d/{id}/x", "/wild/p%d/7/x")},
				{name: "no pattern matches", at: append([]int{0}, steps(1, 500)...), open: patterns("/plain/p%d", "/elsewhere/%d")},
			}},
	}
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i+1)
	}
	return list
}

// steps are 1, 2, 5, 10, … from one size to another.
func steps(from, to int) (list []int) {
	for decade := 1; decade <= to; decade *= 10 {
		for _, n := range []int{1, 2, 5} {
			if n *= decade; n >= from && n <= to {
				list = append(list, n)
			}
		}
	}
	return list
}

// scattered numbers the keys so that neighbours in time are none in memory.
func scattered(i, n int) int { return int(uint64(i) * 0x9e3779b97f4a7c15 >> 20 % uint64(n)) }

func keyLines() []line {
	most := map[string]int{"weir": 10_000_000, "xrate_lru": 1_000_000, "go-limiter": 1_000_000, "throttled": 1_000_000}
	var lines []line
	for _, k := range bench.KeyedLimiters() {
		if most[k.Name] == 0 {
			continue
		}
		lines = append(lines, line{name: k.Name, at: steps(1, most[k.Name]), open: func(size int) func(int) {
			d := k.Open(bench.Fresh, 2*size, bench.Roomy)()
			for i := range size {
				d(i)
			}
			return func(i int) { d(scattered(i, size)) }
		}})
	}
	return lines
}

func checks(n int) func(int) {
	scopes := []string{""}
	for i := 1; i < n; i++ {
		scopes = append(scopes, strconv.Itoa(i))
	}
	d := bench.MemoryTiers(bench.Fresh, 2000, bench.Roomy, scopes...)()
	return func(i int) { d(i % 1000) }
}

// tiers are the built-in ones and then custom ones, whose key is the address.
func tiers(n int) func(int) {
	cfg := bench.Bare(bench.Setup{Bound: 2000})
	roomy := bench.TierOf(bench.Roomy)
	built := []*weir.TierConfig{&cfg.Tiers.PerIP, &cfg.Tiers.Global, &cfg.Tiers.PerAccount}
	for _, t := range built[:min(n, len(built))] {
		*t = roomy
	}
	byAddress := func(r *http.Request) (string, bool) { return r.RemoteAddr, true }
	opts := []weir.Option{weir.WithAccount(byAddress)}
	for i := len(built); i < n; i++ {
		name := "custom" + strconv.Itoa(i)
		cfg.Tiers.Custom = append(cfg.Tiers.Custom, weir.CustomTierConfig{Name: name, Rate: roomy.Rate, Burst: roomy.Burst})
		opts = append(opts, weir.WithKey(name, byAddress))
	}
	return served(bench.NewWeir(cfg, opts...), bench.Path, 1000)
}

// ofAllLengths is the i-th of networks of 17 lengths, none of them twice.
func ofAllLengths(i int) string {
	bits := 16 + i%17
	a := 10<<24 | (i/17+1)<<(32-bits)
	return fmt.Sprintf("%d.%d.%d.%d/%d", a>>24, a>>16&255, a>>8&255, a&255, bits)
}

func networks(of func(i int) string) func(int) func(int) {
	return func(n int) func(int) {
		cfg := bench.Bare(bench.Setup{Bound: 2000})
		cfg.Tiers.PerIP = bench.TierOf(bench.Roomy)
		cfg.Tiers.PerIP.Overrides = map[string]weir.Limit{}
		for i := range n {
			cfg.Tiers.PerIP.Overrides[of(i)] = weir.Limit{Rate: 1e8, Burst: 1e8}
		}
		return served(bench.NewWeir(cfg), bench.Path, 1000)
	}
}

func accounts(n int) func(int) {
	cfg := bench.Bare(bench.Setup{Bound: 2000})
	cfg.Tiers.PerAccount = bench.TierOf(bench.Roomy)
	cfg.Tiers.PerAccount.Overrides = map[string]weir.Limit{}
	for i := range n {
		cfg.Tiers.PerAccount.Overrides[bench.Fresh.Text(i)+":40000"] = weir.Limit{Rate: 1e8, Burst: 1e8}
	}
	return served(bench.NewWeir(cfg, weir.WithAccount(func(r *http.Request) (string, bool) { return r.RemoteAddr, true })), bench.Path, 1000)
}

func patterns(pattern, path string) func(int) func(int) {
	return func(n int) func(int) {
		cfg := bench.Bare(bench.Setup{Bound: 2000})
		cfg.Tiers.PerIP = bench.TierOf(bench.Roomy)
		cfg.Endpoints, cfg.DefaultClass = nil, "other"
		for i := range n {
			cfg.Endpoints = append(cfg.Endpoints, weir.Endpoint{Pattern: fmt.Sprintf(pattern, i), Class: "est"})
		}
		return served(bench.NewWeir(cfg), fmt.Sprintf(path, max(0, n-1)), 1000)
	}
}

// served is a request from one of some addresses, to one path.
func served(l *weir.Limiter, path string, addresses int) func(int) {
	h := l.Handler(bench.Empty)
	reqs := make([]*http.Request, addresses)
	for i := range reqs {
		reqs[i] = httptest.NewRequest("POST", path, nil)
		reqs[i].Body = http.NoBody
		reqs[i].RemoteAddr = bench.Fresh.Text(i) + ":40000"
	}
	w := &bench.NullWriter{H: http.Header{}}
	return func(i int) { h.ServeHTTP(w, reqs[i%addresses]) }
}

// proxies are n networks, the last of which the request comes from.
func proxies(n int) []string {
	var list []string
	for i := 1; i < n; i++ {
		list = append(list, fmt.Sprintf("172.%d.%d.0/24", 16+i>>8, i&255))
	}
	return append(list, bench.Trusted)
}

func forwarded() *http.Request {
	r := httptest.NewRequest("POST", bench.Path, nil)
	r.RemoteAddr = "10.0.0.1:40000"
	r.Header.Set("X-Forwarded-For", "203.0.113.7, 10.0.0.2")
	return r
}

func trusted(n int) func(int) {
	resolver, faults, _ := clientip.New(clientip.Config{Trusted: proxies(n)})
	if len(faults) > 0 {
		panic(faults[0])
	}
	r := forwarded()
	return func(int) { resolver.Resolve(r) }
}

func trustedByChi(n int) func(int) {
	h := middleware.ClientIPFromXFF(proxies(n)...)(bench.Empty)
	r, w := forwarded(), &bench.NullWriter{H: http.Header{}}
	return func(int) { h.ServeHTTP(w, r) }
}
