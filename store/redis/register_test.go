package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weir-go/weir/internal/redistest"
	"github.com/weir-go/weir/store"
)

func TestTheImportMakesTheBackendAvailable(t *testing.T) {
	server := redistest.Start(t)
	c := store.OpenConfig{Namespace: "ca", DSN: "redis://" + server.Addr, KeyPrefix: "p:", ConnectTimeout: 20 * time.Second, CommandTimeout: 20 * time.Second}
	s, err := store.Open(t.Context(), "redis", c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	check := ask("tier", "k", hourly, 5, 1)
	if v, _, err := s.Admit(t.Context(), []store.Check{check}, nil); err != nil || !v.Admitted() {
		t.Fatalf("%+v, %v", v, err)
	}
	if keys := server.Do("KEYS", "p:{ca}*").([]any); len(keys) < 1 {
		t.Errorf("no key with the prefix and namespace of the configuration: %v", server.Do("KEYS", "*"))
	}
}

func TestABackendThatIsNotThereIsNoStore(t *testing.T) {
	s, err := store.Open(t.Context(), "redis", store.OpenConfig{DSN: "redis://weir:hunter2@127.0.0.1:1", ConnectTimeout: inVain, CommandTimeout: 20 * time.Second})
	if s != nil || err == nil {
		t.Fatalf("%v, %v", s, err)
	}
	if r, ok := errors.AsType[store.Reasoner](err); !ok || r.StoreReason() != string(ReasonUnreachable) {
		t.Errorf("error %v, want one that says %s", err, ReasonUnreachable)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error names the password: %v", err)
	}
}
