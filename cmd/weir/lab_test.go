package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
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

// Whoever ends a demonstration or a lab by a signal is told that there is no verdict, not that something is wrong.
func TestWhatIsEndedByASignalHasNoVerdict(t *testing.T) {
	weirBinary := build(t)
	for _, args := range [][]string{{"demo", "--duration", "1h"}, {"lab", "8.1"}} {
		for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
			t.Run(fmt.Sprint(args, signal), func(t *testing.T) {
				t.Parallel()
				said := &process{grown: make(chan struct{}, 1), done: make(chan struct{})}
				cmd := exec.Command(weirBinary, args...)
				cmd.Stdout, cmd.Stderr = said, said
				require.NoError(t, cmd.Start())
				go func() {
					_ = cmd.Wait()
					close(said.done)
				}()
				t.Cleanup(func() { _ = cmd.Process.Kill() })
				said.await(t, "broker +in this process")
				require.NoError(t, cmd.Process.Signal(signal))
				said.cmd = cmd
				require.Equal(t, weir.ExitInterrupted, said.ended(t), "%s", said.text())
				require.Contains(t, said.text(), "NO VERDICT: it was ended before there was one: ")
				require.NotRegexp(t, `(?m)^(.*s  )?VERDICT`, said.text())
			})
		}
	}
}
