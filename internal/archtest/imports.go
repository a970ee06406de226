package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const here = "internal/archtest/table.go"

// checkTable holds packages and rows against each other (A1, A2, A3).
func checkTable(t *tree, rows []row, laws []law, testLibraries []string) []string {
	bad, known := checkRows(t, rows)
	for _, pkg := range slices.Sorted(maps.Keys(t.pkgs)) {
		r, ok := known[pkg]
		if !ok {
			bad = append(bad, fmt.Sprintf("%s has no row in %s: add one that says what it imports and why it is there",
				pkg, here))
			continue
		}
		used := map[string]bool{}
		for _, f := range t.pkgs[pkg] {
			for _, i := range f.imports {
				at := fmt.Sprintf("%s:%d: imports %s", f.path, i.line, i.path)
				bad = append(bad, checkLaws(at, f, r, i, laws)...)
				if f.test {
					continue
				}
				forTest := i.inside && known[i.path].kind == forTests ||
					!i.inside && within(i.path, testLibraries) != "" && !slices.Contains(r.imports, i.path)
				if forTest && r.kind != forTests {
					bad = append(bad, at+", which is for tests and must not be linked into what ships")
				}
				bad = append(bad, checkImport(at, r, i, used)...)
			}
		}
		for _, allowed := range r.imports {
			if !used[allowed] {
				bad = append(bad, fmt.Sprintf("%s: the row of %s lists %s, which it does not import: remove it",
					here, pkg, allowed))
			}
		}
	}
	return bad
}

// checkRows holds the table to its own order, and returns it by package.
func checkRows(t *tree, rows []row) (bad []string, known map[string]row) {
	known = map[string]row{}
	for i, r := range rows {
		if i > 0 && rows[i-1].pkg >= r.pkg {
			bad = append(bad, fmt.Sprintf("%s: the row of %s stands behind that of %s: sort the table, one row a package",
				here, r.pkg, rows[i-1].pkg))
		}
		if !slices.IsSorted(r.imports) {
			bad = append(bad, fmt.Sprintf("%s: sort the imports in the row of %s", here, r.pkg))
		}
		if r.why == "" {
			bad = append(bad, fmt.Sprintf("%s: the row of %s does not say why there is such a package", here, r.pkg))
		}
		if len(t.pkgs[r.pkg]) == 0 {
			bad = append(bad, fmt.Sprintf("%s: there is no package %s: remove its row", here, r.pkg))
		}
		known[r.pkg] = r
	}
	return bad, known
}

// checkImport looks an import up in its row, and notes which entry allows it.
func checkImport(at string, r row, i imported, used map[string]bool) []string {
	if !i.inside && standard(i.path) {
		return nil
	}
	allowed := ""
	switch {
	case !i.inside:
		allowed = within(i.path, r.imports)
	case slices.Contains(r.imports, i.path):
		allowed = i.path
	}
	if allowed != "" {
		used[allowed] = true
		return nil
	}
	return []string{fmt.Sprintf("%s, which the row of %s in %s does not list: let a layer above do it, "+
		"or list it if the layers allow it", at, r.pkg, here)}
}

// checkLaws holds an import to the laws: those of production code, and those of everything in
// examples, whose tests are read by users, too.
func checkLaws(at string, f *goFile, r row, i imported, laws []law) []string {
	if !i.inside || f.test && !under(r.pkg, "examples") {
		return nil
	}
	var bad []string
	for _, l := range laws {
		if in(r.pkg, l.from) && !in(r.pkg, l.spares) && in(i.path, l.to) && !in(i.path, l.but) {
			bad = append(bad, fmt.Sprintf("%s, which %s may never do: %s", at, r.pkg, l.why))
		}
	}
	return bad
}

// in reports whether a package is in a set of folders: "./..." is the module, "." the root alone
// (nothing is written below it), any other folder stands for what is below it, too.
func in(pkg string, set []string) bool {
	return slices.ContainsFunc(set, func(dir string) bool {
		return dir == "./..." || under(pkg, dir)
	})
}

// within returns the entry of a list that is closest to a package, at or above it, or nothing.
func within(p string, libraries []string) string {
	closest := ""
	for _, library := range libraries {
		if under(p, library) && len(library) > len(closest) {
			closest = library
		}
	}
	return closest
}

// standard reports whether a path is of the standard library: the others begin with a host.
func standard(p string) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".")
}
