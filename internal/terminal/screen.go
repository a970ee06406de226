package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen is an output whose last lines are a panel that is painted again and again. Everything else is
// printed above the panel and stays. One goroutine at a time uses it.
type Screen struct {
	to    io.Writer
	size  func() (width, height int)
	live  bool
	panel []string // as painted
}

// The control sequences of terminals that are used (ECMA-48, and DEC's for the cursor).
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[0J"
	clearLine  = "\x1b[K"
)

// Open returns a screen over an output. It is live if that is a terminal.
func Open(to io.Writer) *Screen {
	f, ok := to.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return &Screen{to: to}
	}
	return newScreen(to, func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	})
}

func newScreen(to io.Writer, size func() (int, int)) *Screen {
	s := &Screen{to: to, size: size, live: true}
	fmt.Fprint(to, hideCursor)
	return s
}

// Live reports whether there is a panel.
func (s *Screen) Live() bool { return s.live }

// Room returns how much a panel has to be drawn in.
func (s *Screen) Room() Room {
	if !s.live {
		return Room{}
	}
	width, height := s.size()
	return Room{Width: width, Height: max(height-1, 1)}
}

// Print writes lines that stay, above the panel.
func (s *Screen) Print(text string) {
	if !s.live {
		fmt.Fprintln(s.to, text)
		return
	}
	var b strings.Builder
	s.toTop(&b)
	b.WriteString(clearBelow + text + "\n")
	for _, line := range s.panel {
		b.WriteString(line + "\n")
	}
	fmt.Fprint(s.to, b.String())
}

// Paint replaces the panel. What is wider or higher than the terminal is cut: a line that wrapped would
// move everything. On anything but a terminal it does nothing.
func (s *Screen) Paint(lines []string) {
	if !s.live {
		return
	}
	width, height := s.size()
	var b strings.Builder
	s.toTop(&b)
	s.panel = s.panel[:0]
	for _, line := range lines[:min(len(lines), max(height-1, 0))] {
		line = cut(line, width)
		s.panel = append(s.panel, line)
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	fmt.Fprint(s.to, b.String())
}

// toTop moves to the first line of the panel.
func (s *Screen) toTop(b *strings.Builder) {
	if n := len(s.panel); n > 0 {
		fmt.Fprintf(b, "\x1b[%dF", n)
	}
}

// Close leaves the panel where it is and gives the cursor back.
func (s *Screen) Close() {
	if s.live {
		fmt.Fprint(s.to, showCursor)
		s.live = false
	}
}

// cut cuts a line to so many columns, and shows that it did.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(width-1, 0)]) + "…"
}
