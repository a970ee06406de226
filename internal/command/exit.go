package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"example.com/weir/connector"
	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/engine"
)

// The exit codes (M1).
const (
	ExitOK          = 0 // finished, or stopped as asked
	ExitFailed      = 1 // the job failed (the restart strategy gave up, a first start took too long), or a command could not do what it was asked
	ExitUsage       = 2 // the job, its configuration or the command is wrong
	ExitSuperseded  = 3 // another process owns the checkpoints
	ExitRefused     = 4 // going on could lose or double an effect, or the checkpoint does not fit
	ExitInterrupted = 5 // ended by a second signal, or because the grace period had passed
)

// errInterrupted and errGrace are why a run ends at once.
var (
	errInterrupted = errors.New("ended by a second signal: the next start goes on from the last checkpoint")
	errGrace       = errors.New("the grace period has passed: the next start goes on from the last checkpoint")
)

// ExitCode returns the exit code that stands for an error of a run.
func ExitCode(err error) int {
	var locked *checkpoint.LockedError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, engine.ErrInvalid), errors.Is(err, checkpoint.ErrAddress):
		return ExitUsage
	case errors.Is(err, errInterrupted), errors.Is(err, errGrace):
		return ExitInterrupted
	case errors.As(err, &locked), errors.Is(err, connector.ErrSuperseded):
		return ExitSuperseded
	case connector.IsStop(err):
		return ExitRefused
	}
	return ExitFailed
}

// Error ends a command with an exit code of its own. Without a cause nothing is printed: the cause has
// been told already.
type Error struct {
	Code  int
	Cause error
}

// Error returns the text of the cause.
func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// usage marks an error as one of whoever gave the command.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: ExitUsage, Cause: err}
}

// failed marks an error of a command that was right. One that carries a code keeps it.
func failed(err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &Error{Code: ExitCode(err), Cause: err}
}

// Execute runs a command line, prints its error to standard error, and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var known *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &known):
		if known.Cause != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), known.Cause)
		}
		return known.Code
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", root.Name(), err)
	return ExitUsage
}

// exactly wants one argument for each name, and says which are wanted.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		return fmt.Errorf("%s: want %s, and there are %d arguments", c.CommandPath(), strings.Join(names, " "), len(args))
	}
}

// atMost wants no more arguments than there are names.
func atMost(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) <= len(names) {
			return nil
		}
		return fmt.Errorf("%s: want [%s], and there are %d arguments", c.CommandPath(), strings.Join(names, " "), len(args))
	}
}

// Group is a command that only holds others. Without one of them, or with a name that is none of them,
// it is wrong usage.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
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
	c.AddCommand(commands...)
	return c
}
