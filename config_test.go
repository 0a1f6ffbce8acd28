package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A format is one way to write a Config to a file. Both are strict: a key that
// does not exist is an error, for a misspelt limit is no limit.
type format struct {
	name   string
	encode func(any) ([]byte, error)
	decode func([]byte, *Config) error
}

var formats = []format{
	{"JSON", json.Marshal, func(text []byte, c *Config) error {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(c)
	}},
	{"YAML", yaml.Marshal, func(text []byte, c *Config) error {
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		return d.Decode(c)
	}},
}

func fileOfDefaults(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/config.yaml")
	require.NoError(t, err)
	return text
}

// equalConfigs holds two Configs against each other. A list that is empty is
// the same as one that is absent: no file format keeps them apart.
func equalConfigs(t testing.TB, want, got Config) {
	t.Helper()
	assert.Equal(t, withoutEmpty(want), withoutEmpty(got))
}

func withoutEmpty(c Config) Config {
	c = c.clone()
	eachValue(reflect.ValueOf(&c).Elem(), func(v reflect.Value) {
		if k := v.Kind(); (k == reflect.Slice || k == reflect.Map) && v.Len() == 0 {
			v.SetZero()
		}
	})
	return c
}

// eachValue visits every settable value in v: fields, list elements, and what
// pointers point to. The elements of maps it puts back after the visit.
func eachValue(v reflect.Value, visit func(reflect.Value)) {
	visit(v)
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachValue(v.Field(i), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachValue(v.Index(i), visit)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachValue(v.Elem(), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			element := reflect.New(v.Type().Elem()).Elem()
			element.Set(v.MapIndex(key))
			eachValue(element, visit)
			v.SetMapIndex(key, element)
		}
	}
}

// filledConfig returns a Config in which no field is zero and no two numbers
// or texts are the same.
func filledConfig() Config {
	var c Config
	n := 0
	fill(reflect.ValueOf(&c).Elem(), &n)
	return c
}

func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(element, n)
			v.SetMapIndex(key, element)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprintf("text%d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	default:
		panic("a Config holds a " + v.Kind().String())
	}
}

func TestTheFileOfDefaultsIsDefaultConfig(t *testing.T) {
	for _, tt := range []struct {
		name string
		onto Config
	}{
		{"decoded onto the zero Config", Config{}},
		{"decoded onto DefaultConfig", DefaultConfig()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.NoError(t, formats[1].decode(fileOfDefaults(t), &tt.onto))
			equalConfigs(t, DefaultConfig(), tt.onto)
		})
	}
}

// The file's empty lists are not nil once decoded; nothing may hang on that.
func TestTheFileOfDefaultsLacksNothingButEndpoints(t *testing.T) {
	var c Config
	require.NoError(t, formats[1].decode(fileOfDefaults(t), &c))
	require.NotNil(t, c.ClientIP.TrustedProxies)
	gives(t, c.Validate(), fault{"endpoints", ReasonInert, "default_class"})
	c.DefaultClass = "any"
	assert.NoError(t, c.Validate())
}

func TestTheFileOfDefaultsNamesEveryKey(t *testing.T) {
	var file map[string]any
	require.NoError(t, yaml.Unmarshal(fileOfDefaults(t), &file))
	var walk func(path string, typ reflect.Type, keys map[string]any)
	walk = func(path string, typ reflect.Type, keys map[string]any) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if !field.IsExported() || options == "omitempty" {
				continue
			}
			value, ok := keys[name]
			assert.True(t, ok, "%s%s is missing from the file", path, name)
			if inner, ok := value.(map[string]any); ok && field.Type.Kind() == reflect.Struct {
				walk(path+name+".", field.Type, inner)
			}
		}
	}
	walk("", reflect.TypeFor[Config](), file)
}

func TestEveryFieldHasTheSameNameInEveryFormat(t *testing.T) {
	snakeCase := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		names := map[string]bool{}
		for i := range typ.NumField() {
			field := typ.Field(i)
			if field.Name == "_" {
				continue
			}
			where := typ.Name() + "." + field.Name
			assert.True(t, field.IsExported(), "%s is hidden from decoders", where)
			tag := field.Tag.Get("json")
			assert.Equal(t, tag, field.Tag.Get("yaml"), where)
			assert.Equal(t, tag, field.Tag.Get("toml"), where)
			name, options, _ := strings.Cut(tag, ",")
			assert.Regexp(t, snakeCase, name, where)
			assert.Contains(t, []string{"", "omitempty"}, options, where)
			assert.False(t, names[name], "%s: the name %s is taken", where, name)
			names[name] = true
			walk(field.Type)
		}
	}
	walk(reflect.TypeFor[Config]())
	assert.Len(t, seen, 19, "config structs")
}

func TestAConfigSurvivesTheWayThroughAFile(t *testing.T) {
	for _, f := range formats {
		for _, tt := range []struct {
			name string
			cfg  Config
		}{
			{"the zero Config", Config{}},
			{"the defaults", DefaultConfig()},
			{"a Config with every field set", filledConfig()},
			{"the endpoints of a PKI", Config{Endpoints: PKIEndpoints()}},
		} {
			t.Run(f.name+": "+tt.name, func(t *testing.T) {
				text, err := f.encode(tt.cfg)
				require.NoError(t, err)
				var back Config
				require.NoError(t, f.decode(text, &back))
				equalConfigs(t, tt.cfg, back)
			})
		}
	}
}

