package weir_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "example.com/weir/connectors/kafka" // what the guides use: when it changes, the test runs again
	_ "example.com/weir/weirtest"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// guides is a module of packages made of the code in the guides, beside this one and over the same
// dependencies: nothing is fetched.
type guides struct{ dir string }

func newGuides(t *testing.T) guides {
	t.Helper()
	g := guides{dir: t.TempDir()}
	root, err := filepath.Abs(".")
	require.NoError(t, err)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	sum, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	own := strings.Replace(string(mod), "module example.com/weir\n", "module guides\n", 1)
	require.NotEqual(t, string(mod), own)
	g.write(t, "go.mod", own+"\nrequire example.com/weir v0.0.0\n\nreplace example.com/weir => "+root+"\n")
	g.write(t, "go.sum", string(sum))
	return g
}

func (g guides) write(t *testing.T, name, text string) {
	t.Helper()
	at := filepath.Join(g.dir, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
	require.NoFileExists(t, at, "two blocks of one guide are one file")
	require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
}

// read takes the code of a guide. What is no whole file is put into what surrounds it in testdata/guides.
func (g guides) read(t *testing.T, guide string) (blocks int) {
	t.Helper()
	text, err := os.ReadFile(guide)
	require.NoError(t, err)
	for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
		code, file := m[1], "main.go"
		blocks++
		switch {
		case strings.Contains(code, `"testing"`):
			file = "main_test.go"
		case !regexp.MustCompile(`(?m)^package `).MatchString(code):
			around, err := os.ReadFile(filepath.Join("testdata/guides", filepath.Base(guide)+".txt"))
			require.NoError(t, err, "say there what surrounds the code of %s, with the line // BLOCK in its place", guide)
			require.Contains(t, string(around), "// BLOCK")
			code = strings.Replace(string(around), "// BLOCK", code, 1)
		}
		g.write(t, filepath.Join(strings.TrimSuffix(filepath.Base(guide), ".md"), file), code)
	}
	return blocks
}

func (g guides) command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir, c.Env = g.dir, append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod")
	out, err := c.CombinedOutput()
	return string(out), err
}

// The code of the guides compiles, and the test in GETTING-STARTED passes.
func TestTheCodeInTheGuidesIsGood(t *testing.T) {
	g := newGuides(t)
	all, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	with := 0
	for _, guide := range append(all, "README.md") {
		if g.read(t, guide) > 0 {
			with++
		}
	}
	require.GreaterOrEqual(t, with, 5, "guides with code")
	out, err := g.command(t, "vet", "./...")
	require.NoError(t, err, "%s", out)
	out, err = g.command(t, "test", "-count=1", "./GETTING-STARTED")
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^ok `, out)

	g.write(t, "broken/main.go", "package main\n\nfunc main() { undefined() }\n")
	out, err = g.command(t, "vet", "./...")
	require.Error(t, err, "what does not compile is seen")
	require.Contains(t, out, "undefined")
}
