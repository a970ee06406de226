package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/weir/internal/checkpoint"
	"example.com/weir/internal/control"
	"example.com/weir/internal/engine"
)

// Endpoint are the flags that say how a running job is reached, and how long it may take to stop.
func (s *Settings) Endpoint(f *pflag.FlagSet) {
	f.StringVar(&s.HTTP, "http", s.HTTP, "address of metrics, health, profiles and control, host:port; off: none "+
		"(default "+control.DefaultAddress+", a free port, where there are checkpoints)")
	f.BoolVar(&s.HTTPRemote, "http-remote", s.HTTPRemote, "let --http be an address that other machines reach: for "+
		"metrics and health; control and profiles stay on this one")
	f.DurationVar(&s.StopGrace, "stop-grace", s.grace(), "after SIGTERM, how long the last checkpoint may take")
	f.DurationVar(&s.StartTimeout, "start-timeout", s.startTimeout(), "how long a first start is tried before the job fails; "+
		"negative: for ever")
}

func (s *Settings) startTimeout() time.Duration {
	if s.StartTimeout == 0 {
		return engine.DefaultStartTimeout
	}
	return s.StartTimeout
}

// flags declares what a run of a user's own job can be told. The defaults are the job's.
func (s *Settings) flags(f *pflag.FlagSet) {
	f.StringVar(&s.Storage, "storage", s.Storage, "address of the checkpoint storage, file:///path")
	f.IntVar(&s.Parallelism, "parallelism", s.Parallelism, "subtasks of each operator")
	f.DurationVar(&s.Interval, "checkpoint-interval", s.Interval, "between checkpoints")
	f.StringSliceVar(&s.AcceptLineages, "accept-lineage", s.AcceptLineages, "earlier lineages that a fresh start may replace")
	s.Endpoint(f)
	RestoreFlags(f, &s.Restore)
}

// RestoreFlags declares the flags that say what a run goes on from.
func RestoreFlags(f *pflag.FlagSet, c *engine.RestoreConfig) {
	f.StringVar(&c.From, "restore", c.From, "checkpoint to go on from: a savepoint's name, or a number (default the last one)")
	f.Var(forkFlag{c}, "fork-from", "ADDRESS[#NAME]: begin, in an empty storage, with a checkpoint of another job's, "+
		"which may be running")
	f.BoolVar(&c.AcceptDuplicates, "accept-duplicates", c.AcceptDuplicates,
		"go back behind what has been committed: it is written again")
	f.BoolVar(&c.AcceptCopiedDirectory, "accept-copied-directory", c.AcceptCopiedDirectory,
		"go on in a checkpoint directory that was copied, or put back: it takes the other one's place for good")
	f.BoolVar(&c.NewLineage, "new-lineage", c.NewLineage, "go on from a checkpoint that is finished, which --restore names")
	f.TimeVar(&c.EventTime, "event-time", c.EventTime, []string{time.RFC3339Nano},
		"where event time goes on with --new-lineage, like 2026-03-02T10:00:00Z: what lies before is late")
	f.StringSliceVar(&c.AllowNew, "allow-new-state", c.AllowNew, "uids of operators that the checkpoint does not have")
	f.StringSliceVar(&c.AllowDropped, "allow-dropped-state", c.AllowDropped,
		"uids of operators, or uid/state, that only the checkpoint has")
}

// forkFlag is --fork-from.
type forkFlag struct{ config *engine.RestoreConfig }

// String implements pflag.Value.
func (f forkFlag) String() string {
	if f.config == nil || f.config.Fork == "" {
		return ""
	}
	if f.config.From == "" {
		return f.config.Fork
	}
	return f.config.Fork + "#" + f.config.From
}

// Type implements pflag.Value.
func (f forkFlag) Type() string { return "address" }

// Set implements pflag.Value.
func (f forkFlag) Set(text string) error {
	address, name, named := strings.Cut(text, "#")
	if _, err := checkpoint.Dir(address); err != nil {
		return err
	}
	f.config.Fork = address
	if named {
		f.config.From = name
	}
	return nil
}

// Validate reports what makes no sense in a run's settings.
func (s *Settings) Validate() error {
	switch {
	case s.Parallelism < 1:
		return usage(fmt.Errorf("parallelism %d: want at least 1", s.Parallelism))
	case s.Interval < time.Millisecond:
		return usage(fmt.Errorf("checkpoint interval %s: want at least 1ms", s.Interval))
	case s.StopGrace < 0:
		return usage(fmt.Errorf("stop grace %s: want at least 0", s.StopGrace))
	case s.HTTP == "" || s.HTTP == Off:
		return nil
	}
	return usage(control.CheckAddress(s.HTTP, s.HTTPRemote))
}

// runner is the command that runs a job, and what its flags say.
type runner struct {
	job      Job
	settings Settings
	logs     Logs
}

// bind makes c run a job.
func bind(c *cobra.Command, j Job) *cobra.Command {
	r := &runner{job: j, settings: j.Settings()}
	r.settings.flags(c.Flags())
	r.logs.Flags(c.Flags())
	c.Args = cobra.NoArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.run(c)
	}
	return c
}

func (r *runner) run(c *cobra.Command) error {
	if err := r.settings.Validate(); err != nil {
		return err
	}
	logger, err := r.logs.Logger(c.ErrOrStderr())
	if err != nil {
		return err
	}
	if r.settings.Logger == nil || c.Flags().Changed("log-format") || c.Flags().Changed("log-level") {
		r.settings.Logger = logger
	}
	r.job.Apply(r.settings)
	if code := Serve(r.job); code != ExitOK {
		return &Error{Code: code}
	}
	return nil
}
