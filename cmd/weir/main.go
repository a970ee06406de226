// Command weir runs the jobs that ship with Weir, looks after any job by the address of its checkpoints,
// and shows that the count is right.
//
// It is a thin shell: flags and files become a configuration, and package command, gatewaymeter, demo or lab
// does the work. Exit codes: 0 finished or stopped, 1 failed, 2 wrong usage or configuration, 3 another
// process owns the checkpoints, 4 refused because going on could lose or double an effect, 5 ended at
// once by a second signal or at the end of the grace period.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"example.com/weir/internal/command"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	root := &cobra.Command{Use: "weir", Short: "Exactly-once stream processing"}
	root.AddCommand(runCommand(), explainCommand(), txnCommand(), gatewayCommand(), demoCommand(), labCommand())
	root.AddCommand(command.Storage("")...)
	return command.Execute(context.Background(), root, args)
}
