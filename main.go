package weir

import (
	"context"
	"io"
	"log/slog"
	"os"

	"example.com/weir/internal/command"
	"example.com/weir/internal/engine"
	"example.com/weir/internal/explain"
	"example.com/weir/internal/protocol"
)

// Exit codes of Main and Serve, and of every command of the program weir.
const (
	ExitOK          = command.ExitOK          // finished, or stopped as asked
	ExitFailed      = command.ExitFailed      // the job failed: the restart strategy gave up, or a first start did not get through in time
	ExitUsage       = command.ExitUsage       // the job, its configuration or the command line is wrong
	ExitSuperseded  = command.ExitSuperseded  // another process owns the checkpoints
	ExitRefused     = command.ExitRefused     // going on could lose or double an effect, or the checkpoint does not fit
	ExitInterrupted = command.ExitInterrupted // ended at once, by a second signal or as the grace period had passed
)

// Main is the whole main function of a program that holds one job: it runs the command line in
// os.Args, and returns the exit code.
//
// Without a command the job runs until it ends. SIGTERM and SIGINT take a last checkpoint, commit it
// and end, within a grace period; a second one ends at once, and loses nothing. The commands are run,
// explain, txn, stop, savepoint, checkpoints, status and top; --help lists them with their flags.
func Main(j *Job) int { return MainArgs(j, os.Args[1:]) }

// MainArgs is Main with other arguments than those of the process, for a program that has flags of its
// own.
func MainArgs(j *Job, args []string) int { return command.Main(commanded{j}, args) }

// Serve runs a job as Main does without a command, for a program with a command line of its own.
func Serve(j *Job) int { return command.Serve(commanded{j}) }

// ExitCode returns the exit code that stands for an error of Job.Run.
func ExitCode(err error) int { return command.ExitCode(err) }

// Explain writes the job's graph in a format: text, dot or mermaid. It fails if the job is not valid.
func (j *Job) Explain(w io.Writer, format string) error {
	g, err := commanded{j}.Graph()
	if err != nil {
		return err
	}
	drawing, err := explain.Draw(g, format)
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, drawing)
	return err
}

// Outside says what the job's sinks have outside and where its checkpoints are: what the command txn asks, in
// a program with a command line of its own. It fails if the job is not valid.
func (j *Job) Outside() (command.Outside, error) {
	if err := j.plan.Validate(j.checkpoints()); err != nil {
		return command.Outside{}, err
	}
	return command.Outside{
		Job: j.name, Storage: j.cfg.Checkpoint.Storage, Sinks: j.plan.Administered(),
		Logger: slog.New(slog.DiscardHandler),
	}, nil
}

// commanded is a Job as the command line knows it.
type commanded struct{ *Job }

// Run implements command.Job.
func (c commanded) Run(ctx context.Context, owned command.Owned) (protocol.Outcome, error) {
	return c.run(ctx, owned)
}

// Graph implements command.Job.
func (c commanded) Graph() (engine.Graph, error) {
	return c.plan.Graph(), c.plan.Validate(c.checkpoints())
}

// Settings implements command.Job.
func (c commanded) Settings() command.Settings {
	cfg := &c.cfg
	return command.Settings{
		Storage: cfg.Checkpoint.Storage, Parallelism: cfg.Parallelism, Interval: cfg.Checkpoint.Interval,
		HTTP: cfg.HTTP.Address, HTTPRemote: cfg.HTTP.Remote, StopGrace: cfg.StopGrace, StartTimeout: cfg.StartTimeout, Logger: cfg.Logger,
		AcceptLineages: cfg.Checkpoint.AcceptLineages, Restore: cfg.Restore, Reached: c.reached,
	}
}

// Apply implements command.Job.
func (c commanded) Apply(s command.Settings) {
	cfg := &c.cfg
	cfg.Checkpoint.Storage, cfg.Parallelism, cfg.Checkpoint.Interval = s.Storage, s.Parallelism, s.Interval
	cfg.HTTP, cfg.StopGrace, cfg.Logger = HTTP{Address: s.HTTP, Remote: s.HTTPRemote}, s.StopGrace, s.Logger
	cfg.Checkpoint.AcceptLineages, cfg.Restore, cfg.StartTimeout = s.AcceptLineages, s.Restore, s.StartTimeout
	c.reached = s.Reached
	c.plan.SetParallelism(s.Parallelism)
}
