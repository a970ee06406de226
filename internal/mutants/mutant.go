package mutants

import (
	"fmt"
	"io/fs"
	"strings"
)

// Harm is what a mutant would do to a user.
type Harm string

// The harms.
const (
	Loses    Harm = "loses records"
	Doubles  Harm = "doubles records"
	Reorders Harm = "shows records out of order"
	Stops    Harm = "stops without a fault"
	Late     Harm = "drops records as late"
)

// Mutant is one change, and the suite that must catch it.
type Mutant struct {
	Name  string // what the code does wrongly: "commit before CURRENT"
	Harm  Harm
	How   string // how that comes about, for a reader who knows the protocol
	Edits []Edit
	Suite Suite
	// Says is what a test that sees it prints. A suite that fails over something else has not seen it.
	Says string
}

// Edit replaces a piece of a file.
type Edit struct {
	File     string // from the root of the module
	Old, New string
}

// Suite is a package's tests, as go test is told.
type Suite struct {
	Package string   // a folder, from the root of the module
	Run     string   // a pattern of tests
	Args    []string // for the test binary: a fixed seed
}

// String is the command that runs the suite.
func (s Suite) String() string {
	c := fmt.Sprintf("go test ./%s -run '%s'", s.Package, s.Run)
	if len(s.Args) > 0 {
		c += " -args " + strings.Join(s.Args, " ")
	}
	return c
}

// Apply returns the files that the mutant changes, as it changes them.
func (m *Mutant) Apply(module fs.FS) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			b, err := fs.ReadFile(module, e.File)
			if err != nil {
				return nil, fmt.Errorf("mutant %q: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 { // U2
			return nil, fmt.Errorf("mutant %q: %s has the text that it replaces %d times, want once; where the code "+
				"has moved, move the mutant (internal/mutants/list.go):\n%s", m.Name, e.File, n, e.Old)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}
