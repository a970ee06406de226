// Command weir runs the jobs that ship with Weir, and shows that they count right.
//
// It is a thin shell: flags and files become a configuration, and package gatewaymeter or package
// demo does the work. Exit codes: 0 finished or stopped, 1 failed, 2 wrong usage or configuration,
// 3 another process owns the checkpoints, 4 refused because going on could lose or double an
// effect.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/weir"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Exactly-once stream processing",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(runCommand(), gatewayCommand(), demoCommand())
	root.SetArgs(args)
	err := root.Execute()
	var exit *exitError
	switch {
	case err == nil:
		return weir.ExitOK
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(os.Stderr, "weir:", exit.err)
		}
		return exit.code
	}
	fmt.Fprintln(os.Stderr, "weir:", err)
	return weir.ExitUsage
}

// groupCommand is a command that only holds others. Without one of them, or with a name that is none
// of them, it is wrong usage.
func groupCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(c *cobra.Command, args []string) error {
			var names []string
			for _, sub := range c.Commands() {
				names = append(names, sub.Name())
			}
			if len(args) == 0 {
				return fmt.Errorf("%s: say which: %s", c.CommandPath(), strings.Join(names, ", "))
			}
			return fmt.Errorf("%s: unknown %q; known: %s", c.CommandPath(), args[0], strings.Join(names, ", "))
		},
	}
}

// exitError ends the process with a code of its own.
type exitError struct {
	code int
	err  error // printed, if there is one
}

// Error returns the text of the cause.
func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }
