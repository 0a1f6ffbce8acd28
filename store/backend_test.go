package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weir-go/weir/store"
)

func TestABackendIsOpenedByItsName(t *testing.T) {
	var got store.OpenConfig
	want := store.NewMemory()
	store.Register("registered", func(_ context.Context, c store.OpenConfig) (store.Store, error) {
		got = c
		return want, nil
	})
	c := store.OpenConfig{Namespace: "ca", DSN: "x"}
	s, err := store.Open(t.Context(), "registered", c)
	if s != store.Store(want) || err != nil || got != c {
		t.Errorf("%v, %v, opened with %v", s, err, got)
	}
	if !slices.Contains(store.Backends(), "registered") {
		t.Errorf("it is not among %v", store.Backends())
	}
	if _, err := store.Open(t.Context(), "unheard of", c); !errors.Is(err, store.ErrNoBackend) || !strings.Contains(err.Error(), "registered") {
		t.Errorf("of a name that nobody has: %v", err)
	}
}

func TestANameIsRegisteredOnce(t *testing.T) {
	open := func(context.Context, store.OpenConfig) (store.Store, error) { return nil, nil }
	store.Register("taken", open)
	for name, register := range map[string]func(){
		"a name that is taken":      func() { store.Register("taken", open) },
		"the name of the built-in":  func() { store.Register("memory", open) },
		"a backend that opens none": func() { store.Register("none", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			register()
		})
	}
}

func TestWhatABackendIsOpenedWithPrintsNoSecret(t *testing.T) {
	c := store.OpenConfig{DSN: "redis://weir:hunter2@host"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(format, c); strings.Contains(text, "hunter2") || !strings.Contains(text, "DSN:set") {
			t.Errorf("%s: %s", format, text)
		}
	}
}
