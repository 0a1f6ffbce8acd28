package main

import "github.com/weir-go/weir"

// wholeLimits returns the configuration of a whole PKI: its endpoints, and a
// guard on each class that has something signed.
func wholeLimits() weir.Config {
	cfg := weir.DefaultConfig()
	cfg.Endpoints = wholeEndpoints()
	return guarded(cfg)
}
