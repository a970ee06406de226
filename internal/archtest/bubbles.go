package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
)

// A test that sleeps is slow, or wrong on a slow machine. In a synctest bubble sleeping is exact and
// takes no time. So a test sleeps (A6) in a function that is passed to synctest.Test, or in one that
// only such functions call:
//
//	synctest.Test(t, func(t *testing.T) { drain(t) })
//	func drain(t *testing.T) { time.Sleep(time.Hour); … }

// use is one place in the tests of a package where a function is named.
type use struct {
	function string // the top-level function or method it is in
	bubble   bool   // inside an argument of synctest.Test
	at       string
}

// checkSleeps finds sleeps of tests outside of bubbles.
func checkSleeps(t *tree) []string {
	var bad []string
	for _, files := range t.pkgs {
		uses := map[string][]use{} // by the name of what is used
		for _, f := range files {
			if f.test {
				t.collect(f, uses)
			}
		}
		for _, u := range uses[sleep] {
			if !u.bubble && !onlyFromBubbles(u.function, uses, map[string]bool{}) {
				bad = append(bad, u.at+": time.Sleep outside of a synctest bubble: wait for what the test is about, "+
					"or run it by synctest.Test; if the time has to be real, say why in a comment "+mark+"realtime REASON above it")
			}
		}
	}
	return bad
}

// sleep stands for time.Sleep among the names of functions.
const sleep = "time.Sleep"

// collect notes every name in a file, by name alone: a method counts as called where any method of
// its name is.
func (t *tree) collect(f *goFile, uses map[string][]use) {
	for _, d := range f.ast.Decls {
		function := ""
		if fd, ok := d.(*ast.FuncDecl); ok {
			function = fd.Name.Name
		}
		bubbles := f.bubbles(d)
		ast.Inspect(d, func(n ast.Node) bool {
			name, p := "", token.NoPos
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if pkg, member, ok := qualified(n); ok && member == "Sleep" && f.meaning(pkg) == "time" {
					name, p = sleep, n.Pos()
				}
			case *ast.Ident:
				name, p = n.Name, n.Pos()
			}
			declared := false
			if fd, ok := d.(*ast.FuncDecl); ok {
				declared = p == fd.Name.Pos()
			}
			if name == "" || declared || name == sleep && f.excused(t.line(p), "realtime") {
				return true
			}
			bubble := false
			for _, b := range bubbles {
				bubble = bubble || b.Pos() <= p && p < b.End()
			}
			uses[name] = append(uses[name], use{function, bubble, fmt.Sprintf("%s:%d", f.path, t.line(p))})
			return true
		})
	}
}

// bubbles are the arguments of synctest.Test in a declaration.
func (f *goFile) bubbles(d ast.Decl) []ast.Node {
	var all []ast.Node
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if pkg, name, ok := qualified(call.Fun); ok && name == "Test" && f.meaning(pkg) == "testing/synctest" {
			for _, arg := range call.Args {
				all = append(all, arg)
			}
		}
		return true
	})
	return all
}

// onlyFromBubbles reports whether a function is named somewhere, and nowhere outside of a bubble.
func onlyFromBubbles(function string, uses map[string][]use, asked map[string]bool) bool {
	if strings.HasPrefix(function, "Test") || strings.HasPrefix(function, "Benchmark") || len(uses[function]) == 0 {
		return false
	}
	asked[function] = true
	for _, u := range uses[function] {
		if !u.bubble && !asked[u.function] && !onlyFromBubbles(u.function, uses, asked) {
			return false
		}
	}
	return true
}
