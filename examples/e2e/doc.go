// Package e2e has no code, only tests: clients that people really run, against
// a PKI behind weir, refused in every way that a Limiter can refuse.
//
//	make test-e2e
//
// installs the clients (Debian, as root) and runs the tests, which are behind
// the build tag e2e. They end by printing what each client did, which is where
// docs/pki.md has its tables from.
package e2e
