package weir

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
		return fmt.Sprintf("weir: config %s (%s): %s", e.Path, e.Reason, e.Fix)
	case string:
		return fmt.Sprintf("weir: config %s = %q (%s): %s", e.Path, v, e.Reason, e.Fix)
	default:
		return fmt.Sprintf("weir: config %s = %v (%s): %s", e.Path, v, e.Reason, e.Fix)
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

// faults collects what is wrong.
type faults struct{ list []*ConfigError }

func (f *faults) add(path string, value any, reason Reason, fix string, args ...any) {
	f.list = append(f.list, &ConfigError{path, value, reason, fmt.Sprintf(fix, args...)})
}

// err joins the faults in the order of the fields. They are found in another
// one: what concerns options, or what a Reload may not change, comes last.
func (f *faults) err() error {
	slices.SortStableFunc(f.list, func(a, b *ConfigError) int { return positionOf(a.Path).compare(positionOf(b.Path)) })
	errs := make([]error, len(f.list))
	for i, e := range f.list {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// position is where a path stands in a configuration, step by step: fields and
// list elements by their position, what is in a map by its key.
type position []step

type step struct {
	i   int
	key string
}

func (p position) compare(q position) int {
	return slices.CompareFunc(p, q, func(a, b step) int { return cmp.Or(cmp.Compare(a.i, b.i), cmp.Compare(a.key, b.key)) })
}

// positionOf walks a path down the types of Config. The keys of a map may be free
// text, dots included: of what is behind one, only a last word that is a field of
// the map's elements is taken for that. Where elements have lists and maps of
// their own, keys are words.
func positionOf(path string) (p position) {
	for t := reflect.TypeFor[Config](); path != ""; {
		path = strings.TrimPrefix(path, ".")
		switch t.Kind() {
		case reflect.Struct:
			end := strings.IndexAny(path+".", ".[")
			i := fieldNamed(t, path[:end])
			if i < 0 {
				return p
			}
			p = append(p, step{i: i})
			t, path = t.Field(i).Type, path[end:]
		case reflect.Slice:
			index, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
			i, _ := strconv.Atoi(index)
			p = append(p, step{i: i})
			t, path = t.Elem(), rest
		case reflect.Map:
			end := strings.LastIndexByte(path, '.')
			if t.Elem().Kind() != reflect.Struct {
				end = -1 // all of it is the key
			} else if nests(t.Elem()) {
				end = strings.IndexByte(path, '.')
			} else if end >= 0 && fieldNamed(t.Elem(), path[end+1:]) < 0 {
				end = -1
			}
			if end < 0 {
				end = len(path)
			}
			p = append(p, step{key: path[:end]})
			t, path = t.Elem(), path[end:]
		default:
			return p
		}
	}
	return p
}

// nests reports whether a struct has lists or maps.
func nests(t reflect.Type) bool {
	for i := range t.NumField() {
		if k := t.Field(i).Type.Kind(); k == reflect.Map || k == reflect.Slice {
			return true
		}
	}
	return false
}

// fieldNamed returns the index of the field that a file calls name, or -1.
func fieldNamed(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return i
		}
	}
	return -1
}

// Advice is a setting that is legal but suspicious (requirement C3).
type Advice struct {
	Path string // the field
	Text string // what it leads to, and what to do if that is not meant
}

// String returns the path and the text.
func (a Advice) String() string { return a.Path + ": " + a.Text }
