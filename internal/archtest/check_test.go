package archtest

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// sound is a small module without a violation.
func sound() map[string]string {
	return map[string]string{
		"go.mod":             "module example.com/small\n\ngo 1.26\n",
		"README.md":          "Run it from ./network/home/ or by /usr/bin/small; rooted/work/ is a folder.\n",
		"broken.bin":         "\x00 /ro" + "ot/secret",
		".cache/big.txt":     "/ro" + "ot/secret",
		"tools/go.mod":       "module example.com/small/tools\n",
		"tools/tool.go":      "package tool\n\nimport \"golang.org/x/tools/go/packages\"\n",
		"core/testdata/x.go": "package broken {",
		"core/core.go": `package core

import (
	"errors"
	"math/rand/v2"
	"time"
)

var ErrNo = errors.New("no")

var _ error = ErrNo

// powers of ten.
//
//weir:fixed they do not change
var powers = [2]int{1, 10}

func Draw(r *rand.Rand, now time.Time) int { return r.IntN(10) + now.Second() + rand.New(rand.NewPCG(1, 2)).IntN(9) }
`,
		"shell/shell.go": `package shell

import (
	"log/slog"
	"os"
	"time"

	"example.org/lib/v2/deep"
	"example.com/small/core"
)

var errTwice, ErrNo = deep.ErrTwice, core.ErrNo

func Run(l *slog.Logger) { l.Info("now", slog.Any("at", time.Now()), slog.Int("pid", os.Getpid())) }
`,
		"shell/shell_test.go": `package shell

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/small/kit"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { time.Sleep(time.Second); deep() })
	synctest.Test(t, passed)
	kit.Use()
}

func passed(t *testing.T) { helper{}.wait() }
func deep()               { helper{}.wait(); if false { deep() } }

type helper struct{}

func (helper) wait() { time.Sleep(time.Second) }

func TestReal(t *testing.T) {
	//weir:realtime the kernel keeps the port for a moment
	time.Sleep(time.Millisecond)
}
`,
		"kit/kit.go": `package kit

import (
	"testing"
	"time"
)

var shared = time.Now()

func Use() { testing.Verbose() }
`,
	}
}

func soundTable() []row {
	return []row{
		{pkg: "core", kind: pure, why: "decides"},
		{pkg: "kit", kind: forTests, why: "helps"},
		{pkg: "shell", kind: shell, imports: []string{"core", "example.org/lib/v2"}, clock: "it dates what it logs", why: "does"},
	}
}

func soundLaws() []law {
	return []law{
		{from: []string{"core"}, to: []string{"./..."}, why: "what decides knows nobody"},
		{from: []string{"shell"}, to: []string{"./..."}, but: []string{"core"}, why: "it knows core alone"},
		{from: []string{"examples"}, to: []string{"core"}, why: "a user cannot import it"},
	}
}

func violations(t *testing.T, files map[string]string, rows []row) []string {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	tr, err := readTree(fsys)
	require.NoError(t, err)
	return check(tr, rows, soundLaws(), []string{"example.org/lib/v2/double", "testing"})
}

func TestASoundModuleHasNoViolation(t *testing.T) {
	require.Empty(t, violations(t, sound(), soundTable()))
}

