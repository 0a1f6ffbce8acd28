package weir

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Duration is a time.Duration that configuration files write as "1m30s" or as
// a plain number of seconds (requirement C4). It is never rounded in between.
type Duration time.Duration

// String returns the duration in Go's notation, as in "1m30s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler, for JSON, YAML and TOML.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts Go's notation and plain seconds, fractions included.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	if v, err := time.ParseDuration(s); err == nil {
		*d = Duration(v)
		return nil
	}
	sec, err := strconv.ParseFloat(s, 64)
	if ns := sec * float64(time.Second); err == nil && math.Abs(ns) < math.MaxInt64 { // false for NaN
		*d = Duration(math.Round(ns))
		return nil
	}
	return fmt.Errorf("weir: %q is not a duration: write it as \"30s\", \"5m\", \"1h30m\" or as a number of seconds", s)
}

// UnmarshalJSON accepts a string or a number.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		return nil
	}
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		return d.UnmarshalText([]byte(s))
	}
	return d.UnmarshalText(data)
}
