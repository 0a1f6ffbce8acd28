//go:build !race

// The race detector allocates on its own account.

package jws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAccountAllocations(t *testing.T) {
	for _, tt := range []struct {
		name string
		body []byte
		want float64
	}{
		{"a new-order request: the buffer, the body put back, the name", newOrder(600), 3},
		{"a finalize request with 100 names: and two larger buffers", newOrder(14_000), 5},
		{"a body that is no JSON: the buffer and the body put back", []byte("eyJhbGciOiJFUzI1NiJ9.e30.c2ln"), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			account := replay(tt.body)
			assert.LessOrEqual(t, testing.AllocsPerRun(200, func() { account() }), tt.want)
		})
	}
}

func TestKeyIDAllocations(t *testing.T) {
	for _, tt := range []struct {
		name string
		body string
		want float64
	}{
		{"a kid: its name", string(newOrder(600)), 1},
		{"a kid with escapes: its name", byKID(`"https:\/\/ca.example\/acme\/acct\/1"`), 1},
		{"a jwk", signed(header(anyJWK)), 0},
		{"a compact JWS", "eyJhbGciOiJFUzI1NiJ9.e30.c2ln", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := []byte(tt.body)
			assert.LessOrEqual(t, testing.AllocsPerRun(200, func() { KeyID(body) }), tt.want)
		})
	}
}

// Without an account a body of 64 KiB may cost buffers of its own size, but
// nothing for each bracket, member or escape in it.
func TestKeyIDAllocationsDoNotGrowWithHostility(t *testing.T) {
	for name, body := range hostileBodies(64 << 10) {
		t.Run(name, func(t *testing.T) {
			require.Less(t, len(body), 65<<10)
			text := []byte(body)
			assert.LessOrEqual(t, testing.AllocsPerRun(10, func() { KeyID(text) }), 4.0)
		})
	}
}