// Each case breaks the sound module in one place: in the code of a package, in a file, or in the table.
func TestEachViolationIsFoundAndNamed(t *testing.T) {
	type files map[string]string
	core := func(imports, code string) files {
		return files{"core/more.go": "package core\n\n" + imports + "\n\n" + code + "\n"}
	}
	shell := func(imports, code string) files {
		return files{"shell/more.go": "package shell\n\n" + imports + "\n\n" + code + "\n"}
	}
	tests := func(code string) files {
		return files{"shell/more_test.go": "package shell\n\nimport (\n\"testing\"\n\"testing/synctest\"\nzeit \"time\"\n)\n\n" + code + "\n"}
	}
	table := func(change func([]row) []row) []row { return change(soundTable()) }
	for name, c := range map[string]struct {
		files files
		rows  []row
		want  []string // one for each violation
	}{
		"a package without a row": {
			files: files{"fresh/fresh.go": "package fresh\n"},
			want:  []string{"fresh has no row in internal/archtest/table.go"},
		},
		"a package of tests alone without a row": {
			files: files{"fresh/fresh_test.go": "package fresh\n"},
			want:  []string{"fresh has no row"},
		},
		"a row without a package": {
			rows: table(func(r []row) []row { return append(r, row{pkg: "zombie", why: "gone"}) }),
			want: []string{"there is no package zombie"},
		},
		"a row without a reason": {
			rows: table(func(r []row) []row { r[0].why = ""; return r }),
			want: []string{"the row of core does not say why"},
		},
		"rows out of order": {
			rows: table(func(r []row) []row { r[0], r[1] = r[1], r[0]; return r }),
			want: []string{"the row of core stands behind that of kit"},
		},
		"imports out of order": {
			rows: table(func(r []row) []row { r[2].imports = []string{"example.org/lib/v2", "core"}; return r }),
			want: []string{"sort the imports in the row of shell"},
		},
		"an import that the row does not list": {
			rows: table(func(r []row) []row { r[2].imports = []string{"example.org/lib/v2"}; return r }),
			want: []string{"shell/shell.go:9: imports core, which the row of shell in internal/archtest/table.go does not list"},
		},
		"a library that the row does not list": {
			files: shell(`import "example.org/lib"`, ""),
			want:  []string{"shell/more.go:3: imports example.org/lib, which the row of shell"},
		},
		"an import that is listed and not used": {
			rows: table(func(r []row) []row { r[2].imports = append(r[2].imports, "example.org/other"); return r }),
			want: []string{"the row of shell lists example.org/other, which it does not import"},
		},
		"an import that is in the row and against a law": {
			files: core(`import "example.com/small/shell"`, ""),
			rows:  table(func(r []row) []row { r[0].imports = []string{"shell"}; return r }),
			want:  []string{"core/more.go:3: imports shell, which core may never do: what decides knows nobody"},
		},
		"an import beside a law's exception": {
			files: files{"kit/more/more.go": "package more\n", "shell/more.go": "package shell\n\nimport \"example.com/small/kit/more\"\n"},
			rows: table(func(r []row) []row {
				r[2].imports = []string{"core", "example.org/lib/v2", "kit/more"}
				return []row{r[0], r[1], {pkg: "kit/more", why: "more"}, r[2]}
			}),
			want: []string{"shell/more.go:3: imports kit/more, which shell may never do: it knows core alone"},
		},
		"an import in the test of an example": {
			files: files{"examples/one/one_test.go": "package one\n\nimport \"example.com/small/core\"\n"},
			rows: table(func(r []row) []row {
				return []row{r[0], {pkg: "examples/one", why: "shows"}, r[1], r[2]}
			}),
			want: []string{"examples/one/one_test.go:3: imports core, which examples/one may never do: a user cannot"},
		},
		"package testing in what ships": {
			files: shell(`import "testing"`, ""),
			want:  []string{"shell/more.go:3: imports testing, which is for tests"},
		},
		"a package for tests in what ships": {
			files: shell(`import "example.com/small/kit"`, ""),
			rows:  table(func(r []row) []row { r[2].imports = []string{"core", "example.org/lib/v2", "kit"}; return r }),
			want: []string{
				"shell/more.go:3: imports kit, which shell may never do",
				"shell/more.go:3: imports kit, which is for tests",
			},
		},
		"a library for tests below a listed one": {
			files: shell(`import "example.org/lib/v2/double"`, ""),
			want:  []string{"shell/more.go:3: imports example.org/lib/v2/double, which is for tests"},
		},
		"a library for tests that is listed by itself": {
			files: shell(`import "example.org/lib/v2/double"`, ""),
			rows:  table(func(r []row) []row { r[2].imports = append(r[2].imports, "example.org/lib/v2/double"); return r }),
		},
		"an init function": {
			files: shell("", "func init() {}"), want: []string{"shell/more.go:5: func init"},
		},
		"a global": {
			files: shell("", "var count int"), want: []string{"package-level variable count"},
		},
		"a global that only looks like a sentinel": {
			files: shell("", "var errs = map[int]error{}"), want: []string{"package-level variable errs"},
		},
		"a fixed table without a reason": {
			files: shell("", "//weir:fixed\nvar table = []int{1}"), want: []string{"package-level variable table"},
		},
		"the clock where no row says why": {
			rows: table(func(r []row) []row { r[2].clock = ""; return r }),
			want: []string{"shell/shell.go:14: time.Now: the row of shell in internal/archtest/table.go gives no reason"},
		},
		"the clock under another name": {
			files: core(`import zeit "time"`, "func f() { _ = zeit.Since }"), want: []string{"time.Since, and core is pure"},
		},
		"a sleep in production": {
			files: shell(`import "time"`, "func f() { time.Sleep(1) }"), want: []string{"time.Sleep cannot be interrupted"},
		},
		"a global logger": {
			files: shell(`import "log/slog"`, `func f() { slog.Info("") }`), want: []string{"slog.Info uses a logger"},
		},
		"the log package": {
			files: shell(`import "log"`, ""), want: []string{"imports log: it logs to a logger"},
		},
		"a hash with a seed": {
			files: shell(`import "hash/maphash"`, ""), want: []string{"imports hash/maphash: its seed"},
		},
		"I/O in a pure package":       {files: core(`import "os"`, ""), want: []string{"imports os, and core is pure"}},
		"a context in a pure package": {files: core(`import "context"`, ""), want: []string{"imports context, and core"}},
		"a lock in a pure package":    {files: core(`import "sync"`, ""), want: []string{"imports sync, and core is pure"}},
		"files in a pure package":     {files: core(`import "io/fs"`, ""), want: []string{"imports io/fs, and core"}},
		"a timer in a pure package": {
			files: core(`import "time"`, "func f() { <-time.After(1) }"), want: []string{"time.After, and core is pure"},
		},
		"a goroutine in a pure package": {
			files: core("", "func f() { go f() }"), want: []string{"starts a goroutine, and core is pure"},
		},
		"unseeded randomness in a pure package": {
			files: core(`import "math/rand/v2"`, "func f() { rand.IntN(3) }"), want: []string{"rand.IntN is not seeded"},
		},
		"printing in a pure package": {
			files: core(`import "fmt"`, "func f() { fmt.Println() }"), want: []string{"fmt.Println, and core is pure"},
		},
		"a test that sleeps": {
			files: tests("func TestIt(t *testing.T) { zeit.Sleep(1) }"),
			want:  []string{"shell/more_test.go:9: time.Sleep outside of a synctest bubble"},
		},
		"a test that sleeps beside its bubble": {
			files: tests("func TestIt(t *testing.T) { synctest.Test(t, func(*testing.T) {}); zeit.Sleep(1) }"),
			want:  []string{"time.Sleep outside of a synctest bubble"},
		},
		"a sleep that is called from a bubble and from outside": {
			files: tests("func TestIt(t *testing.T) { synctest.Test(t, func(*testing.T) { nap() }); nap() }\nfunc nap() { zeit.Sleep(1) }"),
			want:  []string{"shell/more_test.go:10: time.Sleep outside of a synctest bubble"},
		},
		"a sleep that nothing calls": {
			files: tests("func nap() { zeit.Sleep(1) }"), want: []string{"time.Sleep outside of a synctest bubble"},
		},
		"a real sleep without a reason": {
			files: tests("func TestIt(t *testing.T) {\n//weir:realtime\nzeit.Sleep(1)\n}"),
			want:  []string{"time.Sleep outside of a synctest bubble"},
		},
		"a folder of this machine": {
			files: files{"doc/a.md": "see\nfile:///ho" + "me/me/x"}, want: []string{`doc/a.md:2: "`},
		},
		"another folder of this machine": {
			files: files{"a.sh": "cd /wo" + "rk/x"}, want: []string{`a.sh:1: "`},
		},
		"the host of a registry": {
			files: files{".ci/run": "GOPROXY=https://pro" + "xy.golang.org"}, want: []string{"is the host of a registry"},
		},
		"unfinished work": {
			files: shell("", "// TO"+"DO: more"), want: []string{"marks unfinished work"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, rows := sound(), c.rows
			for name, text := range c.files {
				all[name] = text
			}
			if rows == nil {
				rows = soundTable()
			}
			found := violations(t, all, rows)
			require.Len(t, found, len(c.want), strings.Join(found, "\n"))
			for i, want := range c.want {
				require.Contains(t, found[i], want)
			}
		})
	}
}

func TestAFileThatDoesNotParseIsAnError(t *testing.T) {
	_, err := readTree(fstest.MapFS{
		"go.mod": {Data: []byte("module m\n")}, "a/a.go": {Data: []byte("package {")},
	})
	require.ErrorContains(t, err, "a/a.go:1")
}
