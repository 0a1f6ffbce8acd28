package weir

import (
	"fmt"
	"iter"
)

// Reason says in one word what is wrong with a configuration value. Programs
// match it; the text of an error may change, a Reason may not.
type Reason string

// The reasons of a [ConfigError].
const (
	ReasonMissing     Reason = "missing"      // a value that is needed is not there
	ReasonInvalid     Reason = "invalid"      // cannot be read as what the field holds
	ReasonOutOfRange  Reason = "out_of_range" // can be read, but no such value is allowed
	ReasonUnknown     Reason = "unknown"      // names something that does not exist
	ReasonConflict    Reason = "conflict"     // contradicts another value
	ReasonInert       Reason = "inert"        // would have no effect, silently
	ReasonUnsupported Reason = "unsupported"  // not available in this version
)

// ConfigError is one fault of a configuration. [Config.Validate], [New] and
// [Limiter.Reload] report every fault at once, joined; see [ConfigErrors].
type ConfigError struct {
	Path   string // the field, as in a file: "tiers.per_ip.burst", "endpoints[3].class"
	Value  any    // what stands there; nil where it is absent or secret
	Reason Reason
	Fix    string // what to write instead
}

// Error names the field, its value, what is wrong with it and the cure.
func (e *ConfigError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return fmt.Sprintf("weir: config %s: %s: %s", e.Path, e.Reason, e.Fix)
	case string:
		return fmt.Sprintf("weir: config %s: %q is %s: %s", e.Path, v, e.Reason, e.Fix)
	default:
		return fmt.Sprintf("weir: config %s: %v is %s: %s", e.Path, v, e.Reason, e.Fix)
	}
}

// ConfigErrors iterates over the faults in an error of [Config.Validate], [New]
// or [Limiter.Reload], in the order of the configuration's fields, however
// deeply the error is wrapped. (errors.As would find the first only.)
func ConfigErrors(err error) iter.Seq[*ConfigError] {
	return func(yield func(*ConfigError) bool) { walkErrors(err, yield) }
}

func walkErrors(err error, yield func(*ConfigError) bool) bool {
	switch e := err.(type) {
	case nil:
		return true
	case *ConfigError:
		return yield(e)
	case interface{ Unwrap() error }:
		return walkErrors(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if !walkErrors(one, yield) {
				return false
			}
		}
	}
	return true
}

// Advice is a setting that is legal but suspicious (requirement C3).
type Advice struct {
	Path string // the field
	Text string // what it leads to, and what to do if that is not meant
}

// String returns the path and the text.
func (a Advice) String() string { return a.Path + ": " + a.Text }
