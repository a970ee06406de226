package truebill_test

import (
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingIsSharedWithTheJob is T1 and T2: only the standard library is imported, which has
// no dot in the first element of a path, and no file speaks of floats.
func TestNothingIsSharedWithTheJob(t *testing.T) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	parsed := 0
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotRegexp(t, `\bfloat(32|64)\b|ParseFloat|Float64|SetFloat`, string(text), name)
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range file.Imports {
			first, _, _ := strings.Cut(strings.Trim(i.Path.Value, `"`), "/")
			require.NotContains(t, first, ".", "%s imports %s", name, i.Path.Value)
		}
		parsed++
	}
	require.Greater(t, parsed, 3)
}
