package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// A change to the code that a mutant changes, too, is seen here: it takes no time.
func TestEveryMutantAppliesToTheCodeAsItIs(t *testing.T) {
	module := os.DirFS(filepath.Join("..", ".."))
	seen := map[string]bool{}
	for _, m := range All() {
		require.False(t, seen[m.Name], "two mutants are called %q", m.Name)
		seen[m.Name] = true
		require.NotEmpty(t, m.Harm, m.Name)
		require.NotEmpty(t, m.How, m.Name)
		files, err := m.Apply(module)
		require.NoError(t, err)
		require.NotEmpty(t, files, m.Name)
		for name, text := range files {
			_, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
			require.NoError(t, err, "mutant %q", m.Name)
		}
	}
}

func TestAMutantReplacesATextThatStandsOnce(t *testing.T) {
	module := fstest.MapFS{"a.go": {Data: []byte("one two two three\n")}, "b.go": {Data: []byte("four\n")}}
	m := Mutant{Name: "m", Edits: []Edit{{"a.go", "one", "1"}, {"a.go", "three", "3"}, {"b.go", "four", "4"}}}
	files, err := m.Apply(module)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a.go": "1 two two 3\n", "b.go": "4\n"}, files)

	for want, e := range map[string]Edit{
		"0 times":        {"a.go", "none", ""},
		"2 times":        {"a.go", "two", ""},
		"does not exist": {"c.go", "", ""},
	} {
		m := Mutant{Name: "m", Edits: []Edit{e}}
		_, err := m.Apply(module)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `mutant "m"`)
	}
}

// A module whose one test sees one mistake and not another.
func TestAMutantIsCaughtByATestThatFailsAndByNothingElse(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/sum\n\ngo 1.26\n",
		"sum/sum.go":     "package sum\n\n// Sum adds.\nfunc Sum(a, b int) int { return a + b }\n",
		"sum/of_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(2, 2) != 4 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	mutant := func(to, run string) Mutant {
		return Mutant{
			Name: "m", Harm: Loses, Suite: Suite{Package: "sum", Run: run},
			Edits: []Edit{{File: "sum/sum.go", Old: "a + b", New: to}},
		}
	}
	told := make(chan string, 2)
	caught, err := RunAll(t.Context(), root, []Mutant{mutant("a - b", "Sum")}, 1, func(what string, _ time.Duration) { told <- what })
	require.Equal(t, []string{"no mutant: sum", "mutant: m"}, []string{<-told, <-told})
	require.NoError(t, err)
	require.Equal(t, []string{"TestSum"}, caught[0].Tests)

	for want, m := range map[string]Mutant{
		"survived: it loses records": mutant("a * b", "Sum"),
		"does not compile":           mutant("a +", "Sum"),
		"no test ran":                mutant("a - b", "Product"),
	} {
		_, err := m.Run(t.Context(), root)
		require.ErrorContains(t, err, want)
	}
	other := mutant("a - b", "Sum")
	other.Says = "the sum is wrong"
	_, err = other.Run(t.Context(), root)
	require.ErrorContains(t, err, "TestSum failed, and not over what it does")
	wrong := mutant("a + b", "Sum")
	require.NoError(t, os.WriteFile(filepath.Join(root, "sum/sum.go"), []byte("package sum\n\nfunc Sum(a, b int) int { return a }\n"), 0o600))
	require.ErrorContains(t, wrong.Suite.sound(t.Context(), root), "fails without any mutant: TestSum")
}

func TestASuiteThatDoesNotEndCatchesNothing(t *testing.T) {
	_, _, err := judge([]byte(`{"Action":"run","Test":"TestX"}
{"Action":"output","Test":"TestX","Output":"panic: test timed out after 2m0s\n"}
{"Action":"fail","Test":"TestX"}
{"Action":"fail"}
`), true)
	require.ErrorContains(t, err, "did not end")

	_, _, err = judge([]byte(`{"Action":"run","Test":"TestX"}
{"Action":"pass","Test":"TestX"}
{"Action":"fail"}
`), true)
	require.ErrorContains(t, err, "says otherwise", "it panicked after its tests")
}

func TestSuitesOfOnePackageRunTogether(t *testing.T) {
	all := []Mutant{
		{Suite: Suite{Package: "a", Run: "^TestX$"}},
		{Suite: Suite{Package: "a", Run: "^TestY$"}},
		{Suite: Suite{Package: "a", Run: "^TestX$"}},
		{Suite: Suite{Package: "a", Run: "^TestX$", Args: []string{"-rapid.seed=1"}}},
	}
	require.Equal(t, []Suite{
		{Package: "a", Run: "^TestX$|^TestY$"}, {Package: "a", Run: "^TestX$", Args: []string{"-rapid.seed=1"}},
	}, suites(all))
	require.Equal(t, "go test ./a -run '^TestX$' -args -rapid.seed=1", all[3].Suite.String())
	require.Equal(t, []string{"PATH=x"}, environment([]string{"CI=true", "PATH=x", "WEIR_KAFKA_BROKERS=y"}))
}
