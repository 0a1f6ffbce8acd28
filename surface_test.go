package weir

import (
	"flag"
	"go/ast"
	"go/doc"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var updateSurface = flag.Bool("update", false, "write testdata/surface.txt anew from the source")

// maxSurface bounds what a user has to know: types, functions, methods and
// variables; the design says about 90. Fields and constants are counted apart.
const maxSurface = 94

// The surface grows only where a change of the list says so.
func TestTheSurfaceIsWhatTheListSays(t *testing.T) {
	const file = "testdata/surface.txt"
	got := strings.Join(surface(t), "\n") + "\n"
	if *updateSurface {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "if this is meant, run: go test -run %s -update .", t.Name())
}

func TestTheSurfaceStaysSmall(t *testing.T) {
	count := map[string]int{}
	for _, line := range surface(t) {
		what, _, _ := strings.Cut(line, " ")
		count[what]++
	}
	n := count["type"] + count["func"] + count["method"] + count["var"]
	t.Logf("%d identifiers: %d types, %d functions, %d methods, %d variables; besides %d constants and %d fields",
		n, count["type"], count["func"], count["method"], count["var"], count["const"], count["field"])
	assert.LessOrEqual(t, n, maxSurface)
}

// surface lists the exported names, sorted: "func New", "method Limiter.Close",
// "field Config.Tiers".
func surface(t testing.TB) (list []string) {
	fset := token.NewFileSet()
	pkg, err := doc.NewFromFiles(fset, sourceFiles(t, fset), module)
	require.NoError(t, err)
	values := func(what string, groups []*doc.Value) {
		for _, g := range groups {
			for _, name := range g.Names {
				if token.IsExported(name) {
					list = append(list, what+" "+name)
				}
			}
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			list = append(list, "func "+f.Name)
		}
	}
	values("const", pkg.Consts)
	values("var", pkg.Vars)
	funcs(pkg.Funcs)
	for _, typ := range pkg.Types {
		list = append(list, "type "+typ.Name)
		values("const", typ.Consts)
		values("var", typ.Vars)
		funcs(typ.Funcs)
		for _, m := range typ.Methods {
			list = append(list, "method "+typ.Name+"."+m.Name)
		}
		st, ok := typ.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, field := range st.Fields.List {
			for _, name := range field.Names {
				if name.IsExported() {
					list = append(list, "field "+typ.Name+"."+name.Name)
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
