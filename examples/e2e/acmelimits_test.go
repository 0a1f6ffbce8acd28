//go:build e2e

package e2e

import (
	"strings"

	"github.com/weir-go/weir"
)

// pebble is the usual treatment of Pebble's paths, with one class under l.
func (l limits) pebble() weir.Config { return l.on(weir.PKIEndpoints(weir.LayoutPebble)) }

// path is what the paths of the class begin with.
func (l limits) path() string {
	for _, e := range weir.PKIEndpoints(weir.LayoutPebble) {
		if e.Class == l.narrowed() {
			path, _, _ := strings.Cut(e.Pattern, "{")
			return path
		}
	}
	panic("Pebble has no " + string(l.class))
}
