package weir

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestDurationIsReadFromTextAndFromSeconds(t *testing.T) {
	for _, tt := range []struct {
		name string
		text string // as it stands in a file, without quotes
		want time.Duration
	}{
		{"seconds with a unit", "5s", 5 * time.Second},
		{"a compound", "1h30m", 90 * time.Minute},
		{"a fraction with a unit", "1.5s", 1500 * time.Millisecond},
		{"nanoseconds", "7ns", 7},
		{"nothing", "0", 0},
		{"nothing with a unit", "0s", 0},
		{"whole seconds", "600", 10 * time.Minute},
		{"a fraction of a second", "0.2", 200 * time.Millisecond},
		{"a fraction that binary floats cannot hold", "1.1", 1100 * time.Millisecond},
		{"seconds with an exponent", "1e3", 1000 * time.Second},
		{"a negative duration, which Validate judges", "-5s", -5 * time.Second},
		{"negative seconds", "-5", -5 * time.Second},
		{"the longest there is", "2562047h47m16.854775807s", math.MaxInt64},
		{"the shortest there is", "-2562047h47m16.854775808s", math.MinInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fromText, fromJSON, fromYAML Duration
			require.NoError(t, fromText.UnmarshalText([]byte(tt.text)))
			require.NoError(t, json.Unmarshal(fmt.Appendf(nil, "%q", tt.text), &fromJSON))
			require.NoError(t, yaml.Unmarshal([]byte(tt.text), &fromYAML))
			for _, d := range []Duration{fromText, fromJSON, fromYAML} {
				assert.Equal(t, tt.want, time.Duration(d))
			}
			if json.Valid([]byte(tt.text)) { // a bare number
				require.NoError(t, json.Unmarshal([]byte(tt.text), &fromJSON))
				assert.Equal(t, tt.want, time.Duration(fromJSON))
			}
			assert.Equal(t, tt.want.String(), fromText.String())
		})
	}
}

func TestWhatIsNoDurationIsRefusedWithAnExample(t *testing.T) {
	for _, text := range []string{
		"", " ", "5 s", " 5s", "fast", "5x", "1d", "5S", "NaN", "Inf", "-Inf", "1e300", "9223372037", "-9223372037",
		"10,5", "0x10", "true", "5s5", "--5s",
	} {
		d := Duration(42)
		err := d.UnmarshalText([]byte(text))
		assert.ErrorContains(t, err, `write it as "30s"`, "%q", text)
		assert.Equal(t, Duration(42), d, "%q changed the value", text)
	}
	for _, text := range []string{`true`, `{}`, `[]`, `["5s"]`, `{"s": 5}`, `""`} {
		var d Duration
		assert.Error(t, json.Unmarshal([]byte(text), &d), text)
	}
	for _, text := range []string{"true", "[5s]", "{s: 5}", `""`} {
		var d Duration
		assert.Error(t, yaml.Unmarshal([]byte(text), &d), text)
	}
	assert.Error(t, new(Duration).UnmarshalJSON([]byte(`"unterminated`)))
}

// As with every other type of encoding/json and yaml.
func TestNullLeavesADurationAsItWas(t *testing.T) {
	d, y := Duration(42), Duration(42)
	require.NoError(t, json.Unmarshal([]byte(`null`), &d))
	require.NoError(t, yaml.Unmarshal([]byte(`null`), &y))
	assert.Equal(t, Duration(42), d)
	assert.Equal(t, Duration(42), y)
}

func TestADurationIsWrittenAsText(t *testing.T) {
	type file struct{ D Duration }
	asJSON, err := json.Marshal(file{Duration(90 * time.Second)})
	require.NoError(t, err)
	assert.JSONEq(t, `{"D": "1m30s"}`, string(asJSON))
	asYAML, err := yaml.Marshal(file{Duration(90 * time.Second)})
	require.NoError(t, err)
	assert.YAMLEq(t, `{"d": "1m30s"}`, string(asYAML))
}

func FuzzDuration(f *testing.F) {
	for _, text := range []string{"5s", "1h30m", "600", "0.2", "1e3", "-5", "NaN", "9223372037", "2562047h47m16.854775807s", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, back Duration
		if d.UnmarshalText([]byte(text)) != nil {
			return
		}
		written, err := d.MarshalText()
		require.NoError(t, err)
		require.NoError(t, back.UnmarshalText(written))
		assert.Equal(t, d, back, "%q became %s", text, written)
	})
}
