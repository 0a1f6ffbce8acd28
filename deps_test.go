package weir

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/weir-go/weir"

// goTool runs the go command.
func goTool(t testing.TB, args ...string) []byte {
	t.Helper()
	out, err := exec.Command("go", args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	require.NoError(t, err)
	return out
}

// goPackage is what the tests ask of go list.
type goPackage struct {
	ImportPath, Name, Doc string
	Imports, Deps         []string
}

// modulePackages lists the packages of this module.
func modulePackages(t testing.TB) (list []goPackage) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(goTool(t, "list", "-json=ImportPath,Name,Doc,Imports,Deps", "./..."))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// mayImport says which packages of this module one of them may import. The
// first pattern that matches a package holds. Tests may import what they like.
var mayImport = []struct {
	importer string
	imports  []string
}{
	{"weir", []string{"weir/store", "weir/problem", "weir/internal/*"}},
	{"weir/store", nil}, // an embedder's own store needs nothing but this
	{"weir/store/storetest", []string{"weir/store"}},
	{"weir/store/*", []string{"weir/store"}},
	{"weir/problem", nil},
	{"weir/internal/takeover", []string{"weir/store"}}, // a store before a store
	{"weir/internal/*", nil},
}

// arrowHolds reports whether the package may import the other.
func arrowHolds(importer, imported string) bool {
	for _, rule := range mayImport {
		if ok, _ := path.Match(rule.importer, importer); ok {
			return slices.ContainsFunc(rule.imports, func(pattern string) bool {
				ok, _ := path.Match(pattern, imported)
				return ok
			})
		}
	}
	return false // a package that the table does not know
}

func ours(importPath string) (string, bool) {
	if importPath != module && !strings.HasPrefix(importPath, module+"/") {
		return "", false
	}
	return strings.TrimPrefix(importPath, path.Dir(module)+"/"), true
}

func TestPackagesImportInOneDirection(t *testing.T) {
	for _, p := range modulePackages(t) {
		importer, _ := ours(p.ImportPath)
		assert.True(t, slices.ContainsFunc(mayImport, func(rule struct {
			importer string
			imports  []string
		}) bool {
			ok, _ := path.Match(rule.importer, importer)
			return ok
		}), "no rule says what %s may import", importer)
		for _, i := range p.Imports {
			if imported, ok := ours(i); ok {
				assert.True(t, arrowHolds(importer, imported), "%s imports %s", importer, imported)
			}
		}
	}
}

func TestTheArrowsAreAsDrawn(t *testing.T) {
	for _, tt := range []struct {
		importer, imported string
		want               bool
	}{
		{"weir", "weir/store", true},
		{"weir", "weir/problem", true},
		{"weir", "weir/internal/gate", true},
		{"weir", "weir/store/redis", false},
		{"weir", "weir/store/storetest", false},
		{"weir/store", "weir", false},
		{"weir/store", "weir/internal/gate", false},
		{"weir/store/redis", "weir/store", true},
		{"weir/store/redis", "weir", false},
		{"weir/problem", "weir/store", false},
		{"weir/internal/gate", "weir/internal/jws", false},
		{"weir/internal/takeover", "weir/store", true},
		{"weir/internal/takeover", "weir/store/redis", false},
		{"weir/elsewhere", "weir/store", false},
	} {
		assert.Equal(t, tt.want, arrowHolds(tt.importer, tt.imported), "%s → %s", tt.importer, tt.imported)
	}
}

// A program that uses only memory must not link a client for anything else,
// nor what only tests need.
func TestTheLibraryLinksNoMoreThanItUses(t *testing.T) {
	for _, p := range modulePackages(t) {
		if p.ImportPath == module+"/store/redis" || p.ImportPath == module+"/internal/redistest" {
			continue // the one is imported by those who want it, the other by tests
		}
		for _, dep := range p.Deps {
			for _, banned := range []string{"github.com/redis/", "github.com/gomodule/redigo", "github.com/stretchr/testify", "go.yaml.in/", "gopkg.in/yaml", "golang.org/x/crypto", "golang.org/x/net"} {
				if strings.HasPrefix(dep, banned) {
					t.Errorf("%s links %s", p.ImportPath, dep)
				}
			}
			if dep == "testing" && p.ImportPath != module+"/store/storetest" {
				t.Errorf("%s links package testing", p.ImportPath)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range modulePackages(t) {
		assert.True(t, strings.HasPrefix(p.Doc, "Package "+p.Name+" "), "the doc of %s begins %q", p.ImportPath, p.Doc)
		assert.NotContains(t, p.Doc, "Copyright", p.ImportPath)
	}
}

// A direct requirement becomes one of every program that uses the library.
func TestTheModuleRequiresNoMoreThanIsAgreed(t *testing.T) {
	agreed := []string{
		"github.com/hashicorp/golang-lru/v2",
		"github.com/prometheus/client_golang",
		"github.com/redis/go-redis/v9",
		"golang.org/x/time",
		// Tests only.
		"github.com/stretchr/testify",
		"go.yaml.in/yaml/v3",
		"golang.org/x/crypto",
		"golang.org/x/net",
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal(goTool(t, "mod", "edit", "-json"), &mod))
	assert.Equal(t, module, mod.Module.Path)
	assert.Empty(t, mod.Replace, "a replacement holds here only, not where the library is used")
	for _, r := range mod.Require {
		if !r.Indirect {
			assert.Contains(t, agreed, r.Path)
		}
	}
}