// JSON is YAML as well, so what one encoder writes the other decoder must read.
func TestBothFormatsUseTheSameNames(t *testing.T) {
	text, err := json.Marshal(filledConfig())
	require.NoError(t, err)
	var back Config
	require.NoError(t, formats[1].decode(text, &back))
	equalConfigs(t, filledConfig(), back)
}

func TestAKeyThatDoesNotExistIsAnError(t *testing.T) {
	for _, f := range formats {
		for _, text := range []string{
			`{"enabeld": true}`,
			`{"tiers": {"per_ip": {"rate": 1, "brust": 2}}}`,
			`{"endpoints": [{"pattern": "/", "clas": "any"}]}`,
			`{"guards": {"hsm": {"max_inflight": 3}}}`,
		} {
			c := DefaultConfig()
			assert.Error(t, f.decode([]byte(text), &c), "%s: %s", f.name, text)
		}
	}
}

// A boolean whose default is true must not turn false because a file does not
// mention it, nor when what was decoded is written and read again.
func TestABooleanLeftOutKeepsItsDefault(t *testing.T) {
	for _, f := range formats {
		for _, tt := range []struct {
			name, text      string
			enabled, realIP bool
		}{
			{"a file that says nothing", `{}`, true, true},
			{"a file that mentions the fields around it", `{"client_ip": {"ipv6_prefix": 56}, "namespace": "ca"}`, true, true},
			{"a file that says true", `{"enabled": true, "client_ip": {"x_real_ip": true}}`, true, true},
			{"a file that says false", `{"enabled": false, "client_ip": {"x_real_ip": false}}`, false, false},
		} {
			t.Run(f.name+": "+tt.name, func(t *testing.T) {
				first := DefaultConfig()
				require.NoError(t, f.decode([]byte(tt.text), &first))
				written, err := f.encode(first)
				require.NoError(t, err)
				var second Config
				require.NoError(t, f.decode(written, &second))
				for _, c := range []Config{first, second} {
					assert.Equal(t, tt.enabled, c.Enabled)
					assert.Equal(t, tt.realIP, c.ClientIP.XRealIP)
				}
				assert.Equal(t, tt.realIP, first.withDefaults().ClientIP.XRealIP)
			})
		}
	}
}

func TestAConfigCannotBeComparedOrWrittenWithoutKeys(t *testing.T) {
	typ := reflect.TypeFor[Config]()
	assert.False(t, typ.Comparable())
	// A field that other packages cannot name makes an unkeyed literal an error
	// there; in the last place it would make the struct larger.
	assert.Equal(t, "_", typ.Field(0).Name)
	assert.Zero(t, typ.Field(0).Type.Size())
}

func TestTheZeroConfigIsValidAndLimitsNothing(t *testing.T) {
	assert.NoError(t, Config{}.Validate())
	assert.Empty(t, Config{}.Advise())
	l, err := New(Config{})
	require.NoError(t, err)
	equalConfigs(t, Config{}, l.Config())
}

func TestDefaultConfigIsAFreshOneEachTime(t *testing.T) {
	c := DefaultConfig()
	scribble(&c)
	equalConfigs(t, DefaultConfig(), DefaultConfig().clone())
	assert.Equal(t, "GET /healthz", DefaultConfig().Windows.Exclude[0])
}

// scribble changes everything that a shallow copy of c would share with it.
func scribble(c *Config) {
	eachValue(reflect.ValueOf(c).Elem(), func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "!")
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Map:
			if v.Len() > 0 {
				key := reflect.New(v.Type().Key()).Elem()
				key.SetString("scribbled")
				v.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
			}
		}
	})
}

func TestACloneSharesNothing(t *testing.T) {
	original, reference := filledConfig(), filledConfig()
	clone := original.clone()
	assert.Equal(t, reference, clone)
	scribble(&clone)
	assert.Equal(t, reference, original, "a change of the clone shows in the original")
	assert.NotEqual(t, reference, clone)
}

// Where 0 means the default, it is the same default as DefaultConfig's.
func TestAConfigFromScratchGetsTheSameDefaults(t *testing.T) {
	want := DefaultConfig()
	want.ClientIP.XRealIP = false // a boolean cannot tell "left out" from "false"
	want.Tiers.Global, want.Tiers.PerIP, want.Tiers.PerAccount = TierConfig{}, TierConfig{}, TierConfig{}
	want.Tiers.Renewal = Limit{}
	// Counts of 0 mean something of their own, and no pattern is excluded
	// unless it is written.
	want.Windows = WindowsConfig{Window: want.Windows.Window}
	equalConfigs(t, want, Config{Enabled: true}.withDefaults())

	for _, c := range []Config{{}, {Enabled: true}, DefaultConfig(), filledConfig()} {
		equalConfigs(t, c.withDefaults(), c.withDefaults().withDefaults())
	}
	c := Config{Guards: map[string]GuardConfig{"hsm": {}}, Endpoints: []Endpoint{{Class: "order"}}}
	filled := c.withDefaults()
	assert.Equal(t, GuardConfig{MaxQueue: 64, AcquireTimeout: Duration(5e9), BackendShare: 100, Discipline: "fair"}, filled.Guards["hsm"])
	assert.Equal(t, Endpoint{Class: "order", Kind: KindAPI, Mode: ModeWait, Cost: 1, Auth: AuthNone}, filled.Endpoints[0])
	assert.Equal(t, GuardConfig{}, c.Guards["hsm"], "the caller's own map was changed")
	assert.Equal(t, Endpoint{Class: "order"}, c.Endpoints[0], "the caller's own slice was changed")
}
