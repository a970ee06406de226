package command

import (
	"context"

	"github.com/spf13/cobra"
)

// Main runs the command line of a program that holds one job, and returns the exit code. Without a
// command it runs the job.
func Main(j Job, args []string) int {
	root := bind(&cobra.Command{
		Use:   j.Name(),
		Short: "Run the job " + j.Name() + ", or look after it",
		Long: "Without a command it runs the job. Exit codes: 0 finished or stopped, 1 failed, 2 wrong usage or\n" +
			"configuration, 3 another process owns the checkpoints, 4 refused because going on could lose or\n" +
			"double an effect, 5 ended at once by a second signal or at the end of the grace period.",
	}, j)
	root.AddCommand(bind(&cobra.Command{Use: "run", Short: "Run the job"}, j), explainCommand(j), txnCommand(j))
	root.AddCommand(Storage(j.Settings().Storage)...)
	return Execute(context.Background(), root, args)
}

// Storage returns the commands that need nothing but the address of a job's checkpoints, which is known
// if it is not empty.
func Storage(address string) []*cobra.Command {
	return []*cobra.Command{
		stopCommand(address), savepointCommand(address), checkpointsCommand(address), statusCommand(address), topCommand(address),
	}
}
