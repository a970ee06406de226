package main

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir"
)

// The exit code of a lab is its verdict. The program alone is enough: the broker runs in it.
func TestALabEndsWithItsVerdict(t *testing.T) {
	weirBinary := build(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"8.1", "--fast"}, weir.ExitOK, "\nVERDICT: shown: "},
		{[]string{"8.1", "--fast", "--sink-guarantee", "exactly-once"}, weir.ExitFailed, "\nVERDICT: not shown: no minute was billed twice"},
		{[]string{"8.1", "--fast", "--brokers", "127.0.0.1:1"}, weir.ExitFailed, "\nVERDICT: failed: create topic "},
		{[]string{"8.1", "--sink-guarantee", "none"}, weir.ExitUsage, `sink guarantee "none"`},
		{[]string{"8.4", "--sink-guarantee", "at-least-once"}, weir.ExitUsage, "lab 8.4 is about transactions"},
		{[]string{"8.3"}, weir.ExitUsage, `unknown "8.3"; known: 8.1, 8.2, 8.4`},
		{nil, weir.ExitUsage, "say which: 8.1, 8.2, 8.4"},
	} {
		t.Run(fmt.Sprint(c.args), func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(weirBinary, append([]string{"lab"}, c.args...)...)
			out, _ := cmd.CombinedOutput()
			require.Equal(t, c.code, cmd.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), c.want)
		})
	}
}
