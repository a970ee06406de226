package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"example.com/weir/internal/status"
)

func TestTop(t *testing.T) {
	var before *status.Status
	datadriven.RunTest(t, "testdata/top", func(t *testing.T, d *datadriven.TestData) string {
		var s status.Status
		require.NoError(t, json.Unmarshal([]byte(d.Input), &s))
		if d.Cmd == "before" {
			before = &s
			return ""
		}
		var room Room
		d.MaybeScanArgs(t, "width", &room.Width)
		d.MaybeScanArgs(t, "height", &room.Height)
		lines := Top(&s, before, room)
		before = nil
		return strings.Join(lines, "\n") + "\n"
	})
}

// terminal keeps what a terminal would show.
type terminal struct{ lines []string }

// Write understands what Screen writes, and fails on anything else.
func (x *terminal) show(t *testing.T, written string) []string {
	t.Helper()
	row := len(x.lines)
	for len(written) > 0 {
		switch {
		case strings.HasPrefix(written, hideCursor), strings.HasPrefix(written, showCursor):
			written = written[len(hideCursor):]
		case strings.HasPrefix(written, clearBelow):
			x.lines, written = x.lines[:row], written[len(clearBelow):]
		case strings.HasPrefix(written, "\x1b["):
			n, rest, found := strings.Cut(written[2:], "F")
			require.True(t, found)
			for up := 0; up < int(n[0]-'0'); up++ {
				row--
			}
			written = rest
		default:
			line, rest, found := strings.Cut(written, "\n")
			require.True(t, found, "%q", written)
			line = strings.TrimSuffix(line, clearLine)
			require.NotContains(t, line, "\x1b")
			if row < len(x.lines) {
				x.lines[row] = line
			} else {
				x.lines = append(x.lines, line)
			}
			row, written = row+1, rest
		}
	}
	return x.lines
}

func TestThePanelIsPaintedInPlaceBelowWhatStays(t *testing.T) {
	var out bytes.Buffer
	s, x := newScreen(&out, func() (int, int) { return 10, 4 }), &terminal{}
	shown := func() []string {
		defer out.Reset()
		return x.show(t, out.String())
	}
	s.Paint([]string{"one", "two"})
	require.Equal(t, []string{"one", "two"}, shown())
	s.Paint([]string{"three"})
	require.Equal(t, []string{"three"}, shown())
	s.Print("stays")
	require.Equal(t, []string{"stays", "three"}, shown())
	s.Paint([]string{"a line that is too wide", "é", "c", "no room"})
	require.Equal(t, []string{"stays", "a line th…", "é", "c"}, shown())
	s.Print("too\nstays")
	require.Equal(t, []string{"stays", "too", "stays", "a line th…", "é", "c"}, shown())
	s.Close()
	require.Equal(t, showCursor, out.String())
}

func TestWhatIsNoTerminalGetsWhatStaysAlone(t *testing.T) {
	var out bytes.Buffer
	s := Open(&out)
	s.Paint([]string{"panel"})
	s.Print("stays")
	s.Close()
	require.False(t, s.Live())
	require.Equal(t, "stays\n", out.String())
}
