package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tree is a module as its files are, whatever the build would make of them.
type tree struct {
	module string
	fset   *token.FileSet
	pkgs   map[string][]*goFile // by folder
	texts  map[string][]byte    // every file that is text, by path
}

// goFile is one parsed file.
type goFile struct {
	path    string
	test    bool
	ast     *ast.File
	imports []imported
	marks   map[int]string // lines that carry a mark, or follow one that stands alone
}

// imported is one import: a folder of the module, or the path of what is outside.
type imported struct {
	name   string // what the file calls it
	path   string
	inside bool
	line   int
}

// unread is what is not the project's: its history (a file, in a second working tree), its caches, what
// it builds, and what rapid keeps of properties that failed here.
func unread(name string) bool {
	return slices.Contains([]string{".git", ".cache", "bin"}, name) || strings.HasSuffix(name, "testdata/rapid")
}

// readTree reads every file of a module. Folders with a go.mod of their own are other modules: their
// text is read, their packages are not.
func readTree(fsys fs.FS) (*tree, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	module := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(mod)
	if module == nil {
		return nil, fmt.Errorf("go.mod has no module line")
	}
	t := &tree{
		module: string(module[1]), fset: token.NewFileSet(),
		pkgs: map[string][]*goFile{}, texts: map[string][]byte{},
	}
	var others []string
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && unread(name):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || unread(name):
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if dir := path.Dir(name); path.Base(name) == "go.mod" && dir != "." {
			others = append(others, dir)
		}
		if bytes.IndexByte(text, 0) < 0 {
			t.texts[name] = text
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, t.parse(others)
}

func (t *tree) parse(others []string) error {
	for name, text := range t.texts {
		if path.Ext(name) != ".go" || slices.ContainsFunc(others, func(dir string) bool { return under(name, dir) }) ||
			slices.ContainsFunc(strings.Split(name, "/"), notBuilt) {
			continue
		}
		parsed, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f := &goFile{path: name, test: strings.HasSuffix(name, "_test.go"), ast: parsed}
		f.imports = t.importsOf(parsed)
		f.marks = t.marksOf(parsed)
		t.pkgs[path.Dir(name)] = append(t.pkgs[path.Dir(name)], f)
	}
	for _, files := range t.pkgs {
		slices.SortFunc(files, func(a, b *goFile) int { return strings.Compare(a.path, b.path) })
	}
	return nil
}

// notBuilt reports what the go command leaves out: an element of a path that it skips.
func notBuilt(element string) bool {
	return element == "testdata" || strings.HasPrefix(element, "_") || strings.HasPrefix(element, ".")
}

func (t *tree) importsOf(f *ast.File) []imported {
	var all []imported
	for _, spec := range f.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused it
		}
		i := imported{path: p, name: guessName(p), line: t.line(spec.Pos())}
		if spec.Name != nil {
			i.name = spec.Name.Name
		}
		if p == t.module {
			i.path, i.inside = ".", true
		} else if rest, ok := strings.CutPrefix(p, t.module+"/"); ok {
			i.path, i.inside = rest, true
		}
		all = append(all, i)
	}
	return all
}

// guessName is what a package is called when the import gives it no name: the last element of its
// path, or the one before a version.
func guessName(p string) string {
	base := path.Base(p)
	if regexp.MustCompile(`^v[0-9]+$`).MatchString(base) {
		return path.Base(path.Dir(p))
	}
	return base
}

// mark begins a comment that excuses the line it stands on, or the declaration below it:
//
//	//weir:fixed written by nobody: the powers of ten
const mark = "//weir:"

// marksOf collects marks by the line of what they excuse.
func (t *tree) marksOf(f *ast.File) map[int]string {
	marks := map[int]string{}
	for _, group := range f.Comments {
		for _, c := range group.List {
			if text, ok := strings.CutPrefix(c.Text, mark); ok {
				marks[t.line(c.Pos())] = text
				marks[t.line(group.End())+1] = text
			}
		}
	}
	return marks
}

// excused reports whether a line carries a mark with a reason.
func (f *goFile) excused(line int, word string) bool {
	reason, ok := strings.CutPrefix(f.marks[line], word+" ")
	return ok && strings.TrimSpace(reason) != ""
}

func (t *tree) line(p token.Pos) int { return t.fset.Position(p).Line }

// under reports whether a path is a folder or below it.
func under(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
