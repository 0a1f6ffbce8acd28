package weir

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAConfigErrorNamesFieldValueReasonAndCure(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  ConfigError
		want string
	}{
		{"a number", ConfigError{"tiers.per_ip.burst", 0.0, ReasonConflict, "set burst"}, "weir: config tiers.per_ip.burst = 0 (conflict): set burst"},
		{"a text", ConfigError{"endpoints[3].kind", "acne", ReasonUnknown, "write acme"}, `weir: config endpoints[3].kind = "acne" (unknown): write acme`},
		{"a text with control characters", ConfigError{"namespace", "a\nb", ReasonInvalid, "use letters"}, `weir: config namespace = "a\nb" (invalid): use letters`},
		{"a duration", ConfigError{"tiers.idle_ttl", Duration(-1e9), ReasonOutOfRange, "write 10m"}, "weir: config tiers.idle_ttl = -1s (out_of_range): write 10m"},
		{"nothing, or a secret", ConfigError{"store.key_secret", nil, ReasonMissing, "set it"}, "weir: config store.key_secret (missing): set it"},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.EqualError(t, &tt.err, tt.want) })
	}
}

// Programs match these words.
func TestReasonsKeepTheirWords(t *testing.T) {
	assert.Equal(t,
		[]Reason{"missing", "invalid", "out_of_range", "unknown", "conflict", "inert", "unsupported"},
		[]Reason{ReasonMissing, ReasonInvalid, ReasonOutOfRange, ReasonUnknown, ReasonConflict, ReasonInert, ReasonUnsupported})
}

func TestConfigErrorsFindsEveryFaultHoweverWrapped(t *testing.T) {
	a, b, c := &ConfigError{Path: "a"}, &ConfigError{Path: "b"}, &ConfigError{Path: "c"}
	other := errors.New("something else")
	for _, tt := range []struct {
		name string
		err  error
		want []*ConfigError
	}{
		{"no error", nil, nil},
		{"an error of another kind", other, nil},
		{"one fault", a, []*ConfigError{a}},
		{"a joined error", errors.Join(a, b, c), []*ConfigError{a, b, c}},
		{"a join of joins", errors.Join(errors.Join(a, b), c), []*ConfigError{a, b, c}},
		{"a wrapped join", fmt.Errorf("reading weir.yaml: %w", errors.Join(a, b)), []*ConfigError{a, b}},
		{"a join wrapped twice", fmt.Errorf("starting: %w", fmt.Errorf("reading: %w", errors.Join(a, b))), []*ConfigError{a, b}},
		{"two wrapped by one", fmt.Errorf("%w and %w", a, errors.Join(b, c)), []*ConfigError{a, b, c}},
		{"faults beside other errors", errors.Join(other, a, fmt.Errorf("more: %w", other), b), []*ConfigError{a, b}},
	} {
		t.Run(tt.name, func(t *testing.T) { assert.Equal(t, tt.want, slices.Collect(ConfigErrors(tt.err))) })
	}
}

func TestConfigErrorsCanBeLeftEarly(t *testing.T) {
	err := fmt.Errorf("%w", errors.Join(errors.Join(&ConfigError{Path: "a"}, &ConfigError{Path: "b"}), &ConfigError{Path: "c"}))
	var seen []string
	for e := range ConfigErrors(err) {
		seen = append(seen, e.Path)
		if e.Path == "b" {
			break
		}
	}
	assert.Equal(t, []string{"a", "b"}, seen)
}

func TestErrorsAsFindsTheFirstFault(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Namespace, cfg.RetryJitter, cfg.DefaultClass = "9", 7, "any"
	err := fmt.Errorf("weir.yaml: %w", cfg.Validate())

	var e *ConfigError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "namespace", e.Path)
	first, ok := errors.AsType[*ConfigError](err)
	require.True(t, ok)
	assert.Same(t, e, first)
}

func TestFaultsComeInTheOrderOfTheFields(t *testing.T) {
	inOrder := []string{
		"enabled",
		"namespace",
		"client_ip.trusted_proxies[0]",
		"client_ip.trusted_proxies[2]",
		"client_ip.trusted_proxies[10]",
		"client_ip.header",
		"client_ip.ipv6_prefix",
		"endpoints",
		"endpoints[0].pattern",
		"endpoints[0].cost",
		"endpoints[0].limits.global.rate",
		"endpoints[0].limits.per_ip",
		"endpoints[0].limits.per_ip.rate",
		"endpoints[0].limits.per_ip.burst",
		"endpoints[1].class",
		"endpoints[12].class",
		"default_class",
		"exempt.networks[1]",
		"exempt.classes[0]",
		"deny.networks[0]",
		"tiers.global.rate",
		"tiers.global.burst",
		"tiers.per_ip.overrides.192.0.2.0/24",
		"tiers.per_ip.overrides.192.0.2.0/24.rate",
		"tiers.per_ip.overrides.192.0.2.7.rate",
		"tiers.per_ip.overrides.192.0.2.7.burst",
		"tiers.per_account.burst",
		"tiers.per_account.overrides.alice.burst",
		"tiers.per_account.overrides.bob.rate",
		"tiers.custom[0].name",
		"tiers.custom[1].rate",
		"tiers.max_keys",
		"tiers.max_wait",
		"windows.enabled",
		"guards.HSM",
		"guards.hsm.max_in_flight",
		"guards.hsm.acquire_timeout",
		"guards.pool.max_in_flight",
		"headers.ietf",
		"retry_jitter",
		"store.backend",
		"store.redis.dsn",
		"shadow[0]",
	}
	for range 20 {
		var f faults
		for _, i := range rand.Perm(len(inOrder)) {
			f.add(inOrder[i], nil, ReasonInvalid, "write another")
		}
		var got []string
		for e := range ConfigErrors(f.err()) {
			got = append(got, e.Path)
		}
		require.Equal(t, inOrder, got)
	}
}

func TestFaultsOfOneFieldStayInTheOrderTheyWereFound(t *testing.T) {
	var f faults
	f.add("store.backend", nil, ReasonUnknown, "first")
	f.add("namespace", nil, ReasonInvalid, "second")
	f.add("store.backend", nil, ReasonConflict, "third")
	assert.EqualError(t, f.err(), "weir: config namespace (invalid): second\n"+
		"weir: config store.backend (unknown): first\nweir: config store.backend (conflict): third")
	assert.NoError(t, new(faults).err())
}

// Override keys are free text, so a path can be anything.
func FuzzPositionOf(f *testing.F) {
	for _, path := range []string{"", ".", "[", "endpoints[", "endpoints[x].class", "tiers.per_ip.overrides..", "guards.", "nowhere.at[3].all", "endpoints[99999999999999999999]"} {
		f.Add(path, "tiers.per_ip")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		p, q := positionOf(a), positionOf(b)
		assert.Zero(t, p.compare(p))
		assert.Equal(t, p.compare(q), cmp.Compare(0, q.compare(p)), "%q and %q have no order", a, b)
	})
}
