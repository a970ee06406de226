package terminal

import (
	"os"

	"golang.org/x/term"
)

// Interactive reports whether what is read from an input is typed by somebody.
func Interactive(in any) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
