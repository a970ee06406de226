package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// pureImports is what a pure package may import of the standard library: nothing that reaches a
// system, a clock, another goroutine or a source of randomness by itself.
func pureImports() []string {
	return []string{
		"bufio", "bytes", "cmp", "container/heap", "container/list", "crypto/sha256", "encoding", "errors", "fmt",
		"hash", "io", "iter", "maps", "math", "reflect", "regexp", "slices", "sort", "strconv", "strings", "text/tabwriter",
		"time", "unicode", "unsafe",
	}
}

// impure is what lies below those and is not pure all the same.
func impure() []string {
	return []string{"hash/maphash", "io/fs", "io/ioutil", "math/rand"}
}

// refused are packages that no production code imports.
func refused(p string) string {
	switch p {
	case "log":
		return "it logs to a logger that nobody passed in: take a *slog.Logger"
	case "math/rand":
		return "use math/rand/v2"
	case "hash/maphash":
		return "its seed differs from process to process: what it hashes cannot be restored"
	case "expvar", "net/http/pprof":
		return "importing it registers handlers by itself"
	}
	return ""
}

// checkSource holds every file to the rules on what code does (A4, A5, A6).
func checkSource(t *tree, rows []row) []string {
	var bad []string
	for _, r := range rows {
		for _, f := range t.pkgs[r.pkg] {
			if f.test || r.kind == forTests {
				continue
			}
			c := checker{tree: t, file: f, row: r}
			c.imports()
			c.declarations()
			c.uses()
			bad = append(bad, c.bad...)
		}
	}
	return bad
}

// checker looks at one file of production code.
type checker struct {
	tree *tree
	file *goFile
	row  row
	bad  []string
}

func (c *checker) report(p token.Pos, format string, args ...any) {
	c.bad = append(c.bad, fmt.Sprintf("%s:%d: %s", c.file.path, c.tree.line(p), fmt.Sprintf(format, args...)))
}

func (c *checker) imports() {
	for n, i := range c.file.imports {
		at := c.file.ast.Imports[n].Pos()
		if why := refused(i.path); why != "" {
			c.report(at, "imports %s: %s", i.path, why)
		}
		if c.row.kind != pure || i.inside || !standard(i.path) || i.path == "math/rand/v2" {
			continue // its seeds are looked at where they are used
		}
		if within(i.path, pureImports()) == "" || within(i.path, impure()) != "" {
			c.report(at, "imports %s, and %s is pure: let the caller pass in what it is needed for", i.path, c.row.pkg)
		}
	}
}

// declarations finds what runs before main, and variables that outlive every call.
func (c *checker) declarations() {
	for _, d := range c.file.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.report(d.Pos(), "func init: let main, or what needs it, call a function with a name")
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && d.Tok == token.VAR {
					c.variable(v)
				}
			}
		}
	}
}

func (c *checker) variable(v *ast.ValueSpec) {
	for i, name := range v.Names {
		sentinel := i < len(v.Values) && (strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")) &&
			sentinelValue(v.Values[i])
		if name.Name == "_" || sentinel || c.file.excused(c.tree.line(v.Pos()), "fixed") {
			continue
		}
		c.report(name.Pos(), "package-level variable %s: return it from a function, or keep it in a struct; "+
			"if it is a table that is never written, say why it is one in a comment %sfixed REASON above it", name.Name, mark)
	}
}

// sentinelValue reports whether an expression is errors.New("…") or a sentinel of another package.
func sentinelValue(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		pkg, name, _ := qualified(call.Fun)
		return pkg == "errors" && name == "New"
	}
	_, name, ok := qualified(e)
	return ok && strings.HasPrefix(name, "Err")
}

// qualified takes an expression like pkg.Name apart.
func qualified(e ast.Expr) (pkg, name string, ok bool) {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return "", "", false
	}
	return id.Name, sel.Sel.Name, true
}

// uses finds what code does with the packages that it imports.
func (c *checker) uses() {
	ast.Inspect(c.file.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if c.row.kind == pure {
				c.report(n.Pos(), "starts a goroutine, and %s is pure: let the caller do it", c.row.pkg)
			}
		case *ast.SelectorExpr:
			if pkg, name, ok := qualified(n); ok {
				c.use(n.Pos(), c.file.meaning(pkg), name)
			}
		}
		return true
	})
}

// meaning is the path of the package that a file calls by a name, or nothing.
func (f *goFile) meaning(name string) string {
	for _, i := range f.imports {
		if i.name == name {
			return i.path
		}
	}
	return ""
}

func (c *checker) use(p token.Pos, pkg, name string) {
	isPure := c.row.kind == pure
	switch {
	case pkg == "time" && name == "Sleep":
		c.report(p, "time.Sleep cannot be interrupted: wait for a timer and for the context")
	case pkg == "time" && slices.Contains([]string{"Now", "Since", "Until"}, name):
		if isPure {
			c.report(p, "time.%s, and %s is pure: let the caller pass the time in", name, c.row.pkg)
		} else if c.row.clock == "" {
			c.report(p, "time.%s: the row of %s in %s gives no reason (clock) to read the clock", name, c.row.pkg, here)
		}
	case pkg == "time" && isPure &&
		slices.Contains([]string{"After", "AfterFunc", "NewTicker", "NewTimer", "Tick", "Local", "LoadLocation"}, name):
		c.report(p, "time.%s, and %s is pure: let the caller pass in what it is needed for", name, c.row.pkg)
	case pkg == "fmt" && isPure && (strings.HasPrefix(name, "Print") || strings.HasPrefix(name, "Scan")):
		c.report(p, "fmt.%s, and %s is pure: return the text", name, c.row.pkg)
	case pkg == "math/rand/v2" && isPure && !seeded(name):
		c.report(p, "rand.%s is not seeded, and %s is pure: take a *rand.Rand", name, c.row.pkg)
	case pkg == "log/slog" && slices.Contains(
		[]string{
			"Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "With", "SetDefault", "DebugContext", "InfoContext",
			"WarnContext", "ErrorContext",
		}, name):
		c.report(p, "slog.%s uses a logger that nobody passed in: take a *slog.Logger", name)
	}
}

// seeded is what math/rand/v2 offers beside its unseeded functions.
func seeded(name string) bool {
	return slices.Contains([]string{
		"ChaCha8", "New", "NewChaCha8", "NewPCG", "NewZipf", "PCG", "Rand", "Source", "Zipf",
	}, name)
}
