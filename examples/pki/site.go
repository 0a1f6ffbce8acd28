package main

import (
	"log/slog"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/examples/pki/acmeserver"
)

// A site is an authority with a Limiter in front of it. Close it.
type site struct {
	*acmeserver.Server
	limiter *weir.Limiter
}

// A siteOption changes what stands in front of the authority.
type siteOption func(*siteOptions)

type siteOptions struct {
	nonces bool
	behind func(http.Handler) http.Handler
}

// withNonces gives refusals a fresh nonce; see [nonces] for what that costs.
func withNonces() siteOption { return func(o *siteOptions) { o.nonces = true } }

// withBehind puts middleware between the Limiter and the authority: a request
// gets there once it is admitted and has the slot that its class needs.
func withBehind(m func(http.Handler) http.Handler) siteOption {
	return func(o *siteOptions) { o.behind = m }
}

// open starts an authority and puts a Limiter with these limits before it.
func open(cfg weir.Config, opts ...siteOption) (*site, error) {
	o := siteOptions{behind: func(next http.Handler) http.Handler { return next }}
	for _, opt := range opts {
		opt(&o)
	}
	// The Limiter is made first, for its error is this function's; the
	// authority that nonces come from is there before the first request is.
	source := new(nonces)
	settings := []weir.Option{weir.WithLogger(slog.New(slog.DiscardHandler))}
	if o.nonces {
		settings = append(settings, weir.WithNonce(source.fresh))
	}
	limiter, err := weir.New(cfg, settings...)
	if err != nil {
		return nil, err
	}
	srv, err := acmeserver.Start(acmeserver.Config{Wrap: func(authority http.Handler) http.Handler {
		source.authority = authority
		return limiter.Handler(o.behind(authority))
	}})
	if err != nil {
		_ = limiter.Close() // always nil
		return nil, err
	}
	return &site{srv, limiter}, nil
}

// Close ends the authority, then the Limiter.
func (s *site) Close() {
	s.Server.Close()
	_ = s.limiter.Close() // always nil
}

// counted returns what the Limiter has counted for a class.
func (s *site) counted(class weir.Class) weir.ClassSnapshot {
	for _, c := range s.limiter.Snapshot().Classes {
		if c.Class == class {
			return c
		}
	}
	return weir.ClassSnapshot{Class: class}
}

// guard returns the state of the guard in front of the HSM.
func (s *site) guard() weir.GuardSnapshot {
	for _, g := range s.limiter.Snapshot().Guards {
		if g.Guard == guardHSM {
			return g
		}
	}
	return weir.GuardSnapshot{Guard: guardHSM}
}
