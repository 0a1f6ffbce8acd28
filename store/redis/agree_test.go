package redis

import (
	"strings"
	"testing"

	"github.com/weir-go/weir/internal/redistest"
)

// Scenario M10: two nodes whose secrets differ would count one account as two.
func TestReplicasWithAnotherSecretDoNotStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	grant(t, server.Client(), "secret")
	o := unhurried("redis://weir:secret@" + server.Addr)
	o.Namespace, o.Fingerprint = fresh(), "one"
	for range 2 {
		open(t, o)
	}
	o.Fingerprint = "another"
	_, err := Open(t.Context(), o)
	if err == nil {
		t.Fatal("it started")
	}
	key := "weir:{" + o.Namespace + "}fingerprint"
	for _, want := range []string{key, o.Namespace, "same"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "another\"") || strings.Contains(err.Error(), "one\"") {
		t.Errorf("error %q tells the fingerprint", err)
	}
	if ttl := server.Client().Do(t.Context(), "PTTL", key).Val(); ttl.(int64) < 1 {
		t.Errorf("the fingerprint has no end: %v", ttl)
	}
	other := o
	other.Namespace = fresh()
	open(t, other) // another namespace, another secret
	server.Do("DEL", key)
	open(t, o)
	o.Fingerprint = ""
	open(t, o) // nobody compares
}
